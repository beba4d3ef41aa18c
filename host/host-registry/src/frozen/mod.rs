//! Frozen graphs: what a plugin built once for one configuration, kept in a file and checked whenever it is read.
//!
//! ```text
//! # Written by `tenon graph freeze`. A profile names it by name and digest.
//! format = 1
//!
//! [config]
//! fingerprint = "b9934e5b29fcbb56"            # the shape of the graph
//! digest = "…"                                # the whole configuration
//!
//! [graph]
//! fingerprint = "…"                           # of the text below
//!
//! [plugin]
//! id = "llama"
//! version = "1.0.0"
//! runtime = "wasm"
//! contract = "0.2"
//! digest = "…"
//!
//! [tensors]                                   # every tensor of the checkpoint
//! "model.norm.weight" = { shape = [576], dense = true }
//! +++
//! tenon-graph 1
//! …
//! ```
//!
//! A file says nothing that is not proved when the graph is opened: the text is read back through the builder,
//! over exactly the tensors that the checkpoint has.

mod fault;
mod set;

use std::collections::BTreeMap;
use std::fmt::Write;

use host_graph::{Catalogue, Graph, Limits, TensorFacts};
use semver::Version;
use serde::Deserialize;

use crate::composition::config_digest;
use crate::fingerprint::{ConfigFingerprint, Subject};
use crate::profile::Sha256Digest;
use crate::refusal::Fault;
use crate::registry::PluginFacts;

pub use fault::FrozenFault;
pub use set::{FrozenFile, FrozenSet};

/// The form of the header that this build writes and reads.
const FORMAT: u32 = 1;
/// The line between header and graph.
const BORDER: &str = "\n+++\n";

/// A frozen graph whose header was read. The graph itself is proved by [`FrozenGraph::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenGraph {
    name: String,
    digest: Sha256Digest,
    header: FrozenHeader,
    text: String,
}

/// What the file says of its graph.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenHeader {
    /// The form of the file.
    pub format: u32,
    /// The configuration that it was built for.
    pub config: FrozenConfig,
    /// What stands behind the header.
    pub graph: FrozenText,
    /// What built it.
    pub plugin: FrozenOrigin,
    /// Every tensor of the checkpoint, used or ignored.
    pub tensors: BTreeMap<String, FrozenTensor>,
}

/// A configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenConfig {
    /// The key of the graph's shape.
    pub fingerprint: ConfigFingerprint,
    /// The digest of the whole.
    pub digest: Sha256Digest,
}

/// A graph's text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenText {
    /// Its digest, the graph's fingerprint.
    pub fingerprint: Sha256Digest,
}

/// The plugin that built a graph.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenOrigin {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: Version,
    /// What ran it.
    pub runtime: String,
    /// The contract it was written against.
    pub contract: String,
    /// The digest of manifest and entry.
    pub digest: Sha256Digest,
}

/// A tensor of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenTensor {
    /// Its logical shape.
    pub shape: Vec<usize>,
    /// Whether it is stored as plain numbers.
    pub dense: bool,
}

impl FrozenGraph {
    /// The file of a graph that a plugin built for this model over these tensors.
    ///
    /// # Errors
    /// [`FrozenFault`] where the configuration has no fingerprint, or the text would not give the graph back.
    pub fn freeze(
        graph: &Graph,
        tensors: &Catalogue,
        model: Subject<'_>,
        plugin: &PluginFacts,
        contract: &str,
    ) -> Result<String, FrozenFault> {
        let fingerprint = model.fingerprint().map_err(FrozenFault::Config)?;
        let mut text =
            String::from("# Written by `tenon graph freeze`. A profile names it by name and digest.\n");
        let mut line = |content: String| {
            writeln!(text, "{content}").expect("writing to a string cannot fail");
        };
        line(format!("format = {FORMAT}\n\n[config]\nfingerprint = \"{fingerprint}\""));
        line(format!("digest = \"{}\"\n\n[graph]", config_digest(model.config)));
        line(format!("fingerprint = \"{}\"\n\n[plugin]", graph.fingerprint().as_hex()));
        line(format!("id = \"{}\"\nversion = \"{}\"", plugin.id, plugin.version));
        line(format!("runtime = \"{}\"\ncontract = \"{contract}\"", plugin.runtime.name()));
        line(format!("digest = \"{}\"\n\n[tensors]", plugin.digest));
        for (name, TensorFacts { shape, is_dense }) in tensors {
            let name = serde_json::Value::from(name.as_str());
            line(format!("{name} = {{ shape = {shape:?}, dense = {is_dense} }}"));
        }
        line(format!("{}{}", &BORDER[1..], graph.text().trim_end_matches('\n')));
        // What is written is what will be read.
        let read = FrozenGraph::parse("", "", &text)?.open(tensors)?;
        if read == *graph { Ok(text) } else { Err(FrozenFault::NotKept) }
    }

    /// Reads the header of a file; `name` is that of the graph, `file` is named in reports.
    ///
    /// # Errors
    /// [`FrozenFault::Header`] with its place.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<FrozenGraph, FrozenFault> {
        let header_fault = |message: String, span| FrozenFault::Header {
            message,
            place: Box::new(host_core::Place::in_text(file, text, span)),
        };
        let Some((header, graph)) = text.split_once(BORDER) else {
            return Err(header_fault("there is no line `+++` between header and graph".to_owned(), None));
        };
        let header: FrozenHeader =
            toml::from_str(header).map_err(|error| header_fault(error.message().to_owned(), error.span()))?;
        if header.format != FORMAT {
            return Err(FrozenFault::Format { file: file.to_owned(), found: header.format });
        }
        let digest = Sha256Digest::of(text.as_bytes());
        Ok(FrozenGraph { name: name.to_owned(), digest, header, text: graph.to_owned() })
    }

    /// Its name: that of the file without `.graph`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest of the whole file.
    pub fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// What the file says of it.
    pub fn header(&self) -> &FrozenHeader {
        &self.header
    }

    /// The tensors that it was built over.
    pub fn tensors(&self) -> Catalogue {
        let facts = self.header.tensors.iter().map(|(name, FrozenTensor { shape, dense })| {
            (name.clone(), TensorFacts { shape: shape.clone(), is_dense: *dense })
        });
        facts.collect()
    }

    /// Whether it was frozen for the configuration of this model.
    ///
    /// # Errors
    /// [`Fault::NoGeneratedGraph`] for another shape, [`Fault::FrozenConfig`] for another configuration of the same.
    pub fn check_model(&self, model: Subject<'_>) -> Result<(), Box<Fault>> {
        let (name, expected) = (self.name.clone(), &self.header.config);
        let fingerprint = model.shown_fingerprint();
        if expected.fingerprint.to_string() != fingerprint {
            let found = Some(expected.fingerprint.to_string());
            return Err(Box::new(Fault::NoGeneratedGraph { name, fingerprint, found, known: Vec::new() }));
        }
        let found = config_digest(model.config);
        if expected.digest != found {
            return Err(Box::new(Fault::FrozenConfig { name, expected: expected.digest, found }));
        }
        Ok(())
    }

    /// The graph, over the tensors of a checkpoint, which must be exactly those it was built over.
    ///
    /// # Errors
    /// [`FrozenFault`]: other tensors, a text that is no graph, or another graph than the header tells.
    pub fn open(&self, tensors: &Catalogue) -> Result<Graph, FrozenFault> {
        let name = || self.name.clone();
        let differences = differences(&self.tensors(), tensors);
        if !differences.is_empty() {
            return Err(FrozenFault::Tensors { name: name(), differences });
        }
        let graph = Graph::parse(&self.text, self.tensors(), Limits::default())
            .map_err(|source| FrozenFault::Text { name: name(), source: Box::new(source) })?;
        let (expected, found) = (self.header.graph.fingerprint, graph.fingerprint());
        if expected.to_string() != found.as_hex() {
            let found = found.as_hex().to_owned();
            return Err(FrozenFault::Fingerprint { name: name(), expected, found });
        }
        Ok(graph)
    }
}

/// What a checkpoint has otherwise than a graph expects: a line a tensor.
fn differences(expected: &Catalogue, found: &Catalogue) -> Vec<String> {
    let shown = |facts: &TensorFacts| {
        format!("{:?} {}", facts.shape, if facts.is_dense { "dense" } else { "quantised" })
    };
    let missing = expected.iter().filter_map(|(name, facts)| match found.get(name) {
        None => Some(format!("`{name}` is not there")),
        Some(other) if other == facts => None,
        Some(other) => Some(format!("`{name}` is {}, expected {}", shown(other), shown(facts))),
    });
    let more = found.keys().filter(|name| !expected.contains_key(*name));
    missing.chain(more.map(|name| format!("`{name}` is there too"))).collect()
}
