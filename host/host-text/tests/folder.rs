//! Tokenizers of model folders: what each file beside `tokenizer.json` means, and how a bad one is refused.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;

use host_core::{Reported, Vocabulary};
use host_text::{TextError, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A SentencePiece vocabulary of a few tokens, as the `tokenizer.json` that a folder holds.
fn tokenizer_json() -> Value {
    let tokens = ["<unk>", "<s>", "</s>", "<|turn|>", "a", "b", "ab", "▁"];
    let vocabulary = Vocabulary {
        model: "llama".into(),
        tokens: tokens.map(str::to_owned).to_vec(),
        scores: (0..8u8).map(|i| -f32::from(i)).collect(),
        token_types: vec![2, 3, 3, 3, 1, 1, 1, 1],
        bos_token_id: Some(1),
        eos_token_id: Some(2),
        unknown_token_id: Some(0),
        add_space_prefix: Some(false),
        ..Vocabulary::default()
    };
    let json = Tokenizer::from_vocabulary(&vocabulary).unwrap().to_tokenizer_json().unwrap();
    serde_json::from_str(&json).unwrap()
}

fn folder(files: &[(&str, Value)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn read(files: &[(&str, Value)]) -> Result<Tokenizer, TextError> {
    let mut all = vec![("tokenizer.json", tokenizer_json())];
    all.extend(files.iter().cloned());
    Tokenizer::from_folder(folder(&all).path())
}

fn config(object: Value) -> [(&'static str, Value); 1] {
    [("tokenizer_config.json", object)]
}

#[test]
fn the_post_processor_rules_unless_the_flags_do() {
    let named = |flags: Value| {
        let mut object = json!({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}});
        object.as_object_mut().unwrap().extend(flags.as_object().unwrap().clone());
        config(object)
    };
    for (flags, expected) in [
        (json!({}), &[1, 6][..]),
        (json!({"add_bos_token": true}), &[1, 6]),
        (json!({"add_bos_token": false}), &[6]),
        (json!({"add_eos_token": true}), &[6, 2]),
        (json!({"add_bos_token": true, "add_eos_token": true}), &[1, 6, 2]),
        (json!({"add_bos_token": null}), &[1, 6]),
    ] {
        let tokenizer = read(&named(flags.clone())).unwrap();
        assert_eq!(tokenizer.encode("ab", true, true).unwrap(), expected, "{flags}");
        assert_eq!(tokenizer.encode("ab", false, true).unwrap(), [6]);
        assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (Some(1), Some(2)));
    }
}

#[test]
fn what_ends_a_generation() {
    let eos = ("tokenizer_config.json", json!({"eos_token": "</s>"}));
    let model = ("config.json", json!({"eos_token_id": 3}));
    let generation = ("generation_config.json", json!({"eos_token_id": [2, 3]}));
    assert!(read(&[]).unwrap().stop_ids().is_empty());
    assert_eq!(read(std::slice::from_ref(&eos)).unwrap().stop_ids(), [2]);
    assert_eq!(read(&[eos.clone(), model.clone()]).unwrap().stop_ids(), [3]);
    assert_eq!(read(&[eos, model, generation]).unwrap().stop_ids(), [2, 3]);
}

/// A token as `added_tokens_decoder` lists it.
fn added(content: &str) -> Value {
    json!({
        "content": content, "special": false, "normalized": false,
        "lstrip": false, "rstrip": false, "single_word": false,
    })
}

#[test]
fn tokens_added_by_the_configuration_are_recognised() {
    let mut tokens = json!({"9": added("<two>"), "8": added("<one>"), "1": added("<s>")});
    for special in ["8", "1"] {
        tokens[special]["special"] = true.into();
    }
    let tokenizer = read(&config(json!({"added_tokens_decoder": tokens}))).unwrap();
    assert_eq!(tokenizer.encode("a<two><one>", false, true).unwrap(), [4, 9, 8]);
    assert_eq!((tokenizer.n_vocab(), tokenizer.is_special(8), tokenizer.is_special(9)), (10, true, false));
    assert_eq!(tokenizer.decode(&[8, 4, 9], true), "a<two>");
}

#[test]
fn the_chat_template_of_a_folder() {
    let text = |tokenizer: Tokenizer| tokenizer.chat_template().map(|template| template.source().to_owned());
    let code = |tokenizer: Tokenizer| tokenizer.chat_template().unwrap_err().report().code;
    let several = |names: &[&str]| {
        let list: Vec<Value> = names.iter().map(|name| json!({"name": name, "template": name})).collect();
        config(json!({"chat_template": list}))
    };
    let jinja = ("chat_template.jinja", json!("from jinja"));
    let own = ("chat_template.json", json!({"chat_template": "from json"}));
    let inside = ("tokenizer_config.json", json!({"chat_template": "from config"}));
    assert_eq!(code(read(&[]).unwrap()), "text.no-template");
    assert_eq!(text(read(std::slice::from_ref(&inside)).unwrap()).unwrap(), "from config");
    assert_eq!(text(read(&[inside.clone(), own.clone()]).unwrap()).unwrap(), "from json");
    assert_eq!(text(read(&[inside, own, jinja]).unwrap()).unwrap(), "from jinja");
    assert_eq!(text(read(&several(&["tool_use", "default"])).unwrap()).unwrap(), "default");
    assert_eq!(text(read(&several(&["rag"])).unwrap()).unwrap(), "rag");
    assert_eq!(code(read(&several(&["rag", "tool_use"])).unwrap()), "text.ambiguous-template");
}

#[test]
fn every_named_token_reaches_the_template() {
    let map = ("special_tokens_map.json", json!({"pad_token": "</s>", "bos_token": "<s>"}));
    let own = (
        "tokenizer_config.json",
        json!({"bos_token": "<|turn|>", "image_token": "a", "add_bos_token": true}),
    );
    let special = read(&[map, own]).unwrap().special().clone();
    assert_eq!(
        Value::Object(special.named),
        json!({"pad_token": "</s>", "bos_token": "<|turn|>", "image_token": "a"})
    );
    assert_eq!((special.bos.unwrap().id, special.pad.unwrap().id), (3, 2));
}

#[test]
fn bad_files_are_refused_by_name() {
    let with = |change: fn(&mut Value)| {
        let mut json = tokenizer_json();
        change(&mut json);
        [("tokenizer.json", json)]
    };
    for (files, code) in [
        (&[][..], "text.unreadable"),
        (&[("tokenizer.json", json!("{"))], "text.invalid-json"),
        (&[("tokenizer.json", json!([]))], "text.unknown-decoder"),
        (&with(|json| json["decoder"] = Value::Null), "text.unknown-decoder"),
        (&with(|json| json["model"] = json!({"type": "Fantasy"})), "text.invalid-tokenizer"),
        (&with(|json| json["model"]["merges"] = json!([["a", "zz"]])), "text.invalid-tokenizer"),
        (
            &with(|json| {
                json["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false})
            }),
            "text.invalid-tokenizer",
        ),
        (&with(|json| json["post_processor"]["special_tokens"] = json!({})), "text.invalid-tokenizer"),
        (&with(|json| json["post_processor"]["single"] = json!([])), "text.invalid-tokenizer"),
    ] {
        let report = Tokenizer::from_folder(folder(files).path()).unwrap_err().report();
        assert_eq!(report.code, code, "{report}");
    }
    for (name, content, code) in [
        ("tokenizer_config.json", json!("[]"), "text.invalid-json"),
        ("tokenizer_config.json", json!({"bos_token": 1}), "text.invalid-key"),
        ("tokenizer_config.json", json!({"add_bos_token": "yes"}), "text.invalid-key"),
        ("tokenizer_config.json", json!({"chat_template": 1}), "text.invalid-key"),
        ("tokenizer_config.json", json!({"chat_template": [{"name": "a"}]}), "text.invalid-key"),
        ("tokenizer_config.json", json!({"added_tokens_decoder": {"x": {}}}), "text.invalid-key"),
        (
            "tokenizer_config.json",
            json!({"added_tokens_decoder": {"10": added("<gap>")}}),
            "text.invalid-key",
        ),
        ("tokenizer_config.json", json!({"added_tokens_decoder": {"3": added("a")}}), "text.invalid-key"),
        ("generation_config.json", json!({"eos_token_id": -1}), "text.invalid-key"),
        ("generation_config.json", json!({"eos_token_id": ["2"]}), "text.invalid-key"),
        ("special_tokens_map.json", json!("nonsense"), "text.invalid-json"),
    ] {
        let report = read(&[(name, content.clone())]).unwrap_err().report();
        assert_eq!(report.code, code, "{name} {content}: {report}");
        assert!(report.message.contains(name), "{report}");
    }
}
