//! Which profile fits a model, and why each other does not.
//!
//! A profile whose match keys are a strict superset of every other matching profile's wins, because it says
//! more of the model. Any other tie is refused: order of files, names and dates decide nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use host_core::{Report, Reported};
use serde::Serialize;

use crate::fingerprint::{FINGERPRINT, Subject};
use crate::profile::FailedPredicate;
use crate::set::{LoadedProfile, ProfileSet};

/// How many candidates a refusal tells about.
const SHOWN_CANDIDATES: usize = 3;

/// The choice of a profile, with every profile considered.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    candidates: Vec<Candidate>,
    chosen: Result<Arc<LoadedProfile>, MatchRefusal>,
}

/// One profile considered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Its id.
    pub id: String,
    /// Its file.
    pub file: String,
    /// Lines of its `[match]`.
    pub n_lines: usize,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// It is the one.
    Chosen,
    /// It fits, and another says more of the model.
    LessSpecific {
        /// The profile that says more.
        than: String,
        /// The match keys that only the other has.
        lacks: Vec<String>,
    },
    /// It fits, and so does another that says no less.
    Tied,
    /// Lines of its `[match]` do not hold, the first of them in front.
    Failed {
        /// The lines.
        failures: Vec<FailedPredicate>,
        /// `file:line` of the first.
        at: String,
    },
    /// Another was named.
    NotNamed,
    /// It fits, and takes no part: `only_named`.
    OnlyNamed,
}

/// Why no profile was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatchRefusal {
    /// There are no profiles at all.
    #[error("no profile is loaded")]
    NoProfiles,
    /// None fits.
    #[error("no profile fits this model")]
    NoMatch {
        /// The profiles that come nearest, the nearest first.
        nearest: Vec<Candidate>,
        /// Those that fit and are used only where they are named.
        only_named: Vec<String>,
    },
    /// Several fit and none says more than every other.
    #[error("{} profiles fit this model and none is more specific than the others", .tied.len())]
    Ambiguous {
        /// Each with the match keys of the others that it lacks.
        tied: Vec<(String, Vec<String>)>,
    },
    /// The profile that was named does not fit.
    #[error("the profile `{id}` does not fit this model")]
    Mismatch {
        /// The profile.
        id: String,
        /// The lines that do not hold, the first in front.
        failures: Vec<FailedPredicate>,
        /// `file:line` of the first.
        at: String,
        /// Its place.
        place: Box<host_core::Place>,
    },
}

impl ProfileSet {
    /// Chooses the profile for a model: its configuration alone, or a [`Subject`] with what is known beside it.
    pub fn match_config<'a>(&self, model: impl Into<Subject<'a>>) -> Decision {
        let model = model.into();
        let considered = self.iter().map(|loaded| match consider(loaded, model) {
            fits if fits.verdict == Verdict::Chosen && loaded.profile().only_named => {
                Candidate { verdict: Verdict::OnlyNamed, ..fits }
            }
            candidate => candidate,
        });
        let mut candidates: Vec<Candidate> = considered.collect();
        let fitting: Vec<&Arc<LoadedProfile>> = self
            .iter()
            .zip(&candidates)
            .filter(|(_, candidate)| candidate.verdict == Verdict::Chosen)
            .map(|(loaded, _)| loaded)
            .collect();
        let chosen = choose(&fitting, &candidates);
        for candidate in &mut candidates {
            if candidate.verdict != Verdict::Chosen {
                continue;
            }
            candidate.verdict = match &chosen {
                Ok(winner) if winner.id() == candidate.id => Verdict::Chosen,
                Ok(winner) => Verdict::LessSpecific {
                    than: winner.id().to_owned(),
                    lacks: lacking(&fitting, &candidate.id, winner),
                },
                Err(_) => Verdict::Tied,
            };
        }
        Decision { candidates, chosen }
    }

    /// Takes the profile that was named, if it fits; no other is tried.
    ///
    /// # Errors
    /// [`crate::ProfileError::UnknownId`]. A profile that does not fit is a [`Decision`] with a refusal.
    pub fn match_named<'a>(
        &self,
        id: &str,
        model: impl Into<Subject<'a>>,
    ) -> Result<Decision, crate::ProfileError> {
        let named = self.by_id(id)?;
        let model = model.into();
        let candidate = consider(named, model);
        let chosen = named.mismatch(model).map_or_else(|| Ok(named.clone()), Err);
        let candidates = self.iter().map(|loaded| match loaded.id() == id {
            true => candidate.clone(),
            false => Candidate {
                id: loaded.id().to_owned(),
                file: loaded.source().file().to_owned(),
                n_lines: loaded.profile().match_.0.len(),
                verdict: Verdict::NotNamed,
            },
        });
        Ok(Decision { candidates: candidates.collect(), chosen })
    }
}

impl LoadedProfile {
    /// Why the profile does not fit a model, if it does not.
    pub fn mismatch<'a>(&self, model: impl Into<Subject<'a>>) -> Option<MatchRefusal> {
        let Verdict::Failed { failures, at } = consider(self, model.into()).verdict else { return None };
        let place = Box::new(self.source().place(&["match", &failures[0].key]));
        Some(MatchRefusal::Mismatch { id: self.id().to_owned(), failures, at, place })
    }
}

impl Decision {
    /// The profile.
    ///
    /// # Errors
    /// Why there is none.
    pub fn chosen(&self) -> Result<&Arc<LoadedProfile>, &MatchRefusal> {
        self.chosen.as_ref()
    }

    /// Every profile considered, in order of id.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }
}

fn consider(loaded: &LoadedProfile, model: Subject<'_>) -> Candidate {
    let lines = &loaded.profile().match_;
    let failures = lines.failures(model);
    let verdict = match failures.first() {
        None => Verdict::Chosen,
        Some(first) => {
            let at = loaded.source().line_of(&["match", &first.key]);
            Verdict::Failed { failures, at }
        }
    };
    let file = loaded.source().file().to_owned();
    Candidate { id: loaded.id().to_owned(), file, n_lines: lines.0.len(), verdict }
}

fn choose(
    fitting: &[&Arc<LoadedProfile>],
    candidates: &[Candidate],
) -> Result<Arc<LoadedProfile>, MatchRefusal> {
    if candidates.is_empty() {
        return Err(MatchRefusal::NoProfiles);
    }
    if fitting.is_empty() {
        let only_named = candidates.iter().filter(|candidate| candidate.verdict == Verdict::OnlyNamed);
        let only_named = only_named.map(|candidate| candidate.id.clone()).collect();
        return Err(MatchRefusal::NoMatch { nearest: nearest_of(candidates), only_named });
    }
    let says_more = |one: &LoadedProfile, other: &LoadedProfile| {
        let (keys, others) = (match_keys(one), match_keys(other));
        one.id() == other.id() || (keys.is_superset(&others) && keys.len() > others.len())
    };
    if let Some(winner) = fitting.iter().find(|one| fitting.iter().all(|other| says_more(one, other))) {
        return Ok(Arc::clone(winner));
    }
    let all_keys: BTreeSet<&str> = fitting.iter().flat_map(|one| match_keys(one)).collect();
    let lacks =
        |one: &LoadedProfile| all_keys.difference(&match_keys(one)).map(|key| (*key).to_owned()).collect();
    Err(MatchRefusal::Ambiguous {
        tied: fitting.iter().map(|one| (one.id().to_owned(), lacks(one))).collect(),
    })
}

fn match_keys(loaded: &LoadedProfile) -> BTreeSet<&str> {
    loaded.profile().match_.keys().collect()
}

/// The winner's match keys that the candidate lacks.
fn lacking(fitting: &[&Arc<LoadedProfile>], id: &str, winner: &LoadedProfile) -> Vec<String> {
    let own = fitting.iter().find(|loaded| loaded.id() == id).map(|loaded| match_keys(loaded));
    let own = own.unwrap_or_default();
    match_keys(winner).difference(&own).map(|key| (*key).to_owned()).collect()
}

/// Those of the model's own `model_type` first, then fewest lines that fail, then most lines that hold.
fn nearest_of(candidates: &[Candidate]) -> Vec<Candidate> {
    let failed = candidates.iter().filter(|candidate| !candidate.failures().is_empty());
    let mut nearest: Vec<Candidate> = failed.cloned().collect();
    nearest.sort_by_key(|candidate| {
        let failures = candidate.failures();
        let is_of_other_type = failures.iter().any(|failed| failed.key == "model_type");
        (is_of_other_type, failures.len(), std::cmp::Reverse(candidate.n_lines - failures.len()))
    });
    nearest.truncate(SHOWN_CANDIDATES);
    nearest
}

impl Candidate {
    /// The lines that do not hold; none for a profile that fits or was not asked.
    pub fn failures(&self) -> &[FailedPredicate] {
        match &self.verdict {
            Verdict::Failed { failures, .. } => failures,
            _ => &[],
        }
    }

    /// One line: `llama: hidden_act is "gelu", expected "silu" or absent (profiles/llama.toml:9)`.
    pub fn line(&self) -> String {
        let id = &self.id;
        match &self.verdict {
            Verdict::Chosen => format!("{id}: chosen, all {} lines hold", self.n_lines),
            Verdict::LessSpecific { than, lacks } => {
                format!("{id}: fits, but `{than}` also matches {}", lacks.join(", "))
            }
            Verdict::Tied => format!("{id}: fits, and so does another"),
            Verdict::NotNamed => format!("{id}: not asked, another profile was named"),
            Verdict::OnlyNamed => format!("{id}: fits, but is used only where it is named"),
            Verdict::Failed { failures, at } => {
                let more = match failures.len() - 1 {
                    0 => String::new(),
                    n => format!(", and {n} more"),
                };
                let first = &failures[0];
                format!("{id}: {} is {}, expected {} ({at}){more}", first.key, first.found, first.expected)
            }
        }
    }
}

impl Reported for MatchRefusal {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            MatchRefusal::NoProfiles => Report::new("profile.none", text)
                .expected("at least one profile")
                .mend("name a folder with profiles"),
            MatchRefusal::NoMatch { nearest, only_named } => {
                let report = Report::new("profile.no-match", text);
                let report = match only_named.as_slice() {
                    [] => {
                        report.mend("write a profile for this model, or use a model that one of these fits")
                    }
                    ids => report.mend(format!("name one that fits with --profile: {}", ids.join(", "))),
                };
                match nearest.first() {
                    Some(first) => with_first_failure(report, &first.verdict, &first.id, nearest),
                    None => report.expected("a profile that is not `only_named`"),
                }
            }
            MatchRefusal::Ambiguous { tied } => {
                let ids: Vec<_> = tied.iter().map(|(id, _)| format!("`{id}`")).collect();
                let report = Report::new("profile.ambiguous", text)
                    .expected("one whose match keys include every other's, and more")
                    .found(ids.join(", "))
                    .mend("name one of them, or add the missing keys to the one that should win");
                tied.iter().fold(report, |report, (id, lacks)| {
                    report.note(match lacks.as_slice() {
                        [] => format!("{id}: has the match keys of all others, as another has"),
                        keys => format!("{id}: does not match {}", keys.join(", ")),
                    })
                })
            }
            MatchRefusal::Mismatch { failures, place, .. } => {
                // A graph of another shape is no near miss.
                let is_other_shape = failures.iter().any(|failed| failed.key == FINGERPRINT);
                let code = if is_other_shape { "profile.fingerprint-mismatch" } else { "profile.mismatch" };
                let report = Report::new(code, text)
                    .expected(format!("{}: {}", failures[0].key, failures[0].expected))
                    .found(failures[0].found.clone())
                    .mend("leave the profile to be chosen, or name one that fits")
                    .at(*place.clone());
                failures[1..].iter().fold(report, |report, failed| {
                    report.note(format!(
                        "also: {} is {}, expected {}",
                        failed.key, failed.found, failed.expected
                    ))
                })
            }
        }
    }
}

fn with_first_failure(report: Report, verdict: &Verdict, id: &str, shown: &[Candidate]) -> Report {
    let Verdict::Failed { failures, at } = verdict else { return report };
    let first = &failures[0];
    let report = report
        .expected(format!("{}: {} (the nearest profile, `{id}`, {at})", first.key, first.expected))
        .found(first.found.clone());
    shown.iter().fold(report, |report, candidate| report.note(candidate.line()))
}
