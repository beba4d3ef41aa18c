//! The example runs as its first lines say, on a tiny model with random weights.

use std::path::Path;
use std::process::{Command, Output};

const EMBED: &str = env!("CARGO_BIN_EXE_embed");

fn run(arguments: &[&str]) -> Output {
    Command::new(EMBED).args(arguments).output().expect("the example was built")
}

fn fixture(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    fixtures.join(name).display().to_string()
}

#[test]
fn it_answers() {
    let output = run(&[&fixture("tiny-llama-tied"), "one two three"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.len() > 1, "no text");
}

#[test]
fn it_refuses_what_does_not_fit() {
    let output = run(&[&fixture("tiny-gemma3-window"), "one two three"]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("error[profile.no-match]") && stderr.contains("model_type"), "{stderr}");
    assert!(!run(&[]).status.success());
}
