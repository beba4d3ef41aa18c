//! From a plugin's crate to its component: the target's standard library, cargo, and the encoding.
//!
//! The author tools, the workspace's own automation and its test guests build plugins, and all of them here, so that
//! what is tested is what authors get. Nothing in here runs a plugin or knows what one is for.

mod compile;
mod component;
mod error;
mod target;

pub use compile::{cargo, compile};
pub use component::{encode, encode_for};
pub use error::BuildError;
pub use target::{TARGET, add_target, has_target, rustc_version};

#[cfg(test)]
mod tests;
