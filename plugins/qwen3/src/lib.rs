//! Qwen3, the dense models (Qwen Team 2025).
//!
//! Plugin `qwen3-lua` says the same in Lua; both must give the same graph.

use plugin_sdk::{
    Attention, Builder, Config, Error, Mask, ModelGraph, Rope, Section, Value, register_model_graph, rope,
};

struct Qwen3;

register_model_graph!(Qwen3);

const KNOWN: &[&str] = &[
    "attention_bias",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "use_sliding_window",
    "vocab_size",
];

impl ModelGraph for Qwen3 {
    fn build(config: &Config, g: &mut Builder) -> Result<Value, Error> {
        let c = Settings::read(config)?;

        let tokens = g.tokens()?;
        let mut h = g.embedding(tokens, "model.embed_tokens.weight")?;
        for i in 0..c.windows.len() {
            g.begin_section(Section::Layer(i as u32));
            h = c.layer(g, i, h)?;
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
    is_tied: bool,
    /// One a layer; `None` for full attention.
    windows: Vec<Option<usize>>,
    rope: Rope,
}

impl Settings {
    fn layer(&self, g: &mut Builder, i: usize, h: Value) -> Result<Value, Error> {
        let at = format!("model.layers.{i}");

        let x = self.norm(g, h, &format!("{at}.input_layernorm"))?;
        let attention = self.attention(g, i, x)?;
        let h = g.add(h, attention)?;

        let x = self.norm(g, h, &format!("{at}.post_attention_layernorm"))?;
        let mlp = mlp(g, i, x)?;
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

        let q = self.norm(g, q, &format!("{at}.q_norm"))?;
        let q = g.rope(q, &self.rope)?;
        let k = self.norm(g, k, &format!("{at}.k_norm"))?;
        let k = g.rope(k, &self.rope)?;
        let slot = g.kv_slot(i, kv_heads, dim, dim, self.windows[i])?;
        let mask = self.windows[i].map_or(Mask::Causal, |window| Mask::Window(window as u32));
        let spec = Attention { mask, ..Attention::new(slot, (dim as f64).powf(-0.5)) };
        let mixed = g.attention(q, k, v, &spec)?;
        let mixed = g.reshape(mixed, &[heads * dim])?;
        linear(g, mixed, &format!("{at}.o_proj"), self.attention_bias)
    }

    fn norm(&self, g: &mut Builder, x: Value, name: &str) -> Result<Value, Error> {
        g.rms_norm(x, Some(&format!("{name}.weight")), self.rms_norm_eps, 0.0)
    }

    fn read(config: &Config) -> Result<Self, Error> {
        config.refuse_unknown(KNOWN)?;
        if config.str_or("model_type", "qwen3")? != "qwen3" {
            return Err(config.unsupported("model_type", "qwen3"));
        } else if config.str_or("hidden_act", "silu")? != "silu" {
            return Err(config.unsupported("hidden_act", "silu"));
        }
        let n_layers = config.usize("num_hidden_layers")?;
        let head_dim = config.usize_or("head_dim", 128)?;
        Ok(Settings {
            n_heads: config.usize("num_attention_heads")?,
            n_kv_heads: config.usize_or("num_key_value_heads", 32)?,
            head_dim,
            rms_norm_eps: config.number_or("rms_norm_eps", 1e-6)?,
            attention_bias: config.bool_or("attention_bias", false)?,
            is_tied: config.bool_or("tie_word_embeddings", false)?,
            windows: windows(config, n_layers)?,
            rope: rope::from_config(config, head_dim)?,
        })
    }
}

fn mlp(g: &mut Builder, i: usize, x: Value) -> Result<Value, Error> {
    let at = format!("model.layers.{i}.mlp");
    let gate = linear(g, x, &format!("{at}.gate_proj"), false)?;
    let gate = g.silu(gate)?;
    let up = linear(g, x, &format!("{at}.up_proj"), false)?;
    let inner = g.mul(gate, up)?;
    linear(g, inner, &format!("{at}.down_proj"), false)
}

fn linear(g: &mut Builder, x: Value, name: &str, has_bias: bool) -> Result<Value, Error> {
    let bias = format!("{name}.bias");
    g.linear(x, &format!("{name}.weight"), has_bias.then_some(&bias))
}

/// The window of each layer. Without `use_sliding_window` the window means nothing; with it and without a list,
/// layers from `max_window_layers` on slide.
fn windows(config: &Config, n_layers: usize) -> Result<Vec<Option<usize>>, Error> {
    let is_used = config.bool_or("use_sliding_window", false)?;
    let window = if is_used { Some(config.usize_or("sliding_window", 4096)?) } else { None };
    let first = config.usize_or("max_window_layers", 28)?;
    let Some(layer_types) = config.strs("layer_types")? else {
        return Ok((0..n_layers).map(|i| window.filter(|_| i >= first)).collect());
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
