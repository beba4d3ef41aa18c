//! What `tenon explain` tells of ten composed models, whole: the profile and why each other is none, every part, every
//! value with the place that it comes from.

use std::fs;

use tests::places::{fixture, workspace};
use tests::program::Tenon;

/// What differs from build to build and from machine to machine.
fn settled(text: &str) -> String {
    let root = format!("{}/", workspace().display());
    let lines = text.lines().map(|line| {
        let line = line.replace(&root, "");
        let (name, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match name {
            "composition" => "composition  [hash]".to_owned(),
            "memory" => "memory       [bytes]".to_owned(),
            // Where the folders have none it is the program's own, which lies elsewhere on each machine.
            "reloading" => match line.ends_with(" profiles/service/reload.toml") {
                true => line,
                false => "reloading    [the program's own]".to_owned(),
            },
            _ => rest
                .split(' ')
                .scan("", |before, word| {
                    let is_digest = word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
                    let shown = if is_digest && *before == "wasm" { "[digest]" } else { word };
                    *before = word;
                    Some(shown.to_owned())
                })
                .fold(name.to_owned(), |line, word| line + " " + &word)
                .trim_end()
                .to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The explanation of a fixture, with the repository's profiles.
fn explained(tenon: &Tenon, model: &str, flags: &[&str]) -> String {
    let (model, profiles) = (fixture(model).display().to_string(), workspace().join("profiles"));
    let profiles = profiles.display().to_string();
    let arguments = ["explain", &model, "--threads", "2", "--profiles", &profiles];
    settled(&tenon.run(&[&arguments[..], flags].concat()).done())
}

#[test]
fn each_composed_model_is_explained_whole() {
    let Some(tenon) = Tenon::find() else { return };
    let cases: [(&str, &[&str]); 8] = [
        ("tiny-llama-gqa-f32", &[]),
        ("tiny-llama-rope-yarn", &[]),
        ("tiny-llama-sharded", &["--numeric", "exact", "--kv-dtype", "f32", "--context-tokens", "32"]),
        ("tiny-gemma3-window", &[]),
        ("tiny-qwen3-gqa", &[]),
        ("tiny-mlx-q4-g64", &["--max-sequences", "2", "--memory-bytes", "64MiB"]),
        ("tiny-mlx-nvfp4", &[]),
        ("tiny-mlx-mixed", &["--policy", "no-repeat", "--policy-params", "{\"ngram\": 3}"]),
    ];
    for (model, flags) in cases {
        insta::assert_snapshot!(model, explained(&tenon, model, flags));
    }
}

/// A profile for one tokenizer, written with what `tenon explain` tells of it, takes that model and no other: a folder
/// by its `tokenizer.json`, a GGUF file by its metadata. The digests are those of `sha256sum` and of
/// `tests/oracle/gguf_tokenizer_digest.py`.
#[test]
fn a_profile_may_ask_for_one_tokenizer() {
    let Some(tenon) = Tenon::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::copy(workspace().join("profiles/llama.toml"), folder.path().join("llama.toml")).unwrap();
    let profiles = folder.path().display().to_string();
    let write = |lines: &str| {
        let head = "schema = 1\nid = \"mine\"\nabout = \"mine\"\nextends = \"llama\"\n\n[match]\n";
        fs::write(folder.path().join("mine.toml"), format!("{head}{lines}\n")).unwrap();
    };
    let explain = |model: &str, more: &[&str]| {
        let model = fixture(model).display().to_string();
        tenon.run(&[&["explain", &model, "--threads", "2", "--profiles", &profiles, "--json"], more].concat())
    };
    let of_folder = "2a6f391145882dbdfa4acd53e15989eece24ae697e022f90fa39d289802e02e4";
    let of_gguf = "f3b7efcb9927b9558a152ebfe248bdc33d1445f33bfde578b85c376accf4d832";
    let (safetensors, gguf) = ("tiny-llama-tied", "gguf-models/llama-f32.gguf");
    for (model, lines, other) in [
        (
            safetensors,
            format!(
                "\"tokenizer.kind\" = \"BPE\"\n\"tokenizer.class\" = {{ in = [\"PreTrainedTokenizerFast\"] }}\n\
                 \"tokenizer.n_vocab\" = 256\n\"tokenizer.pre\" = {{ present = false }}\n\
                 \"tokenizer.digest\" = \"{of_folder}\""
            ),
            gguf,
        ),
        (
            gguf,
            format!(
                "\"tokenizer.kind\" = \"llama\"\n\"tokenizer.pre\" = \"default\"\n\
                 \"tokenizer.n_vocab\" = {{ min = 200, max = 300 }}\n\"tokenizer.class\" = {{ present = false }}\n\
                 \"tokenizer.digest\" = \"{of_gguf}\""
            ),
            safetensors,
        ),
    ] {
        write(&lines);
        assert_eq!(explain(model, &[]).json()["profile"], "mine", "{model}");
        assert_eq!(explain(other, &[]).json()["profile"], "llama", "{other} has another tokenizer");
        let refused = explain(other, &["--profile", "mine"]);
        assert_eq!(refused.code, Some(3), "{refused:?}");
        let object: serde_json::Value = serde_json::from_str(&refused.stdout).unwrap();
        let report = &object["refusal"];
        assert_eq!(report["code"], "profile.mismatch", "{report}");
        assert!(report["expected"].as_str().unwrap().starts_with("tokenizer.kind: "), "{report}");
    }
    let told = &explain(gguf, &[]).json()["tokenizer"];
    let expected =
        serde_json::json!({ "kind": "llama", "pre": "default", "n_vocab": 256, "digest": of_gguf });
    assert_eq!(*told, expected, "nothing is told of a class");
}

/// A profile that extends another, and one that serves in place of the one that was named.
#[test]
fn bases_and_fallbacks_are_explained() {
    let Some(tenon) = Tenon::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::copy(workspace().join("profiles/llama.toml"), folder.path().join("llama.toml")).unwrap();
    let write = |id: &str, rest: &str| {
        let head =
            format!("schema = 1\nid = \"{id}\"\nabout = \"{id}\"\nextends = \"llama\"\nonly_named = true\n");
        fs::write(folder.path().join(format!("{id}.toml")), head + rest).unwrap();
    };
    write("mine", "[compose]\nnumeric = \"exact\"\n\n[limits]\nmax_sequences = 3\n");
    write(
        "first",
        "fallbacks = [\"mine\"]\n\n[compose]\ngraph = { plugin = \"llama\", version = \"^7.0\" }\n",
    );
    let (model, profiles) =
        (fixture("tiny-llama-gqa-f32").display().to_string(), folder.path().display().to_string());
    for id in ["mine", "first"] {
        let arguments = ["explain", &model, "--threads", "2", "--profiles", &profiles, "--profile", id];
        let text = tenon.run(&arguments).done().replace(&format!("{profiles}/"), "profiles/");
        insta::assert_snapshot!(format!("profile-{id}"), settled(&text));
    }
}
