//! How each architecture names its tensors in GGUF, and what the format changes in them.
//!
//! Source: the tensor name tables of the `gguf` package and the converters of llama.cpp.

use super::fault::GgufFault;

/// An architecture whose files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    Llama,
    Gemma3,
}

/// What stands between a stored tensor and the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing.
    AsStored,
    /// Rows of query heads, as rotary pairs.
    QueryRows,
    /// Rows of key heads, as rotary pairs.
    KeyRows,
    /// A norm weight, stored as `1 + w`.
    NormPlusOne,
}

type NameTable = &'static [(&'static str, &'static str, Place)];

use Place::{AsStored, KeyRows, NormPlusOne, QueryRows};

const LLAMA_MODEL: NameTable = &[
    ("token_embd.weight", "model.embed_tokens.weight", AsStored),
    ("output_norm.weight", "model.norm.weight", AsStored),
    ("output.weight", "lm_head.weight", AsStored),
];
const LLAMA_LAYER: NameTable = &[
    ("attn_norm.weight", "input_layernorm.weight", AsStored),
    ("attn_q.weight", "self_attn.q_proj.weight", QueryRows),
    ("attn_q.bias", "self_attn.q_proj.bias", QueryRows),
    ("attn_k.weight", "self_attn.k_proj.weight", KeyRows),
    ("attn_k.bias", "self_attn.k_proj.bias", KeyRows),
    ("attn_v.weight", "self_attn.v_proj.weight", AsStored),
    ("attn_v.bias", "self_attn.v_proj.bias", AsStored),
    ("attn_output.weight", "self_attn.o_proj.weight", AsStored),
    ("attn_output.bias", "self_attn.o_proj.bias", AsStored),
    ("ffn_norm.weight", "post_attention_layernorm.weight", AsStored),
    ("ffn_gate.weight", "mlp.gate_proj.weight", AsStored),
    ("ffn_gate.bias", "mlp.gate_proj.bias", AsStored),
    ("ffn_up.weight", "mlp.up_proj.weight", AsStored),
    ("ffn_up.bias", "mlp.up_proj.bias", AsStored),
    ("ffn_down.weight", "mlp.down_proj.weight", AsStored),
    ("ffn_down.bias", "mlp.down_proj.bias", AsStored),
];
const GEMMA3_MODEL: NameTable = &[
    ("token_embd.weight", "model.embed_tokens.weight", AsStored),
    ("output_norm.weight", "model.norm.weight", NormPlusOne),
    ("output.weight", "lm_head.weight", AsStored),
];
const GEMMA3_LAYER: NameTable = &[
    ("attn_norm.weight", "input_layernorm.weight", NormPlusOne),
    ("attn_q.weight", "self_attn.q_proj.weight", AsStored),
    ("attn_q_norm.weight", "self_attn.q_norm.weight", NormPlusOne),
    ("attn_k.weight", "self_attn.k_proj.weight", AsStored),
    ("attn_k_norm.weight", "self_attn.k_norm.weight", NormPlusOne),
    ("attn_v.weight", "self_attn.v_proj.weight", AsStored),
    ("attn_output.weight", "self_attn.o_proj.weight", AsStored),
    ("post_attention_norm.weight", "post_attention_layernorm.weight", NormPlusOne),
    ("ffn_norm.weight", "pre_feedforward_layernorm.weight", NormPlusOne),
    ("ffn_gate.weight", "mlp.gate_proj.weight", AsStored),
    ("ffn_up.weight", "mlp.up_proj.weight", AsStored),
    ("ffn_down.weight", "mlp.down_proj.weight", AsStored),
    ("post_ffw_norm.weight", "post_feedforward_layernorm.weight", NormPlusOne),
];

impl Architecture {
    pub(super) const ALL: [Architecture; 2] = [Architecture::Llama, Architecture::Gemma3];

    /// The name in `general.architecture`, which prefixes the architecture's metadata keys.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Gemma3 => "gemma3",
        }
    }

    pub(super) fn from_name(name: &str) -> Result<Architecture, GgufFault> {
        let known = Architecture::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| GgufFault::UnknownArchitecture { found: name.to_owned() })
    }

    /// The names of the known architectures, for messages.
    pub(super) fn known_names() -> String {
        Architecture::ALL.map(Architecture::name).join(", ")
    }

    const fn tables(self) -> (NameTable, NameTable) {
        match self {
            Architecture::Llama => (LLAMA_MODEL, LLAMA_LAYER),
            Architecture::Gemma3 => (GEMMA3_MODEL, GEMMA3_LAYER),
        }
    }

    /// The published name of a stored tensor, and what the format changed in it.
    pub(super) fn published(self, stored: &str, n_layers: usize) -> Result<(String, Place), GgufFault> {
        let (model, layer) = self.tables();
        let find = |table: NameTable, name: &str| table.iter().find(|(stored, ..)| *stored == name);
        if let Some((_, published, place)) = find(model, stored) {
            return Ok(((*published).to_owned(), *place));
        }
        let in_layer = layer_index(stored).and_then(|(index, rest)| Some((index, find(layer, rest)?)));
        match in_layer {
            Some((index, (_, published, place))) if index < n_layers => {
                Ok((format!("model.layers.{index}.{published}"), *place))
            }
            _ => Err(GgufFault::UnknownTensor { tensor: stored.to_owned(), architecture: self.name() }),
        }
    }
}

/// Splits `blk.12.attn_q.weight` into 12 and the rest. The number must be written the one canonical way, so
/// that two stored names cannot mean one tensor.
fn layer_index(stored: &str) -> Option<(usize, &str)> {
    let (number, rest) = stored.strip_prefix("blk.")?.split_once('.')?;
    let index: usize = number.parse().ok()?;
    (index.to_string() == number).then_some((index, rest))
}
