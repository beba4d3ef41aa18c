//! Profiles, the choice among them, and the composition of exactly what one names.
//!
//! ```text
//! profiles/*.toml ─► ProfileSet ─► match_config(config.json) ─► Decision ─► LoadedProfile
//! Registry (plugins, devices, loaders, loops) ─► resolve ─► Composition (frozen, hashed)
//! graph built by the plugin ─► Composition::check_graph(graph, device)
//! ```
//!
//! A part that is missing, another version, a tie between profiles: each is a refusal that lists what was
//! asked, what was found and what comes nearest. Nothing is taken because it is merely similar, no code path
//! chooses a default, and all of this ends before the first byte of weights is opened.
//!
//! ```
//! use host_registry::{DeviceFacts, ModelFacts, ModelIdentity, Overrides, Parts, ProfileSet, Registry};
//! use serde_json::json;
//!
//! let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/llama.toml"));
//! let profiles = ProfileSet::from_texts([("llama.toml", text)]).expect("a profile");
//! let config = json!({ "model_type": "llama", "hidden_act": "gelu", "max_position_embeddings": 2048 });
//! let mut config = config.as_object().cloned().expect("an object");
//!
//! // Nothing is taken because it is similar.
//! let refusal = profiles.match_config(&config).chosen().unwrap_err().to_string();
//! assert_eq!(refusal, "no profile fits this model");
//!
//! config["hidden_act"] = json!("silu");
//! let decision = profiles.match_config(&config);
//! let chosen = decision.chosen().expect("it fits");
//!
//! // A host without the plugin that the profile names refuses as well, with all that is missing.
//! let cpu = DeviceFacts { id: "cpu".to_owned(), n_threads: 2, kernels: Vec::new(), kernel_shapes: Vec::new() };
//! let registry = Registry::new(Parts { devices: vec![cpu], ..Parts::default() }).expect("each name once");
//! let model = ModelFacts { config: &config, format: "gguf", identity: &ModelIdentity::NONE };
//! let refusal = registry.resolve(chosen, model, &Overrides::default()).unwrap_err();
//! assert!(refusal.to_string().ends_with("there is no plugin `llama`"));
//! ```

mod chain;
mod composition;
mod decision;
mod error;
mod explanation;
mod extend;
mod fallback;
mod features;
mod fingerprint;
mod frozen;
mod implementation;
mod nearest;
mod overrides;
mod profile;
mod quant;
mod refusal;
mod registry;
mod resolve;
mod schema_error;
mod select;
mod set;
mod setting;
mod source;
mod tokenizer;

pub use composition::{Composition, GraphPart, MatchLine, Policy, Quantisation};
pub use decision::{Candidate, Decision, MatchRefusal, Verdict};
pub use error::ProfileError;
pub use explanation::{Explanation, GraphLine, PartLine};
pub use fallback::{FallbackCounts, RefusedProfile};
pub use features::{
    Feature, LoopFacts, Missing, RequestFeatures, RequestRefusal, TextFacts, cache_kinds, sampler_kinds,
};
pub use fingerprint::{ConfigFingerprint, IdentityFault, KvQuant, ModelIdentity, Subject, artifact_of};
pub use frozen::{
    FrozenConfig, FrozenFault, FrozenFile, FrozenGraph, FrozenHeader, FrozenOrigin, FrozenSet, FrozenTensor,
    FrozenText,
};
pub use implementation::{Implementation, ImplementationFacts, Implementations};
pub use overrides::Overrides;
pub use profile::{
    ByCase, Bytes, Compose, ContextTokens, FailedPredicate, FrozenRef, GraphRef, ImplementationRef, Kernels,
    Kv, Limits, Match, Names, OnReload, PluginBudget, PluginRef, PolicyRef, Predicate, Profile, Quant,
    QuantRef, SCHEMA_VERSION, SamplingDefaults, SamplingTable, Serve, Sha256Digest, Source, Threads,
    json_schema,
};
pub use quant::{
    LayerRange, Measured, QuantRule, QuantRules, QuantSet, Roles, RulesFault, SchemeText, rules_text,
};
pub use refusal::{Fault, PartKind, PlacedFault, Refusal};
pub use registry::{DeviceFacts, DuplicatePart, Parts, PluginFacts, QuantFacts, Registry, System};
pub use resolve::ModelFacts;
pub use set::{Base, LoadedProfile, ProfileSet};
pub use setting::{Origin, Setting};
pub use source::ProfileSource;

#[cfg(test)]
mod tests;
