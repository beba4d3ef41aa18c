//! Threads that run one job together and meet at barriers inside it.
//!
//! A model step is one job of some hundred short phases, so a phase must cost no system call: threads spin,
//! give way when the others are late, and sleep only between jobs.
#![expect(unsafe_code, reason = "hands a borrowed job to threads that outlive the borrow")]

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

type Job<'a> = &'a (dyn Fn(&Worker<'_>) + Sync);

/// Spins before a waiting thread gives its core away: about 20 us.
const SPINS_BEFORE_YIELD: u32 = 4_000;
/// Spins between jobs before a thread sleeps: about 0.3 ms, longer than sampling takes between two tokens.
const SPINS_BEFORE_SLEEP: u32 = 60_000;

/// A fixed number of threads; the caller is the first of them.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    n_threads: usize,
    /// Counts jobs; a change wakes the workers.
    epoch: AtomicUsize,
    /// The job of this epoch, as a pointer to the caller's fat reference.
    job: AtomicPtr<()>,
    is_closing: AtomicBool,
    sleepers: Vec<AtomicBool>,
    /// Threads that have arrived, counted over all barriers so far.
    arrived: AtomicUsize,
}

/// One thread's view of the job.
pub(crate) struct Worker<'a> {
    /// Which thread, from 0.
    pub(crate) index: usize,
    /// How many threads.
    pub(crate) count: usize,
    shared: &'a Shared,
}

impl Worker<'_> {
    /// Waits until every thread of the job is here. Every thread must call it equally often.
    pub(crate) fn barrier(&self) {
        if self.count == 1 {
            return;
        }
        let arrived = &self.shared.arrived;
        let ticket = arrived.fetch_add(1, Ordering::AcqRel);
        let target = (ticket / self.count + 1) * self.count;
        let mut spins = 0;
        // Wrapping counters would need years of barriers on 64 bits.
        while arrived.load(Ordering::Acquire) < target {
            pause(&mut spins);
        }
    }

    /// This thread as the only one of a job within the job.
    pub(crate) fn alone(&self) -> Worker<'_> {
        Worker { index: 0, count: 1, shared: self.shared }
    }

    /// This thread's part of `n` equal items.
    pub(crate) fn share(&self, n: usize) -> std::ops::Range<usize> {
        n * self.index / self.count..n * (self.index + 1) / self.count
    }
}

fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS_BEFORE_YIELD {
        spin_loop();
    } else {
        thread::yield_now();
    }
}

impl Pool {
    /// A pool of `n_threads`, at least 1.
    pub(crate) fn new(n_threads: usize) -> std::io::Result<Pool> {
        let n_threads = n_threads.max(1);
        let shared = Arc::new(Shared {
            n_threads,
            epoch: AtomicUsize::new(0),
            job: AtomicPtr::new(std::ptr::null_mut()),
            is_closing: AtomicBool::new(false),
            sleepers: (0..n_threads).map(|_| AtomicBool::new(false)).collect(),
            arrived: AtomicUsize::new(0),
        });
        let start = |index| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("tenon-cpu-{index}")).spawn(move || work(&shared, index))
        };
        let workers = (1..n_threads).map(start).collect::<Result<_, _>>()?;
        Ok(Pool { shared, workers })
    }

    /// Runs the job on every thread and returns when all are done. One job at a time.
    pub(crate) fn run(&self, job: Job<'_>) {
        let shared = &*self.shared;
        let guard = AbortOnPanic;
        if shared.n_threads > 1 {
            shared.job.store(std::ptr::from_ref(&job).cast_mut().cast(), Ordering::Relaxed);
            shared.epoch.fetch_add(1, Ordering::SeqCst);
            self.wake();
        }
        let worker = Worker { index: 0, count: shared.n_threads, shared };
        job(&worker);
        // The job's reference lives until every thread has passed this barrier.
        worker.barrier();
        std::mem::forget(guard);
    }

    fn wake(&self) {
        for (worker, is_asleep) in self.workers.iter().zip(&self.shared.sleepers[1..]) {
            if is_asleep.load(Ordering::SeqCst) {
                Thread::unpark(worker.thread());
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker that panicked has aborted the process already.
            let _ = worker.join();
        }
    }
}

fn work(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        let Some(epoch) = next_epoch(shared, index, seen) else { return };
        seen = epoch;
        let guard = AbortOnPanic;
        let worker = Worker { index, count: shared.n_threads, shared };
        // SAFETY: `run` stored a pointer to a live `Job` before it raised the epoch, and it returns only
        // after this thread has passed the closing barrier.
        let job = unsafe { *shared.job.load(Ordering::Relaxed).cast::<Job<'_>>() };
        job(&worker);
        worker.barrier();
        std::mem::forget(guard);
    }
}

fn next_epoch(shared: &Shared, index: usize, seen: usize) -> Option<usize> {
    let mut spins = 0;
    loop {
        let epoch = shared.epoch.load(Ordering::SeqCst);
        if epoch != seen {
            return Some(epoch);
        }
        if shared.is_closing.load(Ordering::SeqCst) {
            return None;
        }
        spins += 1;
        if spins < SPINS_BEFORE_SLEEP {
            spin_loop();
            continue;
        }
        let is_asleep = &shared.sleepers[index];
        is_asleep.store(true, Ordering::SeqCst);
        // Looked at again after the flag is up, so a wake between the two is not lost.
        if shared.epoch.load(Ordering::SeqCst) == seen && !shared.is_closing.load(Ordering::SeqCst) {
            thread::park();
        }
        is_asleep.store(false, Ordering::SeqCst);
    }
}

/// A thread that leaves a job by a panic would leave the others at a barrier for ever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}
