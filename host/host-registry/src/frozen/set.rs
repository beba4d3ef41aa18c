//! All frozen graphs that are found by name: the `graphs` folders inside the profile folders.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use host_core::{Report, Reported};

use super::{FrozenFault, FrozenGraph};
use crate::profile::Sha256Digest;

/// The text of a graph of a hundred thousand operations has less.
const FILE_LIMIT_BYTES: u64 = 64 << 20;
const EXTENSION: &str = "graph";

/// One file. A broken one is refused when a profile names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenFile {
    /// The graph's name: that of the file without `.graph`.
    pub name: String,
    /// The file.
    pub file: String,
    /// The digest of its bytes; none where they cannot be had.
    pub digest: Option<Sha256Digest>,
    /// What is in it.
    pub content: Result<Arc<FrozenGraph>, Report>,
}

/// Every frozen graph of the profile folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenSet {
    files: Vec<FrozenFile>,
}

impl FrozenSet {
    /// Reads every `*.graph` of the folder `graphs` of each profile folder that has one; names that begin with a
    /// dot are left out.
    ///
    /// # Errors
    /// A folder that cannot be read. A broken file is part of the set.
    pub fn load<P: AsRef<Path>>(profile_dirs: &[P]) -> Result<FrozenSet, FrozenFault> {
        let mut files = Vec::new();
        for dir in profile_dirs.iter().map(|dir| dir.as_ref().join("graphs")).filter(|dir| dir.is_dir()) {
            let failed = |error: std::io::Error| unreadable(&dir, &error);
            let mut paths = Vec::new();
            for entry in fs::read_dir(&dir).map_err(failed)? {
                paths.push(entry.map_err(failed)?.path());
            }
            let is_hidden =
                |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            paths.retain(|path| path.extension().is_some_and(|end| end == EXTENSION) && !is_hidden(path));
            paths.sort();
            files.extend(paths.iter().map(|path| FrozenFile::read(path)));
        }
        Ok(FrozenSet { files })
    }

    /// Files that were read already.
    pub fn of(files: impl IntoIterator<Item = FrozenFile>) -> FrozenSet {
        FrozenSet { files: files.into_iter().collect() }
    }

    /// All of them.
    pub fn files(&self) -> &[FrozenFile] {
        &self.files
    }
}

impl FrozenFile {
    /// Reads one file.
    pub fn read(path: &Path) -> FrozenFile {
        match bytes_of(path) {
            Ok(bytes) => FrozenFile::of(path, &bytes),
            Err(fault) => {
                let (name, file) = names(path);
                FrozenFile { name, file, digest: None, content: Err(fault.report()) }
            }
        }
    }

    /// The bytes of one file; `path` is named in reports, and its stem is the graph's name.
    pub fn of(path: &Path, bytes: &[u8]) -> FrozenFile {
        let (name, file) = names(path);
        let digest = Some(Sha256Digest::of(bytes));
        let text = std::str::from_utf8(bytes)
            .map_err(|error| FrozenFault::Unreadable { path: path.to_owned(), found: error.to_string() });
        let content = text.and_then(|text| FrozenGraph::parse(&name, &file, text));
        let content = content.map(Arc::new).map_err(|fault| fault.report());
        FrozenFile { name, file, digest, content }
    }
}

/// (The graph's name, the file's).
fn names(path: &Path) -> (String, String) {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    (name, path.display().to_string())
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, FrozenFault> {
    let failed = |error: std::io::Error| unreadable(path, &error);
    let found = fs::metadata(path).map_err(failed)?.len();
    if found > FILE_LIMIT_BYTES {
        let found = format!("{found} bytes, more than {FILE_LIMIT_BYTES}");
        return Err(FrozenFault::Unreadable { path: path.to_owned(), found });
    }
    fs::read(path).map_err(failed)
}

fn unreadable(path: &Path, error: &std::io::Error) -> FrozenFault {
    FrozenFault::Unreadable { path: path.to_owned(), found: error.to_string() }
}
