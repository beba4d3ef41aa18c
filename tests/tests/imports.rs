//! A GGUF file written as a model folder is the same model: the same logits bit for bit, the same tokenizer.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;

use host_core::Numeric;
use host_text::Tokenizer;
use host_weights::{Format, write_model_folder};
use tests::golden::Generation;
use tests::model::{overrides, told};
use tests::places::{fixture, name};
use tests::rows::{alone, first_difference, mixed_ids};
use tests::{Host, skip};

#[test]
fn tiny_files_are_the_same_as_folders() {
    for file in ["gemma3-f32.gguf", "llama-f16.gguf", "llama-f32.gguf"] {
        check(&fixture("gguf-models").join(file), false);
    }
}

#[test]
fn smollm2_is_the_same_as_a_folder() {
    check_model("smollm2-135m");
}

#[test]
fn gemma3_is_the_same_as_a_folder() {
    check_model("gemma3-270m");
}

fn check_model(fixture_name: &str) {
    let golden = Generation::read(fixture_name);
    if let Some(path) = skip::model_file(&golden.model_file, &golden.model_sha256) {
        check(&path, true);
    }
}

/// Writes the folder, opens it like any other, and compares. `has_tokenizer`: the file's vocabulary is a whole one.
fn check(file: &Path, has_tokenizer: bool) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("model");
    let host = Host::lua();
    let overrides = overrides(Numeric::Exact, 32, 1, 32);
    let original = host.open(file, &overrides).unwrap();
    assert_eq!(original.checkpoint.format(), Format::Gguf);
    told(write_model_folder(&original.checkpoint, &folder, &mut |_, _| ()));
    if has_tokenizer {
        write_tokenizer(&original.tokenizer(), &folder);
    }

    let written = host.open(&folder, &overrides).unwrap();
    assert_eq!(written.checkpoint.format(), Format::Safetensors);
    assert_eq!(written.composition.profile_id(), original.composition.profile_id());
    assert_eq!(written.graph.text(), original.graph.text(), "{}", name(file));
    let ids = mixed_ids(12, original.graph.n_vocab(), 1);
    let rows = [&original, &written].map(|model| alone(&mut *model.compile(), &ids));
    assert_eq!(first_difference(&rows[1], &rows[0]), None, "{}: position and token", name(file));
    if has_tokenizer {
        same_tokenizer(&written.tokenizer(), &original.tokenizer());
    }
}

fn write_tokenizer(tokenizer: &Tokenizer, folder: &Path) {
    for (name, text) in [
        ("tokenizer.json", told(tokenizer.to_tokenizer_json())),
        ("tokenizer_config.json", tokenizer.tokenizer_config_json()),
        ("generation_config.json", tokenizer.generation_config_json()),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
}

/// The corpus is compared in `tokenizer_corpus.rs`; here, that the folder leads to the same tokenizer.
fn same_tokenizer(found: &Tokenizer, expected: &Tokenizer) {
    let text = "One  tenon,\n two mörtises: 三つ 🪚 <|im_end|>\t";
    assert_eq!(told(found.encode(text, true, true)), told(expected.encode(text, true, true)));
    assert_eq!((found.special(), found.n_vocab()), (expected.special(), expected.n_vocab()));
    assert_eq!(found.has_chat_template(), expected.has_chat_template());
    if expected.has_chat_template() {
        assert_eq!(told(found.chat_template()).source(), told(expected.chat_template()).source());
    }
}
