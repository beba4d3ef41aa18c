//! Guests made ahead of their requests, and the thread that makes them and takes used ones down.
//!
//! A fresh state costs a hundred times what a request asks of it at its start. No guest serves two requests: what is
//! kept ready is unused, and what was used is gone.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

/// What one script keeps ready at most: as many as begin at once in a full batch. It begins with one, and keeps twice
/// as many each time a request finds none.
pub(crate) const SPARES: usize = 32;
/// What a script keeps once it was seen to need it, however few requests come.
const FEW: usize = 4;
/// Requests after which a script that never came close to its last spare keeps half as many.
const PATIENCE: usize = 256;
/// What the spares of all scripts may hold together, as Luau counts: a small script's guest has 600 KiB, of which it has
/// touched a third. Beyond it each script keeps one.
pub(crate) const SPARE_BYTES: usize = 24 << 20;

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

/// The bytes that spares hold together.
#[derive(Default)]
pub(crate) struct Room(AtomicUsize);

/// The room of all scripts.
static ROOM: Room = Room(AtomicUsize::new(0));

/// A spare's part of it.
struct Held {
    room: &'static Room,
    bytes: usize,
}

impl Held {
    fn new(room: &'static Room, bytes: usize) -> Self {
        room.0.fetch_add(bytes, Ordering::Relaxed);
        Held { room, bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Some of a kind, made ahead.
pub(crate) struct Stock<T: Spare>(Arc<Shared<T>>);

struct Shared<T> {
    make: Box<Make<T>>,
    room: &'static Room,
    shelf: Mutex<Shelf<T>>,
}

struct Shelf<T> {
    spares: Vec<(T, Held)>,
    /// As many as requests were seen to need.
    wanted: usize,
    /// The fewest that were left, and by how many requests, since that was looked at.
    fewest: usize,
    n_taken: usize,
    /// A job is on its way.
    is_filling: bool,
}

impl<T: Spare> Stock<T> {
    /// Nothing is made before [`Stock::fill`].
    pub(crate) fn new(make: impl Fn() -> Option<T> + Send + Sync + 'static) -> Self {
        Self::within(&ROOM, make)
    }

    fn within(room: &'static Room, make: impl Fn() -> Option<T> + Send + Sync + 'static) -> Self {
        let shelf = Shelf { spares: Vec::new(), wanted: 1, fewest: SPARES, n_taken: 0, is_filling: false };
        Stock(Arc::new(Shared { make: Box::new(make), room, shelf: Mutex::new(shelf) }))
    }

    /// One that was made ahead, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        let mut shelf = self.0.shelf();
        let spare = shelf.spares.pop();
        if spare.is_none() {
            shelf.wanted = (2 * shelf.wanted).min(SPARES);
        }
        shelf.look();
        spare.map(|(spare, _)| spare)
    }

    /// Has more made, up to the bounds, where half are gone: waking the thread costs a request more than what it
    /// takes.
    pub(crate) fn fill(&self) {
        let mut shelf = self.0.shelf();
        let is_low = shelf.spares.len() <= shelf.wanted / 2;
        if is_low && !shelf.is_filling && shelf.has_place(self.0.room) {
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
    fn has_place(&self, room: &Room) -> bool {
        let Some((_, last)) = self.spares.last() else { return true };
        let held = room.0.load(Ordering::Relaxed);
        self.spares.len() < self.wanted && held + last.bytes <= SPARE_BYTES
    }

    /// After a request: from time to time, half of what requests left alone is wanted no more.
    fn look(&mut self) {
        self.fewest = self.fewest.min(self.spares.len());
        self.n_taken += 1;
        if self.n_taken == PATIENCE {
            if self.fewest >= self.wanted / 4 {
                self.wanted = self.wanted.min(FEW).max(self.wanted / 2);
            }
            (self.fewest, self.n_taken) = (SPARES, 0);
        }
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
        let made = (this.make)().map(|spare| {
            let held = Held::new(this.room, spare.bytes());
            (spare, held)
        });
        let mut shelf = this.shelf();
        let is_made = made.is_some();
        shelf.spares.extend(made);
        shelf.is_filling = is_made && shelf.has_place(this.room);
        let goes_on = shelf.is_filling;
        drop(shelf);
        if goes_on {
            Self::make_later(&this);
        }
    }
}

#[cfg(test)]
mod tests {
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

    fn room() -> &'static Room {
        Box::leak(Box::default())
    }

    /// A stock of things of that size, of which so many can be made, and how many of them live.
    fn stock(room: &'static Room, bytes: usize, most: usize) -> (Stock<Counted>, Arc<AtomicUsize>) {
        let (alive, n_made) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let counted = Arc::clone(&alive);
        let make = move || {
            (n_made.fetch_add(1, Ordering::SeqCst) < most).then(|| {
                counted.fetch_add(1, Ordering::SeqCst);
                Counted(Arc::clone(&counted), bytes)
            })
        };
        (Stock::within(room, make), alive)
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

    /// Fills it and waits; how many are ready.
    fn filled(stock: &Stock<Counted>) -> usize {
        stock.fill();
        wait_until(|| !stock.is_filling());
        stock.n_ready()
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
            let (stock, alive) = stock(room(), bytes, most);
            miss(&stock);
            assert_eq!(filled(&stock), expected, "{bytes} bytes, at most {most}");
            assert_eq!(alive.load(Ordering::SeqCst), expected);
        }
    }

    #[test]
    fn all_stocks_share_one_room_and_each_may_keep_one_beyond_it() {
        let room = room();
        let [(large, _), (second, _), (third, _)] = [3 * SPARE_BYTES / 4, SPARE_BYTES / 8, SPARE_BYTES / 8]
            .map(|bytes| stock(room, bytes, usize::MAX));
        [&large, &second, &third].into_iter().for_each(miss);
        assert_eq!([filled(&large), filled(&second), filled(&third)], [1, 2, 1]);
        assert_eq!(room.0.load(Ordering::Relaxed), SPARE_BYTES / 8 * 9);
        drop(large);
        wait_until(|| room.0.load(Ordering::Relaxed) == SPARE_BYTES / 8 * 3);
        drop(second.take());
        assert_eq!([filled(&second), filled(&third)], [7, 1], "what is gone makes room for others");
        drop((second, third));
        wait_until(|| room.0.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn what_is_taken_is_made_again_and_what_is_left_goes_with_the_stock() {
        let (stock, alive) = stock(room(), 1, usize::MAX);
        miss(&stock);
        assert_eq!(filled(&stock), SPARES);
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
    fn a_script_keeps_as_many_as_its_requests_were_seen_to_need() {
        let (stock, alive) = stock(room(), 1, usize::MAX);
        for expected in [2, 4, 8, 16, 32, 32] {
            while stock.take().is_some() {}
            assert_eq!(filled(&stock), expected);
        }
        let one_after_another = || {
            for _ in 0..PATIENCE {
                drop(stock.take().unwrap());
                stock.fill();
                wait_until(|| !stock.is_filling());
            }
        };
        // The first look still sees what took all.
        one_after_another();
        for most in [16, 8, 4, 4] {
            one_after_another();
            let n_alive = alive.load(Ordering::SeqCst);
            assert!((most / 2..=most).contains(&n_alive), "{n_alive}, at most {most}");
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
