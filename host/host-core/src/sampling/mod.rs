//! What a request may ask of the choice of tokens, and why a generation ended.
//!
//! A chain is a list of [`Sampler`]s in the order in which they act. [`SamplingSettings`] is the flat form that
//! profiles and flags use; [`SamplingSettings::samplers`] is the one place that turns it into a chain.

mod error;
pub mod parameters;
mod range;
mod sampler;
mod settings;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use error::SamplingError;
pub use sampler::{Breaker, Pivot, Sampler, Shaper};
pub use settings::{SamplingChain, SamplingSettings};

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// A stop token of the model or a stop string of the request.
    Stop,
    /// The request's token limit or the context's end.
    Length,
    /// The caller cancelled.
    Cancelled,
    /// A sampling policy ended it, for the reason that it gave.
    Policy(String),
    /// The row failed; the error was reported on its own.
    Error,
}
