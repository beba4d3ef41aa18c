//! One running request: its tokens, how many of them the device holds, and how it ends.

use std::collections::VecDeque;

use host_core::{FinishReason, Report, Reported};
use host_device::{Logits, SequenceId};
use host_plugins::{PolicyInput, PolicyInstance};
use host_sampling::{Chain, Choice, Constraint, Edits, Grammar, RowView, StepInput};

use crate::error::EngineError;
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
    /// What was asked; the prompt has moved to `tokens`, the policy to `policy`.
    pub(crate) request: Request,
    chain: Chain,
    policy: Option<Box<dyn PolicyInstance>>,
    /// Whether the policy goes back to the session.
    is_session_policy: bool,
    /// How many of `tokens` the policy was told of.
    n_told: usize,
    /// Tokens that the policy forced and that are still to follow.
    forced: VecDeque<u32>,
    /// Where the text stands in the request's grammar.
    constraint: Option<Constraint>,
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
    /// request has none of its own; the prompt goes on from what it was told of.
    pub(crate) fn new(waiting: Waiting, sequence: SequenceId, n_reused: usize, told: Option<Told>) -> Self {
        let Waiting { id, mut request, chain } = waiting;
        let tokens = std::mem::take(&mut request.prompt_ids);
        let n_prompt = tokens.len();
        let is_session_policy = told.is_some();
        let (policy, n_told) = match told {
            Some(told) => (Some(told.policy), told.tokens.len()),
            None => (request.policy.take(), 0),
        };
        let constraint = request.constraint.as_ref().map(Grammar::constraint);
        Row {
            id,
            sequence,
            request,
            chain,
            policy,
            is_session_policy,
            n_told,
            forced: VecDeque::new(),
            constraint,
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
        let policy = self.policy.take().filter(|_| self.is_session_policy)?;
        Some(Told { policy, tokens: self.tokens[..self.n_told].to_vec() })
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
        stop: &CancelFlag,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        if let Err(end) = self.try_take(logits, logits_row, context_tokens, stop, &mut outcomes) {
            self.end = Some(end);
        }
        outcomes
    }

    fn try_take(
        &mut self,
        logits: &dyn Logits,
        logits_row: usize,
        context_tokens: usize,
        stop: &CancelFlag,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), End> {
        let mut edits = self.edits(logits, logits_row, stop)?;
        if let Some(reason) = edits.finish.take() {
            return Err(End::Finished(reason));
        }
        loop {
            let token = self.choose(logits, logits_row, edits)?;
            outcomes.push(self.accept(token, context_tokens)?);
            // Forced tokens are known without their logits, so they are computed in one run; their
            // log-probabilities are not.
            let next = if self.request.logprobs.is_none() { self.forced.pop_front() } else { None };
            match next {
                Some(token) => edits = Edits { forced: vec![token], ..Edits::none() },
                None => return Ok(()),
            }
        }
    }

    /// What the request's policy does to this step.
    fn edits(&mut self, logits: &dyn Logits, logits_row: usize, stop: &CancelFlag) -> Result<Edits, End> {
        if let Some(token) = self.forced.pop_front() {
            return Ok(Edits { forced: vec![token], ..Edits::none() });
        }
        // Who raised a flag during this step waits for no guest.
        if self.policy.is_some() && (self.request.cancel.is_cancelled() || stop.is_cancelled()) {
            return Err(End::Finished(FinishReason::Cancelled));
        }
        let Some(policy) = &mut self.policy else { return Ok(Edits::none()) };
        let input = PolicyInput {
            row: &RowView::new(logits, logits_row),
            accepted: &self.tokens[self.n_told..],
            generated: &self.tokens[self.n_prompt..],
            seed: self.chain.seed(),
        };
        let mut edits = policy.step(&input).map_err(|error| End::failed(&error))?;
        self.n_told = self.tokens.len();
        if edits.forced.len() > 1 {
            self.forced.extend(edits.forced.drain(1..));
        }
        Ok(edits)
    }

    /// The chain chooses under the step's edits and the constraint's mask; the constraint goes on with the choice.
    fn choose(&mut self, logits: &dyn Logits, logits_row: usize, mut edits: Edits) -> Result<Choice, End> {
        let ended = |error: EngineError| End::failed(&error);
        if let Some(constraint) = &mut self.constraint {
            edits.allow(constraint.mask().map_err(|error| ended(error.into()))?);
        }
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
            End::Failed(Box::new(match &self.policy {
                Some(policy) => report.note(format!("plugin {} took part in this `step`", policy.name())),
                None => report,
            }))
        })?;
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(choice.token_id).map_err(|error| ended(error.into()))?;
        }
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
            self.forced.clear();
            self.end = Some(End::Finished(FinishReason::Length));
        }
        // Nothing but a stop token may follow: it need not be computed.
        if self.constraint.as_ref().is_some_and(Constraint::is_finished) {
            self.forced.clear();
            self.end = Some(End::Finished(FinishReason::Stop));
        }
        Ok(Outcome::Token { token_id, logprobs })
    }

    /// How many tokens were generated so far.
    fn position(&self) -> u64 {
        (self.tokens.len() - self.n_prompt) as u64
    }
}
