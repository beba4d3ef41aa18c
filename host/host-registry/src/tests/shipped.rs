//! The profiles that are shipped: they load, and each fits the models it is for and no other.

use serde_json::{Map, Value, json};

use super::{DeviceFacts, host, plugin};
use crate::{ModelFacts, ModelIdentity, Overrides, Parts, ProfileSet, Registry};

fn shipped() -> ProfileSet {
    ProfileSet::from_texts([
        ("profiles/llama.toml", include_str!("../../../../profiles/llama.toml")),
        ("profiles/smollm2-135m.toml", include_str!("../../../../profiles/smollm2-135m.toml")),
        ("profiles/gemma3.toml", include_str!("../../../../profiles/gemma3.toml")),
        ("profiles/gemma3-270m.toml", include_str!("../../../../profiles/gemma3-270m.toml")),
    ])
    .unwrap_or_else(|errors| panic!("{errors:#?}"))
}

macro_rules! fixture {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../tests/fixtures/", $name, "/config.json")))
    };
}

fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).expect("an object")
}

/// What a GGUF file of the model says, in the words of `config.json`.
fn smollm2() -> Map<String, Value> {
    let config = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": true,
        "hidden_act": "silu",
        "rope_theta": 100000.0,
        "attention_bias": false,
        "mlp_bias": false,
        "bos_token_id": 1,
        "eos_token_id": 2,
    });
    config.as_object().cloned().expect("an object")
}

fn gemma3_270m() -> Map<String, Value> {
    let config = json!({
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "vocab_size": 262144,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": true,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "sliding_window": 512,
        "attention_bias": false,
    });
    config.as_object().cloned().expect("an object")
}

#[test]
fn every_tiny_checkpoint_has_the_general_profile_of_its_family() {
    let set = shipped();
    let check = |profile: &str, fixtures: &[(&str, &str)]| {
        for (name, config) in fixtures {
            let decision = set.match_config(&object(config));
            assert_eq!(
                decision.chosen().map(|loaded| loaded.id().to_owned()),
                Ok(profile.to_owned()),
                "{name}"
            );
        }
    };
    check(
        "llama",
        &[
            fixture!("tiny-llama-gqa-bf16"),
            fixture!("tiny-llama-gqa-f32"),
            fixture!("tiny-llama-mha-bias"),
            fixture!("tiny-llama-rope-linear"),
            fixture!("tiny-llama-rope-llama3"),
            fixture!("tiny-llama-rope-llama3-new"),
            fixture!("tiny-llama-rope-yarn"),
            fixture!("tiny-llama-rope-yarn-full"),
            fixture!("tiny-llama-sharded"),
            fixture!("tiny-llama-tied"),
            fixture!("tiny-mlx-mixed"),
            fixture!("tiny-mlx-mxfp4"),
            fixture!("tiny-mlx-mxfp8"),
            fixture!("tiny-mlx-nvfp4"),
            fixture!("tiny-mlx-q2-g32"),
            fixture!("tiny-mlx-q3-g64"),
            fixture!("tiny-mlx-q4-g128"),
            fixture!("tiny-mlx-q5-g64"),
            fixture!("tiny-mlx-q6-g128"),
            fixture!("tiny-mlx-q8-g64"),
        ],
    );
    check(
        "gemma3",
        &[
            fixture!("tiny-gemma3-rope-linear"),
            fixture!("tiny-gemma3-softcap"),
            fixture!("tiny-gemma3-window"),
            fixture!("tiny-gemma3-window-old-config"),
        ],
    );
}

#[test]
fn a_model_of_its_own_has_its_own_profile_and_composes() {
    let set = shipped();
    let plugins = vec![plugin("llama", "1.0.0"), plugin("gemma3", "1.0.0")];
    let devices = vec![DeviceFacts { kernels: Vec::new(), ..host().devices[0].clone() }];
    let registry = Registry::new(Parts { plugins, devices, ..host() }).unwrap();
    for (id, config) in [("smollm2-135m", smollm2()), ("gemma3-270m", gemma3_270m())] {
        let decision = set.match_config(&config);
        let chosen = decision.chosen().unwrap_or_else(|refusal| panic!("{id}: {refusal:?}"));
        assert_eq!(chosen.id(), id);
        assert!(chosen.profile().source.is_some());
        for format in ["gguf", "safetensors"] {
            let model = ModelFacts { config: &config, format, identity: &ModelIdentity::NONE };
            for numeric in [host_core::Numeric::Exact, host_core::Numeric::Fast] {
                let overrides = Overrides { numeric: Some(numeric), ..Overrides::default() };
                let composition = registry.resolve(chosen, model, &overrides).unwrap();
                assert_eq!(composition.options().context_tokens, 8192);
            }
        }
    }
}

#[test]
fn an_altered_model_fits_none() {
    let set = shipped();
    let check = |key: &str, value: Value, failing: &str| {
        for mut config in [smollm2(), gemma3_270m(), object(fixture!("tiny-llama-tied").1)] {
            config.insert(key.to_owned(), value.clone());
            match set.match_config(&config).chosen() {
                Err(crate::MatchRefusal::NoMatch { nearest, .. }) => {
                    assert!(nearest[0].line().contains(failing), "{key}: {}", nearest[0].line());
                }
                other => panic!("{key} = {value}: {other:?}"),
            }
        }
    };
    check("model_type", json!("mamba"), "model_type is \"mamba\"");
    check("vision_config", json!({ "hidden_size": 1152 }), "vision_config is");
    let quantization = json!({ "bits": 4, "group_size": 64, "codebook": "q" });
    check("quantization", quantization.clone(), "the key \"codebook\"");
    check("quantization_config", quantization, "the key \"codebook\"");
    check("quantization", json!({ "bits": 7, "group_size": 64 }), "quantization.bits is 7");
    check("quantization", json!({ "bits": 4, "group_size": 20 }), "quantization.group_size is 20");
    check(
        "quantization",
        json!({ "bits": 4, "group_size": 64, "mode": "vq" }),
        "quantization.mode is \"vq\"",
    );
    check("rope_scaling", json!({ "rope_type": "longrope" }), "rope_scaling.rope_type is \"longrope\"");
    let mut gelu = smollm2();
    gelu.insert("hidden_act".to_owned(), json!("gelu"));
    let decision = set.match_config(&gelu);
    insta::assert_snapshot!(super::shown(&host_core::Reported::report(decision.chosen().unwrap_err())));
}
