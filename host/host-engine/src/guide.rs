//! What guides a request beside its own chain: a policy, a grammar, and tokens that were forced.

use std::collections::VecDeque;

use host_plugins::{Needs, PluginName, PolicyInput, PolicyInstance};
use host_sampling::{Constraint, Edits, RowView, TokenMask};

use crate::error::EngineError;
use crate::request::CancelFlag;
use crate::row::End;
use crate::sessions::Told;

/// The guide of one request.
pub(crate) struct Guide {
    policy: Option<Box<dyn PolicyInstance>>,
    /// Whether the policy goes back to the session.
    is_session_policy: bool,
    /// How many of the request's tokens the policy was told of.
    n_told: usize,
    /// Tokens that the policy forced and that are still to follow.
    forced: VecDeque<u32>,
    /// Where the text stands in the request's grammar.
    constraint: Option<Constraint>,
    n_prompt: usize,
    seed: u64,
    cancel: CancelFlag,
    stop: CancelFlag,
    /// What the policy answered before the step's logits were there.
    asked: Option<Result<Edits, End>>,
    /// What the grammar allows in this step, found before its logits were there.
    allowed: Option<Result<TokenMask, End>>,
}

/// What a guide is made of.
pub(crate) struct Parts {
    pub(crate) policy: Option<Box<dyn PolicyInstance>>,
    /// The session's policy, where the request has none of its own.
    pub(crate) told: Option<Told>,
    pub(crate) constraint: Option<Constraint>,
    pub(crate) n_prompt: usize,
    pub(crate) seed: u64,
    /// Ends this request.
    pub(crate) cancel: CancelFlag,
    /// Ends all requests that would call a guest.
    pub(crate) stop: CancelFlag,
}

impl Guide {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { policy, told, constraint, n_prompt, seed, cancel, stop } = parts;
        let is_session_policy = told.is_some();
        let (policy, n_told) = match told {
            Some(told) => (Some(told.policy), told.tokens.len()),
            None => (policy, 0),
        };
        Guide {
            policy,
            is_session_policy,
            n_told,
            forced: VecDeque::new(),
            constraint,
            n_prompt,
            seed,
            cancel,
            stop,
            asked: None,
            allowed: None,
        }
    }

    /// The plugin that takes part, if one does.
    pub(crate) fn plugin(&self) -> Option<&PluginName> {
        self.policy.as_ref().map(|policy| policy.name())
    }

    /// The session's policy, which leaves; `tokens` are those of its request.
    pub(crate) fn told(&mut self, tokens: &[u32]) -> Option<Told> {
        let policy = self.policy.take().filter(|_| self.is_session_policy)?;
        Some(Told { policy, tokens: tokens[..self.n_told].to_vec() })
    }

    /// Whether something of the next step can be known before its logits, and is not known yet.
    pub(crate) fn is_foresighted(&self) -> bool {
        let is_open = self.forced.is_empty() && self.asked.is_none() && self.allowed.is_none();
        is_open && (self.reads_no_logits() || self.constraint.is_some())
    }

    fn reads_no_logits(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.traits().needs == Needs::MaskOnly)
    }

    /// Finds out what can be known of the step before its logits: the answer of a policy that reads none, and what the
    /// grammar allows. `tokens` are the prompt and what was generated.
    pub(crate) fn foresee(&mut self, tokens: &[u32]) {
        if self.reads_no_logits() {
            self.asked = Some(self.ask(tokens, None));
        }
        self.allowed = self.constraint.as_mut().map(next_mask);
    }

    /// What is done to this step, and what tokens follow it for certain.
    pub(crate) fn edits(&mut self, tokens: &[u32], row: &RowView<'_>) -> Result<Edits, End> {
        if let Some(token) = self.next_forced() {
            return Ok(forced(token));
        }
        let mut edits = match self.asked.take() {
            Some(asked) => asked?,
            None => self.ask(tokens, Some(row))?,
        };
        if edits.forced.len() > 1 {
            self.forced.extend(edits.forced.drain(1..));
        }
        Ok(edits)
    }

    fn ask(&mut self, tokens: &[u32], row: Option<&RowView<'_>>) -> Result<Edits, End> {
        let Some(policy) = &mut self.policy else { return Ok(Edits::none()) };
        // Who raised a flag during this step waits for no guest.
        if self.cancel.is_cancelled() || self.stop.is_cancelled() {
            return Err(End::cancelled());
        }
        let input = PolicyInput {
            row,
            accepted: &tokens[self.n_told..],
            generated: &tokens[self.n_prompt..],
            seed: self.seed,
        };
        let edits = policy.step(&input).map_err(|error| End::failed(&error))?;
        self.n_told = tokens.len();
        Ok(edits)
    }

    /// The next of the tokens that the policy forced.
    pub(crate) fn next_forced(&mut self) -> Option<u32> {
        self.forced.pop_front()
    }

    /// No forced token follows any more.
    pub(crate) fn forget_forced(&mut self) {
        self.forced.clear();
    }

    /// Keeps `edits` to what the grammar allows.
    pub(crate) fn constrain(&mut self, edits: &mut Edits) -> Result<(), End> {
        let Some(constraint) = &mut self.constraint else { return Ok(()) };
        edits.allow(self.allowed.take().unwrap_or_else(|| next_mask(constraint))?);
        Ok(())
    }

    /// The grammar goes on with a token.
    pub(crate) fn accept(&mut self, token_id: u32) -> Result<(), End> {
        let Some(constraint) = &mut self.constraint else { return Ok(()) };
        constraint.accept(token_id).map_err(|error| End::failed(&EngineError::from(error)))
    }

    /// Whether nothing but a stop token may follow.
    pub(crate) fn is_finished(&self) -> bool {
        self.constraint.as_ref().is_some_and(Constraint::is_finished)
    }
}

/// Edits that let this token follow.
pub(crate) fn forced(token_id: u32) -> Edits {
    Edits { forced: vec![token_id], ..Edits::none() }
}

fn next_mask(constraint: &mut Constraint) -> Result<TokenMask, End> {
    constraint.mask().map_err(|error| End::failed(&EngineError::from(error)))
}
