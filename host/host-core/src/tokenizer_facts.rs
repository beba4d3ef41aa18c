//! What is known of a model's tokenizer before it is built: what a profile may ask, and what the model's files answer.

use std::collections::BTreeMap;

use serde::Serialize;

/// What can be asked of a tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerKey {
    /// What splits text: `model.type` of `tokenizer.json` (`BPE`, `Unigram`, …), `tokenizer.ggml.model` of a GGUF file
    /// (`gpt2`, `llama`, …).
    Kind,
    /// The pre-tokenizer that a GGUF file names, `tokenizer.ggml.pre`; a folder has none.
    Pre,
    /// `tokenizer_class` of `tokenizer_config.json`; a GGUF file has none.
    Class,
    /// How many ids there are: one more than the largest, added tokens included.
    NVocab,
    /// SHA-256, 64 lower-case hexadecimal digits: of `tokenizer.json` byte for byte, as `sha256sum` prints it; of a GGUF
    /// file's metadata under `tokenizer.ggml.`, each entry byte for byte as it is stored, in the order of the keys.
    Digest,
}

/// What a model answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerFact {
    /// A text.
    Text(String),
    /// A number of things.
    Count(u64),
    /// The model does not say; why: `there is no tokenizer.json`.
    Absent(String),
    /// What should say it cannot be read; why.
    Unreadable(String),
}

/// The answers to what was asked; what was not asked is not there.
pub type TokenizerFacts = BTreeMap<TokenizerKey, TokenizerFact>;

impl TokenizerKey {
    /// All of them.
    pub const ALL: [TokenizerKey; 5] = [
        TokenizerKey::Kind,
        TokenizerKey::Pre,
        TokenizerKey::Class,
        TokenizerKey::NVocab,
        TokenizerKey::Digest,
    ];

    /// Its name in profiles, behind `tokenizer.`.
    pub const fn name(self) -> &'static str {
        match self {
            TokenizerKey::Kind => "kind",
            TokenizerKey::Pre => "pre",
            TokenizerKey::Class => "class",
            TokenizerKey::NVocab => "n_vocab",
            TokenizerKey::Digest => "digest",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<TokenizerKey> {
        TokenizerKey::ALL.into_iter().find(|key| key.name() == name)
    }
}
