//! Why no token can be chosen.

use host_core::{Report, Reported, SamplingError};

/// Why no token can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A logit is NaN or positive infinity.
    #[error("the logits hold a value that is not a number")]
    NotANumber,
    /// Every token is excluded.
    #[error("every token is excluded")]
    NothingLeft,
    /// A bias or a forced token beyond the vocabulary.
    #[error("token {token} is beyond the vocabulary of {n_vocab}")]
    UnknownToken {
        /// The token id.
        token: u32,
        /// Entries of the vocabulary.
        n_vocab: usize,
    },
    /// A mask of another vocabulary.
    #[error("a mask has {found} tokens, the vocabulary has {n_vocab}")]
    OtherVocabulary {
        /// Tokens of the mask.
        found: usize,
        /// Entries of the vocabulary.
        n_vocab: usize,
    },
    /// A token is forced that the step's mask excludes.
    #[error("token {token} is forced and excluded at once")]
    ForcedExcluded {
        /// The token id.
        token: u32,
    },
    /// A sampler that remembers more than the tokens tell, among the edits of one step.
    #[error("the sampler `{name}` remembers earlier steps, so a single step cannot add it")]
    Stateful {
        /// The sampler.
        name: &'static str,
    },
    /// A sampler among the edits is out of range.
    #[error(transparent)]
    Setting(#[from] SamplingError),
}

impl Reported for SampleError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            SampleError::NotANumber => Report::new("engine.logits", text)
                .expected("numbers")
                .found("NaN or +infinity")
                .mend("the model or its weights are broken: compare with `--numeric exact`"),
            SampleError::NothingLeft => Report::new("engine.logits", text)
                .expected("at least one token that may follow")
                .found("none")
                .mend("loosen the masks, biases and filters"),
            SampleError::UnknownToken { token, n_vocab } => Report::new("sampling.unknown-token", text)
                .expected(format!("ids below {n_vocab}"))
                .found(token.to_string())
                .mend("use ids of the model's tokenizer"),
            SampleError::OtherVocabulary { found, n_vocab } => Report::new("sampling.other-vocabulary", text)
                .expected(format!("{n_vocab} tokens"))
                .found(format!("{found} tokens"))
                .mend("make the mask for the model's vocabulary"),
            SampleError::ForcedExcluded { token } => Report::new("sampling.forced-excluded", text)
                .expected("forced tokens among the allowed ones")
                .found(token.to_string())
                .mend("force only what the constraint and the policy allow"),
            SampleError::Stateful { name } => Report::new("sampling.stateful", text)
                .expected("samplers that a step can judge alone")
                .found(*name)
                .mend("put it into the request's chain"),
            SampleError::Setting(cause) => cause.report(),
        }
    }
}
