//! What can go wrong between a model's name and an engine that no other crate has an error for.

use host_core::{Report, Reported};

/// An error of opening a model.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Neither a model nor a profile.
    #[error("no model is named")]
    NoModel,
    /// A profile without a source, and no model beside it.
    #[error("the profile `{id}` names no model")]
    NoSource {
        /// The profile.
        id: String,
    },
    /// A fault of the program.
    #[error("a thread ended unexpectedly while {act}")]
    Thread {
        /// What it was doing.
        act: &'static str,
    },
}

impl Reported for OpenError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            OpenError::NoModel => Report::new("usage.no-model", text)
                .expected("--model SOURCE, or --profile ID of a profile that names one")
                .mend("tenon models list shows what was fetched; tenon generate --help shows the sources"),
            OpenError::NoSource { .. } => Report::new("usage.no-source", text)
                .expected("a profile with [source], or --model SOURCE beside it")
                .mend("name the model with --model"),
            OpenError::Thread { .. } => Report::new("cli.thread", text)
                .mend("this is a fault of the program: please report it with the lines above"),
        }
    }
}
