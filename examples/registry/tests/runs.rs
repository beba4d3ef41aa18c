//! The example runs as its first lines say, and says what is written here: on a folder and on a GGUF file of a tiny
//! model with random weights.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const REGISTRY: &str = env!("CARGO_BIN_EXE_registry");

fn run(arguments: &[&str]) -> Output {
    Command::new(REGISTRY).args(arguments).output().expect("the example was built")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(name: &str) -> String {
    root().join("tests/fixtures").join(name).display().to_string()
}

/// The token ids of a fixture, and the most likely one after them, by `transformers`.
fn golden(name: &str) -> (String, u64) {
    let text = std::fs::read_to_string(Path::new(&fixture(name)).join("golden.json")).expect("a fixture");
    let golden: Value = serde_json::from_str(&text).expect("JSON");
    let ids: Vec<String> =
        golden["input_ids"].as_array().expect("a list").iter().map(ToString::to_string).collect();
    (ids.join(","), golden["greedy_output_ids"][0].as_u64().expect("an id"))
}

/// What it says, without what differs from build to build and from machine to machine.
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let here = format!("{}/", env!("CARGO_MANIFEST_DIR"));
    let settled = text.lines().map(|line| match line.split_once(' ') {
        Some(("composition", _)) => "composition  [hash]".to_owned(),
        Some(("graph", rest)) => {
            let is_digest =
                |word: &str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            let words = rest.split(' ').map(|word| if is_digest(word) { "[digest]" } else { word });
            format!("graph {}", words.collect::<Vec<_>>().join(" "))
        }
        _ => line.to_owned(),
    });
    settled.map(|line| line.replace(&here, "") + "\n").collect()
}

#[test]
fn it_composes_explains_and_refuses() {
    let (ids, next) = golden("tiny-llama-tied");
    let text = said(&run(&[&fixture("tiny-llama-tied"), &ids]));
    assert!(text.contains(&format!("\nnext token   {next}\n")), "{text}");
    insta::assert_snapshot!(text);
}

/// A GGUF file of the same family gives what its folder gives.
#[test]
fn it_serves_a_gguf_file() {
    let (ids, next) = golden("tiny-llama-gqa-f32");
    let text = said(&run(&[&fixture("gguf-models/llama-f32.gguf"), &ids]));
    assert!(text.contains(&format!("\nnext token   {next}\n")), "{text}");
}

#[test]
fn it_refuses_what_does_not_fit() {
    let output = run(&[&fixture("tiny-gemma3-window"), "1,2,3"]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("error[profile.no-match]") && stderr.contains("model_type"), "{stderr}");
    for bad in [&[][..], &["x"], &["x", "1,two"]] {
        assert_eq!(run(bad).status.code(), Some(2), "{bad:?}");
    }
}
