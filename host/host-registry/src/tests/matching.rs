//! Which profile fits: predicates one by one, the superset rule, and the refusals.

use host_core::Reported;
use serde_json::{Value, json};

use super::{PROFILE, config, edited, shown, table};
use crate::{LoadedProfile, MatchRefusal, Predicate, ProfileSet, Verdict};

/// Whether one line of `[match]` holds for a value of the key `k`; `null` for none.
fn holds(predicate: &str, value: Value) -> bool {
    #[derive(serde::Deserialize)]
    struct Line {
        #[serde(rename = "match")]
        lines: crate::Match,
    }
    let line: Line = toml::from_str(&format!("match = {{ k = {predicate} }}")).expect(predicate);
    let config = json!({ "k": value });
    line.lines.failures(config.as_object().unwrap()).is_empty()
}

#[test]
fn each_condition_holds_for_what_it_says() {
    let check = |predicate: &str, yes: &[Value], no: &[Value]| {
        yes.iter().for_each(|value| assert!(holds(predicate, value.clone()), "{predicate} for {value}"));
        no.iter().for_each(|value| assert!(!holds(predicate, value.clone()), "{predicate} for {value}"));
    };
    check("\"silu\"", &[json!("silu")], &[json!("gelu"), json!(null), json!(1)]);
    check("576", &[json!(576), json!(576.0)], &[json!(575), json!("576"), json!(null)]);
    check("0.5", &[json!(0.5)], &[json!(0), json!(true)]);
    check("1e-05", &[json!(0.00001)], &[json!(0.000011)]);
    check("false", &[json!(false)], &[json!(true), json!(null), json!(0)]);
    check("[1, 2]", &[json!([1, 2]), json!([1.0, 2])], &[json!([2, 1]), json!([1]), json!(1)]);
    check("{ equals = 1 }", &[json!(1)], &[json!(2), json!(null)]);
    check("{ in = [1, \"a\"] }", &[json!(1), json!("a")], &[json!("b"), json!(null)]);
    check("{ in = [1], optional = true }", &[json!(1), json!(null)], &[json!(2)]);
    check("{ min = 2 }", &[json!(2), json!(2.5)], &[json!(1.9), json!("3"), json!(null)]);
    check("{ max = 2 }", &[json!(2), json!(-1)], &[json!(2.1), json!(null)]);
    check("{ min = 1, max = 2, in = [2, 3] }", &[json!(2)], &[json!(1), json!(3)]);
    check("{ present = true }", &[json!(0), json!({})], &[json!(null)]);
    check("{ present = false }", &[json!(null)], &[json!(0), json!(false), json!({})]);
    let keys = "{ keys = [\"bits\", \"mode\"] }";
    check(
        keys,
        &[json!({}), json!({ "bits": 4 })],
        &[json!({ "bot": 4 }), json!(4), json!(null), json!({ "m": false })],
    );
    let modules = "{ keys = [\"bits\", \"mode\"], modules = true }";
    check(
        modules,
        &[json!({ "bits": 4, "model.norm": false, "lm_head": { "bits": 8 } })],
        &[json!({ "m": true }), json!({ "m": { "bots": 4 } }), json!({ "m": 3 }), json!({ "m": null })],
    );
}

#[test]
fn keys_are_looked_up_in_the_text_configuration_first() {
    let line = |key: &str, value: Value| crate::Match(vec![(key.to_owned(), Predicate::equals(value))]);
    let nested = json!({
        "model_type": "gemma3",
        "text_config": { "model_type": "gemma3_text", "hidden_size": null, "rope": { "kind": { "name": "a" } } },
        "hidden_size": 8,
        "rope": 1,
    });
    let config = nested.as_object().unwrap();
    let check = |key: &str, value: Value| assert_eq!(line(key, value).failures(config), [], "{key}");
    check("model_type", json!("gemma3_text"));
    check("hidden_size", json!(8));
    check("rope.kind.name", json!("a"));
    check("text_config.model_type", json!("gemma3_text"));
    let failed = line("rope.kind.name.more", json!(1)).failures(config);
    assert_eq!(failed[0].found, "absent");
}

/// Profiles whose match keys are given, all of which hold.
fn set(profiles: &[(&str, &[&str])]) -> ProfileSet {
    let texts: Vec<(String, String)> = profiles
        .iter()
        .map(|(id, keys)| {
            let lines: String = keys.iter().map(|key| format!("{key} = 1\n")).collect();
            let (head, rest) = PROFILE.split_once("[match]").unwrap();
            let (_, rest) = rest.split_once("[compose]").unwrap();
            let text =
                format!("{head}[match]\n{lines}[compose]{rest}").replace("\"tiny\"", &format!("\"{id}\""));
            (format!("{id}.toml"), text)
        })
        .collect();
    ProfileSet::from_texts(texts).unwrap()
}

#[test]
fn the_profile_that_says_strictly_more_wins() {
    let ones = json!({ "a": 1, "b": 1, "c": 1, "d": 1 });
    let check = |profiles: &[(&str, &[&str])], winner: Option<&str>| {
        let decision = set(profiles).match_config(ones.as_object().unwrap());
        let chosen = decision.chosen().ok().map(|loaded| loaded.id().to_owned());
        assert_eq!(chosen.as_deref(), winner, "{profiles:?}");
    };
    check(&[("x", &["a"])], Some("x"));
    check(&[("x", &["a"]), ("y", &["a", "b"])], Some("y"));
    check(&[("x", &["a"]), ("y", &["a", "b"]), ("z", &["a", "b", "c"])], Some("z"));
    check(&[("x", &["a"]), ("y", &["b"]), ("z", &["a", "b"])], Some("z"));
    // The same keys, crossing keys, more keys that are others: each is a tie.
    check(&[("x", &["a"]), ("y", &["a"])], None);
    check(&[("x", &["a", "b"]), ("y", &["b", "c"])], None);
    check(&[("x", &["a"]), ("y", &["b", "c", "d"])], None);
    // One superset of one other is not enough where a third is beside it.
    check(&[("x", &["a"]), ("y", &["a", "b"]), ("z", &["c"])], None);
    // Profiles that do not fit take no part.
    check(&[("x", &["a"]), ("y", &["a", "b", "zz"])], Some("x"));
}

#[test]
fn every_candidate_has_a_verdict() {
    let ones = json!({ "a": 1, "b": 1 });
    let set = set(&[("x", &["a"]), ("y", &["a", "b"]), ("z", &["a", "q"])]);
    let decision = set.match_config(ones.as_object().unwrap());
    let lines: Vec<String> = decision.candidates().iter().map(|candidate| candidate.line()).collect();
    let expected = [
        "x: fits, but `y` also matches b",
        "y: chosen, all 2 lines hold",
        "z: q is absent, expected 1 (z.toml:7)",
    ];
    assert_eq!(lines, expected);
    let named = set.match_named("x", ones.as_object().unwrap()).unwrap();
    assert_eq!(named.chosen().unwrap().id(), "x");
    assert_eq!(named.candidates()[1].verdict, Verdict::NotNamed);
}

#[test]
fn a_model_that_no_profile_fits_is_refused_with_the_nearest() {
    let other = edited(&[("id = \"tiny\"", "id = \"other\""), ("\"llama\", \"mistral\"", "\"gemma3_text\"")])
        .replace("hidden_size = { min = 32, max = 64 }", "hidden_size = { min = 1024 }");
    let set =
        ProfileSet::from_texts([("profiles/tiny.toml", PROFILE), ("profiles/other.toml", &other)]).unwrap();
    let refusal = |name: &str, edits: Value| {
        let decision = set.match_config(&config(edits));
        (name.to_owned(), vec![decision.chosen().expect_err(name).clone()])
    };
    let named = |name: &str, edits: Value| {
        let decision = set.match_named("tiny", &config(edits)).unwrap();
        (name.to_owned(), vec![decision.chosen().expect_err(name).clone()])
    };
    let twice = ProfileSet::from_texts([
        ("profiles/tiny.toml", PROFILE.to_owned()),
        ("profiles/twin.toml", edited(&[("id = \"tiny\"", "id = \"twin\"")])),
        (
            "profiles/cross.toml",
            edited(&[("id = \"tiny\"", "id = \"cross\""), ("vision_config =", "audio_config =")]),
        ),
    ])
    .unwrap();
    let tie = twice.match_config(&config(json!({}))).chosen().unwrap_err().clone();
    let empty = ProfileSet::default().match_config(&config(json!({}))).chosen().unwrap_err().clone();
    assert_eq!(empty, MatchRefusal::NoProfiles);
    snapshot!(table([
        refusal("unknown model_type", json!({ "model_type": "mamba" })),
        refusal("model_type of another profile", json!({ "model_type": "gemma3_text" })),
        refusal("no model_type", json!({ "model_type": null })),
        refusal("another activation", json!({ "hidden_act": "gelu" })),
        refusal("a size out of range", json!({ "hidden_size": 4096 })),
        refusal("a size that is no number", json!({ "hidden_size": "large" })),
        refusal(
            "an extra quantisation key",
            json!({ "quantization": { "bits": 4, "group_size": 64, "codebook": 1 } })
        ),
        refusal(
            "another library's quantisation",
            json!({ "quantization": { "quant_method": "gptq", "bits": 4 } })
        ),
        refusal(
            "an extra key of a module",
            json!({ "quantization": { "bits": 4, "lm_head": { "bits": 8, "zero": 1 } } })
        ),
        refusal("a vision tower", json!({ "vision_config": { "hidden_size": 1152 } })),
        refusal(
            "several lines at once",
            json!({ "hidden_act": "gelu", "hidden_size": 8, "vision_config": {} })
        ),
        refusal("nested configuration", json!({ "text_config": { "model_type": "qwen3" } })),
        refusal("a long value", json!({ "hidden_act": "x".repeat(300) })),
        named("the named profile does not fit", json!({ "hidden_act": "gelu", "vision_config": {} })),
        ("three profiles tie".to_owned(), vec![tie]),
        ("no profiles".to_owned(), vec![empty]),
    ]));
}

#[test]
fn an_altered_key_is_named_with_its_line() {
    let set = ProfileSet::from_texts([("profiles/tiny.toml", PROFILE)]).unwrap();
    let decision = set.match_named("tiny", &config(json!({ "hidden_act": "gelu" }))).unwrap();
    insta::assert_snapshot!(shown(&decision.chosen().unwrap_err().report()), @r#"
    error[profile.mismatch]: the profile `tiny` does not fit this model
      expected  hidden_act: "silu" or absent
      found     "gelu"
      mend      leave the profile to be chosen, or name one that fits
      at        profiles/tiny.toml:7:1
      | hidden_act = { equals = "silu", optional = true }
      | ^^^^^^^^^^
    "#);
}

/// In TOML `a.b = 1` is a table `a` with a key `b`; the keys of `[match]` are whole paths.
#[test]
fn a_path_without_quotes_is_told_to_be_quoted() {
    let mend = |line: &str| {
        let text = edited(&[("[match]", &format!("[match]\n{line}"))]);
        let errors = LoadedProfile::parse(super::FILE, &text).unwrap_err();
        errors[0].report().mend.unwrap()
    };
    assert_eq!(
        mend("rope_scaling.rope_type = \"yarn\""),
        "write one key in quotes, `\"rope_scaling.rope_type\" = …`"
    );
    assert_eq!(mend("tokenizer.kind = \"BPE\""), "write one key in quotes, `\"tokenizer.kind\" = …`");
    assert_eq!(mend("rope_theta = { minn = 3 }"), "write `min` or `in`, or remove the key");
}
