//! The clock outside: a thread that raises a flag when a hook's time is over.
//!
//! The interrupt reads only the flag; reading the clock there would cost several times as much.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Runs until dropped or until the time is over.
pub(crate) struct Watchdog {
    is_expired: Arc<AtomicBool>,
    // Its end tells the thread to go.
    _running: Sender<()>,
}

impl Watchdog {
    /// Begins to count.
    pub(crate) fn start(time_ms: u64) -> io::Result<Self> {
        let is_expired = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_expired);
        let (running, ended) = mpsc::channel();
        thread::Builder::new().name("lua-watchdog".to_owned()).spawn(move || {
            if ended.recv_timeout(Duration::from_millis(time_ms)) == Err(RecvTimeoutError::Timeout) {
                flag.store(true, Ordering::Relaxed);
            }
        })?;
        Ok(Watchdog { is_expired, _running: running })
    }

    /// The flag.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_expired)
    }

    /// Whether the time is over.
    pub(crate) fn is_expired(&self) -> bool {
        self.is_expired.load(Ordering::Relaxed)
    }
}
