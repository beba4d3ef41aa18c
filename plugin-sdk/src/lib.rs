//! Write a plugin for Tenon in Rust.
//!
//! A model-graph plugin reads a checkpoint's `config.json` and says the model's graph, call by call, to the
//! host's builder. It runs once when a model opens; the host does all computing. A whole plugin:
//!
//! ```
//! use plugin_sdk::{Builder, Config, Error, ModelGraph, Value, register_model_graph};
//!
//! struct Bigram;
//!
//! impl ModelGraph for Bigram {
//!     fn build(config: &Config, g: &mut Builder) -> Result<Value, Error> {
//!         config.refuse_unknown(&["hidden_size", "vocab_size", "rms_norm_eps"])?;
//!         let tokens = g.tokens()?;
//!         let h = g.embedding(tokens, "model.embed_tokens.weight")?;
//!         let h = g.rms_norm(h, Some("model.norm.weight"), config.number("rms_norm_eps")?, 0.0)?;
//!         g.linear(h, "lm_head.weight", None)
//!     }
//! }
//!
//! register_model_graph!(Bigram);
//! # fn main() {}
//! ```
//!
//! Build it as a `cdylib` for `wasm32-unknown-unknown`; the host takes the component made of it.
//!
//! * [`Config`] gives typed access to `config.json`; its errors name key, expected and found.
//! * [`Builder`] has one method an operation. Each is checked at once; pass errors on with `?`, and the
//!   host reports the operation with expected and found shapes.
//! * [`rope`] reads the rotary settings of published configs.
//!
//! [`sampling`] and [`quant`] are the other kinds of plugin: a part in the choice of each token, and how each
//! tensor is stored.
//!
//! A plugin sees nothing but its arguments: no files, no clock, no random numbers, no network.

// Generated: the canonical ABI between component and host. Each item is told in `wit/`.
#[allow(unsafe_code, missing_docs, clippy::all)]
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit/0.2",
        world: "model-graph",
        pub_export_macro: true,
        default_bindings_module: "plugin_sdk::bindings",
        generate_unused_types: true,
    });
}

// The same for the other worlds, which share the types.
#[allow(unsafe_code, missing_docs, clippy::all)]
#[doc(hidden)]
pub mod sampling_bindings {
    wit_bindgen::generate!({
        path: "wit/0.2",
        world: "sampling-policy",
        pub_export_macro: true,
        default_bindings_module: "plugin_sdk::sampling_bindings",
        with: { "tenon:plugin/types@0.2.0": crate::bindings::tenon::plugin::types },
    });
}

#[allow(unsafe_code, missing_docs, clippy::all)]
#[doc(hidden)]
pub mod quant_bindings {
    wit_bindgen::generate!({
        path: "wit/0.2",
        world: "quant-profile",
        pub_export_macro: true,
        default_bindings_module: "plugin_sdk::quant_bindings",
        with: { "tenon:plugin/types@0.2.0": crate::bindings::tenon::plugin::types },
    });
}

mod builder;
mod config;
mod error;
#[cfg(any(test, target_arch = "wasm32"))]
mod heap;
pub mod quant;
mod register;
pub mod rope;
pub mod sampling;

pub use builder::{
    Activation, Attention, Builder, Dim, Element, Experts, Mask, Rope, RopeFrequencies, RopeLayout, Section,
    Slot, TensorFacts, Value,
};
pub use config::Config;
pub use error::{BuildError, Error, FieldError, Refusal, StepRefusal};
#[doc(hidden)]
pub use register::{api_section, run};

/// Builds the graph of a model.
pub trait ModelGraph {
    /// Says the graph to `g` and gives the logits, float `[B,T,V]`.
    ///
    /// # Errors
    /// [`Error`], usually passed on with `?` from `config` and `g`. The host refuses the model with it.
    fn build(config: &Config, g: &mut Builder) -> Result<Value, Error>;
}

/// The guide's code in Rust compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Guide;

#[cfg(test)]
mod tests;
