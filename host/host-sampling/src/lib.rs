//! How one token is chosen from one row of logits: samplers in a chain, and the edits of a step.
//!
//! [`Chain`] runs the samplers of a [`host_core::SamplingChain`] with what they remember of a request. [`Edits`] is
//! what a policy or a constraint did to a step before the chain. Nothing here reads a clock or a file; random
//! numbers are functions of (seed, position).

mod candidates;
mod chain;
mod constraint;
mod dry;
mod edits;
mod error;
mod filters;
mod link;
mod logprobs;
mod mask;
mod mirostat;
mod penalties;
mod random;
mod tone;
mod view;

#[cfg(test)]
mod tests;

pub use chain::{Chain, Choice, StepInput};
pub use constraint::{
    Budget, Constraint, ConstraintError, Grammar, GrammarSpec, TokenTable, TokenTables, Whitespace,
};
pub use edits::Edits;
pub use error::SampleError;
pub use logprobs::{TokenLogprobs, token_logprobs};
pub use mask::TokenMask;
pub use random::random_u32;
pub use view::{RowCopy, RowView};
