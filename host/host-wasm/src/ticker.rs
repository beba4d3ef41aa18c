//! The clock of the engine's epochs: one thread that ticks while a guest runs and sleeps otherwise.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use wasmtime::{Engine, EngineWeak};

/// The length of an epoch.
const TICK: Duration = Duration::from_millis(2);

/// Owns the thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Ticker {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    n_running: usize,
    is_over: bool,
}

/// A guest that runs; ticks go on while one exists.
pub(crate) struct Running<'a>(&'a Ticker);

impl Ticker {
    pub(crate) fn start(engine: &Engine) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (thread_shared, engine) = (Arc::clone(&shared), engine.weak());
        thread::Builder::new().name("wasm-epochs".to_owned()).spawn(move || tick(&thread_shared, &engine))?;
        Ok(Ticker { shared })
    }

    /// Keeps the clock going until the guard is dropped.
    pub(crate) fn run(&self) -> Running<'_> {
        self.shared.lock().n_running += 1;
        self.shared.changed.notify_all();
        Running(self)
    }

    /// How many epochs cover a time. One more, because the phase of the current epoch is unknown.
    pub(crate) fn epochs(time_ms: u64) -> u64 {
        time_ms.div_ceil(TICK.as_millis() as u64) + 1
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.shared.lock().n_running -= 1;
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    /// A counter is as good after a panic elsewhere as before.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts epochs by the clock, not by wake-ups: a thread that overslept makes up for it.
fn tick(shared: &Shared, engine: &EngineWeak) {
    loop {
        let mut state = shared.lock();
        while state.n_running == 0 && !state.is_over {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_over {
            return;
        }
        drop(state);
        let start = Instant::now();
        thread::sleep(TICK);
        let Some(engine) = engine.upgrade() else { return };
        let n_ticks = start.elapsed().as_millis() / TICK.as_millis();
        (0..n_ticks).for_each(|_| engine.increment_epoch());
    }
}
