//! One running request: its tokens, how many of them the device holds, and how it ends.

use host_core::{FinishReason, Report, Reported};
use host_device::{Logits, SequenceId};
use host_sampling::{Chain, Choice, Edits, StepInput};

use crate::error::EngineError;
use crate::request::{Outcome, Request, RequestId, Usage};

/// A request that was checked and has no sequence yet.
pub(crate) struct Waiting {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    pub(crate) chain: Chain,
}

/// How a request ends.
pub(crate) enum End {
    /// As it may.
    Finished(FinishReason),
    /// By what went wrong.
    Failed(Box<Report>),
}

impl End {
    /// The end of a row that something refused.
    pub(crate) fn failed(error: &dyn Reported) -> Self {
        End::Failed(Box::new(error.report()))
    }

    /// The last outcome that the caller sees.
    pub(crate) fn outcome(self, usage: Usage) -> Outcome {
        match self {
            End::Finished(reason) => Outcome::Finished { reason, usage },
            End::Failed(report) => Outcome::Failed(*report),
        }
    }
}

/// A request with a sequence on the device.
pub(crate) struct Row {
    pub(crate) id: RequestId,
    pub(crate) sequence: SequenceId,
    /// What was asked; the prompt has moved to `tokens`.
    pub(crate) request: Request,
    chain: Chain,
    /// The prompt, then what was generated.
    pub(crate) tokens: Vec<u32>,
    n_prompt: usize,
    n_reused: usize,
    /// How many of `tokens` the sequence holds.
    pub(crate) n_computed: usize,
    /// The step that advanced it last, so that rows take turns when a step has no room for all.
    pub(crate) served_at: u64,
    /// Whether the device's sequence can be trusted to hold the first `n_computed` tokens.
    pub(crate) is_sound: bool,
    /// Set when the row is to leave.
    pub(crate) end: Option<End>,
}

impl Row {
    /// A row whose sequence holds the first `n_reused` tokens of the prompt.
    pub(crate) fn new(waiting: Waiting, sequence: SequenceId, n_reused: usize) -> Self {
        let Waiting { id, mut request, chain } = waiting;
        let tokens = std::mem::take(&mut request.prompt_ids);
        let n_prompt = tokens.len();
        Row {
            id,
            sequence,
            request,
            chain,
            tokens,
            n_prompt,
            n_reused,
            n_computed: n_reused,
            served_at: 0,
            is_sound: true,
            end: None,
        }
    }

    /// Tokens that the sequence does not hold yet; at least one while the row runs.
    pub(crate) fn n_pending(&self) -> usize {
        self.tokens.len() - self.n_computed
    }

    /// Whether a token was generated, so that each step brings one more.
    pub(crate) fn is_decoding(&self) -> bool {
        self.tokens.len() > self.n_prompt
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.n_prompt,
            reused_tokens: self.n_reused,
            generated_tokens: self.tokens.len() - self.n_prompt,
        }
    }

    /// Chooses the next token from row `logits_row`; `None` when the row ends without one.
    ///
    /// Sets [`Row::end`] where this was the last token.
    pub(crate) fn take_token(
        &mut self,
        logits: &dyn Logits,
        logits_row: usize,
        context_tokens: usize,
    ) -> Option<Outcome> {
        let input = StepInput {
            logits,
            row: logits_row,
            history: &self.tokens,
            step: (self.tokens.len() - self.n_prompt) as u64,
            logprobs: self.request.logprobs,
        };
        let Choice { token_id, logprobs } = match self.chain.choose(&input, &Edits::none()) {
            Ok(choice) => choice,
            Err(source) => {
                let position = self.tokens.len();
                self.end = Some(End::failed(&EngineError::Sample { position, source }));
                return None;
            }
        };
        if !self.request.ignore_eos && self.request.stop_token_ids.contains(&token_id) {
            self.end = Some(End::Finished(FinishReason::Stop));
            return None;
        }
        self.tokens.push(token_id);
        let is_full = self.tokens.len() > context_tokens;
        if is_full || self.usage().generated_tokens == self.request.max_tokens {
            self.end = Some(End::Finished(FinishReason::Length));
        }
        Some(Outcome::Token { token_id, logprobs })
    }
}
