//! One running request: its tokens, how many of them the device holds, and how it ends.

use host_core::{FinishReason, Report, Reported};
use host_device::{Logits, SequenceId};
use host_sampling::{Chain, Choice, Edits, Grammar, RowView, StepInput};

use crate::error::EngineError;
use crate::guide::{Guide, Parts, forced};
use crate::request::{CancelFlag, Outcome, Request, RequestId, Usage};
use crate::sessions::Told;

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

    /// The end of a row whose flag was raised.
    pub(crate) fn cancelled() -> Self {
        End::Finished(FinishReason::Cancelled)
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
    /// What was asked; the prompt has moved to `tokens`, the policy and the grammar to `guide`.
    pub(crate) request: Request,
    chain: Chain,
    pub(crate) guide: Guide,
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
    /// A row whose sequence holds the first `n_reused` tokens of the prompt. `told` is the session's policy, where the
    /// request has none of its own; the prompt goes on from what it was told of. No guest is called once `stop` is
    /// raised.
    pub(crate) fn new(
        waiting: Waiting,
        sequence: SequenceId,
        n_reused: usize,
        told: Option<Told>,
        stop: &CancelFlag,
    ) -> Self {
        let Waiting { id, mut request, chain } = waiting;
        let tokens = std::mem::take(&mut request.prompt_ids);
        let n_prompt = tokens.len();
        let guide = Guide::new(Parts {
            policy: request.policy.take(),
            told,
            constraint: request.constraint.as_ref().map(Grammar::constraint),
            n_prompt,
            seed: chain.seed(),
            cancel: request.cancel.clone(),
            stop: stop.clone(),
        });
        Row {
            id,
            sequence,
            request,
            chain,
            guide,
            tokens,
            n_prompt,
            n_reused,
            n_computed: n_reused,
            served_at: 0,
            is_sound: true,
            end: None,
        }
    }

    /// The session's policy, which leaves the row.
    pub(crate) fn told(&mut self) -> Option<Told> {
        self.guide.told(&self.tokens)
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

    /// Chooses the next token from row `logits_row`, or the next ones where a policy forces several; none when the
    /// row ends without one.
    ///
    /// Sets [`Row::end`] where this was the last token.
    pub(crate) fn take_tokens(
        &mut self,
        logits: &dyn Logits,
        logits_row: usize,
        context_tokens: usize,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        if let Err(end) = self.try_take(logits, logits_row, context_tokens, &mut outcomes) {
            self.end = Some(end);
        }
        outcomes
    }

    fn try_take(
        &mut self,
        logits: &dyn Logits,
        logits_row: usize,
        context_tokens: usize,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), End> {
        let mut edits = self.guide.edits(&self.tokens, &RowView::new(logits, logits_row))?;
        if let Some(reason) = edits.finish.take() {
            return Err(End::Finished(reason));
        }
        loop {
            let token = self.choose(logits, logits_row, edits)?;
            outcomes.push(self.accept(token, context_tokens)?);
            // Forced tokens are known without their logits, so they are computed in one run; their
            // log-probabilities are not.
            let next = if self.request.logprobs.is_none() { self.guide.next_forced() } else { None };
            match next {
                Some(token) => edits = forced(token),
                None => return Ok(()),
            }
        }
    }

    /// The chain chooses under the step's edits and the grammar's mask; the grammar goes on with the choice.
    fn choose(&mut self, logits: &dyn Logits, logits_row: usize, mut edits: Edits) -> Result<Choice, End> {
        self.guide.constrain(&mut edits)?;
        let input = StepInput {
            logits,
            row: logits_row,
            history: &self.tokens,
            step: self.position(),
            logprobs: self.request.logprobs,
        };
        let position = self.tokens.len();
        let choice = self.chain.choose(&input, &edits);
        let choice = choice.map_err(|source| {
            let report = EngineError::Sample { position, source }.report();
            End::Failed(Box::new(match self.guide.plugin() {
                Some(plugin) => report.note(format!("plugin {plugin} took part in this `step`")),
                None => report,
            }))
        })?;
        self.guide.accept(choice.token_id)?;
        Ok(choice)
    }

    /// Takes a token in; the error is an end without it.
    fn accept(&mut self, choice: Choice, context_tokens: usize) -> Result<Outcome, End> {
        let Choice { token_id, logprobs } = choice;
        if !self.request.ignore_eos && self.request.stop_token_ids.contains(&token_id) {
            return Err(End::Finished(FinishReason::Stop));
        }
        self.tokens.push(token_id);
        let is_full = self.tokens.len() > context_tokens;
        if is_full || self.usage().generated_tokens == self.request.max_tokens {
            self.guide.forget_forced();
            self.end = Some(End::Finished(FinishReason::Length));
        }
        // Nothing but a stop token may follow: it need not be computed.
        if self.guide.is_finished() {
            self.guide.forget_forced();
            self.end = Some(End::Finished(FinishReason::Stop));
        }
        Ok(Outcome::Token { token_id, logprobs })
    }

    /// How many tokens were generated so far.
    fn position(&self) -> u64 {
        (self.tokens.len() - self.n_prompt) as u64
    }
}
