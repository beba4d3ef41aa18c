//! What a model folder says of its tokenizer without building it, and how it says that it says nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use host_core::{TokenizerFact, TokenizerKey};
use host_text::{Tokenizer, tokenizer_facts};

use TokenizerFact::{Absent, Count, Text, Unreadable};
use TokenizerKey::{Class, Digest, Kind, NVocab, Pre};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

fn fact(folder: &Path, key: TokenizerKey) -> TokenizerFact {
    let facts = tokenizer_facts(folder, &BTreeSet::from([key]));
    assert_eq!(facts.len(), 1, "only what is asked");
    facts[&key].clone()
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    folder
}

/// The digest is what `sha256sum` prints for the file.
#[test]
fn a_folder_says_what_its_files_say() {
    let folder = fixture("tiny-llama-tied");
    let facts = tokenizer_facts(&folder, &BTreeSet::from(TokenizerKey::ALL));
    let expected = [
        (Kind, Text("BPE".to_owned())),
        (Pre, Absent("only a GGUF file names one".to_owned())),
        (Class, Text("PreTrainedTokenizerFast".to_owned())),
        (NVocab, Count(256)),
        (Digest, Text("2a6f391145882dbdfa4acd53e15989eece24ae697e022f90fa39d289802e02e4".to_owned())),
    ];
    assert_eq!(facts.into_iter().collect::<Vec<_>>(), expected);
    assert!(tokenizer_facts(&folder, &BTreeSet::new()).is_empty());
}

/// Added tokens count wherever they are listed, and a vocabulary may be an object or a list.
#[test]
fn the_number_of_ids_is_one_more_than_the_largest() {
    let check = |tokenizer: &str, config: Option<&str>, expected: TokenizerFact| {
        let mut files = vec![("tokenizer.json", tokenizer)];
        files.extend(config.map(|text| ("tokenizer_config.json", text)));
        assert_eq!(fact(folder(&files).path(), NVocab), expected, "{tokenizer} {config:?}");
    };
    let two = r#"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}}"#;
    check(two, None, Count(2));
    check(two, Some(r#"{"added_tokens_decoder": {"7": {"content": "<x>"}, "3": {}}}"#), Count(8));
    check(two, Some(r#"{"added_tokens_decoder": null}"#), Count(2));
    check(two, Some("{}"), Count(2));
    check(r#"{"added_tokens": [{"id": 4}], "model": {"type": "BPE", "vocab": {"a": 0}}}"#, None, Count(5));
    check(r#"{"model": {"type": "Unigram", "vocab": [["a", 0.0], ["b", -1.5], ["c", -2]]}}"#, None, Count(3));
    let wrong = "`added_tokens_decoder` in tokenizer_config.json is no object of token ids";
    for decoder in ["[]", "{\"x\": {}}", "{\"-1\": {}}", "{\"99999999999\": {}}"] {
        let config = format!("{{\"added_tokens_decoder\": {decoder}}}");
        check(two, Some(&config), Unreadable(wrong.to_owned()));
    }
}

/// A tokenizer that is built counts the same.
#[test]
fn the_number_of_ids_is_that_of_the_built_tokenizer() {
    let mut n_folders = 0;
    for entry in fs::read_dir(fixture("")).unwrap() {
        let folder = entry.unwrap().path();
        if folder.join("tokenizer.json").is_file() {
            let built = Tokenizer::from_folder(&folder).unwrap().n_vocab();
            assert_eq!(fact(&folder, NVocab), Count(built as u64), "{}", folder.display());
            n_folders += 1;
        }
    }
    assert!(n_folders > 10, "{n_folders} folders");
}

#[test]
fn what_is_not_there_is_absent_and_what_is_broken_unreadable() {
    let absent = |files: &[(&str, &str)], key: TokenizerKey, why: &str| {
        assert_eq!(fact(folder(files).path(), key), Absent(why.to_owned()), "{files:?} {key:?}");
    };
    for key in [Kind, NVocab, Digest] {
        absent(&[], key, "there is no tokenizer.json");
    }
    absent(&[], Class, "there is no tokenizer_config.json");
    absent(&[("tokenizer_config.json", "{}")], Class, "tokenizer_config.json has no `tokenizer_class`");
    absent(
        &[("tokenizer_config.json", r#"{"tokenizer_class": null}"#)],
        Class,
        "tokenizer_config.json has no `tokenizer_class`",
    );
    absent(&[("tokenizer.json", r#"{"model": {}}"#)], Kind, "tokenizer.json has no `model.type`");

    let unreadable =
        |files: &[(&str, &str)], key: TokenizerKey, says: &str| match fact(folder(files).path(), key) {
            Unreadable(why) => assert!(why.contains(says), "{why}"),
            other => panic!("{files:?} {key:?}: {other:?}"),
        };
    for text in ["", "[]", "{}", "{\"model\": 3}", "{\"model\": {\"type\": 1}}", "\u{0}"] {
        unreadable(&[("tokenizer.json", text)], Kind, "tokenizer.json: ");
    }
    for vocab in ["{\"a\": -1}", "{\"a\": \"b\"}", "{\"a\": 4294967296}", "3"] {
        let text = format!("{{\"model\": {{\"vocab\": {vocab}}}}}");
        unreadable(&[("tokenizer.json", &text)], NVocab, "tokenizer.json: ");
    }
    unreadable(&[("tokenizer_config.json", r#"{"tokenizer_class": 3}"#)], Class, "is 3, expected a text");
    unreadable(&[("tokenizer_config.json", "{")], Class, "tokenizer_config.json: ");
    unreadable(
        &[("tokenizer.json", r#"{"model": {"vocab": {}}}"#), ("tokenizer_config.json", "{")],
        NVocab,
        "tokenizer_config.json: ",
    );
    // A broken file has a digest: it is what it is.
    assert!(matches!(fact(folder(&[("tokenizer.json", "{")]).path(), Digest), Text(_)));
}
