//! Everything that can be wrong with text, a tokenizer or a chat template, and how it is shown.

use std::path::PathBuf;

use host_core::{Place, Report, Reported};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A file of the model folder cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the model folder is not the JSON it should be.
    #[error("{} is not valid JSON", path.display())]
    InvalidJson {
        /// The file.
        path: PathBuf,
        /// Where and why reading stopped.
        source: serde_json::Error,
    },
    /// A value in a file of the model folder has the wrong form.
    #[error("`{key}` in {} has the wrong form", path.display())]
    InvalidKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The form it must have.
        expected: &'static str,
        /// The value found, as JSON.
        found: String,
    },
    /// `tokenizer.json` describes something that cannot be built.
    #[error("the tokenizer cannot be built from {from}")]
    InvalidTokenizer {
        /// The file or vocabulary.
        from: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The decoder of `tokenizer.json` is not one whose text can be streamed.
    #[error("the tokenizer's decoder is not supported")]
    UnknownDecoder {
        /// The decoder, as JSON.
        found: String,
    },
    /// `tokenizer.ggml.model` names a kind of tokenizer that is not built here.
    #[error("the GGUF file has a tokenizer of an unknown kind")]
    UnknownModel {
        /// The kinds that are built.
        known: &'static [&'static str],
        /// The kind named by the file.
        found: String,
    },
    /// `tokenizer.ggml.pre` names no known pre-tokenizer.
    #[error("the GGUF file names no known pre-tokenizer")]
    UnknownPreTokenizer {
        /// The names that are known.
        known: Vec<&'static str>,
        /// The name in the file, or nothing when it has none.
        found: Option<String>,
    },
    /// The vocabulary of a GGUF file contradicts itself.
    #[error("the vocabulary is invalid: {what}")]
    InvalidVocabulary {
        /// The part at fault.
        what: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The bytes of a text are not UTF-8.
    #[error("the text is not valid UTF-8")]
    InvalidUtf8 {
        /// Offset of the first byte that is not part of a character.
        offset: usize,
        /// That byte.
        byte: u8,
    },
    /// The text is longer than a tokenizer takes.
    #[error("the text is too long")]
    TooLong {
        /// The most bytes a text may have.
        limit_bytes: usize,
        /// The bytes it has.
        found_bytes: usize,
    },
    /// The text holds a run of whitespace that the pre-tokenizer's pattern cannot split reliably.
    #[error("the text has too long a run of whitespace")]
    WhitespaceRun {
        /// The most whitespace characters in a row.
        limit: usize,
        /// Byte offset where the run starts.
        offset: usize,
    },
    /// The vocabulary can spell neither a character nor its bytes, and has no token for the unknown.
    #[error("the vocabulary cannot spell a character of the text")]
    Unencodable {
        /// The character.
        character: char,
    },
    /// The tokenizer failed on a text.
    #[error("the tokenizer failed on the text")]
    EncodeFailed {
        /// What the tokenizer said.
        reason: String,
    },
    /// The model has no chat template.
    #[error("the model has no chat template")]
    NoTemplate,
    /// The model has several chat templates and none is named `default`.
    #[error("the model has several chat templates, none named `default`")]
    AmbiguousTemplate {
        /// Their names.
        found: Vec<String>,
    },
    /// The chat template is not valid Jinja.
    #[error("the chat template cannot be parsed: {detail}")]
    TemplateSyntax {
        /// What is wrong.
        detail: String,
        /// Where.
        place: Option<Box<Place>>,
    },
    /// The chat template failed on these messages.
    #[error("the chat template failed: {detail}")]
    TemplateFailed {
        /// What is wrong.
        detail: String,
        /// Where.
        place: Option<Box<Place>>,
    },
    /// The chat template refused these messages by `raise_exception`.
    #[error("the chat template refuses the messages: {message}")]
    TemplateRefused {
        /// The template's own words.
        message: String,
        /// Where.
        place: Option<Box<Place>>,
    },
}

impl TextError {
    fn code(&self) -> &'static str {
        match self {
            TextError::Unreadable { .. } => "text.unreadable",
            TextError::InvalidJson { .. } => "text.invalid-json",
            TextError::InvalidKey { .. } => "text.invalid-key",
            TextError::InvalidTokenizer { .. } => "text.invalid-tokenizer",
            TextError::UnknownDecoder { .. } => "text.unknown-decoder",
            TextError::UnknownModel { .. } => "text.unknown-tokenizer",
            TextError::UnknownPreTokenizer { .. } => "text.unknown-pre-tokenizer",
            TextError::InvalidVocabulary { .. } => "text.invalid-vocabulary",
            TextError::InvalidUtf8 { .. } => "text.invalid-utf8",
            TextError::TooLong { .. } => "text.too-long",
            TextError::WhitespaceRun { .. } => "text.whitespace-run",
            TextError::Unencodable { .. } => "text.unencodable",
            TextError::EncodeFailed { .. } => "text.encode-failed",
            TextError::NoTemplate => "text.no-template",
            TextError::AmbiguousTemplate { .. } => "text.ambiguous-template",
            TextError::TemplateSyntax { .. } => "text.template-syntax",
            TextError::TemplateFailed { .. } => "text.template-failed",
            TextError::TemplateRefused { .. } => "text.template-refused",
        }
    }
}

impl Reported for TextError {
    fn report(&self) -> Report {
        let report = Report::new(self.code(), self.to_string());
        match self {
            TextError::Unreadable { source, .. } => report
                .found(source.to_string())
                .mend("check that the file exists and may be read"),
            TextError::InvalidJson { source, .. } => {
                report.found(source.to_string()).mend("fetch the file again, or correct it")
            }
            TextError::InvalidKey { expected, found, .. } => report.expected(*expected).found(found),
            TextError::InvalidTokenizer { reason, .. } => report.found(reason).mend("fetch the model again"),
            TextError::UnknownDecoder { found } => report
                .expected("ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Fuse and Strip")
                .found(found),
            TextError::UnknownModel { known, found } => report
                .expected(known.join(", "))
                .found(format!("`{found}`"))
                .mend("use the model's safetensors folder, whose tokenizer.json describes the tokenizer in full"),
            TextError::UnknownPreTokenizer { known, found } => report
                .expected(known.join(", "))
                .found(found.as_ref().map_or("no name".into(), |name| format!("`{name}`")))
                .mend("use the model's safetensors folder, whose tokenizer.json describes the pre-tokenizer in full"),
            TextError::InvalidVocabulary { expected, found, .. } => {
                report.expected(expected).found(found).mend("fetch or convert the GGUF file again")
            }
            TextError::InvalidUtf8 { offset, byte } => report
                .expected("text in UTF-8")
                .found(format!("byte 0x{byte:02x} at offset {offset}"))
                .mend("convert the input to UTF-8"),
            TextError::TooLong { limit_bytes, found_bytes } => report
                .expected(format!("at most {limit_bytes} bytes"))
                .found(format!("{found_bytes} bytes"))
                .mend("shorten the text"),
            TextError::WhitespaceRun { limit, offset } => report
                .expected(format!("at most {limit} whitespace characters in a row"))
                .found(format!("a longer run at byte {offset}"))
                .mend("remove the whitespace"),
            TextError::Unencodable { character } => report
                .expected("characters of the vocabulary")
                .found(format!("`{}` (U+{:04X})", character.escape_debug(), *character as u32))
                .mend("remove the character"),
            TextError::EncodeFailed { reason } => report.found(reason),
            TextError::NoTemplate => {
                report.mend("pass --raw to send the prompt as it is, or use an instruction-tuned model")
            }
            TextError::AmbiguousTemplate { found } => report
                .expected("one template, or one named `default`")
                .found(found.join(", ")),
            TextError::TemplateSyntax { place, .. } => {
                with_place(report, place).mend("pass --raw to send the prompt as it is")
            }
            TextError::TemplateFailed { place, .. } => with_place(report, place)
                .mend("check that the messages have the fields the template reads, or pass --raw"),
            TextError::TemplateRefused { place, .. } => {
                with_place(report, place).mend("change the messages as the template asks")
            }
        }
    }
}

fn with_place(report: Report, place: &Option<Box<Place>>) -> Report {
    match place {
        Some(place) => report.at(Place::clone(place)),
        None => report,
    }
}
