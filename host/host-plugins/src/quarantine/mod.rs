//! Keeps out what faults again and again.
//!
//! A plugin's fault ends its request alone, but a plugin that faults each time costs its budget each time. After some
//! faults within some time it is in quarantine: refused at the door, with the reason and the time that is left. Then
//! one request is let in to try. If that works, all is forgotten; another fault doubles the time.
//!
//! The ledger is one a process. It knows no runtime: it wraps the plugins of both ([`Quarantine::policy`],
//! [`Quarantine::graph`], [`Quarantine::quant`]).

mod clock;
mod guarded;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::PluginError;
use crate::hook::LogSink;
use crate::package::PluginName;

pub use clock::{Clock, MonotonicClock};

/// When faults close a plugin, and for how long. Each number is at least 1; a profile brings them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuarantineRules {
    /// So many requests that end by a fault of the plugin,
    pub faults: u32,
    /// within so many seconds, close it.
    pub within_s: u32,
    /// Seconds that it stays closed at first.
    pub first_backoff_s: u32,
    /// Seconds that it stays closed at most: each fault of a request that was let in to try doubles them up to here.
    pub longest_backoff_s: u32,
}

/// How a plugin stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginHealth {
    /// Which plugin.
    pub plugin: PluginName,
    /// Faults since it last worked its way out of quarantine, or since the process began.
    pub n_faults: u32,
    /// The last fault: code and message.
    pub last_fault: String,
    /// Set while it is refused.
    pub quarantine: Option<InQuarantine>,
}

/// For how long a plugin is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InQuarantine {
    /// Time that is left; zero when the next request is let in to try, or one is trying.
    pub left: Duration,
    /// How long it was to be in all.
    pub backoff: Duration,
    /// Whether a request is trying it now.
    pub is_tried: bool,
}

/// The ledger of faults.
pub struct Quarantine {
    clock: Box<dyn Clock>,
    notice: LogSink,
    plugins: Mutex<BTreeMap<PluginName, Record>>,
}

impl fmt::Debug for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quarantine").field("health", &self.health()).finish_non_exhaustive()
    }
}

/// What is known of one plugin.
#[derive(Default)]
struct Record {
    /// When its last faults were, oldest first; those that count no more may still be among them.
    recent: VecDeque<Duration>,
    n_faults: u32,
    last_fault: String,
    closed: Option<Closed>,
}

#[derive(Clone, Copy)]
struct Closed {
    until: Duration,
    backoff: Duration,
    is_tried: bool,
}

impl Quarantine {
    /// An empty ledger. `notice` hears when a plugin is closed, tried and open again.
    pub fn new(clock: impl Clock + 'static, notice: LogSink) -> Arc<Self> {
        Arc::new(Quarantine { clock: Box::new(clock), notice, plugins: Mutex::default() })
    }

    /// How every plugin stands that ever faulted and was not forgiven, by name.
    pub fn health(&self) -> Vec<PluginHealth> {
        let now = self.clock.now();
        let health = |(plugin, record): (&PluginName, &Record)| PluginHealth {
            plugin: plugin.clone(),
            n_faults: record.n_faults,
            last_fault: record.last_fault.clone(),
            quarantine: record.closed.map(|closed| InQuarantine {
                left: closed.until.saturating_sub(now),
                backoff: closed.backoff,
                is_tried: closed.is_tried,
            }),
        };
        self.records().iter().map(health).collect()
    }

    /// Lets a request in.
    ///
    /// # Errors
    /// [`PluginError::Quarantined`].
    fn admit(self: &Arc<Self>, plugin: &PluginName, rules: QuarantineRules) -> Result<Pass, PluginError> {
        let now = self.clock.now();
        let mut records = self.records();
        let record = records.get_mut(plugin);
        let closed = record.and_then(|Record { n_faults, last_fault, closed, .. }| {
            closed.as_mut().map(|closed| (closed, *n_faults, &*last_fault))
        });
        let is_trial = closed.is_some();
        if let Some((closed, n_faults, last_fault)) = closed {
            let left = closed.until.saturating_sub(now);
            if closed.is_tried || !left.is_zero() {
                return Err(PluginError::Quarantined {
                    plugin: plugin.clone(),
                    n_faults,
                    last_fault: last_fault.to_owned(),
                    left_s: left.as_secs() + u64::from(left.subsec_nanos() > 0),
                });
            }
            closed.is_tried = true;
        }
        drop(records);
        if is_trial {
            self.notice.write(plugin, "quarantine is over, one request tries it");
        }
        let (has_worked, has_faulted) = (AtomicBool::new(false), AtomicBool::new(false));
        let (ledger, plugin) = (Arc::clone(self), plugin.clone());
        Ok(Pass { ledger, plugin, rules, is_trial, has_worked, has_faulted })
    }

    fn fault(&self, pass: &Pass, error: &PluginError) {
        let now = self.clock.now();
        let mut records = self.records();
        let record = records.entry(pass.plugin.clone()).or_default();
        record.n_faults = record.n_faults.saturating_add(1);
        record.last_fault = told(error);
        let backoff = match record.closed {
            Some(closed) if pass.is_trial => Some((closed.backoff * 2).min(pass.rules.longest_backoff())),
            // A request that was let in before the plugin was closed changes nothing.
            Some(_) => None,
            None => record.is_too_much(now, pass.rules).then(|| pass.rules.first_backoff()),
        };
        let Some(backoff) = backoff else { return };
        record.closed = Some(Closed { until: now + backoff, backoff, is_tried: false });
        let (n_faults, last) = (record.n_faults, record.last_fault.clone());
        drop(records);
        let line =
            format!("in quarantine for {} s after {n_faults} faults, the last {last}", backoff.as_secs());
        self.notice.write(&pass.plugin, &line);
    }

    fn forgive(&self, plugin: &PluginName) {
        self.records().remove(plugin);
        self.notice.write(plugin, "works again, its faults are forgotten");
    }

    /// A request that tried the plugin ended before anything could be told of it: the next one tries.
    fn leave_untold(&self, plugin: &PluginName) {
        if let Some(closed) = self.records().get_mut(plugin).and_then(|record| record.closed.as_mut()) {
            closed.is_tried = false;
        }
    }

    /// A ledger is as good after a panic elsewhere as before.
    fn records(&self) -> MutexGuard<'_, BTreeMap<PluginName, Record>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// Notes a fault; whether it is one too many.
    fn is_too_much(&mut self, now: Duration, rules: QuarantineRules) -> bool {
        self.recent.push_back(now);
        let since = now.saturating_sub(Duration::from_secs(rules.within_s.into()));
        while self.recent.front().is_some_and(|at| *at < since) {
            self.recent.pop_front();
        }
        self.recent.len() >= rules.faults as usize
    }
}

impl QuarantineRules {
    /// Each number with its key in a profile.
    pub fn numbers(self) -> [(&'static str, u32); 4] {
        [
            ("faults", self.faults),
            ("within_s", self.within_s),
            ("first_backoff_s", self.first_backoff_s),
            ("longest_backoff_s", self.longest_backoff_s),
        ]
    }

    fn first_backoff(self) -> Duration {
        Duration::from_secs(self.first_backoff_s.into())
    }

    fn longest_backoff(self) -> Duration {
        Duration::from_secs(self.longest_backoff_s.max(self.first_backoff_s).into())
    }
}

/// One request's way in. Dropped, it tells the ledger how the request went.
struct Pass {
    ledger: Arc<Quarantine>,
    plugin: PluginName,
    rules: QuarantineRules,
    is_trial: bool,
    has_worked: AtomicBool,
    has_faulted: AtomicBool,
}

impl Pass {
    /// A call that proves nothing when it goes well.
    fn blame<T>(&self, result: Result<T, PluginError>) -> Result<T, PluginError> {
        if let Err(error) = &result
            && error.is_fault()
            && !self.has_faulted.swap(true, Ordering::Relaxed)
        {
            self.ledger.fault(self, error);
        }
        result
    }

    /// A call that is the plugin's work.
    fn judge<T>(&self, result: Result<T, PluginError>) -> Result<T, PluginError> {
        if result.is_ok() {
            self.has_worked.store(true, Ordering::Relaxed);
        }
        self.blame(result)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.is_trial || *self.has_faulted.get_mut() {
            return;
        }
        if *self.has_worked.get_mut() {
            self.ledger.forgive(&self.plugin);
        } else {
            self.ledger.leave_untold(&self.plugin);
        }
    }
}

fn told(error: &PluginError) -> String {
    format!("{}: {error}", error.code())
}
