//! What a plugin is: manifest, package, budget, hooks and the ways in which a plugin can fail.
//!
//! There is no runtime in here. `host-wasm` and `host-lua` run plugins and share this crate's
//! [`GraphSession`], so that both forms of a plugin mean the same.

mod budget;
mod constraint;
mod error;
mod folder;
mod hook;
mod manifest;
mod package;
pub mod pipeline;
mod policy;
mod quant;
mod quarantine;
mod session;
mod step;
mod ticker;

pub use budget::{Budget, StepBudget};
pub use constraint::PolicyConstraint;
pub use error::{FieldProblem, PluginError, clip};
pub use folder::PluginFolder;
pub use hook::{GraphPlugin, LogSink};
pub use manifest::{ContractVersion, Kind, Manifest, Runtime};
pub use package::{Digest, ENTRY_BYTES, MANIFEST_BYTES, MANIFEST_FILE, PluginName, PluginPackage};
pub use policy::{
    Grants, Needs, NoVocabulary, PolicyInput, PolicyInstance, PolicyTraits, PolicyVocabulary, Right,
    SamplingPolicy,
};
pub use quant::{PluginQuant, QuantPlugin};
pub use quarantine::{Clock, InQuarantine, MonotonicClock, PluginHealth, Quarantine, QuarantineRules};
pub use session::{GraphSession, harmless_config_keys};
pub use step::{PolicyStep, StepRefusal};
pub use ticker::{Running, Ticker};

#[cfg(test)]
mod tests;
