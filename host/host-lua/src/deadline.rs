//! The clock outside: one thread for all scripts, which ticks while one runs and sleeps otherwise.
//!
//! A script's interrupt compares two counters; reading the clock there would cost several times as much.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(1);

/// When the running hook of one state must have ended; counts anew at each entry.
#[derive(Clone)]
pub(crate) struct Deadline {
    clock: Arc<Clock>,
    /// Milliseconds of the clock.
    at: Arc<AtomicU64>,
}

/// A hook that runs; the clock ticks while one exists.
pub(crate) struct Running<'a>(&'a Clock);

struct Clock {
    start: Instant,
    /// Milliseconds since the start, as of the last tick.
    now: AtomicU64,
    n_running: Mutex<usize>,
    changed: Condvar,
}

static CLOCK: Mutex<Option<Arc<Clock>>> = Mutex::new(None);

impl Deadline {
    /// A deadline that is never reached until it is armed. The first one starts the clock's thread.
    pub(crate) fn new() -> io::Result<Self> {
        let mut started = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = match &*started {
            Some(clock) => Arc::clone(clock),
            None => Arc::clone(started.insert(Clock::start()?)),
        };
        Ok(Deadline { clock, at: Arc::new(AtomicU64::new(u64::MAX)) })
    }

    /// Begins to count. One millisecond more, because the current one has begun already.
    pub(crate) fn arm(&self, time_ms: u64) -> Running<'_> {
        self.at.store(self.clock.elapsed_ms() + time_ms + 1, Ordering::Relaxed);
        let mut n_running = self.clock.n_running();
        *n_running += 1;
        if *n_running == 1 {
            self.clock.changed.notify_all();
        }
        drop(n_running);
        Running(&self.clock)
    }

    /// Whether the time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.clock.now.load(Ordering::Relaxed) >= self.at.load(Ordering::Relaxed)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.n_running() -= 1;
    }
}

impl Clock {
    fn start() -> io::Result<Arc<Self>> {
        let clock = Arc::new(Clock {
            start: Instant::now(),
            now: AtomicU64::new(0),
            n_running: Mutex::new(0),
            changed: Condvar::new(),
        });
        let ticking = Arc::clone(&clock);
        thread::Builder::new().name("lua-clock".to_owned()).spawn(move || ticking.tick())?;
        Ok(clock)
    }

    fn elapsed_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// A counter is as good after a panic elsewhere as before.
    fn n_running(&self) -> MutexGuard<'_, usize> {
        self.n_running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) {
        loop {
            let mut n_running = self.n_running();
            while *n_running == 0 {
                n_running = self.changed.wait(n_running).unwrap_or_else(PoisonError::into_inner);
            }
            drop(n_running);
            thread::sleep(TICK);
            self.now.store(self.elapsed_ms(), Ordering::Relaxed);
        }
    }
}
