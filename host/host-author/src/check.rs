//! `plugin check`: everything that a host looks at before it lets a plugin near a request.

use host_core::Report;
use host_plugins::{Budget, Kind, Needs, PluginError, PluginPackage, PolicyTraits};
use serde::Serialize;

use crate::error::AuthorError;
use crate::project::Project;
use crate::tools::Tools;

/// What a plugin that passed says of itself.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// What it is for.
    pub kind: &'static str,
    /// What runs it.
    pub runtime: &'static str,
    /// The contract it was written against.
    pub contract: String,
    /// The file that is run, and its size.
    pub entry: String,
    /// Its size.
    pub bytes: usize,
    /// The hash of manifest and entry.
    pub digest: String,
    /// What a policy reads of the logits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// What a policy offers and claims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<&'static str>,
    /// Rights that the profile has to grant.
    pub rights: Vec<&'static str>,
    /// What does not keep a host from it, but its author should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Report>,
}

impl Project {
    /// Checks the plugin as a host would: manifest, size, the whole binary, contract, imports, exports; a script's
    /// syntax; what a policy says of itself.
    ///
    /// # Errors
    /// [`AuthorError`] with the first thing that a host would refuse.
    pub fn check(&self, tools: &Tools) -> Result<Checked, AuthorError> {
        let package = self.package()?;
        let traits = open(tools, &package)?;
        let manifest = package.manifest();
        Ok(Checked {
            id: manifest.id.clone(),
            version: manifest.version.to_string(),
            kind: manifest.kind.name(),
            runtime: manifest.runtime.name(),
            contract: manifest.sdk.to_string(),
            entry: manifest.entry.clone(),
            bytes: package.entry().len(),
            digest: package.digest().as_hex().to_owned(),
            needs: traits.map(needs),
            offers: traits.map(offers).unwrap_or_default(),
            rights: traits.map(rights).unwrap_or_default(),
            remarks: Vec::new(),
        })
    }
}

/// Opens the plugin as its kind; asks a policy what it is.
fn open(tools: &Tools, package: &PluginPackage) -> Result<Option<PolicyTraits>, PluginError> {
    let budget = Budget::default();
    match package.manifest().kind {
        Kind::SamplingPolicy => tools.policy(package, budget)?.describe().map(Some),
        Kind::ModelGraph => tools.graph(package, budget).map(|_| None),
        Kind::QuantProfile => tools.quant(package, budget).map(|_| None),
        // No manifest of this kind is read.
        Kind::Pipeline => Ok(None),
    }
}

fn needs(traits: PolicyTraits) -> String {
    match traits.needs {
        Needs::MaskOnly => "mask-only".to_owned(),
        Needs::TopK(k) => format!("top-k({k})"),
        Needs::FullLogits => "full-logits".to_owned(),
    }
}

fn offers(traits: PolicyTraits) -> Vec<&'static str> {
    let claims = [
        (traits.supports_rollback, "rollback"),
        (traits.supports_fork, "fork"),
        (traits.is_argmax_invariant, "argmax-invariant"),
    ];
    claims.into_iter().filter_map(|(is_so, name)| is_so.then_some(name)).collect()
}

fn rights(traits: PolicyTraits) -> Vec<&'static str> {
    if traits.needs == Needs::FullLogits { vec![host_plugins::Right::FullLogits.name()] } else { Vec::new() }
}
