//! The clock outside: a thread that raises a flag when the script's time is over.
//!
//! The script's interrupt reads only the flag. The clock is armed while the script runs and disarmed while it
//! waits; what the host does meanwhile in a call is not the script's time.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use host_plugins::pipeline::Spent;

/// Why the script is to stop; read at every loop and call of the script.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicU8>);

const BURST: u8 = 1;
const LUA: u8 = 2;
const WALL: u8 = 3;
const FAULT: u8 = 4;

impl Stop {
    /// A bound on time was reached.
    pub(super) fn spend(&self, spent: Spent) {
        let cause = match spent {
            Spent::Burst => BURST,
            Spent::Lua => LUA,
            Spent::Wall => WALL,
            _ => FAULT,
        };
        self.0.store(cause, Ordering::Relaxed);
    }

    /// A fault was recorded.
    pub(super) fn fault(&self) {
        self.0.store(FAULT, Ordering::Relaxed);
    }

    /// Whether the script is to stop.
    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The bound on time that was reached.
    pub(super) fn spent(&self) -> Option<Spent> {
        match self.0.load(Ordering::Relaxed) {
            BURST => Some(Spent::Burst),
            LUA => Some(Spent::Lua),
            WALL => Some(Spent::Wall),
            _ => None,
        }
    }
}

/// Runs until the last one is dropped.
#[derive(Clone)]
pub(super) struct Clock(Arc<Hand>);

/// Ends the thread when it is dropped.
struct Hand {
    face: Arc<Face>,
    /// When the whole run is over, whoever spent the time.
    wall: Instant,
}

#[derive(Default)]
struct Face {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    deadline: Option<(Instant, Spent)>,
    /// What the host took of the time since the clock was armed.
    held: Duration,
    /// When the thread will look again; `None` while it sleeps until it is told.
    wakes_at: Option<Instant>,
    is_over: bool,
}

impl Clock {
    /// Starts the thread.
    pub(super) fn start(stop: Stop, wall: Instant) -> io::Result<Self> {
        let face = Arc::new(Face::default());
        let of_thread = Arc::clone(&face);
        thread::Builder::new().name("lua-clock".to_owned()).spawn(move || of_thread.run(&stop))?;
        Ok(Clock(Arc::new(Hand { face, wall })))
    }

    /// From now on the script runs, at most until `deadline`.
    pub(super) fn arm(&self, deadline: Instant, spent: Spent) {
        let mut state = self.0.face.state();
        state.held = Duration::ZERO;
        self.0.face.set(&mut state, deadline, spent);
    }

    /// The script waits. The thread is let sleep. Gives what the host took of the time since [`Clock::arm`].
    pub(super) fn disarm(&self) -> Duration {
        let mut state = self.0.face.state();
        state.deadline = None;
        std::mem::take(&mut state.held)
    }

    /// Lets the host work for the script: its deadline moves by as long as that takes, though not beyond the run's.
    pub(super) fn hold<T>(&self, act: impl FnOnce() -> T) -> T {
        let (armed, since) = (self.0.face.state().deadline.take(), Instant::now());
        let given = act();
        if let Some((deadline, spent)) = armed {
            let took = since.elapsed();
            let mut state = self.0.face.state();
            state.held += took;
            let moved = deadline + took;
            let (deadline, spent) =
                if moved < self.0.wall { (moved, spent) } else { (self.0.wall, Spent::Wall) };
            self.0.face.set(&mut state, deadline, spent);
        }
        given
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.face.state().is_over = true;
        self.face.changed.notify_one();
    }
}

impl Face {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: &mut State, deadline: Instant, spent: Spent) {
        state.deadline = Some((deadline, spent));
        if state.wakes_at.is_none_or(|at| at > deadline) {
            self.changed.notify_one();
        }
    }

    fn run(&self, stop: &Stop) {
        let mut state = self.state();
        while !state.is_over {
            let now = Instant::now();
            if let Some((_, spent)) = state.deadline.take_if(|(at, _)| *at <= now) {
                stop.spend(spent);
            }
            state.wakes_at = state.deadline.map(|(at, _)| at);
            state = match state.wakes_at {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let waited = self.changed.wait_timeout(state, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
