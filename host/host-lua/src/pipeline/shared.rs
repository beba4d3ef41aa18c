//! What the host functions of one run and its scheduler have in common.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use host_plugins::pipeline::{
    GenerationKey, PipelineBudget, PipelineError, PipelineHost, PipelineSource, SessionKey, Spent,
};
use mlua::{MultiValue, Result, Thread};

use super::clock::{Clock, Stop};
use super::fault::Over;

/// The first fault of a run, and what to read for whether there is one.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) source: Arc<PipelineSource>,
    pub(super) budget: PipelineBudget,
    pub(super) stop: Stop,
    pub(super) clock: Clock,
    cancel: Arc<AtomicBool>,
    inner: Arc<Mutex<Inner>>,
}

/// What host functions change.
pub(super) struct Inner {
    pub(super) host: Box<dyn PipelineHost>,
    pub(super) emit: Box<dyn FnMut(&str) -> bool + Send>,
    pub(super) log: Box<dyn FnMut(&str) + Send>,
    pub(super) fault: Option<PipelineError>,
    pub(super) n_calls: usize,
    pub(super) n_spawned: usize,
    pub(super) output_bytes: usize,
    pub(super) log_bytes: usize,
    /// Spawned, and not yet taken by the scheduler.
    pub(super) spawned: Vec<(u64, Thread, MultiValue)>,
    /// Started, and not yet taken by the scheduler.
    pub(super) started: Vec<GenerationKey>,
    pub(super) sessions: BTreeSet<SessionKey>,
}

impl Shared {
    pub(super) fn new(
        source: Arc<PipelineSource>,
        budget: PipelineBudget,
        (stop, clock): (Stop, Clock),
        cancel: Arc<AtomicBool>,
        inner: Inner,
    ) -> Self {
        Shared { source, budget, stop, clock, cancel, inner: Arc::new(Mutex::new(inner)) }
    }

    /// As [`with`](Shared::with), while the host works for the script: that time is not the script's.
    pub(super) fn held<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        self.clock.hold(|| self.with(act))
    }

    /// Looks at or changes what is shared. Lua is never called meanwhile.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the script is to stop.
    pub(super) fn is_over(&self) -> bool {
        self.stop.is_raised() || self.cancel.load(Ordering::Relaxed)
    }

    /// What ended the run, if something did.
    pub(super) fn fault(&self) -> Option<PipelineError> {
        if let Some(fault) = self.with(|inner| inner.fault.clone()) {
            return Some(fault);
        }
        if let Some(spent) = self.stop.spent() {
            return Some(self.spent(spent));
        }
        self.cancel.load(Ordering::Relaxed).then_some(PipelineError::Cancelled)
    }

    /// A bound as an error.
    pub(super) fn spent(&self, spent: Spent) -> PipelineError {
        let budget = &self.budget;
        let limit = match spent {
            Spent::Burst => budget.burst_ms,
            Spent::Lua => budget.lua_ms,
            Spent::Wall => budget.wall_ms,
            Spent::Memory => budget.lua_memory_bytes as u64,
            Spent::Calls => budget.host_calls as u64,
            Spent::Tasks => budget.tasks as u64,
            Spent::Output => budget.output_bytes as u64,
            Spent::Log => budget.log_bytes as u64,
        };
        PipelineError::Spent { spent, limit }
    }

    /// Ends the run; the first reason stays.
    pub(super) fn end<T>(&self, fault: PipelineError) -> Result<T> {
        self.with(|inner| {
            inner.fault.get_or_insert(fault);
        });
        self.stop.fault();
        Err(Over.into_lua())
    }

    /// Counts something against its bound.
    pub(super) fn spend(
        &self,
        spent: Spent,
        amount: usize,
        limit: usize,
        counter: impl FnOnce(&mut Inner) -> &mut usize,
    ) -> Result<()> {
        let is_within = self.with(|inner| {
            let counter = counter(inner);
            *counter = counter.saturating_add(amount);
            *counter <= limit
        });
        if is_within { Ok(()) } else { self.end(self.spent(spent)) }
    }

    /// Each call of the host passes here.
    pub(super) fn count_call(&self) -> Result<()> {
        if self.is_over() {
            return Err(Over.into_lua());
        }
        self.spend(Spent::Calls, 1, self.budget.host_calls, |inner| &mut inner.n_calls)
    }

    /// Counts emitted or returned bytes.
    pub(super) fn count_output(&self, n_bytes: usize) -> Result<()> {
        self.spend(Spent::Output, n_bytes, self.budget.output_bytes, |inner| &mut inner.output_bytes)
    }
}
