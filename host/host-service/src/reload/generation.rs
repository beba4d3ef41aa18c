//! A generation: everything that requests are served with, as one value that never changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use host_engine::CancelFlag;
use host_registry::{Composition, Overrides};

use super::check::CheckedPlugin;
use super::counts::Counts;
use super::error::ReloadError;
use super::id::GenerationId;
use super::models::{Found, LoadedModel, Planned};
use super::snapshot::Snapshot;
use crate::host::Host;
use crate::open::ModelName;
use crate::policy::RequestPolicy;

/// A model that is to be served, as its operator names it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServedModel {
    /// What requests call it.
    pub name: String,
    /// The source; absent takes that of the profile.
    pub model: Option<String>,
    /// The profile's id; absent takes the one that fits.
    pub profile: Option<String>,
    /// What takes the place of the profile's values.
    pub overrides: Overrides,
}

impl ServedModel {
    pub(crate) fn model_name(&self) -> ModelName<'_> {
        ModelName { model: self.model.as_deref(), profile: self.profile.as_deref() }
    }
}

/// A model as one generation serves it.
pub struct Served {
    pub(crate) composition: Composition,
    pub(crate) model: Arc<LoadedModel>,
    pub(crate) policy: Option<RequestPolicy>,
    /// Held so that the next generation finds them.
    pub(crate) _found: Arc<Found>,
    pub(crate) _planned: Arc<Planned>,
}

impl Served {
    /// What was resolved.
    pub fn composition(&self) -> &Composition {
        &self.composition
    }

    /// The model in memory, shared with every generation that serves the same.
    pub fn model(&self) -> &Arc<LoadedModel> {
        &self.model
    }

    /// The policy of every request, if the composition names one.
    pub fn policy(&self) -> Option<&RequestPolicy> {
        self.policy.as_ref()
    }
}

/// Everything that requests are served with. A request holds the one that admitted it until it ends.
pub struct Generation {
    pub(crate) id: GenerationId,
    pub(crate) snapshot: Snapshot,
    pub(crate) host: Arc<Host>,
    pub(crate) served: BTreeMap<String, Arc<Served>>,
    /// Models that are let go before others take their names.
    pub(crate) replacing: BTreeSet<String>,
    /// Held so that the next generation finds them.
    pub(crate) plugins: Vec<Arc<CheckedPlugin>>,
    pub(crate) tried: Vec<Arc<()>>,
    pub(crate) counts: Counts,
    /// Raised when its requests are to end.
    pub(crate) ended: CancelFlag,
}

impl Generation {
    /// The hash over everything that it is made of.
    pub fn id(&self) -> GenerationId {
        self.id
    }

    /// The files that it is made of.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The plugins, profiles and rules that it is made of.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Every served model, by name.
    pub fn served(&self) -> impl Iterator<Item = (&str, &Served)> {
        self.served.iter().map(|(name, served)| (name.as_str(), &**served))
    }

    /// The served model of that name.
    ///
    /// # Errors
    /// [`ReloadError::NotServed`], [`ReloadError::Replacing`].
    pub fn model(&self, name: &str) -> Result<&Served, ReloadError> {
        match self.served.get(name) {
            Some(served) => Ok(served),
            None if self.replacing.contains(name) => Err(ReloadError::Replacing { name: name.to_owned() }),
            None => Err(ReloadError::NotServed {
                name: name.to_owned(),
                known: self.served.keys().cloned().collect(),
            }),
        }
    }

    /// The same without some models, which are about to be replaced.
    pub(crate) fn without(&self, names: &[String]) -> Generation {
        let kept = self.served.iter().filter(|(name, _)| !names.contains(name));
        Generation {
            id: self.id,
            snapshot: self.snapshot.clone(),
            host: Arc::clone(&self.host),
            served: kept.map(|(name, served)| (name.clone(), Arc::clone(served))).collect(),
            replacing: names.iter().cloned().collect(),
            plugins: self.plugins.clone(),
            tried: self.tried.clone(),
            counts: Counts::default(),
            ended: CancelFlag::new(),
        }
    }

    /// What became of its requests.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}
