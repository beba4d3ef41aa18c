//! The profile schema, version 1: what one TOML file says of the models it fits and of how they are composed.
//!
//! These types are plain data. Nothing has a default here: a key is in the file, or the value is absent on
//! purpose ([`Option`]) and its meaning is written beside it.

mod budget;
mod check;
mod conflict;
mod graph;
mod implementation;
mod json_schema;
mod predicate;
mod quant;
mod sampling;
mod values;

use std::collections::BTreeMap;

use host_core::Numeric;
use host_plugins::{Budget, QuarantineRules};
use semver::VersionReq;
use serde::{Deserialize, Serialize};

pub use budget::PluginBudget;
pub(crate) use check::{ValueFault, faults};
pub(crate) use conflict::{Conflict, conflicts};
pub use graph::{FrozenRef, GraphRef};
pub use implementation::ImplementationRef;
pub use json_schema::json_schema;
pub(crate) use predicate::lookup;
pub use predicate::{FailedPredicate, Match, Predicate};
pub use quant::{Quant, QuantRef};
pub use sampling::{PolicyRef, SamplingDefaults, SamplingTable};
pub(crate) use sampling::{flat_values, line};
pub use values::{ByCase, Bytes, ContextTokens, Names, Sha256Digest, Threads};

/// The schema version that this build reads.
pub const SCHEMA_VERSION: u32 = 1;

/// One profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The schema version: [`SCHEMA_VERSION`].
    pub schema: u32,
    /// The name it is chosen by: lower-case letters, digits, `.` and `-`.
    pub id: String,
    /// One line for people.
    pub about: String,
    /// The profile whose values hold where this one is silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// Keys of the base that this profile does without: `limits.memory_bytes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// Whether it is used only where it is named, and takes no part in the choice for a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_named: bool,
    /// Profiles to try in this order where this one is refused before weights are opened; none where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// Where its model comes from, when it is for one model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Which models it fits.
    #[serde(rename = "match")]
    pub match_: Match,
    /// The parts it names.
    pub compose: Compose,
    /// How keys and values are stored.
    pub kv: Kv,
    /// Kernels it will not do without.
    pub kernels: Kernels,
    /// The sampling settings of a request that gives none, and the policy of every request.
    pub sampling: SamplingTable,
    /// What else a request that says nothing gets.
    pub serve: Serve,
    /// How much it may use.
    pub limits: Limits,
    /// What its plugins may spend, by id, where that differs from the host's own bounds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, PluginBudget>,
}

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A source as the command line takes it: `pip:PACKAGE==VERSION`, `hf:OWNER/NAME@REVISION`, a path.
    pub model: String,
    /// The pinned digest of each file that is pinned, by its name in the source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sha256: BTreeMap<String, Sha256Digest>,
}

/// The parts of a composition, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compose {
    /// The plugin that builds the graph, `{ plugin = "llama", version = "^1.0" }`, or a graph that was frozen,
    /// `{ frozen = "NAME", digest = "…" }`.
    pub graph: GraphRef,
    /// How the checkpoint may be stored: `safetensors`, `gguf`, or a list.
    pub loader: Names,
    /// What becomes of the weights: `as-published` keeps them as they are. Rules, `{ scheme = "uniform-4bit" }`, or
    /// a plugin, `{ plugin = "quant-uniform", … }`, quantise them while they are loaded.
    pub quant: Quant,
    /// The code that makes the runnable model; absent, the device compiles the graph itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implementation: Option<ImplementationRef>,
    /// The decoding loop.
    #[serde(rename = "loop")]
    pub loop_: String,
    /// The device, or one for each operating system: `linux`, `macos`.
    pub device: ByCase,
    /// The numeric profile.
    pub numeric: Numeric,
}

/// A plugin by name and version range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginRef {
    /// The plugin's id.
    pub plugin: String,
    /// The versions that will do.
    pub version: VersionReq,
    /// `wasm` or `lua`, where an id exists in both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The digest of the one build that will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256Digest>,
}

/// How keys and values are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kv {
    /// `plain`.
    pub kind: String,
    /// `f32`, `f16`, `bf16`, or one for each numeric profile.
    pub dtype: ByCase,
}

/// Kernels by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernels {
    /// Each must exist on the device.
    pub require: Vec<String>,
}

/// What a request gets where it says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// New tokens of one answer.
    pub max_tokens: usize,
    /// Whether a prompt is put through the model's chat template.
    pub chat: bool,
    /// The system message of a chat that brings none; absent adds none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Texts that end an answer, beside the model's own stop tokens.
    pub stop: Vec<String>,
}

/// What a service does with a change whose weights do not fit beside those that serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnReload {
    /// It admits no request for the model until the running ones are over, lets the old weights go, and loads the new.
    DrainFirst,
}

/// How much a composition may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Tokens of one sequence: prompt and generated.
    pub context_tokens: ContextTokens,
    /// Sequences that live at once.
    pub max_sequences: usize,
    /// New tokens of one step, all sequences together.
    pub max_step_tokens: usize,
    /// The memory plan is refused above this; absent sets no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Bytes>,
    /// Worker threads; absent leaves them to the command line, and a composition without either is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_threads: Option<Threads>,
    /// When faults keep a plugin out, and for how long; absent keeps none out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<QuarantineRules>,
    /// What a service does with a change whose weights do not fit beside those that serve; absent refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_reload: Option<OnReload>,
}

impl Profile {
    /// The ids of the plugins that it names: graph, quantisation, policy.
    pub fn plugin_ids(&self) -> Vec<&str> {
        let quant = match &self.compose.quant {
            Quant::Plugin(wanted) => Some(wanted.plugin.as_str()),
            Quant::Named(_) | Quant::Scheme(_) => None,
        };
        let policy = self.sampling.policy.as_ref().map(|policy| policy.plugin.as_str());
        let graph = match &self.compose.graph {
            GraphRef::Plugin(wanted) => Some(wanted.plugin.as_str()),
            GraphRef::Frozen(_) => None,
        };
        [graph, quant, policy].into_iter().flatten().collect()
    }

    /// What a plugin may spend: the host's own bounds, with those of `[plugins.ID]` in their place.
    pub fn budget(&self, plugin: &str) -> Budget {
        let host = Budget::default();
        self.plugins.get(plugin).map_or(host, |budget| budget.over(host))
    }
}
