//! From a model's name to an engine that answers: what a program has, the one way of opening a model, and the
//! policies of its requests.
//!
//! ```text
//! Machine (devices, model cache, runtimes)            lives as long as the process
//!    └─ Host (plugins, profiles, rules, registry)     what the folders said when they were read
//!          └─ open(host, name, overrides) ─► Opened   composition, tokenizer, engine, policy
//! ```
//!
//! A program that goes on while its folders change has a [`reload::Service`] in place of a host.
//!
//! Nothing here draws or parses flags: a caller that wants bars brings an [`OpenProgress`], one that wants plugins'
//! log lines a sink.

mod by_content;
mod error;
mod failure;
mod freeze;
mod host;
mod machine;
mod open;
mod policy;
mod progress;
pub mod reload;
mod vocabulary;

pub use error::OpenError;
pub use failure::Failure;
pub use freeze::freeze;
pub use host::{Folders, Host, load_profiles};
pub use machine::{Machine, n_threads};
pub use open::{
    Described, Located, ModelName, Opened, check, decide, describe, describe_published, fetch, locate, open,
    plugin_quant, resolve, source_of, tensors, tokenizer,
};
pub use policy::RequestPolicy;
pub use progress::{NoProgress, OpenProgress};
pub use vocabulary::{text_facts, token_table, vocabulary};
