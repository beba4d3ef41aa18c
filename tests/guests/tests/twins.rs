//! A plugin written twice says the same graph, and refuses the same configs in the same words.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use guests::{
    fixture_catalogue, fixture_config, gemma3_catalogue, llama_catalogue, lua_package, wasm_package,
    wasm_plugin,
};
use host_core::{Report, Reported};
use host_graph::{Catalogue, Graph};
use host_lua::LuaPlugin;
use host_plugins::{Budget, GraphPlugin, LogSink, PluginError};
use serde_json::{Value as Json, json};

/// Both forms of a plugin.
fn twins(id: &str) -> [Box<dyn GraphPlugin>; 2] {
    let package = lua_package(&format!("{id}-lua"));
    let lua = LuaPlugin::open(&package, Budget::default(), LogSink::discard()).unwrap();
    [Box::new(wasm_plugin(&wasm_package(id))), Box::new(lua)]
}

fn build_both(id: &str, config: &str, catalogue: &Catalogue) -> [Result<Graph, PluginError>; 2] {
    twins(id).map(|plugin| plugin.build(config, catalogue.clone()))
}

/// The one graph of both.
fn agree(id: &str, config: &str, catalogue: &Catalogue) -> Graph {
    let [wasm, lua] = build_both(id, config, catalogue)
        .map(|result| result.unwrap_or_else(|error| panic!("{config}\n{}", error.report())));
    assert_eq!(wasm.text(), lua.text(), "{config}");
    assert_eq!(wasm.fingerprint(), lua.fingerprint());
    wasm
}

/// The one refusal of both, without the plugin's name and the place in the script.
fn refuse(id: &str, config: &Json, catalogue: &Catalogue) -> Report {
    let [wasm, lua] = build_both(id, &config.to_string(), catalogue).map(|result| {
        let report = result.expect_err(&config.to_string()).report();
        let message = report.message.replace(&format!("{id}-lua "), &format!("{id} "));
        Report { message, place: None, ..report }
    });
    assert_eq!(wasm, lua);
    wasm
}

fn with(base: &Json, changes: Json) -> Json {
    let mut config = base.clone();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn llama() -> Json {
    json!({
        "model_type": "llama", "hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 4,
        "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 256, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128, "hidden_act": "silu",
    })
}

/// As published; every key that the plugin need not know is there as well.
fn smollm2() -> Json {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
        "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
        "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
        "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.42.3",
        "transformers.js_config": { "kv_cache_dtype": { "q4f16": "float16", "fp16": "float16" } },
        "use_cache": true, "vocab_size": 49152,
    })
}

fn factors(n: usize, first: f64) -> Json {
    (0..n).map(|i| json!(first + 0.37 * i as f64)).collect()
}

#[test]
fn llama_twins_agree_on_published_and_made_up_configs() {
    let llama3 = json!({ "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64 });
    let yarn = json!({ "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32 });
    let yarn_all = json!({ "rope_type": "yarn", "factor": 3.7, "original_max_position_embeddings": 32,
        "beta_fast": 24, "beta_slow": 0, "mscale": 0.707, "mscale_all_dim": 1.3, "truncate": false,
        "rope_theta": 12345.678 });
    let longrope = json!({ "rope_type": "longrope", "original_max_position_embeddings": 48,
        "short_factor": factors(6, 1.0), "long_factor": factors(6, 2.0) });
    let slid = json!({ "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16 });
    let changes = [
        json!({}),
        json!({ "head_dim": 20 }),
        json!({ "num_key_value_heads": null }),
        json!({ "num_key_value_heads": 1, "attention_bias": true }),
        json!({ "mlp_bias": true, "attention_bias": true }),
        json!({ "tie_word_embeddings": true, "rope_theta": 1000000.0 }),
        json!({ "rope_scaling": { "type": "linear", "factor": 2.5 } }),
        json!({ "rope_scaling": llama3, "rope_theta": 500000.0 }),
        json!({ "rope_scaling": yarn }),
        json!({ "rope_parameters": yarn_all }),
        json!({ "rope_scaling": longrope }),
        json!({ "rope_scaling": longrope, "max_position_embeddings": 48 }),
        json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 77.7 } }),
        slid.clone(),
        json!({ "model_type": "mistral" }),
        json!({ "model_type": "mistral", "sliding_window": null }),
        json!({ "model_type": "mistral", "sliding_window": 24, "head_dim": 16 }),
        json!({ "rms_norm_eps": 1.1e-6, "quantization": { "bits": 4, "group_size": 64 } }),
    ];
    let mut fingerprints = Vec::new();
    for change in changes {
        let config = with(&llama(), change);
        let graph = agree("llama", &config.to_string(), &llama_catalogue(&config));
        fingerprints.push(graph.fingerprint());
    }
    // Only Mistral with its window switched off is the first model again; everything else above changes something.
    let same = fingerprints.iter().filter(|other| **other == fingerprints[0]).count();
    assert_eq!(same, 2);
    let graph = agree("llama", &smollm2().to_string(), &llama_catalogue(&smollm2()));
    assert_eq!((graph.n_layers(), graph.n_vocab(), graph.slots().len()), (30, 49152, 30));
}

#[test]
fn twins_agree_on_every_fixture() {
    for (id, names) in [
        (
            "llama",
            &[
                "tiny-llama-gqa-bf16",
                "tiny-llama-gqa-f16",
                "tiny-llama-gqa-f32",
                "tiny-llama-head-dim",
                "tiny-llama-mha-bias",
                "tiny-llama-mqa-attention-bias",
                "tiny-llama-rope-linear",
                "tiny-llama-rope-llama3",
                "tiny-llama-rope-llama3-new",
                "tiny-llama-rope-yarn",
                "tiny-llama-rope-yarn-full",
                "tiny-llama-sharded",
                "tiny-llama-tied",
            ][..],
        ),
        (
            "gemma3",
            &[
                "tiny-gemma3-rope-linear",
                "tiny-gemma3-softcap",
                "tiny-gemma3-window",
                "tiny-gemma3-window-old-config",
            ],
        ),
        (
            "qwen3",
            &[
                "tiny-qwen3-gqa",
                "tiny-qwen3-rope-yarn",
                "tiny-qwen3-tied-bias",
                "tiny-qwen3-window",
                "tiny-qwen3-window-old-config",
            ],
        ),
    ] {
        for name in names {
            agree(id, &fixture_config(name), &fixture_catalogue(name));
        }
    }
}

/// The same weights, told by the configs of two releases of the reference, are the same model.
#[test]
fn old_and_new_spelling_of_a_config_give_one_graph() {
    let old = json!({ "rope_theta": 5000.0, "rope_scaling": { "rope_type": "llama3", "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32 } });
    let new = json!({ "rope_parameters": { "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32 } });
    let [old, new] = [old, new].map(|change| {
        let config = with(&llama(), change);
        agree("llama", &config.to_string(), &llama_catalogue(&config)).fingerprint()
    });
    assert_eq!(old, new);

    let old = json!({ "rope_theta": 50000.0, "rope_local_base_freq": 1000.0, "sliding_window_pattern": 3,
        "rope_scaling": { "rope_type": "linear", "factor": 8.0 } });
    let new = json!({
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": { "rope_type": "linear", "rope_theta": 50000.0, "factor": 8.0 },
            "sliding_attention": { "rope_type": "default", "rope_theta": 1000.0 },
        },
    });
    let [old, new] = [old, new].map(|change| {
        let config = with(&gemma3(), change);
        agree("gemma3", &config.to_string(), &gemma3_catalogue(&config)).fingerprint()
    });
    assert_eq!(old, new);
}

fn gemma3() -> Json {
    json!({
        "model_type": "gemma3_text", "hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 4,
        "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256,
        "sliding_window": 8, "query_pre_attn_scalar": 24, "max_position_embeddings": 128,
    })
}

#[test]
fn gemma3_twins_agree() {
    for change in [
        json!({}),
        json!({ "attention_bias": true, "final_logit_softcapping": 30.0 }),
        json!({ "tie_word_embeddings": false }),
        json!({ "sliding_window": null, "query_pre_attn_scalar": null }),
        json!({ "sliding_window_pattern": 1 }),
        json!({ "rope_parameters": { "full_attention": null } }),
    ] {
        let config = with(&gemma3(), change);
        agree("gemma3", &config.to_string(), &gemma3_catalogue(&config));
    }
}

#[test]
fn llama_twins_refuse_alike() {
    let rope = |scaling: Json| json!({ "rope_scaling": scaling });
    let cases = [
        (json!({ "hidden_act": "gelu" }), "plugin.unsupported-config", "hidden_act: \"gelu\""),
        (json!({ "model_type": "qwen2" }), "plugin.unsupported-config", "model_type: \"qwen2\""),
        (json!({ "pretraining_tp": 2 }), "plugin.unsupported-config", "pretraining_tp: 2"),
        (json!({ "rope_interleaved": true }), "plugin.unsupported-config", "rope_interleaved: true"),
        (json!({ "logit_scale": 0.5 }), "plugin.unsupported-config", "logit_scale: 0.5"),
        (json!({ "num_attention_heads": "4" }), "plugin.invalid-config", "num_attention_heads: \"4\""),
        (json!({ "num_attention_heads": null }), "plugin.invalid-config", "num_attention_heads: nothing"),
        (json!({ "num_attention_heads": 5 }), "plugin.invalid-config", "num_attention_heads: 5"),
        (json!({ "num_attention_heads": 0 }), "plugin.invalid-config", "num_attention_heads: 0"),
        (json!({ "num_attention_heads": -4 }), "plugin.invalid-config", "num_attention_heads: -4"),
        (json!({ "num_attention_heads": 4.5 }), "plugin.invalid-config", "num_attention_heads: 4.5"),
        (json!({ "hidden_size": 5000000000u64 }), "plugin.invalid-config", "hidden_size: 5000000000"),
        (json!({ "attention_bias": "no" }), "plugin.invalid-config", "attention_bias: \"no\""),
        (
            json!({ "layer_types": ["full_attention"] }),
            "plugin.invalid-config",
            "layer_types: [\"full_attention\"]",
        ),
        (
            json!({ "layer_types": ["full_attention", "sliding_attention"] }),
            "plugin.invalid-config",
            "sliding_window: nothing",
        ),
        (
            json!({ "layer_types": ["chunked", "chunked"] }),
            "plugin.unsupported-config",
            "layer_types: [\"chunked\",\"chunked\"]",
        ),
        (
            rope(json!({ "type": "dynamic", "factor": 2.0 })),
            "plugin.unsupported-config",
            "rope_scaling.type: \"dynamic\"",
        ),
        (rope(json!({ "rope_type": "linear" })), "plugin.invalid-config", "rope_scaling.factor: nothing"),
        (
            rope(json!({ "rope_type": "linear", "factor": 2.0, "mscale": 1.0 })),
            "plugin.unsupported-config",
            "rope_scaling.mscale: 1.0",
        ),
        (
            rope(json!({ "rope_type": "longrope", "original_max_position_embeddings": 16 })),
            "plugin.invalid-config",
            "rope_scaling.long_factor: nothing",
        ),
        (
            json!({ "rope_scaling": { "type": "linear", "factor": 2.0 }, "rope_parameters": {} }),
            "plugin.unsupported-config",
            "rope_scaling: {\"type\":\"linear\",\"factor\":2.0}",
        ),
        // What the host's builder refuses.
        (rope(json!({ "type": "linear", "factor": 0.0 })), "graph.attribute", "0"),
        (json!({ "num_key_value_heads": 3 }), "graph.shape", "[B,T,24]"),
        (json!({ "head_dim": 7, "num_key_value_heads": 4 }), "graph.shape", "[B,T,48]"),
        (json!({ "num_hidden_layers": 3 }), "graph.missing-tensor", ""),
        (json!({ "num_hidden_layers": 1 }), "graph.unused-tensors", ""),
        (json!({ "mlp_bias": true }), "graph.missing-tensor", ""),
    ];
    let catalogue = llama_catalogue(&llama());
    for (change, code, found) in cases {
        let report = refuse("llama", &with(&llama(), change.clone()), &catalogue);
        assert_eq!(report.code, code, "{change}: {report}");
        if !found.is_empty() {
            assert_eq!(report.found.as_deref(), Some(found), "{change}");
        }
    }
}

#[test]
fn unknown_keys_are_listed_all_at_once() {
    let config = with(&llama(), json!({ "logit_scale": 2, "use_qk_norm": true, "off": null }));
    let report = refuse("llama", &config, &llama_catalogue(&llama()));
    assert_eq!(report.code, "plugin.unsupported-config");
    assert_eq!(report.found.as_deref(), Some("logit_scale: 2"));
    assert_eq!(report.notes, ["use_qk_norm: expected a key that this plugin knows, found true"]);
}

#[test]
fn gemma3_twins_refuse_alike() {
    for (change, code) in [
        (json!({ "hidden_activation": "silu" }), "plugin.unsupported-config"),
        (json!({ "use_bidirectional_attention": true }), "plugin.unsupported-config"),
        (json!({ "sliding_window_pattern": 0 }), "plugin.invalid-config"),
        (json!({ "layer_types": ["full_attention"] }), "plugin.invalid-config"),
        (json!({ "rope_parameters": { "chunked": {} } }), "plugin.unsupported-config"),
        (json!({ "final_logit_softcapping": -1.0 }), "graph.attribute"),
        (json!({ "sliding_window": 0 }), "graph.attribute"),
        (json!({ "model_type": "gemma3" }), "plugin.unsupported-config"),
    ] {
        let report = refuse("gemma3", &with(&gemma3(), change.clone()), &gemma3_catalogue(&gemma3()));
        assert_eq!(report.code, code, "{change}: {report}");
    }
}

#[test]
fn tensors_that_the_reference_ignores_are_ignored() {
    let config = with(&llama(), json!({ "tie_word_embeddings": true }));
    let plain = llama_catalogue(&config);
    let mut catalogue = llama_catalogue(&llama());
    let facts = host_graph::TensorFacts { shape: vec![6], is_dense: true };
    catalogue.insert("model.layers.1.self_attn.rotary_emb.inv_freq".to_owned(), facts);
    let graph = agree("llama", &config.to_string(), &catalogue);
    let ignored = ["lm_head.weight", "model.layers.1.self_attn.rotary_emb.inv_freq"];
    assert_eq!(graph.ignored_tensors(), ignored);
    assert_eq!(graph.nodes(), agree("llama", &config.to_string(), &plain).nodes());
}
