//! What can be wrong with a GGUF file, or not be supported in it.

use host_core::{Report, Reported};

use super::architecture::Architecture;
use super::ggml_type::GgmlType;
use crate::safetensors::{FETCH_AGAIN, WRITE_AGAIN};

/// What is wrong with a GGUF file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the message's expected and found lines show")]
pub enum GgufFault {
    /// It has no bytes.
    #[error("the file is empty")]
    Empty,
    /// It does not begin like a GGUF file.
    #[error("this is no GGUF file")]
    NotGguf { found: String },
    /// A version other than 2 and 3.
    #[error("the version of GGUF is not supported")]
    Version { found: u32 },
    /// Written for big-endian machines.
    #[error("the file is in big-endian byte order")]
    BigEndian,
    /// One of several files.
    #[error("the file is one part of a split model")]
    Split { found: usize },
    /// The header ends within something.
    #[error("the file is cut off within {what} of its header")]
    HeaderTruncated { what: &'static str, at: u64, expected: u64, found: u64 },
    /// A count or length that is beyond reason.
    #[error("the header has too many or too long {what}")]
    TooMany { what: &'static str, limit: u64, found: u64 },
    /// A text that is not UTF-8.
    #[error("{what} is not UTF-8")]
    NotUtf8 { what: &'static str, at: u64 },
    /// A truth value that is neither 0 nor 1.
    #[error("a truth value is neither 0 nor 1")]
    NotABool { found: u8 },
    /// A metadata type that does not exist.
    #[error("a metadata value has an unknown type")]
    UnknownValueType { found: u32 },
    /// A key that stands twice.
    #[error("metadata key {key:?} stands twice")]
    DuplicateKey { key: String },
    /// An alignment that no file can have.
    #[error("the alignment of the data is impossible")]
    Alignment { found: usize },
    /// There is nothing in it.
    #[error("the file holds no tensor")]
    NoTensors,
    /// Two tensors have one name.
    #[error("tensor {tensor:?} stands twice in the header")]
    DuplicateTensor { tensor: String },
    /// More or fewer dimensions than the format has.
    #[error("tensor {tensor:?} has an impossible rank")]
    Rank { tensor: String, found: u32 },
    /// More elements than can be addressed.
    #[error("tensor {tensor:?} has an impossible shape")]
    ShapeTooLarge { tensor: String, shape: Vec<u64> },
    /// The shape has a zero.
    #[error("tensor {tensor:?} has no elements")]
    NoElements { tensor: String, shape: Vec<u64> },
    /// A type that is not read.
    #[error("tensor {tensor:?} has the unsupported type {found}")]
    UnknownType { tensor: String, found: String },
    /// A row that ends within a block.
    #[error("the rows of tensor {tensor:?} are not whole blocks")]
    PartialBlock { tensor: String, expected: usize, found: u64 },
    /// An offset off the alignment.
    #[error("tensor {tensor:?} is not aligned")]
    Misaligned { tensor: String, alignment: usize, found: u64 },
    /// Two tensors share bytes.
    #[error("tensor {tensor:?} overlaps the one before it")]
    Overlap { tensor: String, expected: u64, found: u64 },
    /// Bytes before a tensor belong to none.
    #[error("there is a gap before tensor {tensor:?}")]
    Gap { tensor: String, expected: u64, found: u64 },
    /// A tensor reaches past the end of the file.
    #[error("the file is cut off within tensor {tensor:?}")]
    Truncated { tensor: String, expected: u64, found: u64 },
    /// Bytes at the end belong to no tensor.
    #[error("bytes after the last tensor belong to none")]
    TrailingBytes { expected: u64, found: u64 },
    /// An architecture without a table of names.
    #[error("the architecture {found:?} is not known")]
    UnknownArchitecture { found: String },
    /// A key that must be there is not.
    #[error("the metadata lacks `{key}`")]
    MissingKey { key: String },
    /// A key that may change what the model computes.
    #[error("the metadata has the unsupported key `{key}`")]
    UnknownKey { key: String },
    /// A value of another type or range.
    #[error("metadata key `{key}` has a wrong value")]
    WrongValue { key: String, expected: &'static str, found: String },
    /// A value that contradicts another part of the file.
    #[error("metadata key `{key}` contradicts the rest of the file")]
    Contradiction { key: String, expected: usize, found: usize },
    /// A token id outside the vocabulary.
    #[error("metadata key `{key}` is no token of the vocabulary")]
    TokenId { key: String, n_tokens: usize, found: usize },
    /// A tensor that must be there is not.
    #[error("the file lacks tensor `{tensor}`")]
    MissingTensor { tensor: &'static str },
    /// A tensor that the architecture does not have.
    #[error("tensor {tensor:?} is not known in architecture {architecture}")]
    UnknownTensor { tensor: String, architecture: &'static str },
    /// An embedding of another width than the metadata says.
    #[error("tensor {tensor:?} does not fit the metadata")]
    EmbeddingShape { tensor: String, expected: usize, found: Vec<usize> },
    /// Query or key rows that are not whole heads.
    #[error("the rows of tensor {tensor:?} are not whole heads")]
    HeadRows { tensor: String, heads: usize, found: Vec<usize> },
    /// A norm weight that is not F32.
    #[error("norm weight {tensor:?} has the unsupported type {found}")]
    NormType { tensor: String, found: String },
    /// Rotary factors that no known scaling gives.
    #[error("the rotary factors in `rope_freqs.weight` are of no known scaling")]
    RopeTable { found: String },
}

impl Reported for GgufFault {
    fn report(&self) -> Report {
        use GgufFault as F;
        let report = |code| Report::new(code, self.to_string());
        let bytes = |count: &u64| format!("{count} bytes");
        let other_file = "use another conversion of the model";
        match self {
            F::Empty => {
                report("weights.empty-file").expected("a GGUF file").found("0 bytes").mend(FETCH_AGAIN)
            }
            F::NotGguf { found } => report("weights.not-gguf")
                .expected("the magic GGUF")
                .found(found.clone())
                .mend("check that the file is the model, not a web page or a pointer to it"),
            F::Version { found } => report("weights.gguf-version")
                .expected("version 2 or 3")
                .found(format!("version {found}"))
                .mend("convert the model with a current llama.cpp"),
            F::BigEndian => report("weights.gguf-big-endian")
                .expected("little-endian byte order")
                .mend("convert it with gguf_convert_endian.py of the gguf package"),
            F::Split { found } => report("weights.gguf-split")
                .expected("a whole model in one file")
                .found(format!("{found} parts"))
                .mend("join the parts with llama-gguf-split --merge"),
            F::HeaderTruncated { at, expected, found, .. } => report("weights.header-truncated")
                .expected(format!("{expected} bytes at byte {at}"))
                .found(bytes(found))
                .mend(FETCH_AGAIN),
            F::TooMany { limit, found, .. } => report("weights.header-limit")
                .expected(format!("at most {limit}"))
                .found(found.to_string())
                .mend(FETCH_AGAIN),
            F::NotUtf8 { at, .. } => report("weights.not-utf8")
                .expected("UTF-8")
                .found(format!("other bytes at byte {at}"))
                .mend(WRITE_AGAIN),
            F::NotABool { found } => {
                report("weights.not-a-bool").expected("0 or 1").found(found.to_string()).mend(WRITE_AGAIN)
            }
            F::UnknownValueType { found } => report("weights.unknown-value-type")
                .expected("a type from 0 to 12")
                .found(found.to_string())
                .mend(FETCH_AGAIN),
            F::DuplicateKey { .. } => {
                report("weights.duplicate-key").expected("each key once").mend(WRITE_AGAIN)
            }
            F::Alignment { found } => report("weights.alignment")
                .expected("a power of two, at most 2^20")
                .found(found.to_string())
                .mend(WRITE_AGAIN),
            F::NoTensors => report("weights.no-tensors")
                .expected("at least one tensor")
                .mend("this may be a vocabulary-only file; use the model's own"),
            F::DuplicateTensor { .. } => {
                report("weights.duplicate-tensor").expected("each name once").mend(WRITE_AGAIN)
            }
            F::Rank { found, .. } => report("weights.rank")
                .expected("1 to 4 dimensions")
                .found(found.to_string())
                .mend(WRITE_AGAIN),
            F::ShapeTooLarge { shape, .. } => report("weights.shape-too-large")
                .expected("bytes that fit 64 bits")
                .found(format!("{shape:?}"))
                .mend(WRITE_AGAIN),
            F::NoElements { shape, .. } => report("weights.empty-tensor")
                .expected("no dimension of zero")
                .found(format!("{shape:?}"))
                .mend(WRITE_AGAIN),
            F::UnknownType { found, .. } => report("weights.unsupported-type")
                .expected(GgmlType::supported_names())
                .found(found.clone())
                .mend("use another quantisation of the model"),
            F::PartialBlock { expected, found, .. } => report("weights.partial-block")
                .expected(format!("a multiple of {expected} elements a row"))
                .found(found.to_string())
                .mend(WRITE_AGAIN),
            F::Misaligned { alignment, found, .. } => report("weights.misaligned")
                .expected(format!("a multiple of {alignment}"))
                .found(format!("offset {found}"))
                .mend(WRITE_AGAIN),
            F::Overlap { expected, found, .. } => report("weights.overlap")
                .expected(format!("offset {expected}"))
                .found(format!("offset {found}"))
                .mend(WRITE_AGAIN),
            F::Gap { expected, found, .. } => report("weights.gap")
                .expected(format!("offset {expected}"))
                .found(format!("offset {found}"))
                .mend(WRITE_AGAIN),
            F::Truncated { expected, found, .. } => report("weights.truncated")
                .expected(format!("at least {expected} bytes"))
                .found(bytes(found))
                .mend(FETCH_AGAIN),
            F::TrailingBytes { expected, found } => report("weights.trailing-bytes")
                .expected(bytes(expected))
                .found(bytes(found))
                .mend(FETCH_AGAIN),
            F::UnknownArchitecture { found } => report("weights.unknown-architecture")
                .expected(Architecture::known_names())
                .found(format!("{found:?}"))
                .mend("use the model's safetensors folder"),
            F::MissingKey { .. } => report("weights.missing-key").mend(other_file),
            F::UnknownKey { .. } => report("weights.unknown-key")
                .expected("only keys that are understood, since others may change the model")
                .mend("use the model's safetensors folder"),
            F::WrongValue { expected, found, .. } => {
                report("weights.wrong-value").expected(*expected).found(found.clone()).mend(other_file)
            }
            F::Contradiction { expected, found, .. } => report("weights.contradiction")
                .expected(expected.to_string())
                .found(found.to_string())
                .mend(other_file),
            F::TokenId { n_tokens, found, .. } => report("weights.token-id")
                .expected(format!("below {n_tokens}"))
                .found(found.to_string())
                .mend(other_file),
            F::MissingTensor { .. } => report("weights.missing-tensor").mend(other_file),
            F::UnknownTensor { .. } => report("weights.unknown-tensor")
                .expected("only tensors of the architecture")
                .mend("use the model's safetensors folder"),
            F::EmbeddingShape { expected, found, .. } => report("weights.embedding-shape")
                .expected(format!("[vocabulary, {expected}]"))
                .found(format!("{found:?}"))
                .mend(other_file),
            F::HeadRows { heads, found, .. } => report("weights.head-rows")
                .expected(format!("an even number of rows for each of {heads} heads"))
                .found(format!("{found:?}"))
                .mend(other_file),
            F::NormType { .. } => report("weights.norm-type").expected("F32").mend(other_file),
            F::RopeTable { found } => report("weights.rope-table")
                .expected("the factors of a llama3 scaling over 8192 positions")
                .found(found.clone())
                .mend("use the model's safetensors folder"),
        }
    }
}
