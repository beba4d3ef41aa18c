//! Configs and the catalogues that belong to them.

use std::fs;

use host_graph::{Catalogue, TensorFacts};
use serde_json::Value as Json;

use crate::packages::workspace;

/// A fixture's `config.json`.
pub fn fixture_config(name: &str) -> String {
    let path = workspace().join("tests/fixtures").join(name).join("config.json");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The tensors of a fixture's plain safetensors files.
pub fn fixture_catalogue(name: &str) -> Catalogue {
    let folder = workspace().join("tests/fixtures").join(name);
    let mut catalogue = Catalogue::new();
    for entry in fs::read_dir(&folder).expect("the fixture exists") {
        let path = entry.expect("the fixture can be listed").path();
        if path.extension().is_some_and(|ext| ext == "safetensors") {
            read_header(&fs::read(&path).expect("the fixture can be read"), &mut catalogue);
        }
    }
    catalogue
}

fn read_header(bytes: &[u8], catalogue: &mut Catalogue) {
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header: Json = serde_json::from_slice(&bytes[8..8 + length]).expect("a header in JSON");
    for (name, facts) in header.as_object().expect("an object") {
        if name != "__metadata__" {
            let dims = facts["shape"].as_array().expect("a shape").iter();
            let shape = dims.map(|n| n.as_u64().expect("a number") as usize).collect();
            catalogue.insert(name.clone(), TensorFacts { shape, is_dense: true });
        }
    }
}

/// The tensors that a llama checkpoint of this config has.
pub fn llama_catalogue(config: &Json) -> Catalogue {
    let names = ["input_layernorm", "post_attention_layernorm"];
    decoder(config, &names, &[])
}

/// The tensors that a Gemma 3 checkpoint of this config has.
pub fn gemma3_catalogue(config: &Json) -> Catalogue {
    let names = [
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ];
    decoder(config, &names, &["q_norm", "k_norm"])
}

fn decoder(config: &Json, norms: &[&str], head_norms: &[&str]) -> Catalogue {
    let size = |key: &str| config[key].as_u64().map(|n| n as usize);
    let wide = size("hidden_size").expect("a width");
    let heads = size("num_attention_heads").expect("heads");
    let kv_heads = size("num_key_value_heads").unwrap_or(heads);
    let dim = size("head_dim").unwrap_or(wide / heads);
    let inner = size("intermediate_size").expect("an inner width");
    let vocabulary = size("vocab_size").expect("a vocabulary");
    let has = |key: &str| config[key].as_bool().unwrap_or(false);
    let is_tied = config["tie_word_embeddings"].as_bool().unwrap_or(!head_norms.is_empty());

    let mut catalogue = Catalogue::new();
    let mut enter = |name: String, shape: &[usize]| {
        catalogue.insert(name, TensorFacts { shape: shape.to_vec(), is_dense: true });
    };
    enter("model.embed_tokens.weight".into(), &[vocabulary, wide]);
    enter("model.norm.weight".into(), &[wide]);
    if !is_tied {
        enter("lm_head.weight".into(), &[vocabulary, wide]);
    }
    for i in 0..size("num_hidden_layers").expect("layers") {
        let at = format!("model.layers.{i}");
        norms.iter().for_each(|name| enter(format!("{at}.{name}.weight"), &[wide]));
        head_norms.iter().for_each(|name| enter(format!("{at}.self_attn.{name}.weight"), &[dim]));
        let attention = [("q", heads * dim, wide), ("k", kv_heads * dim, wide), ("v", kv_heads * dim, wide)];
        for (name, out, from) in attention.into_iter().chain([("o", wide, heads * dim)]) {
            enter(format!("{at}.self_attn.{name}_proj.weight"), &[out, from]);
            if has("attention_bias") {
                enter(format!("{at}.self_attn.{name}_proj.bias"), &[out]);
            }
        }
        for (name, out, from) in [("gate", inner, wide), ("up", inner, wide), ("down", wide, inner)] {
            enter(format!("{at}.mlp.{name}_proj.weight"), &[out, from]);
            if has("mlp_bias") {
                enter(format!("{at}.mlp.{name}_proj.bias"), &[out]);
            }
        }
    }
    catalogue
}
