//! How long a hook may run, told to the script's interrupt.
//!
//! The interrupt compares two counters; reading the clock there would cost several times as much.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use host_plugins::{Running, Ticker};

/// When the running hook of one state must have ended; counts anew at each entry.
#[derive(Clone)]
pub(crate) struct Deadline {
    clock: Arc<Clock>,
    /// The number of the tick.
    at: Arc<AtomicU64>,
}

/// One for all scripts.
struct Clock {
    ticker: Ticker,
    n_ticks: Arc<AtomicU64>,
}

static CLOCK: Mutex<Option<Arc<Clock>>> = Mutex::new(None);

impl Deadline {
    /// A deadline that is never reached until it is armed. The first one starts the clock's thread.
    pub(crate) fn new() -> io::Result<Self> {
        let mut started = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = match &*started {
            Some(clock) => Arc::clone(clock),
            None => Arc::clone(started.insert(Arc::new(Clock::start()?))),
        };
        Ok(Deadline { clock, at: Arc::new(AtomicU64::new(u64::MAX)) })
    }

    /// Begins to count.
    pub(crate) fn arm(&self, time_ms: u64) -> Running<'_> {
        let running = self.clock.ticker.run();
        self.at.store(self.clock.now() + Ticker::periods(time_ms), Ordering::Relaxed);
        running
    }

    /// Whether the time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.clock.now() >= self.at.load(Ordering::Relaxed)
    }
}

impl Clock {
    fn start() -> io::Result<Self> {
        let n_ticks = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&n_ticks);
        let ticker = Ticker::start("lua-clock", move |n| {
            counted.fetch_add(n, Ordering::Relaxed);
            true
        })?;
        Ok(Clock { ticker, n_ticks })
    }

    fn now(&self) -> u64 {
        self.n_ticks.load(Ordering::Relaxed)
    }
}
