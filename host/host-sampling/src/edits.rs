//! What was done to one step before its chain: by a policy plugin, by a constraint, or by both.

use host_core::{FinishReason, Sampler};

use crate::mask::TokenMask;

/// The edits of one step. They act in this order: a finish reason ends the request; a forced token is taken; else
/// the mask, the bias and the samplers act, and then the request's own chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edits {
    /// Tokens that may follow; `None` allows all.
    pub allowed: Option<TokenMask>,
    /// Numbers added to logits, by token id; several for one id add up. Negative infinity excludes a token.
    pub bias: Vec<(u32, f32)>,
    /// Samplers that act before the chain, in order. Those that remember earlier steps are refused.
    pub samplers: Vec<Sampler>,
    /// Tokens that follow whatever the logits say. A step takes the first; whoever runs the steps takes the others
    /// in the steps that follow.
    pub forced: Vec<u32>,
    /// Ends the request without a further token.
    pub finish: Option<FinishReason>,
}

impl Edits {
    /// Edits that change nothing.
    pub fn none() -> Self {
        Edits::default()
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        let Edits { allowed, bias, samplers, forced, finish } = self;
        allowed.is_none() && bias.is_empty() && samplers.is_empty() && forced.is_empty() && finish.is_none()
    }

    /// Excludes what is not in `mask`, beside what is excluded already.
    pub fn allow(&mut self, mask: TokenMask) {
        match &mut self.allowed {
            Some(allowed) => allowed.intersect(&mask),
            None => self.allowed = Some(mask),
        }
    }

    /// Undoes everything, keeping what was allocated.
    pub fn clear(&mut self) {
        self.allowed = None;
        self.bias.clear();
        self.samplers.clear();
        self.forced.clear();
        self.finish = None;
    }
}
