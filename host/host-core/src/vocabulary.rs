//! A tokenizer's vocabulary as a GGUF file stores it: what host-weights reads and host-text builds from.

/// The vocabulary, kind and special tokens of a tokenizer, before anything is built from them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: `gpt2` is byte-level BPE, `llama` is SentencePiece with scores.
    pub model: String,
    /// `tokenizer.ggml.pre`: the name of the pre-tokenizer, for byte-level BPE.
    pub pre: Option<String>,
    /// The text of each token; its index is the token id.
    pub tokens: Vec<String>,
    /// The score of each token, for SentencePiece; as long as `tokens`, or empty.
    pub scores: Vec<f32>,
    /// The kind of each token (1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte); as long as
    /// `tokens`, or empty.
    pub token_types: Vec<i32>,
    /// The merges of byte-level BPE, best first, each two pieces joined by one space.
    pub merges: Vec<String>,
    /// Beginning of sequence.
    pub bos_token_id: Option<u32>,
    /// End of sequence.
    pub eos_token_id: Option<u32>,
    /// End of turn, where it differs from the end of sequence.
    pub eot_token_id: Option<u32>,
    /// Stands for text the vocabulary cannot spell.
    pub unknown_token_id: Option<u32>,
    /// Padding.
    pub padding_token_id: Option<u32>,
    /// Whether a prompt starts with the beginning-of-sequence token; `None` when the file does not say.
    pub add_bos_token: Option<bool>,
    /// Whether a prompt ends with the end-of-sequence token; `None` when the file does not say.
    pub add_eos_token: Option<bool>,
    /// Whether SentencePiece puts a space before the text; `None` when the file does not say.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`: the template in Jinja.
    pub chat_template: Option<String>,
}
