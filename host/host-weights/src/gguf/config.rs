//! What `config.json` would say, from a GGUF file's metadata and tensor table.
//!
//! Only keys that are understood are let through: an unknown key of the architecture may change what the model
//! computes, so it is refused by name.

use serde_json::{Map, Number, Value as Json, json};

use super::architecture::Architecture;
use super::fault::GgufFault;
use super::header::Header;
use super::metadata::{Metadata, Value};
use super::{rope, vocabulary};

/// Most layers: far above any model, and few enough to list.
const LAYER_LIMIT: usize = 1 << 16;
/// Layers of the one Gemma 3 (27B) whose attention scale is not that of its head width.
const GEMMA3_27B_LAYERS: usize = 62;
/// Every so many layers of Gemma 3 attend to everything; the others look through a window.
const GEMMA3_FULL_EVERY: usize = 6;
/// The rotary base of Gemma 3's windowed layers.
const GEMMA3_LOCAL_ROPE_BASE: f32 = 10_000.0;

/// Keys of an architecture that are read, or that do not change what the model computes.
const KNOWN_KEYS: [&str; 26] = [
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.value_length",
    "attn_logit_softcapping",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_used_count",
    "feed_forward_length",
    "final_logit_softcapping",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
];

/// Gives the architecture and its configuration. `file` is read only for the table of rotary factors.
pub(super) fn config_json(
    header: &Header<'_>,
    file: &[u8],
) -> Result<(Architecture, Map<String, Json>), GgufFault> {
    let metadata = &header.metadata;
    let name = metadata.text("general.architecture")?;
    let name = name.ok_or_else(|| GgufFault::MissingKey { key: "general.architecture".to_owned() })?;
    let architecture = Architecture::from_name(name)?;
    let source = Source { metadata, header, file, architecture };
    source.refuse_unknown_keys()?;
    let config = match architecture {
        Architecture::Llama => source.llama(),
        Architecture::Gemma3 => source.gemma3(),
    }?;
    Ok((architecture, config))
}

/// Checks that there is a row of the embedding for each token, and a token for each row.
pub(super) fn check_vocabulary(config: &Map<String, Json>, n_tokens: usize) -> Result<(), GgufFault> {
    let rows = config.get("vocab_size").and_then(Json::as_u64).map_or(0, |rows| rows as usize);
    if rows != n_tokens {
        let key = "tokenizer.ggml.tokens".to_owned();
        return Err(GgufFault::Contradiction { key, expected: rows, found: n_tokens });
    }
    Ok(())
}

struct Source<'a> {
    metadata: &'a Metadata<'a>,
    header: &'a Header<'a>,
    file: &'a [u8],
    architecture: Architecture,
}

/// What every decoder has.
struct Shape {
    hidden_size: usize,
    n_layers: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
}

impl Source<'_> {
    fn llama(&self) -> Result<Map<String, Json>, GgufFault> {
        for key in ["attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"] {
            self.must_be_absent(key)?;
        }
        for key in ["final_logit_softcapping", "attn_logit_softcapping"] {
            self.must_be_absent(key)?;
        }
        let default_head_dim = self.count("embedding_length")? / self.count("attention.head_count")?.max(1);
        let shape = self.shape(self.optional_count("attention.key_length")?.unwrap_or(default_head_dim))?;
        let mut config = self.common("LlamaForCausalLM", "llama", &shape)?;
        config.insert("hidden_act".to_owned(), json!("silu"));
        // Without the key the format's default is that of the published configuration: 10000.
        if let Some(base) = self.metadata.float(&self.key("rope.freq_base"))? {
            config.insert("rope_theta".to_owned(), number(base));
        }
        if let Some(scaling) = self.rope_scaling(&shape, self.metadata.float(&self.key("rope.freq_base"))?)? {
            config.insert("rope_scaling".to_owned(), scaling);
        }
        config.insert("attention_bias".to_owned(), self.has("blk.0.attn_q.bias").into());
        config.insert("mlp_bias".to_owned(), self.has("blk.0.ffn_gate.bias").into());
        self.token_ids(&mut config)?;
        Ok(config)
    }

    fn gemma3(&self) -> Result<Map<String, Json>, GgufFault> {
        let shape = self.shape(self.count("attention.key_length")?)?;
        let mut config = self.common("Gemma3ForCausalLM", "gemma3_text", &shape)?;
        let local_base =
            self.metadata.float(&self.key("rope.freq_base_swa"))?.unwrap_or(GEMMA3_LOCAL_ROPE_BASE);
        // As llama.cpp has it: the 27B model scales by the width of a head's share of the hidden size.
        let scale_width = match shape.n_layers {
            GEMMA3_27B_LAYERS => shape.hidden_size / shape.n_heads,
            _ => shape.head_dim,
        };
        let base = self.float("rope.freq_base")?;
        let entries = [
            ("hidden_activation", json!("gelu_pytorch_tanh")),
            ("query_pre_attn_scalar", scale_width.into()),
            ("rope_theta", number(base)),
            ("rope_local_base_freq", number(local_base)),
            ("sliding_window", self.count("attention.sliding_window")?.into()),
            ("layer_types", self.layer_types(shape.n_layers)?),
            ("attention_bias", false.into()),
        ];
        config.extend(entries.map(|(key, value)| (key.to_owned(), value)));
        for key in ["final_logit_softcapping", "attn_logit_softcapping"] {
            if let Some(cap) = self.metadata.float(&self.key(key))? {
                config.insert(key.to_owned(), number(cap));
            }
        }
        if let Some(scaling) = self.rope_scaling(&shape, Some(base))? {
            config.insert("rope_scaling".to_owned(), scaling);
        }
        self.token_ids(&mut config)?;
        Ok(config)
    }

    /// Sizes, checked against the embedding and the vocabulary.
    fn shape(&self, head_dim: usize) -> Result<Shape, GgufFault> {
        let n_heads = self.positive("attention.head_count")?;
        let n_kv_heads = match self.optional_count("attention.head_count_kv")? {
            Some(_) => self.positive("attention.head_count_kv")?,
            None => n_heads,
        };
        let hidden_size = self.positive("embedding_length")?;
        let n_layers = self.positive("block_count")?;
        if n_layers > LAYER_LIMIT {
            return Err(self.wrong("block_count", "at most 65536 layers"));
        }
        for (key, expected) in [
            ("attention.key_length", head_dim),
            ("attention.value_length", head_dim),
            ("rope.dimension_count", head_dim),
            ("expert_count", 0),
            ("expert_used_count", 0),
        ] {
            self.must_equal(key, expected)?;
        }
        let embedding = self.header.tensor("token_embd.weight");
        let embedding = embedding.ok_or(GgufFault::MissingTensor { tensor: "token_embd.weight" })?;
        let vocab_size = embedding.shape[0];
        if embedding.shape[1..] != [hidden_size] {
            let (tensor, found) = (embedding.name.to_owned(), embedding.shape.clone());
            return Err(GgufFault::EmbeddingShape { tensor, expected: hidden_size, found });
        }
        self.must_equal("vocab_size", vocab_size)?;
        Ok(Shape { hidden_size, n_layers, n_heads, n_kv_heads, head_dim, vocab_size })
    }

    fn common(&self, class: &str, model_type: &str, shape: &Shape) -> Result<Map<String, Json>, GgufFault> {
        let entries = [
            ("architectures", json!([class])),
            ("model_type", model_type.into()),
            ("hidden_size", shape.hidden_size.into()),
            ("intermediate_size", self.positive("feed_forward_length")?.into()),
            ("num_hidden_layers", shape.n_layers.into()),
            ("num_attention_heads", shape.n_heads.into()),
            ("num_key_value_heads", shape.n_kv_heads.into()),
            ("head_dim", shape.head_dim.into()),
            ("vocab_size", shape.vocab_size.into()),
            ("max_position_embeddings", self.positive("context_length")?.into()),
            ("rms_norm_eps", number(self.float("attention.layer_norm_rms_epsilon")?)),
            ("tie_word_embeddings", (!self.has("output.weight")).into()),
        ];
        Ok(entries.map(|(key, value)| (key.to_owned(), value)).into_iter().collect())
    }

    fn token_ids(&self, config: &mut Map<String, Json>) -> Result<(), GgufFault> {
        let ids = vocabulary::special_ids(self.metadata)?;
        if let Some(bos) = ids.bos {
            config.insert("bos_token_id".to_owned(), bos.into());
        }
        // A chat model ends a turn with another token than a text; published configurations list both.
        match (ids.eos, ids.eot.filter(|eot| Some(*eot) != ids.eos)) {
            (Some(eos), Some(eot)) => config.insert("eos_token_id".to_owned(), json!([eos, eot])),
            (Some(id), None) | (None, Some(id)) => config.insert("eos_token_id".to_owned(), id.into()),
            (None, None) => None,
        };
        Ok(())
    }

    /// Which layers look through a window.
    fn layer_types(&self, n_layers: usize) -> Result<Json, GgufFault> {
        let key = self.key("attention.sliding_window_pattern");
        let name = |is_sliding: bool| if is_sliding { "sliding_attention" } else { "full_attention" };
        let every = |n: usize| (1..=n_layers).map(|layer| name(layer % n != 0)).collect::<Vec<_>>().into();
        let wrong = |found: &Value<'_>| GgufFault::WrongValue {
            key: key.clone(),
            expected: "a positive whole number, or a truth value for each layer",
            found: found.to_string(),
        };
        match self.metadata.get(&key) {
            None => Ok(every(GEMMA3_FULL_EVERY)),
            Some(value @ Value::Array(array)) if array.len == n_layers => {
                let mut names = Vec::with_capacity(n_layers);
                for element in array.values() {
                    match element? {
                        Value::Bool(is_sliding) => names.push(name(is_sliding)),
                        _ => return Err(wrong(value)),
                    }
                }
                Ok(names.into())
            }
            Some(value) => match self.metadata.count(&key) {
                Ok(Some(n)) if n > 0 => Ok(every(n)),
                _ => Err(wrong(value)),
            },
        }
    }

    /// The `rope_scaling` block: from the metadata, or from the table of factors that the format stores instead.
    fn rope_scaling(&self, shape: &Shape, base: Option<f32>) -> Result<Option<Json>, GgufFault> {
        let kind = self.metadata.text(&self.key("rope.scaling.type"))?;
        self.must_be_neutral("rope.scaling.attn_factor")?;
        let scaling = match kind {
            None | Some("none") => match self.metadata.float(&self.key("rope.scale_linear"))? {
                None | Some(1.0) => None,
                Some(factor) => Some(json!({ "rope_type": "linear", "factor": number(factor) })),
            },
            Some("linear") => {
                Some(json!({ "rope_type": "linear", "factor": number(self.float("rope.scaling.factor")?) }))
            }
            Some("yarn") => Some(json!({
                "rope_type": "yarn",
                "factor": number(self.float("rope.scaling.factor")?),
                "original_max_position_embeddings": self.positive("rope.scaling.original_context_length")?,
            })),
            Some(found) => {
                let (key, found) = (self.key("rope.scaling.type"), format!("{found:?}"));
                return Err(GgufFault::WrongValue { key, expected: "none, linear or yarn", found });
            }
        };
        match (self.header.tensor(rope::TABLE), scaling) {
            (None, scaling) => Ok(scaling),
            (Some(table), None) => {
                let factors = rope::read_table(table, self.file, shape.head_dim)?;
                rope::llama3_scaling(&factors, base.unwrap_or(10_000.0), shape.head_dim).map(Some)
            }
            (Some(_), Some(_)) => Err(GgufFault::RopeTable { found: "a scaling type beside it".to_owned() }),
        }
    }

    fn refuse_unknown_keys(&self) -> Result<(), GgufFault> {
        let prefix = format!("{}.", self.architecture.name());
        let mut keys = self.metadata.keys().filter_map(|key| key.strip_prefix(prefix.as_str()));
        match keys.find(|key| !KNOWN_KEYS.contains(key)) {
            Some(key) => Err(GgufFault::UnknownKey { key: self.key(key) }),
            None => Ok(()),
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name())
    }

    fn has(&self, tensor: &str) -> bool {
        self.header.tensor(tensor).is_some()
    }

    fn optional_count(&self, name: &str) -> Result<Option<usize>, GgufFault> {
        self.metadata.count(&self.key(name))
    }

    fn count(&self, name: &str) -> Result<usize, GgufFault> {
        self.optional_count(name)?.ok_or_else(|| GgufFault::MissingKey { key: self.key(name) })
    }

    fn positive(&self, name: &str) -> Result<usize, GgufFault> {
        self.count(name).and_then(|count| match count {
            0 => Err(self.wrong(name, "at least 1")),
            count => Ok(count),
        })
    }

    fn float(&self, name: &str) -> Result<f32, GgufFault> {
        let key = self.key(name);
        self.metadata.float(&key)?.ok_or(GgufFault::MissingKey { key })
    }

    fn must_equal(&self, name: &str, expected: usize) -> Result<(), GgufFault> {
        match self.optional_count(name)? {
            Some(found) if found != expected => {
                Err(GgufFault::Contradiction { key: self.key(name), expected, found })
            }
            _ => Ok(()),
        }
    }

    fn must_be_absent(&self, name: &str) -> Result<(), GgufFault> {
        match self.metadata.get(&self.key(name)) {
            Some(_) => Err(GgufFault::UnknownKey { key: self.key(name) }),
            None => Ok(()),
        }
    }

    fn must_be_neutral(&self, name: &str) -> Result<(), GgufFault> {
        match self.metadata.float(&self.key(name))? {
            None | Some(1.0) => Ok(()),
            Some(_) => Err(self.wrong(name, "1")),
        }
    }

    fn wrong(&self, name: &str, expected: &'static str) -> GgufFault {
        let key = self.key(name);
        let found = self.metadata.get(&key).map_or_else(String::new, ToString::to_string);
        GgufFault::WrongValue { key, expected, found }
    }
}

/// An f32 as the shortest decimal that reads back as it: 1e-5, not 9.99999974e-6.
fn number(value: f32) -> Json {
    let shortest: f64 = value.to_string().parse().expect("a float prints as a number");
    Number::from_f64(shortest).map_or(Json::Null, Json::Number)
}
