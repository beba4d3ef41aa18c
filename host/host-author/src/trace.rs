//! A trace: what a plugin was given and what it did, in a file from which it can be given the same again.

use std::path::Path;
use std::sync::Arc;

use host_core::Report;
use host_core::quant::{Role, TensorFacts};
use host_plugins::{PluginPackage, Right};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::case::graph::GraphInput;
use crate::error::AuthorError;
use crate::files;
use crate::record::EditsRecord;
use crate::row::Row;
use crate::vocabulary::Family;

/// The format that this program writes and reads.
const FORMAT: u32 = 1;

/// A trace of one plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    /// The format.
    trace: u32,
    /// Id and version.
    pub(crate) plugin: String,
    /// The hash of manifest and entry when it was made.
    pub(crate) digest: String,
    /// Why it was kept, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    pub(crate) body: Body,
}

/// What was given, by kind of plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Body {
    SamplingPolicy(PolicyTrace),
    ModelGraph(GraphTrace),
    QuantProfile(QuantTrace),
}

/// One request, with all its instances.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyTrace {
    pub(crate) vocabulary: Family,
    pub(crate) params: Map<String, Value>,
    pub(crate) grants: Vec<Right>,
    /// The request's seed.
    pub(crate) seed: u64,
    /// Tokens of the prompt, which the first step brings.
    pub(crate) n_prompt: usize,
    pub(crate) actions: Vec<Action>,
}

/// What one instance was asked for. Instance 0 is the first; each fork adds one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Action {
    pub(crate) on: usize,
    pub(crate) act: Act,
}

/// The acts of an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Act {
    Step {
        accepted: Vec<u32>,
        logits: Formula,
        /// What came of it; none in a trace that somebody wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
    },
    Rollback(usize),
    Fork,
}

/// The formula's arguments.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Formula {
    pub(crate) seed: u64,
    pub(crate) position: u64,
}

impl Formula {
    pub(crate) fn row(self, n_vocab: u32) -> Arc<Row> {
        Arc::new(Row::of_formula(self.seed, self.position, n_vocab))
    }
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Edits(EditsRecord),
    /// Code and message.
    Error(String),
}

impl Outcome {
    /// On one line.
    pub(crate) fn told(&self) -> String {
        match self {
            Outcome::Edits(record) => record.told(),
            Outcome::Error(text) => text.clone(),
        }
    }
}

/// One build.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GraphTrace {
    pub(crate) input: GraphInput,
    /// The fingerprint, or the error.
    pub(crate) outcome: String,
}

/// One plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuantTrace {
    pub(crate) config: Map<String, Value>,
    pub(crate) params: Map<String, Value>,
    pub(crate) tensors: Vec<TensorText>,
    /// The schemes, or the error.
    pub(crate) outcome: String,
}

/// A tensor as traces write it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TensorText {
    name: String,
    shape: Vec<usize>,
    dtype: String,
    role: Role,
    layer: Option<usize>,
}

impl From<&TensorFacts> for TensorText {
    fn from(facts: &TensorFacts) -> Self {
        let TensorFacts { name, shape, dtype, role, layer } = facts.clone();
        TensorText { name, shape, dtype: dtype.to_string(), role, layer }
    }
}

impl TensorText {
    /// The tensor; none for a dtype that does not exist.
    pub(crate) fn facts(&self) -> Option<TensorFacts> {
        let TensorText { name, shape, dtype, role, layer } = self.clone();
        Some(TensorFacts { name, shape, dtype: dtype.parse().ok()?, role, layer })
    }
}

impl Trace {
    /// A trace of this plugin.
    pub(crate) fn new(package: &PluginPackage, why: Option<&Report>, body: Body) -> Self {
        Trace {
            trace: FORMAT,
            plugin: package.name().to_string(),
            digest: package.digest().as_hex().to_owned(),
            why: why.map(|report| format!("error[{}]: {}", report.code, report.message)),
            body,
        }
    }

    /// Writes it.
    pub(crate) fn write(&self, path: &Path) -> Result<(), AuthorError> {
        let text = serde_json::to_string_pretty(self).expect("a trace is made of plain values");
        files::write(path, text + "\n")
    }

    /// Reads one from the text of a file.
    ///
    /// # Errors
    /// [`AuthorError::Trace`].
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, AuthorError> {
        let wrong = |message: String| AuthorError::Trace { path: path.to_owned(), message };
        let trace: Trace = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if trace.trace != FORMAT {
            return Err(wrong(format!("format {}, and this program reads {FORMAT}", trace.trace)));
        }
        Ok(trace)
    }
}
