//! Cases of model graphs: a config and the checkpoint's tensors, and the graph or the refusal that they give.

use std::collections::BTreeMap;

use host_graph::{Catalogue, TensorFacts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Placed;
use crate::error::AuthorError;

/// One case, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GraphCase {
    pub(crate) about: String,
    config: Map<String, Value>,
    #[serde(default)]
    tensors: BTreeMap<String, Vec<usize>>,
    /// Those of the tensors that are stored as codes.
    #[serde(default)]
    quantised: Vec<String>,
    fingerprint: Option<String>,
    layers: Option<usize>,
    /// The tensors that the plugin declares as not needed.
    ignores: Option<Vec<String>>,
    /// The code of the error that refuses the model.
    refused: Option<String>,
}

/// What the hook gets.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GraphInput {
    pub(crate) config: Map<String, Value>,
    #[serde(default)]
    pub(crate) tensors: BTreeMap<String, Vec<usize>>,
    /// Those of the tensors that are stored as codes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) quantised: Vec<String>,
}

/// What a case expects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected<'a> {
    Graph { fingerprint: Option<&'a str>, layers: Option<usize>, ignores: Option<&'a [String]> },
    Refusal(&'a str),
}

impl GraphInput {
    /// The text of `config.json`.
    pub(crate) fn config_text(&self) -> String {
        Value::Object(self.config.clone()).to_string()
    }

    /// The checkpoint's tensors.
    pub(crate) fn catalogue(&self) -> Catalogue {
        let facts = |(name, shape): (&String, &Vec<usize>)| {
            let is_dense = !self.quantised.contains(name);
            (name.clone(), TensorFacts { shape: shape.clone(), is_dense })
        };
        self.tensors.iter().map(facts).collect()
    }
}

impl GraphCase {
    /// What the hook gets.
    pub(crate) fn input(&self) -> GraphInput {
        let GraphCase { config, tensors, quantised, .. } = self;
        GraphInput { config: config.clone(), tensors: tensors.clone(), quantised: quantised.clone() }
    }
}

impl Placed<GraphCase> {
    /// What the case expects.
    ///
    /// # Errors
    /// [`AuthorError::CaseValue`] for a case that expects nothing, or a graph and a refusal at once.
    pub(crate) fn expected(&self) -> Result<Expected<'_>, AuthorError> {
        let GraphCase { fingerprint, layers, ignores, refused, .. } = &self.case;
        let has_graph = fingerprint.is_some() || layers.is_some() || ignores.is_some();
        match refused {
            Some(code) if !has_graph => Ok(Expected::Refusal(code)),
            None if has_graph => Ok(Expected::Graph {
                fingerprint: fingerprint.as_deref(),
                layers: *layers,
                ignores: ignores.as_deref(),
            }),
            _ => Err(self.wrong(
                "what is expected".to_owned(),
                "`fingerprint`, `layers` or `ignores`; or `refused` with the code of the error",
            )),
        }
    }
}
