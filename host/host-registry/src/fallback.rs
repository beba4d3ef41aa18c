//! Fallbacks: the profiles that a profile names to be tried in its place, in that order.
//!
//! One is tried only where the one before it is refused while it is resolved, because a part is not there as named or
//! because it does not fit the model. A refusal that a flag causes is not the profile's, and an error while weights
//! are read or tokens are made is no refusal: neither makes another profile serve. A fallback's own list is not
//! followed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use host_core::{Report, Reported};
use serde::Serialize;

use crate::composition::Composition;
use crate::fingerprint::Subject;
use crate::overrides::Overrides;
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::resolve::ModelFacts;
use crate::set::{LoadedProfile, ProfileSet};

/// A profile that was tried in vain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedProfile {
    /// Its id.
    pub profile: String,
    /// Why it does not serve.
    pub report: Report,
}

impl Composition {
    /// The profiles that were tried before the one that serves, in order; empty where the first one serves.
    pub fn refused(&self) -> &[RefusedProfile] {
        &self.refused
    }

    /// One line a refused profile, for a log.
    pub fn fallback_lines(&self) -> Vec<String> {
        let serves = self.profile_id();
        let line = |refused: &RefusedProfile| {
            let RefusedProfile { profile, report } = refused;
            format!("profile `{profile}` is refused [{}]: {}; `{serves}` serves", report.code, report.message)
        };
        self.refused.iter().map(line).collect()
    }
}

impl Registry {
    /// As [`Registry::resolve`], with the profile's fallbacks in their order.
    ///
    /// # Errors
    /// The first profile's refusal. Those of its fallbacks are told in [`Refusal::Parts`], each with its reason.
    pub fn resolve_with_fallbacks(
        &self,
        profiles: &ProfileSet,
        loaded: &LoadedProfile,
        model: ModelFacts<'_>,
        overrides: &Overrides,
    ) -> Result<Composition, Refusal> {
        let first = match self.resolve(loaded, model, overrides) {
            Ok(composition) => return Ok(composition),
            Err(refusal) => refusal,
        };
        if loaded.profile().fallbacks.is_empty() || !is_profiles_own(&first) {
            return Err(first);
        }
        let refused_by =
            |profile: &str, report: Report| RefusedProfile { profile: profile.to_owned(), report };
        let mut refused = vec![refused_by(loaded.id(), first.report())];
        for id in &loaded.profile().fallbacks {
            let tried = profiles.by_id(id).map_err(|error| error.report());
            let tried = tried.and_then(|fallback| {
                if let Some(mismatch) =
                    fallback.mismatch(Subject { config: model.config, identity: model.identity })
                {
                    return Err(mismatch.report());
                }
                self.resolve(fallback, model, overrides).map_err(|refusal| refusal.report())
            });
            match tried {
                Ok(composition) => return Ok(Composition { refused, ..composition }),
                Err(report) => refused.push(refused_by(id, report)),
            }
        }
        refused.remove(0);
        Err(Refusal::Fallbacks { first: Box::new(first), refused })
    }
}

/// Whether a part is not there as the profile names it; no flag is to blame.
fn is_profiles_own(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Parts { faults, .. } => faults.iter().all(|fault| fault.place.is_some()),
        _ => false,
    }
}

/// How often each profile served in place of another.
#[derive(Debug, Default)]
pub struct FallbackCounts {
    counts: Mutex<BTreeMap<(String, String), u64>>,
}

impl FallbackCounts {
    /// Counts a resolution in which the first profile did not serve; no other changes anything.
    pub fn count(&self, composition: &Composition) {
        if let Some(first) = composition.refused.first() {
            let pair = (first.profile.clone(), composition.profile_id().to_owned());
            *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(pair).or_default() += 1;
        }
    }

    /// Each pair of profile asked for and profile that served, with how often.
    pub fn all(&self) -> Vec<(String, String, u64)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|((asked, served), n)| (asked.clone(), served.clone(), *n)).collect()
    }
}
