//! Guests made ahead of their requests, and the thread that makes them and takes used ones down.
//!
//! A fresh state costs a hundred times what a request asks of it at its start. No guest serves two requests: what is
//! kept ready is unused, and what was used is gone.

use std::ops::Deref;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

/// What one script keeps ready at most. It begins with one, and keeps twice as many each time a request finds none.
pub(crate) const SPARES: usize = 4;
/// And what all of that may hold: scripts with large tables have fewer.
pub(crate) const SPARE_BYTES: usize = 4 << 20;

/// Things to do that may wait; who finds more than that does it himself.
const JOBS: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// The thread, one for all scripts; none where the system gives none.
static WORKER: LazyLock<Option<SyncSender<Job>>> = LazyLock::new(|| {
    let (sender, jobs) = sync_channel::<Job>(JOBS);
    let work = move || jobs.into_iter().for_each(|job| job());
    thread::Builder::new().name("lua-states".to_owned()).spawn(work).ok().map(|_| sender)
});

/// Has the thread do something; gives it back where it cannot.
fn later(job: Job) -> Result<(), Job> {
    let Some(worker) = &*WORKER else { return Err(job) };
    worker.try_send(job).map_err(|error| match error {
        TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
    })
}

/// What is dropped on the thread, because dropping it takes as long as some tokens.
pub(crate) struct Retiring<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Retiring<T> {
    pub(crate) fn new(value: T) -> Self {
        Retiring(Some(value))
    }
}

impl<T: Send + 'static> Deref for Retiring<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only `drop` takes it")
    }
}

impl<T: Send + 'static> Drop for Retiring<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        // Where the thread cannot, the job is dropped here, and the value with it.
        drop(later(Box::new(move || drop(value))));
    }
}

/// What is made ahead.
pub(crate) trait Spare: Send + 'static {
    /// Bytes that it holds.
    fn bytes(&self) -> usize;
}

/// Makes one; `None` ends the making until somebody asks for more.
type Make<T> = dyn Fn() -> Option<T> + Send + Sync;

/// Some of a kind, made ahead.
pub(crate) struct Stock<T: Spare>(Arc<Shared<T>>);

struct Shared<T> {
    make: Box<Make<T>>,
    shelf: Mutex<Shelf<T>>,
}

struct Shelf<T> {
    spares: Vec<T>,
    /// As many as requests were seen to need.
    wanted: usize,
    /// A job is on its way.
    is_filling: bool,
}

impl<T: Spare> Stock<T> {
    /// Nothing is made before [`Stock::fill`].
    pub(crate) fn new(make: impl Fn() -> Option<T> + Send + Sync + 'static) -> Self {
        let shelf = Mutex::new(Shelf { spares: Vec::new(), wanted: 1, is_filling: false });
        Stock(Arc::new(Shared { make: Box::new(make), shelf }))
    }

    /// One that was made ahead, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        let mut shelf = self.0.shelf();
        let spare = shelf.spares.pop();
        if spare.is_none() {
            shelf.wanted = (2 * shelf.wanted).min(SPARES);
        }
        spare
    }

    /// Has more made, up to the bounds, where half are gone: waking the thread costs a request more than what it
    /// takes.
    pub(crate) fn fill(&self) {
        let mut shelf = self.0.shelf();
        let is_low = shelf.spares.len() <= shelf.wanted / 2;
        if is_low && !shelf.is_filling && shelf.has_room() {
            shelf.is_filling = true;
            drop(shelf);
            Shared::make_later(&self.0);
        }
    }

    /// How many are ready.
    #[cfg(test)]
    pub(crate) fn n_ready(&self) -> usize {
        self.0.shelf().spares.len()
    }

    /// Whether more are on their way.
    #[cfg(test)]
    pub(crate) fn is_filling(&self) -> bool {
        self.0.shelf().is_filling
    }
}

impl<T: Spare> Shelf<T> {
    /// Whether one more like the last one fits.
    fn has_room(&self) -> bool {
        let bytes: usize = self.spares.iter().map(Spare::bytes).sum();
        let next = self.spares.last().map_or(0, Spare::bytes);
        self.spares.len() < self.wanted && bytes + next <= SPARE_BYTES
    }
}

impl<T: Spare> Shared<T> {
    /// The shelf is as good after a panic elsewhere as before.
    fn shelf(&self) -> MutexGuard<'_, Shelf<T>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One at a time, so that a slow script holds up nobody's else for longer than one of its own.
    fn make_later(this: &Arc<Self>) {
        let stock = Arc::downgrade(this);
        if later(Box::new(move || Self::make_one(&stock))).is_err() {
            this.shelf().is_filling = false;
        }
    }

    /// Makes one, and has the next made. A stock that is gone wants none.
    fn make_one(stock: &Weak<Self>) {
        let Some(this) = stock.upgrade() else { return };
        let made = (this.make)();
        let mut shelf = this.shelf();
        let is_made = made.is_some();
        shelf.spares.extend(made);
        shelf.is_filling = is_made && shelf.has_room();
        let goes_on = shelf.is_filling;
        drop(shelf);
        if goes_on {
            Self::make_later(&this);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    /// Counts itself while it lives.
    struct Counted(Arc<AtomicUsize>, usize);

    impl Spare for Counted {
        fn bytes(&self) -> usize {
            self.1
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A stock of things of that size, of which so many can be made, and how many of them live.
    fn stock(bytes: usize, most: usize) -> (Stock<Counted>, Arc<AtomicUsize>) {
        let (alive, n_made) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let counted = Arc::clone(&alive);
        let make = move || {
            (n_made.fetch_add(1, Ordering::SeqCst) < most).then(|| {
                counted.fetch_add(1, Ordering::SeqCst);
                Counted(Arc::clone(&counted), bytes)
            })
        };
        (Stock::new(make), alive)
    }

    /// Requests that find nothing, until nothing more is wanted for them.
    fn miss(stock: &Stock<Counted>) {
        (0..SPARES.ilog2()).for_each(|_| assert!(stock.take().is_none(), "made unasked"));
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it never happened");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_stock_is_filled_up_to_its_bounds_when_it_is_asked_to() {
        for (bytes, most, expected) in [
            (1, usize::MAX, SPARES),
            (SPARE_BYTES / 4, usize::MAX, 4),
            (SPARE_BYTES / 4 + 1, usize::MAX, 3),
            (SPARE_BYTES + 1, usize::MAX, 1),
            (1, 3, 3),
            (1, 0, 0),
        ] {
            let (stock, alive) = stock(bytes, most);
            miss(&stock);
            stock.fill();
            wait_until(|| !stock.is_filling());
            assert_eq!(stock.n_ready(), expected, "{bytes} bytes, at most {most}");
            assert_eq!(alive.load(Ordering::SeqCst), expected);
        }
    }

    #[test]
    fn what_is_taken_is_made_again_and_what_is_left_goes_with_the_stock() {
        let (stock, alive) = stock(1, usize::MAX);
        miss(&stock);
        stock.fill();
        wait_until(|| !stock.is_filling());
        let mut taken = Vec::new();
        for n_left in (SPARES / 2..SPARES).rev() {
            assert!(!stock.is_filling(), "more than {n_left} are enough");
            taken.push(stock.take().unwrap());
            stock.fill();
        }
        wait_until(|| !stock.is_filling());
        assert_eq!((stock.n_ready(), alive.load(Ordering::SeqCst)), (SPARES, SPARES + taken.len()));
        drop(stock);
        wait_until(|| alive.load(Ordering::SeqCst) == taken.len());
    }

    #[test]
    fn a_script_that_few_requests_open_keeps_few() {
        let (stock, alive) = stock(1, usize::MAX);
        for expected in [2, 4, 4] {
            while stock.take().is_some() {}
            stock.fill();
            wait_until(|| !stock.is_filling());
            assert_eq!((stock.n_ready(), alive.load(Ordering::SeqCst)), (expected, expected));
        }
    }

    #[test]
    fn what_retires_goes_on_the_thread() {
        struct Told(std::sync::mpsc::Sender<Option<String>>);
        impl Drop for Told {
            fn drop(&mut self) {
                let _ = self.0.send(thread::current().name().map(str::to_owned));
            }
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        drop(Retiring::new(Told(sender)));
        let on = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(on.as_deref(), Some("lua-states"));
    }
}
