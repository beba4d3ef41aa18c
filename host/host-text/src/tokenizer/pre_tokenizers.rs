//! The pre-tokenizers of byte-level BPE, by the names that GGUF files give them (`tokenizer.ggml.pre`).
//!
//! A name stands for how text is cut before merging, whether a token of the vocabulary wins over its merges, and
//! whether a prompt starts with the beginning-of-sequence token where the file is silent. The patterns are those of
//! the models' published `tokenizer.json`; the meaning of each name is llama.cpp's (`llama-vocab.cpp`). A name that
//! cannot be defined exactly is not in the table.

use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::TextError;

/// How a family of models prepares text for byte-level BPE.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    names: &'static [&'static str],
    /// Whether text is first brought to Unicode form C.
    is_nfc: bool,
    cuts: &'static [Cut],
    /// Whether a piece that is a token is not built from merges.
    pub(crate) ignores_merges: bool,
    /// Whether a prompt starts with the beginning-of-sequence token when the file does not say.
    pub(crate) adds_bos: bool,
}

/// One pass over the pieces so far; each match becomes a piece, and so does what lies between matches.
#[derive(Debug)]
enum Cut {
    /// Each digit (Unicode category N) alone.
    Digits,
    /// GPT-2's pattern.
    Gpt2,
    /// A pattern.
    Pattern(&'static str),
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";

const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

/// Han, Hiragana and Katakana, as DeepSeek's pattern names them.
const HAN_AND_KANA: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";

/// Han and Hangul, as DeepSeek Coder's pattern names them.
const HAN_AND_HANGUL: &str = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+";

/// Runs without a space, a bracket or the listed punctuation, each with the space before it.
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

/// A family without any of the special rules.
const PLAIN: PreTokenizer =
    PreTokenizer { names: &[], is_nfc: false, cuts: &[], ignores_merges: false, adds_bos: false };

static TABLE: [PreTokenizer; 21] = [
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
        ],
        cuts: &[Cut::Gpt2],
        ..PLAIN
    },
    PreTokenizer { names: &["mpt", "olmo"], is_nfc: true, cuts: &[Cut::Gpt2], ..PLAIN },
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        cuts: &[Cut::Digits, Cut::Gpt2],
        ..PLAIN
    },
    PreTokenizer { names: &["command-r"], is_nfc: true, cuts: &[Cut::Digits, Cut::Gpt2], ..PLAIN },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        cuts: &[Cut::Pattern(LLAMA3)],
        ignores_merges: true,
        adds_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"],
        cuts: &[Cut::Pattern(LLAMA3)],
        ..PLAIN
    },
    PreTokenizer { names: &["jais-2"], cuts: &[Cut::Pattern(JAIS2)], ..PLAIN },
    PreTokenizer { names: &["qwen2", "megrez"], is_nfc: true, cuts: &[Cut::Pattern(QWEN2)], ..PLAIN },
    PreTokenizer {
        names: &["deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "grok-2"],
        cuts: &[Cut::Pattern(QWEN2)],
        ..PLAIN
    },
    PreTokenizer { names: &["qwen35"], is_nfc: true, cuts: &[Cut::Pattern(QWEN35)], ..PLAIN },
    PreTokenizer { names: &["seed-coder"], cuts: &[Cut::Pattern(SEED_CODER)], ..PLAIN },
    PreTokenizer {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        cuts: &[Cut::Pattern(BAILING)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["tekken"],
        cuts: &[Cut::Pattern(TEKKEN)],
        ignores_merges: true,
        adds_bos: true,
        ..PLAIN
    },
    PreTokenizer { names: &["gpt-4o", "llama4", "kanana2"], cuts: &[Cut::Pattern(GPT4O)], ..PLAIN },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        cuts: &[Cut::Pattern(r"\p{N}{1,3}"), Cut::Pattern(HAN_AND_KANA), Cut::Pattern(DEEPSEEK3)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        cuts: &[
            Cut::Pattern(r"[\r\n]"),
            Cut::Pattern(r"\s?\p{L}+"),
            Cut::Pattern(r"\s?\p{P}+"),
            Cut::Pattern(HAN_AND_HANGUL),
            Cut::Digits,
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["falcon"],
        cuts: &[Cut::Pattern(r"[\p{P}\$\+<=>\^~\|`]+"), Cut::Pattern(GPT2), Cut::Pattern("[0-9][0-9][0-9]")],
        ..PLAIN
    },
    PreTokenizer {
        names: &["default"],
        cuts: &[
            Cut::Pattern(r"[\p{P}\$\+<=>\^~\|]+"),
            Cut::Pattern(GPT2),
            Cut::Pattern(r"\p{N}+"),
            Cut::Pattern("[0-9][0-9][0-9]"),
        ],
        ..PLAIN
    },
    PreTokenizer { names: &["bloom", "gpt3-finnish"], cuts: &[Cut::Pattern(BLOOM)], ..PLAIN },
    PreTokenizer { names: &["poro-chat"], cuts: &[Cut::Pattern(BLOOM)], ..PLAIN },
    PreTokenizer { names: &["viking"], cuts: &[Cut::Pattern(BLOOM), Cut::Digits], ..PLAIN },
];

impl PreTokenizer {
    /// The family that `name` stands for.
    ///
    /// # Errors
    /// [`TextError::UnknownPreTokenizer`] with every known name.
    pub(crate) fn named(name: Option<&str>) -> Result<&'static PreTokenizer, TextError> {
        TABLE.iter().find(|family| family.names.iter().any(|known| Some(*known) == name)).ok_or_else(|| {
            TextError::UnknownPreTokenizer { known: Self::known_names(), found: name.map(str::to_owned) }
        })
    }

    fn known_names() -> Vec<&'static str> {
        let mut names: Vec<_> = TABLE.iter().flat_map(|family| family.names).copied().collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn normalizer(&self) -> Option<NormalizerWrapper> {
        self.is_nfc.then_some(NormalizerWrapper::NFC(NFC))
    }

    /// The cuts in order, then the characters that stand for bytes.
    ///
    /// # Errors
    /// None for the families of the table, whose patterns a test compiles.
    pub(crate) fn build(&self) -> tokenizers::Result<PreTokenizerWrapper> {
        let (cuts, ends_with_gpt2) = match self.cuts {
            [cuts @ .., Cut::Gpt2] => (cuts, true),
            cuts => (cuts, false),
        };
        let mut steps = cuts.iter().map(Cut::build).collect::<tokenizers::Result<Vec<_>>>()?;
        // `ByteLevel` has GPT-2's pattern built in.
        let byte_level = PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, ends_with_gpt2));
        if steps.is_empty() {
            return Ok(byte_level);
        }
        steps.push(byte_level);
        Ok(PreTokenizerWrapper::Sequence(Sequence::new(steps)))
    }
}

impl Cut {
    fn build(&self) -> tokenizers::Result<PreTokenizerWrapper> {
        let pattern = match self {
            Cut::Digits => return Ok(PreTokenizerWrapper::Digits(Digits::new(true))),
            Cut::Gpt2 => GPT2,
            Cut::Pattern(pattern) => pattern,
        };
        let pattern = SplitPattern::Regex(pattern.to_owned());
        Ok(PreTokenizerWrapper::Split(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

    /// The pieces of `text`, with the characters that stand for bytes turned back.
    fn pieces(name: &str, text: &str) -> Vec<String> {
        let mut split = PreTokenizedString::from(text);
        PreTokenizer::named(Some(name)).unwrap().build().unwrap().pre_tokenize(&mut split).unwrap();
        let splits = split.get_splits(OffsetReferential::Normalized, OffsetType::None);
        splits.iter().map(|(piece, ..)| crate::decoder::Decoder::byte_level().decode([piece])).collect()
    }

    #[test]
    fn every_pattern_compiles_and_no_name_is_listed_twice() {
        for family in &TABLE {
            family.build().unwrap_or_else(|error| panic!("{:?}: {error}", family.names));
        }
        let names = PreTokenizer::known_names();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    }

    #[test]
    fn families_cut_text_differently() {
        let text = "It's 2024,\n  naïve CAFÉ";
        for (name, expected) in [
            ("gpt-2", &["It", "'s", " 2024", ",", "\n ", " naïve", " CAFÉ"][..]),
            ("smollm", &["It", "'s", " ", "2", "0", "2", "4", ",", "\n ", " naïve", " CAFÉ"]),
            ("llama-bpe", &["It", "'s", " ", "202", "4", ",\n", " ", " naïve", " CAFÉ"]),
            ("qwen2", &["It", "'s", " ", "2", "0", "2", "4", ",\n", " ", " naïve", " CAFÉ"]),
            ("tekken", &["It", "'s", " ", "2", "0", "2", "4", ",\n", " ", " naïve", " CAFÉ"]),
            ("gpt-4o", &["It's", " ", "202", "4", ",\n", " ", " naïve", " CAFÉ"]),
            ("deepseek-v3", &["It", "'s", " ", "202", "4", ",\n", " ", " naïve", " CAFÉ"]),
            ("falcon", &["It", "'", "s", " ", "202", "4", ",", "\n ", " naïve", " CAFÉ"]),
            ("bloom", &["It's", " 2024", ",\n ", " naïve", " CAFÉ"]),
        ] {
            assert_eq!(pieces(name, text), expected, "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        for found in [Some("gpt-17"), Some(""), None] {
            match PreTokenizer::named(found) {
                Err(TextError::UnknownPreTokenizer { known, found: reported }) => {
                    assert_eq!(reported.as_deref(), found);
                    assert!(known.contains(&"smollm") && known.contains(&"default"));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
