//! A file of weights, mapped read-only when its bytes are first asked for.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memmap2::Mmap;

use crate::error::WeightsError;

/// A byte range of one file of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Index of the file.
    pub(crate) file: usize,
    /// First byte.
    pub(crate) begin: usize,
    /// Bytes.
    pub(crate) bytes: usize,
}

impl Extent {
    pub(crate) fn range(self) -> Range<usize> {
        self.begin..self.begin + self.bytes
    }
}

/// A file whose header was checked against `file_bytes`; it is mapped on first use.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    file_bytes: u64,
    map: OnceLock<Mmap>,
}

impl MappedFile {
    /// Remembers the file; nothing is opened.
    pub(crate) fn new(path: PathBuf, file_bytes: u64) -> Self {
        MappedFile { path, file_bytes, map: OnceLock::new() }
    }

    /// Maps the file now, for formats whose header is read from the mapping.
    pub(crate) fn open(path: &Path) -> Result<Self, WeightsError> {
        let map = map_file(path)?;
        let file_bytes = map.len() as u64;
        let file = MappedFile::new(path.to_owned(), file_bytes);
        let _ = file.map.set(map);
        Ok(file)
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> Result<&[u8], WeightsError> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let map = map_file(&self.path)?;
        if map.len() as u64 != self.file_bytes {
            let (expected, found) = (self.file_bytes, map.len() as u64);
            return Err(WeightsError::Changed { file: self.path.clone(), expected, found });
        }
        // Another thread may have been faster; its mapping is as good.
        Ok(self.map.get_or_init(|| map))
    }

    /// Tells the system that the pages of `range` are not needed for now; a later read brings them back.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Some(map) = self.map.get() {
            discard(map, range);
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

#[expect(unsafe_code, reason = "mapping a file is unsafe: another process may change it")]
fn map_file(path: &Path) -> Result<Mmap, WeightsError> {
    let io = |act| move |source| WeightsError::Io { act, path: path.to_owned(), source };
    let file = File::open(path).map_err(io("open"))?;
    // SAFETY: the mapping is read-only and shared. Its bytes are only ever read as plain bytes and every code
    // or offset taken from them is range-checked, so a file that changes under us gives wrong numbers, not
    // undefined behaviour in our code. A file that is cut short while mapped raises SIGBUS; model files are
    // not written in place, as every program that maps weights requires.
    unsafe { Mmap::map(&file) }.map_err(io("map"))
}

#[cfg(unix)]
#[expect(
    unsafe_code,
    reason = "discarding pages is unsafe for private mappings; this one is shared and read-only"
)]
fn discard(map: &Mmap, range: Range<usize>) {
    // SAFETY: the mapping is shared, file-backed and never written, so dropped pages are read from the file
    // again on the next access and keep their contents. A refusal by the system changes nothing.
    let _ =
        unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
}
