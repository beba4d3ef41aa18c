//! What became of a generation's requests. Counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of one generation.
#[derive(Debug, Default)]
pub struct Counts {
    running: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
}

/// How many requests ended, and how many of them by a fault of what the generation brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that ended, well or not.
    pub ended: u64,
    /// Of these, those that failed by a fault of a plugin or of the device.
    pub failed: u64,
}

impl Tally {
    /// Failed requests as a share of those that ended; 0 where none did.
    pub fn fault_rate(self) -> f64 {
        if self.ended == 0 { 0.0 } else { self.failed as f64 / self.ended as f64 }
    }
}

impl Counts {
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn leave(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn end(&self, is_fault: bool) {
        self.ended.fetch_add(1, Ordering::AcqRel);
        if is_fault {
            self.failed.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// What pins the generation: requests, streams, sessions and pipelines that are not over.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Acquire)
    }

    /// What ended so far.
    pub fn tally(&self) -> Tally {
        let failed = self.failed.load(Ordering::Acquire);
        Tally { ended: self.ended.load(Ordering::Acquire).max(failed), failed }
    }
}
