//! Vocabularies for tests without a model: one of each family that models have, small and always the same.

use std::collections::HashMap;
use std::fmt;

use host_plugins::PolicyVocabulary;
use serde::{Deserialize, Serialize};

/// Ids above the tokens, as models have them whose logits are padded.
const PADDED_TO: usize = 64;

/// Which kind of tokenizer a vocabulary stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// One letter a token: `a` to `z`, space, `.`, `,` and a new line. Easy to read in cases.
    Tiny,
    /// Byte-level BPE: all 256 bytes, then whole words with their space in front.
    ByteBpe,
    /// SentencePiece: control tokens, 256 byte tokens, then pieces; a text's bytes fall back to byte tokens.
    #[serde(rename = "sentencepiece")]
    SentencePiece,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 3] = [Family::Tiny, Family::ByteBpe, Family::SentencePiece];

    /// The name in cases and traces.
    pub fn name(self) -> &'static str {
        match self {
            Family::Tiny => "tiny",
            Family::ByteBpe => "byte-bpe",
            Family::SentencePiece => "sentencepiece",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The vocabulary of a family.
#[derive(Debug)]
pub struct FakeVocabulary {
    /// The bytes of each token; none for ids without a token.
    tokens: Vec<Option<Vec<u8>>>,
    /// Tokens that spell text, by their bytes; special ones are not among them.
    by_bytes: HashMap<Vec<u8>, u32>,
    longest: usize,
    eos_ids: Vec<u32>,
}

/// Words and pieces of the larger vocabularies: prose, numbers and JSON.
const WORDS: &str = "the of and to in a is that it was for on are as with his they at be this have from or one had by \
    word but not what all were we when your can said there use an each which she do how their if will up other about \
    out many then them these so some her would make like him into time has look two more write go see number no way \
    could people my than first water been call who its now find long down day did get come made may part";
const PIECES: [&str; 30] = [
    "ing", "ed", "er", "est", "ly", "tion", "ment", "ness", "th", "he", "an", "re", "on", "st", "{\"", "\":",
    "\": ", "\",", "\", \"", "\"}", "}}", "[[", "]]", "true", "false", "null", "```", "\n\n", "  ", "12",
];

impl FakeVocabulary {
    /// Builds it.
    pub fn new(family: Family) -> Self {
        match family {
            Family::Tiny => Self::tiny(),
            Family::ByteBpe => Self::byte_bpe(),
            Family::SentencePiece => Self::sentence_piece(),
        }
    }

    fn tiny() -> Self {
        let letters = (b'a'..=b'z').chain(*b" .,\n").map(|byte| vec![byte]);
        // Like any model's: a special token first, and an id at the end that has no token.
        Self::of(&[b"<end>"], letters.collect(), 32, vec![0])
    }

    fn byte_bpe() -> Self {
        let bytes = (0..=255).map(|byte| vec![byte]);
        let words = WORDS.split_whitespace().flat_map(|word| [format!(" {word}"), word.to_owned()]);
        let pieces = PIECES.iter().map(|piece| (*piece).to_owned());
        let texts = bytes.chain(words.chain(pieces).map(String::into_bytes)).collect();
        Self::of(&[b"<|endoftext|>", b"<|im_end|>"], texts, PADDED_TO, vec![0, 1])
    }

    fn sentence_piece() -> Self {
        let bytes = (0..=255).map(|byte| vec![byte]);
        // A piece begins with a space where the published one begins with `▁`.
        let words = WORDS.split_whitespace().map(|word| format!(" {word}"));
        let pieces = PIECES.iter().map(|piece| (*piece).to_owned());
        let texts = bytes.chain(words.chain(pieces).map(String::into_bytes)).collect();
        Self::of(&[b"<unk>", b"<s>", b"</s>"], texts, PADDED_TO, vec![2])
    }

    /// Special tokens, then texts, each once; then ids without a token up to a multiple of `padded_to`.
    fn of(specials: &[&[u8]], texts: Vec<Vec<u8>>, padded_to: usize, eos_ids: Vec<u32>) -> Self {
        let mut tokens: Vec<_> = specials.iter().map(|bytes| Some(bytes.to_vec())).collect();
        let mut by_bytes = HashMap::new();
        for bytes in texts {
            if !by_bytes.contains_key(&bytes) {
                by_bytes.insert(bytes.clone(), tokens.len() as u32);
                tokens.push(Some(bytes));
            }
        }
        // At least one id has no token, as in models whose logits are padded.
        tokens.resize((tokens.len() + 1).next_multiple_of(padded_to), None);
        let longest = by_bytes.keys().map(Vec::len).max().unwrap_or(0);
        FakeVocabulary { tokens, by_bytes, longest, eos_ids }
    }

    /// The same with more ids that have no token, for logits of a model's width.
    pub fn padded_to(mut self, n_vocab: u32) -> Self {
        self.tokens.resize(self.tokens.len().max(n_vocab as usize), None);
        self
    }

    /// The id of a text that is one token, a special one by its name.
    pub fn token(&self, text: &str) -> Option<u32> {
        let special = || self.tokens.iter().position(|token| token.as_deref() == Some(text.as_bytes()));
        self.by_bytes.get(text.as_bytes()).copied().or_else(|| special().map(|id| id as u32))
    }

    /// The longest token that `bytes` begin with.
    fn first(&self, bytes: &[u8]) -> Option<(u32, usize)> {
        let lengths = (1..=self.longest.min(bytes.len())).rev();
        lengths.filter_map(|n| Some((*self.by_bytes.get(&bytes[..n])?, n))).next()
    }
}

impl PolicyVocabulary for FakeVocabulary {
    fn n_vocab(&self) -> u32 {
        self.tokens.len() as u32
    }

    fn eos_ids(&self) -> Vec<u32> {
        self.eos_ids.clone()
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.tokens.get(id as usize)?.clone()
    }

    /// The longest token first, again and again.
    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let (mut rest, mut ids) = (text.as_bytes(), Vec::new());
        while !rest.is_empty() {
            let (id, n) = self.first(rest)?;
            ids.push(id);
            rest = &rest[n..];
        }
        Some(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_from_its_tokens() {
        let text = "there is {\"number\": 12} in the water, é";
        for family in [Family::ByteBpe, Family::SentencePiece] {
            let vocabulary = FakeVocabulary::new(family);
            let ids = vocabulary.encode(text).unwrap();
            assert!(ids.len() < text.len(), "{family} has words");
            let bytes: Vec<u8> = ids.iter().flat_map(|id| vocabulary.token_bytes(*id).unwrap()).collect();
            assert_eq!(bytes, text.as_bytes(), "{family}");
        }
    }

    #[test]
    fn each_family_has_what_its_models_have() {
        for family in Family::ALL {
            let vocabulary = FakeVocabulary::new(family);
            let n = vocabulary.n_vocab();
            assert!(vocabulary.token_bytes(n - 1).is_none(), "{family} is padded");
            assert!(vocabulary.token_bytes(n).is_none(), "{family}");
            assert!(vocabulary.eos_ids().iter().all(|id| vocabulary.token_bytes(*id).is_some()), "{family}");
        }
        let tiny = FakeVocabulary::new(Family::Tiny);
        assert_eq!((tiny.n_vocab(), tiny.token("a"), tiny.token("<end>")), (32, Some(1), Some(0)));
        assert_eq!(tiny.encode("A"), None, "a text that it cannot spell");
        assert_eq!(FakeVocabulary::new(Family::SentencePiece).encode("<s>").map(|ids| ids.len()), Some(3));
    }
}
