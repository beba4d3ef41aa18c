//! What a pipeline is: a script that asks a host for generations, and what it may spend.
//!
//! There is no runtime in here and no engine: `host-lua` runs the script, and whoever has a model implements
//! [`PipelineHost`].

mod budget;
mod error;
mod host;
mod source;

pub use budget::PipelineBudget;
pub use error::{PipelineError, Spent};
pub use host::{
    GenerateOptions, Generated, GenerationKey, Item, PipelineHost, Progress, Prompt, SessionForm, SessionKey,
    SessionOptions, Turn,
};
pub use source::{PipelineSource, Script};

#[cfg(test)]
mod tests;
