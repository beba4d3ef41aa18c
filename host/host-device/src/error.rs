//! What a device refuses.

use host_core::{Report, Reported};
use host_weights::WeightsError;

/// A refusal or failure of a device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// An operation, attribute or option that the device does not have.
    #[error("device `{device}` does not have {what}")]
    Unsupported {
        /// The device.
        device: &'static str,
        /// The operation or option, with the shapes or values asked for.
        what: String,
        /// What it has instead.
        has: String,
    },
    /// A tensor is stored in a way that the device has no product for.
    #[error("device `{device}` has no product for `{tensor}` as it is stored")]
    Encoding {
        /// The device.
        device: &'static str,
        /// The tensor.
        tensor: String,
        /// How it is stored.
        found: String,
        /// What the device has.
        has: &'static str,
    },
    /// The device's own library refused or failed.
    #[error("device `{device}` failed: {said}")]
    Failed {
        /// The device.
        device: &'static str,
        /// What the library said.
        said: String,
    },
    /// The plan needs more memory than the composition allows.
    #[error("the plan needs {needed} bytes, {limit} are allowed")]
    Memory {
        /// Bytes by purpose, summed.
        needed: u64,
        /// The limit.
        limit: u64,
        /// Where they go.
        detail: String,
    },
    /// The system has no memory left.
    #[error("the system gave no {bytes} bytes of memory")]
    OutOfMemory {
        /// The bytes asked for.
        bytes: u64,
    },
    /// The system started no thread.
    #[error("the system started no worker thread")]
    Threads {
        /// What it said.
        source: std::io::Error,
    },
    /// The weights could not be read.
    #[error("the weights could not be read")]
    Weights(#[from] WeightsError),
    /// All sequences are taken.
    #[error("all {limit} sequences are in use")]
    TooManySequences {
        /// The composition's `max_sequences`.
        limit: usize,
    },
    /// A handle that was never given or was released.
    #[error("there is no sequence {0}")]
    UnknownSequence(u32),
    /// A sequence that cannot be cut as asked.
    #[error("a sequence of {len} tokens cannot drop {n_tokens}: {why}")]
    Trim {
        /// Tokens it holds.
        len: usize,
        /// Tokens to drop.
        n_tokens: usize,
        /// Why.
        why: &'static str,
    },
    /// A step with more tokens than the plan has room for.
    #[error("a step of {found} tokens, room for {limit}")]
    StepTooLarge {
        /// New tokens of all runs.
        found: usize,
        /// The composition's `max_step_tokens`.
        limit: usize,
    },
    /// One run cannot be taken; the others can.
    #[error("run {index} of the step: {kind}")]
    Run {
        /// Which run.
        index: usize,
        /// Why.
        kind: RunError,
    },
}

/// Why one run of a step cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// No tokens.
    #[error("no tokens")]
    Empty,
    /// A token id beyond the vocabulary.
    #[error("token id {token}, the vocabulary has {n_vocab}")]
    Token {
        /// The id.
        token: u32,
        /// Entries of the vocabulary.
        n_vocab: usize,
    },
    /// The sequence would outgrow the context.
    #[error("{len} tokens and {new} more, the context has room for {limit}")]
    Context {
        /// Tokens it holds.
        len: usize,
        /// Tokens of the run.
        new: usize,
        /// The composition's `context_tokens`.
        limit: usize,
    },
    /// A handle that was never given or was released.
    #[error("there is no sequence {0}")]
    UnknownSequence(u32),
    /// The sequence has another run in the same step.
    #[error("sequence {0} has two runs in one step")]
    Twice(u32),
}

impl Reported for DeviceError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            DeviceError::Unsupported { what, has, .. } => Report::new("device.unsupported", text)
                .expected(what)
                .found(has)
                .mend("name another device or another value in the profile"),
            DeviceError::Encoding { found, has, .. } => Report::new("device.encoding", text)
                .expected(*has)
                .found(found)
                .mend("take a checkpoint that is stored so, or name the device `cpu` in the profile"),
            DeviceError::Failed { said, .. } => Report::new("device.failed", text)
                .found(said)
                .mend("end other programs that use the device, or name the device `cpu` in the profile"),
            DeviceError::Memory { needed, limit, detail } => Report::new("device.memory", text)
                .expected(format!("at most {limit} bytes"))
                .found(format!("{needed} bytes: {detail}"))
                .mend("lower context_tokens or max_sequences, or raise memory_bytes"),
            DeviceError::OutOfMemory { .. } => Report::new("device.out-of-memory", text)
                .mend("end other programs, or lower context_tokens or max_sequences in the profile"),
            DeviceError::Threads { source } => Report::new("device.threads", text)
                .found(source.to_string())
                .mend("raise the limit on processes, or ask for fewer threads"),
            DeviceError::Weights(cause) => cause.report(),
            DeviceError::TooManySequences { limit } => Report::new("device.too-many-sequences", text)
                .expected(format!("at most {limit} sequences at once"))
                .mend("wait for one to end, or raise max_sequences in the profile"),
            DeviceError::UnknownSequence(_) => Report::new("device.unknown-sequence", text),
            DeviceError::Trim { .. } => Report::new("device.trim", text),
            DeviceError::StepTooLarge { found, limit } => Report::new("device.step-too-large", text)
                .expected(format!("at most {limit} tokens"))
                .found(found.to_string()),
            DeviceError::Run { kind, .. } => kind.report(),
        }
    }
}

impl Reported for RunError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            RunError::Empty => Report::new("device.empty-run", text),
            RunError::Token { n_vocab, token } => Report::new("device.token-out-of-range", text)
                .expected(format!("ids below {n_vocab}"))
                .found(token.to_string())
                .mend("use the tokenizer that belongs to the model"),
            RunError::Context { len, new, limit } => Report::new("device.context-full", text)
                .expected(format!("at most {limit} tokens"))
                .found(format!("{} tokens", len + new))
                .mend("shorten the prompt, or raise context_tokens in the profile"),
            RunError::UnknownSequence(_) => Report::new("device.unknown-sequence", text),
            RunError::Twice(_) => Report::new("device.sequence-twice", text),
        }
    }
}
