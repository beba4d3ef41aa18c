//! The clock by which guests are stopped: one thread that ticks while guests run and sleeps when none did for a while.
//!
//! A hook is entered thousands of times a second, so entering costs two counts and no lock, and no look at the time: the
//! thread is woken only where it sleeps, and it stays awake between the tokens of an answer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the clock goes on after the last guest, in ticks: longer than a token takes.
const LINGER: u32 = 100;

/// One guest that has begun; the rest of the count is of those that run.
const ENTRY: u64 = 1 << 32;

/// Owns the thread; dropping it ends the thread.
#[derive(Debug)]
pub struct Ticker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How many guests run, and above that, in [`ENTRY`]s, how many have begun.
    guests: AtomicU64,
    /// Whether the thread sleeps or is about to: whoever clears it wakes the thread.
    is_asleep: AtomicBool,
    is_over: AtomicBool,
}

/// A guest that runs; ticks go on while one exists.
pub struct Running<'a>(&'a Shared);

impl Ticker {
    /// The time between two ticks.
    pub const PERIOD: Duration = Duration::from_millis(1);

    /// Starts a thread of that name, which tells `tick` how many periods went by since it was last told. A thread that
    /// overslept makes up for it, unless a guest began meanwhile: no guest is told of time before it began. With
    /// `false` the thread ends.
    ///
    /// # Errors
    /// [`io::Error`] when the system gives no thread.
    pub fn start(name: &str, tick: impl FnMut(u64) -> bool + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || of_thread.tick(tick))?;
        Ok(Ticker { shared, thread })
    }

    /// Keeps the clock going until the guard is dropped.
    pub fn run(&self) -> Running<'_> {
        // The thread says that it sleeps and then looks at the count; this counts and then looks whether it sleeps. In
        // one order of all four, one of the two sees the other.
        self.shared.guests.fetch_add(ENTRY + 1, Ordering::SeqCst);
        if self.shared.is_asleep.load(Ordering::SeqCst) {
            self.wake();
        }
        Running(&self.shared)
    }

    #[cold]
    fn wake(&self) {
        self.shared.is_asleep.store(false, Ordering::SeqCst);
        self.thread.thread().unpark();
    }

    /// How many ticks cover a time. One more, because the current period has begun already.
    pub fn periods(time_ms: u64) -> u64 {
        time_ms.div_ceil(Self::PERIOD.as_millis() as u64) + 1
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.wake();
    }
}

impl Shared {
    fn tick(&self, mut tick: impl FnMut(u64) -> bool) {
        while self.tick_while_used(&mut tick) {
            self.sleep();
        }
    }

    /// Until no guest ran for a while; `false` when all is over.
    fn tick_while_used(&self, tick: &mut impl FnMut(u64) -> bool) -> bool {
        let mut told = Told { until: Instant::now(), n_begun: 0 };
        let mut n_idle = 0;
        while n_idle < LINGER {
            thread::sleep(Ticker::PERIOD);
            let guests = self.guests.load(Ordering::SeqCst);
            if self.is_over.load(Ordering::SeqCst) || !tick(told.periods(Instant::now(), guests / ENTRY)) {
                return false;
            }
            n_idle = if guests.is_multiple_of(ENTRY) { n_idle + 1 } else { 0 };
        }
        true
    }

    /// Until a guest runs, or all is over.
    fn sleep(&self) {
        self.is_asleep.store(true, Ordering::SeqCst);
        if !self.guests.load(Ordering::SeqCst).is_multiple_of(ENTRY) {
            self.is_asleep.store(false, Ordering::SeqCst);
        }
        while self.is_asleep.load(Ordering::SeqCst) && !self.is_over.load(Ordering::SeqCst) {
            thread::park();
        }
    }
}

/// What `tick` was told of.
struct Told {
    until: Instant,
    /// Guests that had begun by then.
    n_begun: u64,
}

impl Told {
    /// Periods to tell of now.
    fn periods(&mut self, now: Instant, n_begun: u64) -> u64 {
        if self.n_begun != n_begun {
            *self = Told { until: now, n_begun };
            return 1;
        }
        let n = now.duration_since(self.until).as_nanos() / Ticker::PERIOD.as_nanos();
        self.until += Ticker::PERIOD * n as u32;
        n as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversleeping_is_made_up_for_and_never_counts_against_a_guest_that_began_meanwhile() {
        let start = Instant::now();
        let after = |ms: f64| start + Duration::from_secs_f64(ms / 1e3);
        let mut told = Told { until: start, n_begun: 0 };
        let cases = [
            // at, guests that have begun, periods
            (1.1, 0, 1),
            (7.2, 0, 6),
            (7.9, 0, 0),
            (8.1, 0, 1),
            // A guest began during a sleep of 20 ms, nobody knows when.
            (28.0, 1, 1),
            (29.5, 1, 1),
            (30.1, 1, 1),
            (40.2, 1, 10),
            (41.0, 3, 1),
        ];
        for (at, n_begun, periods) in cases {
            assert_eq!(told.periods(after(at), n_begun), periods, "at {at}");
        }
    }

    fn counting() -> (Ticker, Arc<AtomicU64>) {
        let n_ticks = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&n_ticks);
        let ticker = Ticker::start("test-clock", move |n| {
            counted.fetch_add(n, Ordering::SeqCst);
            true
        });
        (ticker.expect("a thread"), n_ticks)
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it never happened");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Each entry finds the thread asleep, about to sleep, or awake; it must tick in every case.
    #[test]
    fn a_guest_that_runs_is_ticked_for_whenever_it_begins() {
        let (ticker, n_ticks) = counting();
        for round in 0..4_u64 {
            // Around the end of the time that the clock goes on for.
            thread::sleep(Ticker::PERIOD * LINGER + Duration::from_millis(round * 5));
            let before = n_ticks.load(Ordering::SeqCst);
            let _running = ticker.run();
            wait_until(|| n_ticks.load(Ordering::SeqCst) >= before + 5);
        }
    }

    #[test]
    fn the_clock_sleeps_when_no_guest_runs_and_counts_what_it_overslept() {
        let (ticker, n_ticks) = counting();
        let begun = Instant::now();
        let running = ticker.run();
        wait_until(|| n_ticks.load(Ordering::SeqCst) >= 50);
        assert!(begun.elapsed() >= Ticker::PERIOD * 50, "faster than the clock");
        drop(running);
        wait_until(|| ticker.shared.is_asleep.load(Ordering::SeqCst));
        let asleep = n_ticks.load(Ordering::SeqCst);
        thread::sleep(Ticker::PERIOD * 20);
        assert_eq!(n_ticks.load(Ordering::SeqCst), asleep);
    }

    #[test]
    fn the_thread_ends_with_its_owner_asleep_or_awake() {
        for is_asleep in [false, true] {
            let (ticker, _) = counting();
            if is_asleep {
                wait_until(|| ticker.shared.is_asleep.load(Ordering::SeqCst));
            }
            let shared = Arc::downgrade(&ticker.shared);
            drop(ticker);
            wait_until(|| shared.strong_count() == 0);
        }
    }
}
