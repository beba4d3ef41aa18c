//! The fingerprint of a configuration, and the artifact of a path, against values made elsewhere.

use std::path::Path;

use host_core::Reported;
use serde_json::{Map, Value, json};

use super::{FILE, config, edited, shown, table};
use crate::{ConfigFingerprint, KvQuant, LoadedProfile, ModelIdentity, ProfileSet, Subject, artifact_of};

/// The configuration of the goldens, in the words of `config.json`.
fn golden() -> Map<String, Value> {
    let config = json!({
        "layer_types": ["sliding_attention", "full_attention"],
        "hidden_size": 256,
        "head_dim": 64,
        "global_head_dim": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": true,
        "sliding_window": 512,
        "final_logit_softcapping": 30.0,
    });
    config.as_object().cloned().expect("an object")
}

fn with(edits: Value) -> Map<String, Value> {
    let mut config = golden();
    config.extend(edits.as_object().cloned().expect("an object"));
    config
}

fn of(config: &Map<String, Value>) -> String {
    Subject::from(config).fingerprint().expect("a fingerprint").to_string()
}

/// Source of the expected values: the program whose rule this is, on the same configuration.
#[test]
fn the_goldens() {
    assert_eq!(of(&golden()), "4ce6e585e9bbc0e8");
    let kv_quant = [(0, 4), (1, 8)].map(|(layer_idx, bits)| KvQuant { layer_idx, bits, group_size: 64 });
    let identity = ModelIdentity { kv_quant: Some(kv_quant.to_vec()), artifact: None, ..ModelIdentity::NONE };
    let mixed = Subject { config: &golden(), identity: &identity }.fingerprint().unwrap();
    assert_eq!(mixed.to_string(), "2ed540cade6911e3");
    assert_eq!(of(&with(json!({ "final_logit_softcapping": null }))), "fdd2b5499fab867a");
}

/// Each pair says the same, one in full and one with what is filled in.
#[test]
fn what_is_absent_is_filled_in() {
    let same = |edits: Value| assert_eq!(of(&with(edits.clone())), "4ce6e585e9bbc0e8", "{edits}");
    same(
        json!({ "num_kv_shared_layers": 0, "enable_moe_block": false, "num_experts": 0, "top_k_experts": 0 }),
    );
    same(json!({ "num_experts": 128, "top_k_experts": 8 }));
    same(json!({ "num_experts": null, "enable_moe_block": null, "hidden_size_per_layer_input": null }));
    // 256 / 4
    same(json!({ "head_dim": null }));
    same(json!({ "hidden_size": 256.0, "final_logit_softcapping": 30 }));
    // What is no shape.
    same(json!({ "vocab_size": 9, "rms_norm_eps": 1e-6, "rope_theta": 5.0, "intermediate_size": 7 }));
    let inner = json!({ "hidden_size": 1, "text_config": golden() });
    assert_eq!(of(inner.as_object().unwrap()), "4ce6e585e9bbc0e8");
    let differs = |edits: Value| assert_ne!(of(&with(edits.clone())), "4ce6e585e9bbc0e8", "{edits}");
    differs(json!({ "global_head_dim": null }));
    differs(json!({ "num_global_key_value_heads": null }));
    differs(json!({ "num_key_value_heads": null }));
    differs(json!({ "enable_moe_block": true }));
    differs(json!({ "layer_types": null }));
    differs(json!({ "sliding_window": 513 }));
    let experts = |n: u32| of(&with(json!({ "enable_moe_block": true, "num_experts": n })));
    assert_ne!(experts(8), experts(16));
}

#[test]
fn a_llama_attends_fully_in_every_layer() {
    let llama = |edits: Value| {
        let mut config = json!({ "model_type": "llama", "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2 });
        config.as_object_mut().unwrap().extend(edits.as_object().cloned().unwrap());
        of(config.as_object().unwrap())
    };
    let listed = json!({ "layer_types": ["full_attention", "full_attention"] });
    assert_eq!(llama(json!({})), llama(listed));
    assert_ne!(llama(json!({})), llama(json!({ "num_hidden_layers": 3 })));
    assert_eq!(llama(json!({ "model_type": "qwen3" })), llama(json!({ "layer_types": [] })));
}

/// Numbers print as JavaScript prints them. The expected digests are `sha256sum`'s of the texts with the number as
/// Node.js prints it.
#[test]
fn numbers_print_as_javascript_prints_them() {
    let text = |number: &str| {
        format!(
            "{{\"layerTypes\":[\"sliding_attention\",\"full_attention\"],\"hiddenSize\":256,\"headDim\":64,\
             \"globalHeadDim\":128,\"numAttentionHeads\":4,\"numKeyValueHeads\":2,\"numGlobalKeyValueHeads\":1,\
             \"attentionKEqV\":true,\"numKvSharedLayers\":0,\"enableMoeBlock\":false,\"numExperts\":0,\
             \"topKExperts\":0,\"hiddenSizePerLayerInput\":0,\"slidingWindow\":512,\
             \"finalLogitSoftcapping\":{number},\"kvQuant\":null}}"
        )
    };
    let cases = [
        (30.0, "30"),
        (0.5, "0.5"),
        (1.0 / 3.0, "0.3333333333333333"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (1e-7, "1e-7"),
        (123456789.125, "123456789.125"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.25e22, "1.25e+22"),
        (9007199254740993.0, "9007199254740992"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
    ];
    for (number, printed) in cases {
        let expected = crate::Sha256Digest::of(text(printed).as_bytes()).short();
        assert_eq!(of(&with(json!({ "final_logit_softcapping": number }))), expected, "{printed}");
    }
}

#[test]
fn a_configuration_without_a_shape_has_no_fingerprint() {
    for (edits, message) in [
        (json!({ "hidden_size": null }), "`hidden_size` is absent, expected a number above 0"),
        (json!({ "hidden_size": "x" }), "`hidden_size` is \"x\", expected a number above 0"),
        (json!({ "num_attention_heads": 0 }), "`num_attention_heads` is 0, expected a number above 0"),
        (json!({ "head_dim": [1] }), "`head_dim` is [1], expected a number"),
        (json!({ "attention_k_eq_v": 1 }), "`attention_k_eq_v` is 1, expected true or false"),
        (json!({ "layer_types": [1] }), "`layer_types` is [1], expected a list of texts"),
        (json!({ "layer_types": "x" }), "`layer_types` is \"x\", expected a list of texts"),
        (
            json!({ "layer_types": null, "model_type": "llama", "num_hidden_layers": 1e12 }),
            "`num_hidden_layers` is 1000000000000.0, expected at most 100000",
        ),
    ] {
        let fault = Subject::from(&with(edits)).fingerprint().unwrap_err();
        assert_eq!(fault.to_string(), message);
    }
}

#[test]
fn an_artifact_is_a_snapshot_of_the_hub_and_nothing_else() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let check = |path: String, expected: Option<&str>| {
        let expected = expected.map(|name| format!("hf:{name}@{commit}"));
        assert_eq!(artifact_of(Path::new(&path)), expected, "{path}");
    };
    check(format!("/cache/models--org--name/snapshots/{commit}"), Some("org/name"));
    check(format!("models--org--name--4bit/snapshots/{commit}"), Some("org/name--4bit"));
    check(format!("/cache/models--org--name/snapshots/{commit}/model.gguf"), Some("org/name"));
    check(format!("/cache/models--org--name/snapshots/{commit}/deep/model.gguf"), None);
    check(format!("/cache/models--org--name/blobs/{commit}"), None);
    check(format!("/cache/models--org/snapshots/{commit}"), None);
    check(format!("/cache/models----name/snapshots/{commit}"), None);
    check(format!("/cache/datasets--org--name/snapshots/{commit}"), None);
    check(format!("/cache/models--org--name/snapshots/{}", &commit[..39]), None);
    check(format!("/cache/models--org--name/snapshots/{}", commit.replace('a', "A")), None);
    check(format!("/{commit}"), None);
    check(String::new(), None);
}

#[test]
fn a_kv_config_beside_the_model_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let read = || ModelIdentity::read(folder.path());
    assert_eq!(read(), Ok(ModelIdentity::NONE));
    let write = |text: &str| std::fs::write(folder.path().join("kv_config.json"), text).unwrap();
    write(r#"[{"layer_idx": 3, "bits": 8, "group_size": 64}]"#);
    let entry = KvQuant { layer_idx: 3, bits: 8, group_size: 64 };
    assert_eq!(read().unwrap().kv_quant, Some(vec![entry]));
    write("{}");
    assert_eq!(read().unwrap_err().report().code, "profile.identity");
}

const GOLDEN: &str = "fingerprint = \"4ce6e585e9bbc0e8\"\nhidden_size = 256\n\n[compose]";

fn pinned(lines: &str) -> String {
    edited(&[
        ("model_type = { in = [\"llama\", \"mistral\"] }\n", ""),
        ("hidden_size = { min = 32, max = 64 }\n", ""),
        ("[compose]", lines),
    ])
}

#[test]
fn a_profile_for_one_shape_fits_that_alone() {
    let set = ProfileSet::from_texts([(FILE, pinned(GOLDEN))]).unwrap();
    assert_eq!(set.match_config(&golden()).chosen().unwrap().id(), "tiny");
    let other = with(json!({ "sliding_window": 256 }));
    let refused = |config: &Map<String, Value>| {
        let decision = set.match_named("tiny", config).unwrap();
        shown(&decision.chosen().unwrap_err().report())
    };
    insta::assert_snapshot!(refused(&other), @r#"
    error[profile.fingerprint-mismatch]: the profile `tiny` does not fit this model
      expected  fingerprint: "4ce6e585e9bbc0e8"
      found     "a3f09c8dd7d2ce21"
      mend      leave the profile to be chosen, or name one that fits
      at        profiles/tiny.toml:10:15
      | fingerprint = "4ce6e585e9bbc0e8"
      |               ^^^^^^^^^^^^^^^^^^
    "#);
    insta::assert_snapshot!(refused(&config(json!({ "hidden_size": 256 }))), @r#"
    error[profile.fingerprint-mismatch]: the profile `tiny` does not fit this model
      expected  fingerprint: "4ce6e585e9bbc0e8"
      found     none: `num_attention_heads` is absent, expected a number above 0
      mend      leave the profile to be chosen, or name one that fits
      at        profiles/tiny.toml:10:15
      | fingerprint = "4ce6e585e9bbc0e8"
      |               ^^^^^^^^^^^^^^^^^^
    "#);
}

#[test]
fn a_profile_for_one_artifact_fits_that_alone() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let lines = format!("artifact = \"hf:org/name@{commit}\"\n{GOLDEN}");
    let set = ProfileSet::from_texts([(FILE, pinned(&lines))]).unwrap();
    let fits = |artifact: Option<String>| {
        let identity = ModelIdentity { artifact, ..ModelIdentity::NONE };
        set.match_config(Subject { config: &golden(), identity: &identity }).chosen().is_ok()
    };
    assert!(fits(Some(format!("hf:org/name@{commit}"))));
    assert!(!fits(Some(format!("hf:org/other@{commit}"))));
    assert!(!fits(None));
}

#[test]
fn lines_that_no_model_could_fit_are_refused() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let cases = [
        ("fingerprint = \"4CE6e585e9bbc0e8\"".to_owned()),
        ("fingerprint = \"4ce6\"".to_owned()),
        ("fingerprint = 4".to_owned()),
        ("fingerprint = { present = true }".to_owned()),
        ("fingerprint = { equals = \"4ce6e585e9bbc0e8\", optional = true }".to_owned()),
        (format!("artifact = \"hf:org/name@{commit}\"")),
        ("fingerprint = \"4ce6e585e9bbc0e8\"\nartifact = \"hf:org/name\"".to_owned()),
        (format!("fingerprint = \"4ce6e585e9bbc0e8\"\nartifact = \"org/name@{commit}\"")),
    ];
    let cases = cases.map(|lines| {
        let text = pinned(&format!("{lines}\n\n[compose]"));
        (lines, LoadedProfile::parse(FILE, &text).unwrap_err())
    });
    snapshot!(table(cases));
    let several = "fingerprint = { in = [\"4ce6e585e9bbc0e8\", \"fdd2b5499fab867a\"] }\n\n[compose]";
    LoadedProfile::parse(FILE, &pinned(several)).unwrap();
}

#[test]
fn fingerprints_are_sixteen_digits() {
    assert_eq!("4ce6e585e9bbc0e8".parse::<ConfigFingerprint>().unwrap().to_string(), "4ce6e585e9bbc0e8");
    for bad in ["", "4ce6e585e9bbc0e", "4ce6e585e9bbc0e80", "4CE6E585E9BBC0E8", "+ce6e585e9bbc0e8"] {
        assert!(bad.parse::<ConfigFingerprint>().is_err(), "{bad}");
    }
}
