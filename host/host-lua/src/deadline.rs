//! How long a hook may run, told to the script's interrupt.
//!
//! The interrupt compares two counters; reading the clock there would cost several times as much.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use host_plugins::{Running, Ticker};
use mlua::{Lua, Result, VmState, ffi};

use crate::fault::Raised;

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
}

static CLOCK: Mutex<Option<Arc<Clock>>> = Mutex::new(None);

/// Ticks of the clock.
static N_TICKS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The tick at which the hook that runs on this thread must have ended.
    static UNTIL: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// A hook that runs; the clock goes on while one does.
pub(crate) struct Armed<'a> {
    _running: Running<'a>,
    /// The end of the hook around this one.
    outer: u64,
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        UNTIL.set(self.outer);
    }
}

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

    /// Begins to count, for what runs on this thread.
    pub(crate) fn arm(&self, time_ms: u64) -> Armed<'_> {
        let running = self.clock.ticker.run();
        let at = now() + Ticker::periods(time_ms);
        self.at.store(at, Ordering::Relaxed);
        Armed { _running: running, outer: UNTIL.replace(at) }
    }

    /// Whether the time is over.
    pub(crate) fn is_over(&self) -> bool {
        now() >= self.at.load(Ordering::Relaxed)
    }

    /// Has a state's scripts look at it.
    pub(crate) fn interrupt(self, lua: &Lua) -> Result<()> {
        lua.set_interrupt(
            move |_| {
                if self.is_over() { Err(Raised::Time.into_lua()) } else { Ok(VmState::Continue) }
            },
        );
        look_first(lua)
    }
}

/// What mlua set as a state's interrupt: the same for every state.
static INTERRUPT: OnceLock<unsafe extern "C-unwind" fn(*mut ffi::lua_State, i32)> = OnceLock::new();

/// Puts a look at the counters before mlua's interrupt: that has a guard against panics around it, which would cost
/// each turn of a loop as much as ten of its operations.
#[expect(unsafe_code, reason = "an interrupt is a function of Luau's, which mlua gives no other way to set")]
fn look_first(lua: &Lua) -> Result<()> {
    unsafe extern "C-unwind" fn look(state: *mut ffi::lua_State, collecting: i32) {
        if now() < UNTIL.get() {
            return;
        }
        if let Some(interrupt) = INTERRUPT.get() {
            // SAFETY: it is called as Luau would call it, with its own arguments.
            unsafe { interrupt(state, collecting) }
        }
    }
    // SAFETY: the state is alive and locked meanwhile. Its callbacks are its own until it is closed, and what stands in
    // this field is called with the arguments that `look` takes.
    unsafe {
        lua.exec_raw((), |state| {
            let callbacks = ffi::lua_callbacks(state);
            if let Some(interrupt) = (*callbacks).interrupt.replace(look) {
                INTERRUPT.get_or_init(|| interrupt);
            }
        })
    }
}

fn now() -> u64 {
    N_TICKS.load(Ordering::Relaxed)
}

impl Clock {
    fn start() -> io::Result<Self> {
        let ticker = Ticker::start("lua-clock", |n| {
            N_TICKS.fetch_add(n, Ordering::Relaxed);
            true
        })?;
        Ok(Clock { ticker })
    }
}
