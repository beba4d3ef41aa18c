//! Code that makes a runnable model of a composition, as an embedding program brings it.
//!
//! A program lists its own [`Implementation`]s; their [`ImplementationFacts`] go into its registry, so that the choice
//! is made while a profile is resolved, and everything that does not fit is refused before weights are opened.
//! [`Implementations::open`] then opens weights and has the one that was chosen create the model.

use std::sync::Arc;

use host_core::{Report, Reported};
use semver::Version;
use serde_json::{Map, Value};

use crate::composition::Composition;
use crate::nearest::nearest;
use crate::profile::{ImplementationRef, Match, Sha256Digest};
use crate::refusal::{Fault, Refusal};
use crate::registry::{DuplicatePart, refuse_duplicates};

/// What the registry knows of an implementation.
#[derive(Clone, Debug, PartialEq)]
pub struct ImplementationFacts {
    /// Its id.
    pub id: String,
    /// Its version; an id may stand in several.
    pub version: Version,
    /// The digest of its build, where it has one.
    pub digest: Option<Sha256Digest>,
    /// The graph that it computes: the id of a graph plugin.
    pub graph: String,
    /// Checkpoint formats that it reads.
    pub loaders: Vec<String>,
    /// Decoding loops that it serves.
    pub loops: Vec<String>,
    /// Devices that it runs on.
    pub devices: Vec<String>,
    /// Caches that it fills: `plain:f16`.
    pub caches: Vec<String>,
    /// The shapes that it can do: lines on `config.json`, all of which must hold.
    pub shapes: Match,
}

impl ImplementationFacts {
    /// `mine 1.0.0`.
    pub fn title(&self) -> String {
        format!("{} {}", self.id, self.version)
    }
}

/// What a profile composes, as far as an implementation must fit it.
pub(crate) struct Wanted<'a> {
    pub(crate) implementation: &'a ImplementationRef,
    pub(crate) graph: &'a str,
    pub(crate) loader: &'a str,
    pub(crate) loop_: &'a str,
    pub(crate) device: &'a str,
    pub(crate) cache: &'a str,
    pub(crate) config: &'a Map<String, Value>,
}

/// A predicate that does not hold: which, what is asked and what there is.
struct Failed {
    field: &'static str,
    expected: String,
    found: String,
}

/// The one implementation that is named and fits.
pub(crate) fn select_implementation<'a>(
    wanted: &Wanted<'_>,
    known: &'a [ImplementationFacts],
) -> Result<&'a ImplementationFacts, Fault> {
    let id = wanted.implementation.id.clone();
    let named: Vec<&ImplementationFacts> = known.iter().filter(|facts| facts.id == id).collect();
    if named.is_empty() {
        let nearest = nearest(&id, known.iter().map(|facts| facts.id.as_str()));
        let known = known.iter().map(ImplementationFacts::title).collect();
        return Err(Fault::ImplementationMissing { id, nearest, known });
    }
    let failed: Vec<Option<Failed>> = named.iter().map(|facts| first_failure(wanted, facts)).collect();
    let fitting: Vec<&ImplementationFacts> =
        named.iter().zip(&failed).filter(|(_, failed)| failed.is_none()).map(|(facts, _)| *facts).collect();
    match fitting.as_slice() {
        [one] => Ok(one),
        [] => {
            let tell = |(facts, failed): (&&ImplementationFacts, &Option<Failed>)| {
                failed.as_ref().map(|Failed { field, expected, found }| {
                    format!("{}: {field} is {found}, expected {expected}", facts.title())
                })
            };
            let candidates = named.iter().zip(&failed).filter_map(tell).collect();
            let first = failed.into_iter().flatten().next().expect("none of them fits");
            let Failed { field, expected, found } = first;
            Err(Fault::ImplementationIncompatible { id, field, expected, found, candidates })
        }
        several => {
            let found = several.iter().map(|facts| facts.title()).collect();
            Err(Fault::ImplementationAmbiguous { id, found })
        }
    }
}

/// The first predicate that an implementation does not meet; `None` for one that fits.
fn first_failure(wanted: &Wanted<'_>, facts: &ImplementationFacts) -> Option<Failed> {
    let asked = wanted.implementation;
    if !asked.version.matches(&facts.version) {
        let (expected, found) = (asked.version.to_string(), facts.version.to_string());
        return Some(Failed { field: "version", expected, found });
    }
    if let Some(digest) = asked.digest.filter(|digest| facts.digest != Some(*digest)) {
        let found = facts.digest.map_or("none".to_owned(), |digest| digest.to_string());
        return Some(Failed { field: "digest", expected: digest.to_string(), found });
    }
    if facts.graph != wanted.graph {
        return Some(Failed {
            field: "graph",
            expected: wanted.graph.to_owned(),
            found: facts.graph.clone(),
        });
    }
    let lists = [
        ("loader", wanted.loader, &facts.loaders),
        ("loop", wanted.loop_, &facts.loops),
        ("device", wanted.device, &facts.devices),
        ("cache", wanted.cache, &facts.caches),
    ];
    for (field, asked, offered) in lists {
        if !offered.iter().any(|offer| offer == asked) {
            let found = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
            return Some(Failed { field, expected: asked.to_owned(), found });
        }
    }
    let failed = facts.shapes.failures(wanted.config).into_iter().next()?;
    Some(Failed {
        field: "shapes",
        expected: format!("{} {}", failed.key, failed.expected),
        found: failed.found,
    })
}

/// Makes a runnable model `M` of opened weights `W`.
pub trait Implementation<W, M>: Send + Sync {
    /// What the registry may know of it; the same at every call.
    fn facts(&self) -> ImplementationFacts;

    /// The model. What was built of it before a failure must go with the failure.
    ///
    /// # Errors
    /// Whatever keeps it from being made.
    fn create(&self, weights: W, composition: &Composition) -> Result<M, Report>;
}

/// The implementations of one program. It never changes; [`Implementations::with`] gives another.
pub struct Implementations<W, M> {
    known: Vec<Arc<dyn Implementation<W, M>>>,
}

impl<W, M> Implementations<W, M> {
    /// These implementations.
    ///
    /// # Errors
    /// [`DuplicatePart`] for two of one id and version, or one without an id.
    pub fn new(known: Vec<Arc<dyn Implementation<W, M>>>) -> Result<Self, DuplicatePart> {
        let titles = known.iter().map(|one| one.facts().title());
        refuse_duplicates("implementation", titles)?;
        Ok(Implementations { known })
    }

    /// Others as well; this list stays as it is.
    ///
    /// # Errors
    /// As [`Implementations::new`].
    pub fn with(&self, more: Vec<Arc<dyn Implementation<W, M>>>) -> Result<Self, DuplicatePart> {
        Implementations::new(self.known.iter().cloned().chain(more).collect())
    }

    /// What they are, for [`crate::Parts::implementations`].
    pub fn facts(&self) -> Vec<ImplementationFacts> {
        self.known.iter().map(|one| one.facts()).collect()
    }

    /// The one that the composition was resolved with.
    ///
    /// # Errors
    /// [`Refusal::NotProvided`] where this list does not have it, or the composition names none.
    pub fn select(&self, composition: &Composition) -> Result<&dyn Implementation<W, M>, Refusal> {
        let wanted = composition.implementation();
        let found = self.known.iter().find(|one| Some(&one.facts()) == wanted);
        found.map(AsRef::as_ref).ok_or_else(|| Refusal::NotProvided {
            profile: composition.profile_id().to_owned(),
            implementation: wanted.map(ImplementationFacts::title),
            known: self.known.iter().map(|one| one.facts().title()).collect(),
        })
    }

    /// Opens weights, then creates the model. Nothing is opened for an implementation that is not there, and weights
    /// whose model cannot be created are dropped before the error is given.
    ///
    /// # Errors
    /// [`Refusal::NotProvided`], [`Refusal::Weights`], [`Refusal::Construction`]: the first one, as it came.
    pub fn open<E: Reported>(
        &self,
        composition: &Composition,
        open_weights: impl FnOnce() -> Result<W, E>,
    ) -> Result<M, Refusal> {
        self.select(composition)?;
        let weights = open_weights().map_err(|error| Refusal::Weights {
            profile: composition.profile_id().to_owned(),
            source: Box::new(error.report()),
        })?;
        self.create(composition, weights)
    }

    /// Creates the model of weights that the caller has opened.
    ///
    /// # Errors
    /// As [`Implementations::open`]; [`Refusal::StreamedWeights`] where the loader streams them.
    pub fn create(&self, composition: &Composition, weights: W) -> Result<M, Refusal> {
        let chosen = self.select(composition)?;
        if composition.is_streamed() {
            return Err(Refusal::StreamedWeights { loader: composition.loader().to_owned() });
        }
        chosen.create(weights, composition).map_err(|source| Refusal::Construction {
            implementation: chosen.facts().title(),
            source: Box::new(source),
        })
    }
}
