//! Gemma 3, the text decoder (Gemma Team 2025).
//!
//! Plugin `gemma3-lua` says the same in Lua; both must give the same graph.

use plugin_sdk::{
    Attention, Builder, Config, Error, Mask, ModelGraph, Rope, Section, Value, register_model_graph, rope,
};

struct Gemma3;

register_model_graph!(Gemma3);

const KNOWN: &[&str] = &[
    "_sliding_window_pattern",
    "attention_bias",
    "attn_logit_softcapping",
    "cache_implementation",
    "final_logit_softcapping",
    "head_dim",
    "hidden_activation",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "query_pre_attn_scalar",
    "rms_norm_eps",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "sliding_window_pattern",
    "tie_word_embeddings",
    "use_bidirectional_attention",
    "vocab_size",
];

impl ModelGraph for Gemma3 {
    fn build(config: &Config, g: &mut Builder) -> Result<Value, Error> {
        let c = Settings::read(config, g)?;

        let tokens = g.tokens()?;
        let h = g.embedding(tokens, "model.embed_tokens.weight")?;
        let mut h = g.scale(h, (c.hidden_size as f64).powf(0.5))?;
        for i in 0..c.layer_types.len() {
            g.begin_section(Section::Layer(i as u32));
            h = c.layer(g, i, h)?;
        }
        g.begin_section(Section::Head);
        let h = c.norm(g, h, "model.norm")?;

        let logits = if c.is_tied {
            g.ignore("lm_head.weight");
            g.linear(h, "model.embed_tokens.weight", None)?
        } else {
            g.linear(h, "lm_head.weight", None)?
        };
        match c.final_softcap {
            Some(cap) => g.softcap(logits, cap),
            None => Ok(logits),
        }
    }
}

/// What a layer's queries may see.
#[derive(Clone, Copy, PartialEq)]
enum LayerType {
    Full,
    Sliding,
}

/// What the graph depends on.
struct Settings {
    hidden_size: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    scale: f64,
    window: usize,
    rms_norm_eps: f64,
    attention_bias: bool,
    is_tied: bool,
    final_softcap: Option<f64>,
    layer_types: Vec<LayerType>,
    full_rope: Rope,
    sliding_rope: Rope,
}

impl Settings {
    fn layer(&self, g: &mut Builder, i: usize, h: Value) -> Result<Value, Error> {
        let at = format!("model.layers.{i}");

        let x = self.norm(g, h, &format!("{at}.input_layernorm"))?;
        let a = self.attention(g, i, x)?;
        let a = self.norm(g, a, &format!("{at}.post_attention_layernorm"))?;
        let h = g.add(h, a)?;

        let x = self.norm(g, h, &format!("{at}.pre_feedforward_layernorm"))?;
        let m = mlp(g, i, x)?;
        let m = self.norm(g, m, &format!("{at}.post_feedforward_layernorm"))?;
        g.add(h, m)
    }

    fn attention(&self, g: &mut Builder, i: usize, x: Value) -> Result<Value, Error> {
        let at = format!("model.layers.{i}.self_attn");
        let (heads, kv_heads, dim) = (self.n_heads, self.n_kv_heads, self.head_dim);
        let (rope, window) = match self.layer_types[i] {
            LayerType::Full => (&self.full_rope, None),
            LayerType::Sliding => (&self.sliding_rope, Some(self.window)),
        };

        let q = linear(g, x, &format!("{at}.q_proj"), self.attention_bias)?;
        let q = g.reshape(q, &[heads, dim])?;
        let k = linear(g, x, &format!("{at}.k_proj"), self.attention_bias)?;
        let k = g.reshape(k, &[kv_heads, dim])?;
        let v = linear(g, x, &format!("{at}.v_proj"), self.attention_bias)?;
        let v = g.reshape(v, &[kv_heads, dim])?;
        let q = self.norm(g, q, &format!("{at}.q_norm"))?;
        let q = g.rope(q, rope)?;
        let k = self.norm(g, k, &format!("{at}.k_norm"))?;
        let k = g.rope(k, rope)?;

        let slot = g.kv_slot(i, kv_heads, dim, dim, window)?;
        let mask = window.map_or(Mask::Causal, |window| Mask::Window(window as u32));
        let mixed = g.attention(q, k, v, &Attention { mask, ..Attention::new(slot, self.scale) })?;
        let mixed = g.reshape(mixed, &[heads * dim])?;
        linear(g, mixed, &format!("{at}.o_proj"), self.attention_bias)
    }

    /// Gemma's weights are stored as their distance from 1.
    fn norm(&self, g: &mut Builder, x: Value, name: &str) -> Result<Value, Error> {
        g.rms_norm(x, Some(&format!("{name}.weight")), self.rms_norm_eps, 1.0)
    }

    fn read(config: &Config, g: &Builder) -> Result<Self, Error> {
        config.refuse_unknown(KNOWN)?;
        if config.str_or("model_type", "gemma3_text")? != "gemma3_text" {
            return Err(config.unsupported("model_type", "gemma3_text"));
        } else if config.str_or("hidden_activation", "gelu_pytorch_tanh")? != "gelu_pytorch_tanh" {
            return Err(config.unsupported("hidden_activation", "gelu_pytorch_tanh"));
        } else if config.bool_or("use_bidirectional_attention", false)? {
            return Err(config.unsupported("use_bidirectional_attention", "false"));
        } else if config.has("attn_logit_softcapping") {
            // The reference reads the key into the config and never hands it to its attention.
            g.log("attn_logit_softcapping has no effect in gemma3_text");
        }
        let n_layers = config.usize("num_hidden_layers")?;
        let head_dim = config.usize_or("head_dim", 256)?;
        let (full_rope, sliding_rope) = rotations(config, head_dim)?;
        Ok(Settings {
            hidden_size: config.usize("hidden_size")?,
            n_heads: config.usize("num_attention_heads")?,
            n_kv_heads: config.usize("num_key_value_heads")?,
            head_dim,
            scale: config.number_or("query_pre_attn_scalar", 256.0)?.powf(-0.5),
            window: config.usize_or("sliding_window", 4096)?,
            rms_norm_eps: config.number_or("rms_norm_eps", 1e-6)?,
            attention_bias: config.bool_or("attention_bias", false)?,
            is_tied: config.bool_or("tie_word_embeddings", true)?,
            final_softcap: config.optional_number("final_logit_softcapping")?,
            layer_types: layer_types(config, n_layers)?,
            full_rope,
            sliding_rope,
        })
    }
}

fn linear(g: &mut Builder, x: Value, name: &str, has_bias: bool) -> Result<Value, Error> {
    let bias = format!("{name}.bias");
    g.linear(x, &format!("{name}.weight"), has_bias.then_some(&bias))
}

fn mlp(g: &mut Builder, i: usize, x: Value) -> Result<Value, Error> {
    let at = format!("model.layers.{i}.mlp");
    let gate = linear(g, x, &format!("{at}.gate_proj"), false)?;
    let gate = g.gelu_tanh(gate)?;
    let up = linear(g, x, &format!("{at}.up_proj"), false)?;
    let inner = g.mul(gate, up)?;
    linear(g, inner, &format!("{at}.down_proj"), false)
}

/// Older configs tell a period instead of a list: every sixth layer attends fully.
fn layer_types(config: &Config, n_layers: usize) -> Result<Vec<LayerType>, Error> {
    let Some(names) = config.strs("layer_types")? else {
        let period = config.usize_or("sliding_window_pattern", 6)?;
        if period == 0 {
            return Err(config.invalid("sliding_window_pattern", "at least 1"));
        }
        let of = |i: usize| if i.is_multiple_of(period) { LayerType::Full } else { LayerType::Sliding };
        return Ok((1..=n_layers).map(of).collect());
    };
    if names.len() != n_layers {
        return Err(config.invalid("layer_types", &format!("a list of {n_layers} names")));
    }
    let of = |name: &String| match name.as_str() {
        "full_attention" => Ok(LayerType::Full),
        "sliding_attention" => Ok(LayerType::Sliding),
        _ => Err(config.unsupported("layer_types", "full_attention and sliding_attention")),
    };
    names.iter().map(of).collect()
}

/// The rotations of full and of sliding layers.
///
/// Older configs scale the rotation of full attention alone and name the other base apart.
fn rotations(config: &Config, head_dim: usize) -> Result<(Rope, Rope), Error> {
    let (parameters, scaling) = (config.object("rope_parameters")?, config.object("rope_scaling")?);
    let (full, sliding) = match (&parameters, scaling) {
        (Some(_), Some(_)) => {
            return Err(config.unsupported("rope_scaling", "nothing beside rope_parameters"));
        }
        (Some(parameters), None) => {
            parameters.refuse_unknown(&["full_attention", "sliding_attention"])?;
            (parameters.object("full_attention")?, parameters.object("sliding_attention")?)
        }
        (None, scaling) => (scaling, None),
    };
    let full_theta = config.number_or("rope_theta", 1e6)?;
    let sliding_theta = config.number_or("rope_local_base_freq", 1e4)?;
    Ok((
        rope::from_parameters(full.as_ref(), config, head_dim, full_theta)?,
        rope::from_parameters(sliding.as_ref(), config, head_dim, sliding_theta)?,
    ))
}
