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

mod composition;
mod decision;
mod error;
mod explanation;
mod nearest;
mod overrides;
mod profile;
mod refusal;
mod registry;
mod resolve;
mod schema_error;
mod set;
mod source;

pub use composition::{Composition, Origin, Setting};
pub use decision::{Candidate, Decision, MatchRefusal, Verdict};
pub use error::ProfileError;
pub use explanation::{Explanation, GraphLine, PartLine};
pub use overrides::Overrides;
pub use profile::{
    Bytes, Compose, ContextTokens, FailedPredicate, Kernels, Kv, KvDtype, Limits, Match, Names, PluginRef,
    Predicate, Profile, SCHEMA_VERSION, SamplingDefaults, Serve, Sha256Digest, Source, Threads,
};
pub use refusal::{Fault, PartKind, PlacedFault, Refusal};
pub use registry::{DeviceFacts, DuplicatePart, Parts, PluginFacts, Registry};
pub use resolve::ModelFacts;
pub use set::{LoadedProfile, ProfileSet};
pub use source::ProfileSource;
