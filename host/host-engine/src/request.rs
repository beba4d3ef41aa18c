//! What a caller asks of the engine and what it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use host_core::{FinishReason, Report, SamplingChain};
use host_plugins::PolicyInstance;
use host_sampling::{Grammar, TokenLogprobs};

/// A request's number within one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A session's number within one engine: a sequence that is kept between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Ends a request from anywhere: the engine looks at it before each step.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag {
    raised: Arc<AtomicBool>,
    /// Raises this one too.
    of_many: Option<Arc<AtomicBool>>,
}

impl CancelFlag {
    /// A flag that is not raised.
    pub fn new() -> Self {
        CancelFlag::default()
    }

    /// Raises it. Safe in a signal handler's thread; raising it twice is harmless.
    pub fn cancel(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// The same flag, also raised when `many` is: ends many requests at once. Takes the place of an earlier `many`.
    #[must_use]
    pub fn also(self, many: &CancelFlag) -> CancelFlag {
        CancelFlag { of_many: Some(Arc::clone(&many.raised)), ..self }
    }

    /// Whether it was raised.
    pub fn is_cancelled(&self) -> bool {
        let is_raised = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_raised(&self.raised) || self.of_many.as_deref().is_some_and(is_raised)
    }
}

/// A flag that others hold too.
impl From<Arc<AtomicBool>> for CancelFlag {
    fn from(flag: Arc<AtomicBool>) -> Self {
        CancelFlag { raised: flag, of_many: None }
    }
}

/// One generation. It is no `Clone`: a policy's instance belongs to one request.
#[derive(Debug)]
pub struct Request {
    /// The whole prompt, at least one token id.
    pub prompt_ids: Vec<u32>,
    /// Tokens to generate at most, at least 1.
    pub max_tokens: usize,
    /// How each token is chosen.
    pub sampling: SamplingChain,
    /// A policy that edits each step before `sampling` acts. Its fault ends this request alone.
    pub policy: Option<Box<dyn PolicyInstance>>,
    /// A token of these ends the generation and is not emitted.
    pub stop_token_ids: Vec<u32>,
    /// Treat `stop_token_ids` as ordinary tokens.
    pub ignore_eos: bool,
    /// For each token, also give its log-probability and those of this many most likely ones; `None` gives
    /// neither.
    pub logprobs: Option<usize>,
    /// What the text must be; `None` leaves it free.
    pub constraint: Option<Grammar>,
    /// Continue in this session's sequence: what it has in common with the prompt is not computed again.
    pub session: Option<SessionId>,
    /// Ends the request early.
    pub cancel: CancelFlag,
}

impl Request {
    /// A request that samples as `sampling` says until a stop token or `max_tokens`.
    pub fn new(prompt_ids: Vec<u32>, max_tokens: usize, sampling: impl Into<SamplingChain>) -> Self {
        Request {
            prompt_ids,
            max_tokens,
            sampling: sampling.into(),
            policy: None,
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            constraint: None,
            session: None,
            cancel: CancelFlag::new(),
        }
    }
}

/// What happened to one request in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Whose.
    pub request: RequestId,
    /// What.
    pub outcome: Outcome,
}

/// One thing that happened. After [`Outcome::Finished`] or [`Outcome::Failed`] nothing follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A token was generated.
    Token {
        /// Its id.
        token_id: u32,
        /// What the request asked for with `logprobs`.
        logprobs: Option<TokenLogprobs>,
    },
    /// The generation ended as it may.
    Finished {
        /// Why: never [`FinishReason::Error`].
        reason: FinishReason,
        /// How many tokens went in and came out.
        usage: Usage,
    },
    /// The generation failed; other requests go on.
    Failed(Report),
}

/// Tokens of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// Of these, how many the session held already.
    pub reused_tokens: usize,
    /// Tokens emitted.
    pub generated_tokens: usize,
}
