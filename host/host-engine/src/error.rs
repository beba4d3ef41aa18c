//! What the engine refuses, and how a row may fail.

use host_core::{Report, Reported, SamplingError};
use host_device::DeviceError;
use host_plugins::PluginError;
use host_sampling::{ConstraintError, SampleError};

use crate::request::SessionId;

/// A refused request or a failed row.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A prompt without tokens.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// A prompt that leaves no room in the context.
    #[error("the prompt has {found} tokens, the context has room for {limit}")]
    PromptTooLong {
        /// Tokens of the prompt.
        found: usize,
        /// The composition's `context_tokens`.
        limit: usize,
    },
    /// A prompt token beyond the vocabulary.
    #[error("prompt token {index} is {token}, the vocabulary has {n_vocab} entries")]
    PromptToken {
        /// Where in the prompt.
        index: usize,
        /// The token id.
        token: u32,
        /// Entries of the vocabulary.
        n_vocab: usize,
    },
    /// A request for no tokens at all.
    #[error("`max_tokens` is 0")]
    NoTokens,
    /// More log-probabilities than there are tokens.
    #[error("`logprobs` is {found}, the vocabulary has {n_vocab} entries")]
    TooManyLogprobs {
        /// What was asked for.
        found: usize,
        /// Entries of the vocabulary.
        n_vocab: usize,
    },
    /// A sampling setting outside its range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// A session that was never opened, or was closed.
    #[error("there is no session {}", .0.0)]
    UnknownSession(SessionId),
    /// A session whose last request still runs.
    #[error("session {} still runs a request", .0.0)]
    SessionBusy(SessionId),
    /// A row whose next token cannot be chosen.
    #[error("token {position} of the sequence cannot be chosen: {source}")]
    Sample {
        /// The position that the token would have had.
        position: usize,
        /// Why.
        source: SampleError,
    },
    /// A grammar that was compiled for another vocabulary.
    #[error("the grammar is for {found} tokens, the vocabulary has {n_vocab} entries")]
    OtherVocabulary {
        /// Tokens of the grammar's table.
        found: usize,
        /// Entries of the vocabulary.
        n_vocab: usize,
    },
    /// A constraint that cannot go on.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// A policy that refused or failed.
    #[error(transparent)]
    Policy(#[from] PluginError),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The engine's thread is no longer there.
    #[error("the engine has stopped")]
    Stopped,
}

impl Reported for EngineError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            EngineError::EmptyPrompt => Report::new("engine.empty-prompt", text)
                .expected("at least one token")
                .mend("give a prompt; without a chat template an empty text has no tokens"),
            EngineError::PromptTooLong { found, limit } => Report::new("engine.prompt-too-long", text)
                .expected(format!("at most {limit} tokens"))
                .found(format!("{found} tokens"))
                .mend("shorten the prompt, or raise context_tokens in the profile"),
            EngineError::PromptToken { token, n_vocab, .. } => Report::new("engine.prompt-token", text)
                .expected(format!("ids below {n_vocab}"))
                .found(token.to_string())
                .mend("use the tokenizer that belongs to the model"),
            EngineError::NoTokens => Report::new("engine.no-tokens", text)
                .expected("at least 1")
                .found("0")
                .mend("ask for at least one token"),
            EngineError::TooManyLogprobs { found, n_vocab } => Report::new("engine.too-many-logprobs", text)
                .expected(format!("at most {n_vocab}"))
                .found(found.to_string())
                .mend("ask for fewer log-probabilities"),
            EngineError::Sampling(cause) => cause.report(),
            EngineError::UnknownSession(_) => {
                Report::new("engine.unknown-session", text).mend("open a session first")
            }
            EngineError::SessionBusy(_) => Report::new("engine.session-busy", text)
                .expected("one request at a time in a session")
                .mend("wait for the running request, or cancel it"),
            EngineError::Sample { source, .. } => Report { message: text, ..source.report() },
            EngineError::OtherVocabulary { found, n_vocab } => Report::new("engine.other-vocabulary", text)
                .expected(format!("{n_vocab} tokens"))
                .found(format!("{found} tokens"))
                .mend("compile the grammar for the model's tokenizer and logits"),
            EngineError::Constraint(cause) => cause.report(),
            EngineError::Policy(cause) => cause.report(),
            EngineError::Device(cause) => cause.report(),
            EngineError::Stopped => Report::new("engine.stopped", text).mend("start it again"),
        }
    }
}
