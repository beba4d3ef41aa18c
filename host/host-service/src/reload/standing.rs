//! What a service remembers beside the generation that serves, and what it tells of that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use host_core::Report;
use host_registry::Sha256Digest;
use serde::Serialize;

use super::counts::Tally;
use super::generation::Generation;
use super::id::GenerationId;
use super::settings::GateSettings;

/// A generation that was replaced and has requests.
pub(crate) struct Replaced {
    pub(crate) generation: Arc<Generation>,
    /// When another one took its place.
    at: Duration,
}

/// A generation that was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptOut {
    pub(crate) id: GenerationId,
    pub(crate) tally: Tally,
}

/// The last refusal.
pub(crate) struct Refused {
    /// The files; none where they could not be read.
    pub(crate) digest: Option<Sha256Digest>,
    pub(crate) reports: Vec<Report>,
    pub(crate) at: Duration,
}

/// What changes with each reload.
pub(crate) struct Standing {
    pub(crate) swapped_at: Duration,
    /// What serves again if the current generation turns out worse; none once that has passed the gate.
    pub(crate) before: Option<Arc<Generation>>,
    /// Replaced generations with requests, oldest first.
    pub(crate) old: Vec<Replaced>,
    /// Generations that were taken back, by the digest of their files.
    pub(crate) kept_out: BTreeMap<Sha256Digest, KeptOut>,
    pub(crate) refused: Option<Refused>,
    /// Files that a rollback put aside: they are not loaded until they change.
    pub(crate) left_aside: Option<Sha256Digest>,
}

impl Standing {
    pub(crate) fn new(now: Duration) -> Self {
        Standing {
            swapped_at: now,
            before: None,
            old: Vec::new(),
            kept_out: BTreeMap::new(),
            refused: None,
            left_aside: None,
        }
    }

    /// Whether these files were put aside, or refused so short a time ago that a refusal would be the same.
    pub(crate) fn is_left_aside(&self, digest: Sha256Digest, now: Duration, again_after: Duration) -> bool {
        let is_fresh = |refused: &Refused| {
            refused.digest == Some(digest) && now.saturating_sub(refused.at) < again_after
        };
        self.left_aside == Some(digest) || self.refused.as_ref().is_some_and(is_fresh)
    }

    /// `from` was replaced.
    pub(crate) fn replaced(&mut self, from: Arc<Generation>, now: Duration, gate: &GateSettings) {
        // One that few requests have seen proves nothing: the one before it stays the measure.
        let is_proven = from.counts.tally().ended >= gate.min_requests;
        if is_proven || self.before.is_none() {
            self.before = Some(Arc::clone(&from));
        }
        self.swapped_at = now;
        self.refused = None;
        self.old.push(Replaced { generation: from, at: now });
    }

    /// `bad` was taken back, and the one before it serves again.
    pub(crate) fn taken_back(&mut self, bad: Arc<Generation>, kept_out: KeptOut, now: Duration) {
        self.kept_out.insert(bad.snapshot.digest(), kept_out);
        if let Some(before) = self.before.take() {
            self.old.retain(|old| !Arc::ptr_eq(&old.generation, &before));
        }
        self.old.push(Replaced { generation: bad, at: now });
        self.swapped_at = now;
        self.refused = None;
    }

    /// Takes out the old generations without requests.
    pub(crate) fn drained(&mut self) -> Vec<Replaced> {
        self.old.extract_if(.., |old| old.generation.counts.running() == 0).collect()
    }

    /// Lets go of every generation but the one that serves.
    pub(crate) fn forget_all(&mut self) {
        self.before = None;
        self.old.clear();
    }

    /// Takes out the `n` oldest.
    pub(crate) fn oldest(&mut self, n: usize) -> Vec<Replaced> {
        let n = n.min(self.old.len());
        self.old.drain(..n).collect()
    }

    /// Writes what is known of old generations into `state`.
    pub(crate) fn tell(&self, state: &mut State, now: Duration) {
        let old = self.old.iter().map(|old| OldGeneration {
            id: old.generation.id,
            running: old.generation.counts.running(),
            age_s: now.saturating_sub(old.at).as_secs(),
        });
        state.old = old.collect();
        state.kept_out = self.kept_out.values().map(|kept| kept.id).collect();
    }
}

/// How a service stands, for people and programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct State {
    /// The generation that serves.
    pub generation: GenerationId,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// What pins it.
    pub running: u64,
    /// Set while the folders say something else than what serves.
    pub degraded: Option<Degraded>,
    /// Replaced generations with requests, oldest first.
    pub old: Vec<OldGeneration>,
    /// Generations that were taken back.
    pub kept_out: Vec<GenerationId>,
}

/// Why the folders are not what serves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Degraded {
    /// Since when, in milliseconds since 1970.
    pub at_ms: u64,
    /// Everything that is wrong.
    pub reports: Vec<Report>,
}

/// A replaced generation that still has requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OldGeneration {
    /// Which.
    pub id: GenerationId,
    /// What pins it.
    pub running: u64,
    /// Seconds since it was replaced.
    pub age_s: u64,
}

impl State {
    pub(crate) fn new(generation: GenerationId, now_ms: u64, degraded: Option<Vec<Report>>) -> Self {
        let degraded = degraded.map(|reports| Degraded { at_ms: now_ms, reports });
        State { generation, since_ms: now_ms, running: 0, degraded, old: Vec::new(), kept_out: Vec::new() }
    }

    pub(crate) fn degrade(&mut self, now_ms: u64, reports: Vec<Report>) {
        self.degraded = Some(Degraded { at_ms: now_ms, reports });
    }
}
