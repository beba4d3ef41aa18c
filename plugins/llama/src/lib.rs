//! Llama (Touvron et al. 2023; Grattafiori et al. 2024) and Mistral (Jiang et al. 2023).
//!
//! Plugin `llama-lua` says the same in Lua; both must give the same graph.

use plugin_sdk::{
    Attention, Builder, Config, Error, Mask, ModelGraph, Rope, Section, Value, register_model_graph, rope,
};

struct Llama;

register_model_graph!(Llama);

const KNOWN: &[&str] = &[
    "attention_bias",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "is_llama_config",
    "layer_types",
    "max_position_embeddings",
    "mlp_bias",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "pretraining_tp",
    "rms_norm_eps",
    "rope_interleaved",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "vocab_size",
];

impl ModelGraph for Llama {
    fn build(config: &Config, g: &mut Builder) -> Result<Value, Error> {
        let c = Settings::read(config)?;

        let tokens = g.tokens()?;
        let mut h = g.embedding(tokens, "model.embed_tokens.weight")?;
        for i in 0..c.windows.len() {
            g.begin_section(Section::Layer(i as u32));
            h = c.layer(g, i, h)?;
            g.ignore(&format!("model.layers.{i}.self_attn.rotary_emb.inv_freq"));
        }
        g.begin_section(Section::Head);
        let h = g.rms_norm(h, Some("model.norm.weight"), c.rms_norm_eps, 0.0)?;

        if c.is_tied {
            g.ignore("lm_head.weight");
            return g.linear(h, "model.embed_tokens.weight", None);
        }
        g.linear(h, "lm_head.weight", None)
    }
}

/// What the graph depends on.
struct Settings {
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    rms_norm_eps: f64,
    attention_bias: bool,
    mlp_bias: bool,
    is_tied: bool,
    /// One a layer; `None` for full attention.
    windows: Vec<Option<usize>>,
    rope: Rope,
}

impl Settings {
    fn layer(&self, g: &mut Builder, i: usize, h: Value) -> Result<Value, Error> {
        let at = format!("model.layers.{i}");

        let x = g.rms_norm(h, Some(&format!("{at}.input_layernorm.weight")), self.rms_norm_eps, 0.0)?;
        let attention = self.attention(g, i, x)?;
        let h = g.add(h, attention)?;

        let x =
            g.rms_norm(h, Some(&format!("{at}.post_attention_layernorm.weight")), self.rms_norm_eps, 0.0)?;
        let mlp = self.mlp(g, i, x)?;
        g.add(h, mlp)
    }

    fn attention(&self, g: &mut Builder, i: usize, x: Value) -> Result<Value, Error> {
        let at = format!("model.layers.{i}.self_attn");
        let (heads, kv_heads, dim) = (self.n_heads, self.n_kv_heads, self.head_dim);

        let q = linear(g, x, &format!("{at}.q_proj"), self.attention_bias)?;
        let q = g.reshape(q, &[heads, dim])?;
        let k = linear(g, x, &format!("{at}.k_proj"), self.attention_bias)?;
        let k = g.reshape(k, &[kv_heads, dim])?;
        let v = linear(g, x, &format!("{at}.v_proj"), self.attention_bias)?;
        let v = g.reshape(v, &[kv_heads, dim])?;

        let (q, k) = (g.rope(q, &self.rope)?, g.rope(k, &self.rope)?);
        let slot = g.kv_slot(i, kv_heads, dim, dim, self.windows[i])?;
        let mask = self.windows[i].map_or(Mask::Causal, |window| Mask::Window(window as u32));
        let spec = Attention { mask, ..Attention::new(slot, (dim as f64).powf(-0.5)) };
        let mixed = g.attention(q, k, v, &spec)?;
        let mixed = g.reshape(mixed, &[heads * dim])?;
        linear(g, mixed, &format!("{at}.o_proj"), self.attention_bias)
    }

    fn mlp(&self, g: &mut Builder, i: usize, x: Value) -> Result<Value, Error> {
        let at = format!("model.layers.{i}.mlp");
        let gate = linear(g, x, &format!("{at}.gate_proj"), self.mlp_bias)?;
        let gate = g.silu(gate)?;
        let up = linear(g, x, &format!("{at}.up_proj"), self.mlp_bias)?;
        let inner = g.mul(gate, up)?;
        linear(g, inner, &format!("{at}.down_proj"), self.mlp_bias)
    }

    fn read(config: &Config) -> Result<Self, Error> {
        config.refuse_unknown(KNOWN)?;
        let model_type = config.str_or("model_type", "llama")?;
        if model_type != "llama" && model_type != "mistral" {
            return Err(config.unsupported("model_type", "llama or mistral"));
        } else if config.str_or("hidden_act", "silu")? != "silu" {
            return Err(config.unsupported("hidden_act", "silu"));
        } else if config.usize_or("pretraining_tp", 1)? != 1 {
            return Err(config.unsupported("pretraining_tp", "1"));
        } else if config.bool_or("rope_interleaved", false)? {
            return Err(config.unsupported("rope_interleaved", "false"));
        }
        let n_heads = config.usize("num_attention_heads")?;
        let n_layers = config.usize("num_hidden_layers")?;
        let head_dim = head_dim(config, n_heads)?;
        Ok(Settings {
            n_heads,
            n_kv_heads: config.usize_or("num_key_value_heads", n_heads)?,
            head_dim,
            rms_norm_eps: config.number_or("rms_norm_eps", 1e-6)?,
            attention_bias: config.bool_or("attention_bias", false)?,
            mlp_bias: config.bool_or("mlp_bias", false)?,
            is_tied: config.bool_or("tie_word_embeddings", false)?,
            windows: windows(config, model_type == "mistral", n_layers)?,
            rope: rope::from_config(config, head_dim)?,
        })
    }
}

fn linear(g: &mut Builder, x: Value, name: &str, has_bias: bool) -> Result<Value, Error> {
    let bias = format!("{name}.bias");
    g.linear(x, &format!("{name}.weight"), has_bias.then_some(&bias))
}

fn head_dim(config: &Config, n_heads: usize) -> Result<usize, Error> {
    if let Some(head_dim) = config.optional_usize("head_dim")? {
        return Ok(head_dim);
    }
    let hidden_size = config.usize("hidden_size")?;
    if n_heads == 0 || hidden_size % n_heads != 0 {
        let expected = format!("a divisor of hidden_size, {hidden_size}");
        return Err(config.invalid("num_attention_heads", &expected));
    }
    Ok(hidden_size / n_heads)
}

/// The window of each layer.
fn windows(config: &Config, is_mistral: bool, n_layers: usize) -> Result<Vec<Option<usize>>, Error> {
    let window = window(config, is_mistral)?;
    let Some(layer_types) = config.strs("layer_types")? else {
        return Ok(vec![window.filter(|_| is_mistral); n_layers]);
    };
    if layer_types.len() != n_layers {
        return Err(config.invalid("layer_types", &format!("a list of {n_layers} names")));
    }
    let window_of = |name: &String| match (name.as_str(), window) {
        ("full_attention", _) => Ok(None),
        ("sliding_attention", Some(window)) => Ok(Some(window)),
        ("sliding_attention", None) => {
            Err(config.invalid("sliding_window", "a number, because a layer slides"))
        }
        _ => Err(config.unsupported("layer_types", "full_attention and sliding_attention")),
    };
    layer_types.iter().map(window_of).collect()
}

/// Llama's published configs may omit a window, Mistral's mean 4096 then; `null` switches it off in both.
fn window(config: &Config, is_mistral: bool) -> Result<Option<usize>, Error> {
    let is_omitted = config.keys().all(|key| key != "sliding_window");
    if is_mistral && is_omitted { Ok(Some(4096)) } else { config.optional_usize("sliding_window") }
}
