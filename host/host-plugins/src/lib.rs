//! What a plugin is: manifest, package, budget, hooks and the ways in which a plugin can fail.
//!
//! There is no runtime in here. `host-wasm` and `host-lua` run plugins and share this crate's
//! [`GraphSession`], so that both forms of a plugin mean the same.

mod budget;
mod error;
mod folder;
mod hook;
mod manifest;
mod package;
mod session;

pub use budget::Budget;
pub use error::{FieldProblem, PluginError, clip};
pub use folder::PluginFolder;
pub use hook::{GraphPlugin, LogSink};
pub use manifest::{ContractVersion, Kind, Manifest, Runtime};
pub use package::{Digest, PluginName, PluginPackage};
pub use session::{GraphSession, harmless_config_keys};

#[cfg(test)]
mod tests;
