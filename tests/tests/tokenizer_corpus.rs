//! Tokenizers built from GGUF vocabularies against `transformers`, line by line over the corpus of
//! `fixtures/tokenizer-lines`: ids with and without special tokens, text from ids, streamed text, and the same again
//! after the tokenizer was written as a model folder and read back.
//!
//! The GGUF files are not in the repository. `TENON_TEST_MODELS` names the folder that holds them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use host_text::{Detokenizer, Tokenizer};
use host_weights::Checkpoint;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Where a line's result differs from the ordinary one, by line number.
#[derive(Deserialize)]
struct Extra {
    with_special: HashMap<usize, Vec<u32>>,
    special_as_text: HashMap<usize, Vec<u32>>,
    decode_differs: HashMap<usize, String>,
}

/// The corpus with what `transformers` makes of it.
struct Corpus {
    lines: Vec<String>,
    ids: Vec<Vec<u32>>,
    extra: Extra,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn read_lines<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Corpus {
    fn read(fixture: &str) -> Self {
        let folder = fixtures().join(fixture);
        let lines: Vec<String> = read_lines(&fixtures().join("tokenizer-lines/lines.jsonl"));
        let ids: Vec<Vec<u32>> = read_lines(&folder.join("ids.jsonl"));
        let extra = serde_json::from_str(&fs::read_to_string(folder.join("extra.json")).unwrap()).unwrap();
        assert!(lines.len() >= 2000 && lines.len() == ids.len());
        Corpus { lines, ids, extra }
    }

    /// Every line through `tokenizer`; gives the first differences.
    fn differences(&self, tokenizer: &Arc<Tokenizer>) -> Vec<String> {
        let mut found = Vec::new();
        let mut check = |what: &str, line: usize, same: bool| {
            if !same {
                found.push(format!("line {line} {:?}: {what}", self.lines[line]));
            }
        };
        for (i, (line, ids)) in self.lines.iter().zip(&self.ids).enumerate() {
            check("ids", i, tokenizer.encode(line, false, true).unwrap() == *ids);
            let as_text = self.extra.special_as_text.get(&i).unwrap_or(ids);
            check("special as text", i, tokenizer.encode(line, false, false).unwrap() == *as_text);
            if let Some(with_special) = self.extra.with_special.get(&i) {
                check("with special", i, tokenizer.encode(line, true, true).unwrap() == *with_special);
            }
            let text = self.extra.decode_differs.get(&i).unwrap_or(line);
            check("text", i, tokenizer.decode(ids, false) == *text);
            check("streamed text", i, streamed(tokenizer, ids) == *text);
        }
        found
    }
}

fn streamed(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> String {
    let mut stream = Detokenizer::new(tokenizer.clone(), false);
    let mut text: String = ids.iter().filter_map(|id| stream.push(*id)).collect();
    text.extend(stream.flush());
    text
}

/// The tokenizer of a GGUF file, or nothing, aloud, where the file is not at hand.
fn tokenizer_of(file: &str) -> Option<Arc<Tokenizer>> {
    let Some(folder) = env::var_os("TENON_TEST_MODELS") else {
        println!("skipped: TENON_TEST_MODELS does not name the folder of {file}");
        return None;
    };
    let path = Path::new(&folder).join(file);
    if !path.exists() {
        println!("skipped: {} does not exist", path.display());
        return None;
    }
    let checkpoint = Checkpoint::open(&path).unwrap();
    let vocabulary = checkpoint.vocabulary().unwrap();
    Some(Arc::new(Tokenizer::from_vocabulary(vocabulary).unwrap()))
}

/// The tokenizer after a round trip through a model folder.
fn exported(tokenizer: &Tokenizer) -> Arc<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("tokenizer.json", tokenizer.to_tokenizer_json().unwrap()),
        ("tokenizer_config.json", tokenizer.tokenizer_config_json()),
        ("generation_config.json", tokenizer.generation_config_json()),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let read = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(read.special(), tokenizer.special());
    assert_eq!(read.n_vocab(), tokenizer.n_vocab());
    Arc::new(read)
}

fn check(file: &str, fixture: &str) {
    let Some(tokenizer) = tokenizer_of(file) else { return };
    let corpus = Corpus::read(fixture);
    for (form, tokenizer) in [("from the vocabulary", &tokenizer), ("read back", &exported(&tokenizer))] {
        let found = corpus.differences(tokenizer);
        assert!(
            found.is_empty(),
            "{form}: {} differences, first {:#?}",
            found.len(),
            &found[..found.len().min(9)]
        );
    }
}

#[test]
fn byte_level_bpe_equals_transformers() {
    check("SmolLM2-135M-Instruct.Q4_1.gguf", "tokenizer-smollm2");
}

#[test]
fn sentence_piece_equals_transformers() {
    check("gemma-3-270m-q4_k_m.gguf", "tokenizer-gemma3");
}
