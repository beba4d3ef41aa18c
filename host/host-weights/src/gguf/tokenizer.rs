//! What a GGUF file's metadata says of its tokenizer, without building it.

use std::collections::BTreeSet;
use std::path::Path;

use host_core::{TokenizerFact, TokenizerFacts, TokenizerKey};
use sha2::{Digest, Sha256};

use super::fault::GgufFault;
use super::header::Header;
use super::metadata::Metadata;
use super::vocabulary::TOKENS;
use crate::mapping::MappedFile;

use TokenizerFact::{Absent, Count, Text, Unreadable};

/// What stands under this is what splits text; the chat template stands elsewhere.
const PREFIX: &str = "tokenizer.ggml.";

/// What a GGUF file says of its tokenizer, as far as it is asked. Only the header is read, and nothing where nothing is
/// asked.
///
/// What a file does not say, or says in a form that cannot be read, is part of the answer.
pub fn tokenizer_facts(path: &Path, keys: &BTreeSet<TokenizerKey>) -> TokenizerFacts {
    if keys.is_empty() {
        return TokenizerFacts::new();
    }
    let all_unreadable = |why: String| keys.iter().map(|key| (*key, Unreadable(why.clone()))).collect();
    let file = match MappedFile::open(path) {
        Ok(file) => file,
        Err(error) => return all_unreadable(error.to_string()),
    };
    let bytes = match file.bytes() {
        Ok(bytes) => bytes,
        Err(error) => return all_unreadable(error.to_string()),
    };
    match Header::parse(bytes) {
        Ok(header) => facts(&header.metadata, keys),
        Err(fault) => all_unreadable(fault.to_string()),
    }
}

/// The answers of metadata that were read.
pub(super) fn facts(metadata: &Metadata<'_>, keys: &BTreeSet<TokenizerKey>) -> TokenizerFacts {
    let absent = |key: &str| Absent(format!("the file has no `{key}`"));
    let text = |key: &str| Ok(metadata.text(key)?.map_or_else(|| absent(key), |text| Text(text.to_owned())));
    let fact = |key: &TokenizerKey| -> Result<TokenizerFact, GgufFault> {
        match key {
            TokenizerKey::Kind => text("tokenizer.ggml.model"),
            TokenizerKey::Pre => text("tokenizer.ggml.pre"),
            TokenizerKey::Class => Ok(Absent("a GGUF file names none".to_owned())),
            TokenizerKey::NVocab => {
                let tokens = metadata.array(TOKENS)?;
                Ok(tokens.map_or_else(|| absent(TOKENS), |tokens| Count(tokens.len as u64)))
            }
            TokenizerKey::Digest => Ok(digest(metadata)),
        }
    };
    let fact = |key: &TokenizerKey| fact(key).unwrap_or_else(|fault| Unreadable(fault.to_string()));
    keys.iter().map(|key| (*key, fact(key))).collect()
}

fn digest(metadata: &Metadata<'_>) -> TokenizerFact {
    let mut hash = Sha256::new();
    let mut entries = metadata.entries(PREFIX).peekable();
    if entries.peek().is_none() {
        return Absent(format!("the file has no key under `{PREFIX}`"));
    }
    entries.for_each(|entry| hash.update(entry));
    Text(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
