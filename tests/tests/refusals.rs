//! A model whose `config.json` was altered is refused with the line of the profile that does not hold, and none of
//! its weights is opened; a missing tensor is refused by its name, from headers alone.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;

use host_core::{Numeric, Report};
use host_registry::{Decision, MatchRefusal};
use host_weights::{Checkpoint, read_config};
use serde_json::{Map, Value, json};
use tests::Host;
use tests::alter::{Altered, Watch};
use tests::model::{overrides, told};
use tests::program::Tenon;

type Config = Map<String, Value>;

/// One key of a fixture's configuration that is altered.
struct Case {
    fixture: &'static str,
    /// From the top; the key that the profile's line names.
    key: &'static str,
    value: Value,
    /// What the refusal says is there.
    found: &'static str,
}

fn cases() -> Vec<Case> {
    let llama = "tiny-llama-gqa-f32";
    let case = |fixture, key, value, found| Case { fixture, key, value, found };
    vec![
        case(llama, "model_type", json!("llamb"), "\"llamb\""),
        case(llama, "model_type", Value::Null, "absent"),
        case(llama, "hidden_act", json!("gelu"), "\"gelu\""),
        case(llama, "pretraining_tp", json!(2), "2"),
        case(llama, "vision_config", json!({}), "{}"),
        case("tiny-llama-rope-llama3", "rope_scaling.rope_type", json!("longrope"), "\"longrope\""),
        case("tiny-llama-rope-llama3-new", "rope_parameters.rope_type", json!("longrope"), "\"longrope\""),
        case("tiny-gemma3-window", "use_bidirectional_attention", json!(true), "true"),
        case("tiny-qwen3-gqa", "hidden_act", json!("gelu"), "\"gelu\""),
        case("tiny-gemma3-window", "hidden_activation", json!("silu"), "\"silu\""),
    ]
}

#[test]
fn an_altered_config_is_refused_by_the_line_that_does_not_hold() {
    let host = Host::lua();
    for Case { fixture, key, value, found } in cases() {
        let model = Altered::of(fixture).config(|config| set(config, key, value)).garbage_weights();
        let watch = Watch::over(&model.weights());
        let report = host.compose(model.path(), &overrides(Numeric::Exact, 64, 1, 64)).unwrap_err();
        assert!(!watch.saw_opening(), "{key}: weights were opened");

        assert_eq!(report.code, "profile.no-match", "{report}");
        assert_eq!(report.found.as_deref(), Some(found), "{report}");
        let expected = report.expected.as_deref().unwrap_or_default();
        assert!(expected.starts_with(&format!("{key}: ")) && expected.contains(".toml:"), "{report}");
        assert!(report.mend.is_some());
        assert_eq!(nearest(&host.decide(&told(read_config(model.path())))), key);
    }
}

#[test]
fn the_program_refuses_with_the_predicate_and_opens_no_weights() {
    let Some(tenon) = Tenon::find() else { return };
    for Case { fixture, key, value, found } in cases() {
        let model = Altered::of(fixture).config(|config| set(config, key, value)).garbage_weights();
        let watch = Watch::over(&model.weights());
        let ended = tenon.run(&["explain", model.path().to_str().unwrap(), "--json"]);
        assert!(!watch.saw_opening(), "{key}: weights were opened");
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let refusal = &serde_json::from_str::<Value>(&ended.stdout).unwrap()["refusal"];
        assert_eq!((&refusal["code"], &refusal["found"]), (&json!("profile.no-match"), &json!(found)));
        assert!(refusal["expected"].as_str().unwrap().starts_with(&format!("{key}: ")), "{refusal}");
    }
}

/// The first line that does not hold of the profile that came nearest.
fn nearest(decision: &Decision) -> String {
    match decision.chosen() {
        Err(MatchRefusal::NoMatch { nearest, .. }) => nearest[0].failures()[0].key.clone(),
        other => panic!("{other:?}"),
    }
}

/// Reading the configuration already refuses what the weights' reader would not understand.
#[test]
fn an_altered_quantisation_is_refused_by_its_key() {
    let host = Host::lua();
    for (key, value, code, named) in [
        ("zero_point", json!(true), "weights.quantization-key", "\"zero_point\""),
        ("bits", json!(7), "weights.quantization-width", "7 bits"),
        ("group_size", json!(48), "weights.quantization-width", "groups of 48"),
        ("mode", json!("nf4"), "weights.quantization-mode", "\"nf4\""),
        ("quant_method", json!("gptq"), "weights.quantization-method", "\"gptq\""),
        (
            "model.norm",
            json!({"bits": 4, "act_order": true}),
            "weights.quantization-key",
            "model.norm.act_order",
        ),
    ] {
        let model = Altered::of("tiny-mlx-q4-g64").garbage_weights().config(|config| {
            for block in ["quantization", "quantization_config"] {
                let altered = with(&config[block], key, &value);
                config.insert(block.to_owned(), altered);
            }
        });
        let watch = Watch::over(&model.weights());
        let report = host.compose(model.path(), &overrides(Numeric::Exact, 64, 1, 64)).unwrap_err();
        assert!(!watch.saw_opening(), "{key}: weights were opened");
        assert_eq!(report.code, code, "{report}");
        assert!(names(&report, named), "{report}");
    }
}

/// An object with one more key, which may hold dots.
fn with(object: &Value, key: &str, value: &Value) -> Value {
    let mut object = object.as_object().unwrap().clone();
    object.insert(key.to_owned(), value.clone());
    Value::Object(object)
}

/// The watch sees what it is there to see.
#[test]
fn weights_that_are_opened_are_seen() {
    let model = Altered::of("tiny-llama-gqa-f32").garbage_weights();
    let watch = Watch::over(&model.weights());
    let composed = Host::lua().compose(model.path(), &overrides(Numeric::Exact, 64, 1, 64));
    assert!(composed.is_ok() && !watch.saw_opening(), "composing opens no weights");
    assert!(Checkpoint::open(model.path()).is_err(), "the weights are unreadable");
    assert!(watch.saw_opening());
}

#[test]
fn a_missing_tensor_is_refused_by_name_before_any_is_mapped() {
    let host = Host::lua();
    for (fixture, tensor) in [
        ("tiny-llama-gqa-f32", "model.layers.1.mlp.down_proj.weight"),
        ("tiny-llama-sharded", "model.layers.0.self_attn.q_proj.weight"),
        ("tiny-gemma3-window", "model.layers.2.self_attn.k_norm.weight"),
    ] {
        let other = tensor.replace("weight", "weighs");
        let model = Altered::of(fixture).rename_tensor(tensor, &other);
        rename_in_index(model.path(), tensor, &other);
        let composition = host.compose(model.path(), &overrides(Numeric::Exact, 64, 1, 64)).unwrap();
        let checkpoint = told(Checkpoint::open(model.path()));
        let report = host.build(&composition, &checkpoint).unwrap_err();
        assert!(names(&report, tensor), "{report}");
        assert!(!is_mapped(model.path()), "{fixture}: weights were mapped");
        told(checkpoint.tensor(&other));
        assert!(is_mapped(model.path()), "the check sees a mapping");
    }
}

fn names(report: &Report, name: &str) -> bool {
    report.to_string().contains(name)
}

fn rename_in_index(folder: &Path, from: &str, to: &str) {
    let path = folder.join("model.safetensors.index.json");
    if let Ok(text) = fs::read_to_string(&path) {
        fs::write(&path, text.replace(from, to)).unwrap();
    }
}

/// Whether this process has a file of the folder in its memory.
fn is_mapped(folder: &Path) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| line.contains(folder.to_str().unwrap()))
}

fn set(config: &mut Config, path: &str, value: Value) {
    let (mut level, mut key) = (config, path);
    while let Some((first, rest)) = key.split_once('.') {
        level = level[first].as_object_mut().unwrap();
        key = rest;
    }
    level.insert(key.to_owned(), value);
}
