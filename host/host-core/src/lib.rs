//! Words that every crate of the host shares: dtypes, error reports, sampling settings, finish reasons.
//!
//! Nothing here computes, reads a file or knows a model; a type belongs here only when two crates must
//! agree on it.

mod dtype;
mod numeric;
pub mod quant;
mod report;
pub mod sampling;
mod tokenizer_facts;
mod vocabulary;

pub use dtype::DType;
pub use numeric::Numeric;
pub use report::{Place, Report, Reported};
pub use sampling::{
    Breaker, FinishReason, Pivot, Sampler, SamplingChain, SamplingError, SamplingSettings, Shaper,
};
pub use tokenizer_facts::{TokenizerFact, TokenizerFacts, TokenizerKey};
pub use vocabulary::Vocabulary;
