//! What a fetch tells while it runs; the terminal's bars are drawn elsewhere.

/// One step of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another process fetches the same source; this one waits for it.
    Waiting,
    /// Asking where the files are.
    Resolving {
        /// What is asked for.
        what: String,
    },
    /// A file or package comes over the network.
    Downloading {
        /// Its name.
        name: String,
    },
    /// A file is taken out of a package.
    Unpacking {
        /// Its name.
        name: String,
    },
    /// The checksum of a file is computed and compared.
    Verifying {
        /// Its name.
        name: String,
    },
}

/// Follows a fetch. Every step is begun, advanced any number of times, and ended; steps do not overlap.
///
/// A step that fails is not ended: the error comes instead.
pub trait Progress {
    /// A step begins; `total_bytes` is `None` while it is not known.
    fn begin(&mut self, step: &Step, total_bytes: Option<u64>);
    /// The size of the running step became known, exactly or to three digits.
    fn total(&mut self, total_bytes: u64);
    /// The running step has done this many bytes since it began; it may fall back when a download restarts.
    fn advance(&mut self, done_bytes: u64);
    /// The running step is done.
    fn end(&mut self);
}

/// Says nothing.
impl Progress for () {
    fn begin(&mut self, _step: &Step, _total_bytes: Option<u64>) {}
    fn total(&mut self, _total_bytes: u64) {}
    fn advance(&mut self, _done_bytes: u64) {}
    fn end(&mut self) {}
}
