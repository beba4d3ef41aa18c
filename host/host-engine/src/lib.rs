//! Requests in, tokens out: many sequences run through one executable as one ragged batch.
//!
//! [`Engine`] is a plain value: it is given requests, advances every sequence by one [`Engine::step`] at a
//! time and hands back what happened. It reads no clock and opens no file; one thread of its own asks grammars and
//! policies while the device computes. A [`Driver`] puts it on a thread for callers that want channels.
//!
//! What a request gets does not depend on its neighbours: which rows share a step changes no logits, and the
//! draws of a row are a function of its own seed and position.

mod driver;
mod engine;
mod error;
mod foresight;
mod guide;
mod request;
mod row;
mod schedule;
mod sessions;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use driver::{Driver, RequestHandle};
pub use engine::{Engine, EngineOptions};
pub use error::EngineError;
pub use host_sampling::{
    Budget as GrammarBudget, Chain, Choice, Constraint, ConstraintError, Edits, Grammar, GrammarSpec,
    RowView, SampleError, StepInput, TokenLogprobs, TokenMask, TokenTable, TokenTables, Whitespace,
    random_u32, token_logprobs,
};
pub use request::{CancelFlag, Event, Outcome, Request, RequestId, SessionId, Usage};
