//! One request run to its end, with its text as it comes.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host_core::FinishReason;
use host_engine::{CancelFlag, Engine, EngineError, Outcome, Request, TokenLogprobs};
use host_text::{Detokenizer, StopMatcher, Tokenizer};

use crate::error::Failure;

/// What a request gave.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Every generated token; where a stop string ended the answer, the last one completed it.
    pub(crate) token_ids: Vec<u32>,
    /// The text, without the stop string.
    pub(crate) text: String,
    pub(crate) finish_reason: FinishReason,
    /// One entry a token, where the request asked for them.
    pub(crate) logprobs: Vec<TokenLogprobs>,
    /// From submission to the first token.
    pub(crate) prefill: Duration,
    /// From the first token to the last.
    pub(crate) decode: Duration,
}

impl Answer {
    /// Tokens after the first over the time they took; `None` for fewer than two tokens.
    pub(crate) fn tokens_per_second(&self) -> Option<f64> {
        let n_steps = self.token_ids.len().checked_sub(1).filter(|n| *n > 0)?;
        Some(n_steps as f64 / self.decode.as_secs_f64())
    }
}

/// Runs `request` alone in `engine`.
///
/// `sink` gets each piece of text, whole characters only; with [`ControlFlow::Break`] nobody reads any more and
/// the request is cancelled.
///
/// # Errors
/// A refused request or a failed row.
pub(crate) fn answer(
    engine: &mut Engine,
    tokenizer: &Arc<Tokenizer>,
    request: Request,
    stop: &[String],
    sink: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<Answer, Failure> {
    let cancel = request.cancel.clone();
    let started = Instant::now();
    engine.submit(request)?;
    let outcomes = Alone { engine, ready: VecDeque::new() };
    gather(outcomes, started, &cancel, tokenizer, stop, sink)
}

/// The outcomes of the only request of an engine.
struct Alone<'a> {
    engine: &'a mut Engine,
    ready: VecDeque<Outcome>,
}

impl Iterator for Alone<'_> {
    type Item = Outcome;

    fn next(&mut self) -> Option<Outcome> {
        while self.ready.is_empty() && !self.engine.is_idle() {
            self.ready.extend(self.engine.step().into_iter().map(|event| event.outcome));
        }
        self.ready.pop_front()
    }
}

/// Makes an answer of a request's outcomes, which `cancel` ends early.
///
/// `started` is when it was submitted; `sink` as in [`answer`].
///
/// # Errors
/// A failed row.
pub(crate) fn gather(
    outcomes: impl Iterator<Item = Outcome>,
    started: Instant,
    cancel: &CancelFlag,
    tokenizer: &Arc<Tokenizer>,
    stop: &[String],
    sink: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<Answer, Failure> {
    let mut words = Words::new(tokenizer, stop, sink);
    let (mut first, mut last) = (started, started);
    let mut logprobs = Vec::new();
    let mut token_ids = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Token { token_id, logprobs: of_token } => {
                last = Instant::now();
                if token_ids.is_empty() {
                    first = last;
                }
                token_ids.push(token_id);
                logprobs.extend(of_token);
                if words.push(token_id).is_break() {
                    cancel.cancel();
                }
            }
            Outcome::Failed(report) => return Err(report.into()),
            Outcome::Finished { reason, .. } => {
                let stopped = words.finish();
                return Ok(Answer {
                    token_ids,
                    text: words.text,
                    finish_reason: if stopped { FinishReason::Stop } else { reason },
                    logprobs,
                    prefill: first - started,
                    decode: last - first,
                });
            }
        }
    }
    Err(EngineError::Stopped.into())
}

/// Token ids become text, up to the first stop string.
struct Words<'a> {
    detokenizer: Detokenizer,
    matcher: StopMatcher,
    text: String,
    sink: &'a mut dyn FnMut(&str) -> ControlFlow<()>,
}

impl<'a> Words<'a> {
    fn new(
        tokenizer: &Arc<Tokenizer>,
        stop: &[String],
        sink: &'a mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Self {
        Words {
            detokenizer: Detokenizer::new(Arc::clone(tokenizer), true),
            matcher: StopMatcher::new(stop),
            text: String::new(),
            sink,
        }
    }

    /// Breaks where a stop string is complete or nobody reads any more.
    fn push(&mut self, token_id: u32) -> ControlFlow<()> {
        match self.detokenizer.push(token_id) {
            Some(piece) => self.offer(&piece),
            None => ControlFlow::Continue(()),
        }
    }

    fn offer(&mut self, piece: &str) -> ControlFlow<()> {
        let step = self.matcher.push(piece);
        self.say(&step.text)?;
        if step.stopped_by.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn say(&mut self, text: &str) -> ControlFlow<()> {
        if text.is_empty() {
            return ControlFlow::Continue(());
        }
        self.text.push_str(text);
        (self.sink)(text)
    }

    /// Gives out what was withheld; whether a stop string ended the text.
    fn finish(&mut self) -> bool {
        if let Some(piece) = self.detokenizer.flush() {
            let _ = self.offer(&piece);
        }
        if self.matcher.is_stopped() {
            return true;
        }
        let withheld = self.matcher.flush();
        let _ = self.say(&withheld);
        false
    }
}
