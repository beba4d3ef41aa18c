//! Good generations on disk: what a rollback and a cold start with a broken profile go back to.
//!
//! ```text
//! blobs/SHA256               a file's bytes, written once
//! generations/NNNNNN-ID.json names and digests of a generation's files
//! ```
//!
//! Everything is written beside its place and renamed, a generation's list after its blobs: whenever the process ends,
//! each file is whole or not there. Syncing comes after the swap that a generation is stored for, so that no request
//! waits for the disk; a file that a power failure cut is told by its digest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use host_registry::Sha256Digest;
use serde::{Deserialize, Serialize};

use super::error::ReloadError;
use super::id::GenerationId;
use super::snapshot::{FileName, Snapshot, SnapshotFile};
use crate::host::Folders;

/// The version of the lists' form.
const FORM: u32 = 1;

/// A folder of stored generations.
#[derive(Clone, Debug)]
pub struct GenerationStore {
    folder: PathBuf,
}

/// A stored generation's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredGeneration {
    form: u32,
    /// Counts the swaps that were stored here; the newest has the largest.
    pub number: u64,
    /// Its id.
    pub id: GenerationId,
    /// When it began to serve, in milliseconds since 1970.
    pub at_ms: u64,
    /// The program that served it.
    pub host: String,
    /// Whether it was checked and served; others are what a rollback found in the folders and replaced.
    pub is_good: bool,
    files: Vec<StoredFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFile {
    name: FileName,
    sha256: Sha256Digest,
}

impl StoredGeneration {
    /// How many files it has.
    pub fn n_files(&self) -> usize {
        self.files.len()
    }
}

impl GenerationStore {
    /// The store of these folders inside `cache`. Each set of folders has its own; nothing is made yet.
    pub fn of(cache: &Path, folders: &Folders) -> Self {
        let name = Sha256Digest::of(format!("{folders:?}").as_bytes()).short();
        GenerationStore { folder: cache.join("generations").join(name) }
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stores a generation as the newest. What is written outlives the process; [`Kept::sync`] makes it outlive the
    /// system.
    ///
    /// # Errors
    /// [`ReloadError::Store`].
    pub fn keep(
        &self,
        id: GenerationId,
        snapshot: &Snapshot,
        is_good: bool,
        at_ms: u64,
    ) -> Result<Kept, ReloadError> {
        let _lock = self.lock()?;
        let mut kept = Kept { store: self.clone(), written: Vec::new() };
        for (_, file) in snapshot.files() {
            let path = self.blob(file.digest());
            if !path.exists() {
                write_whole(&path, file.bytes())?;
                kept.written.push(path);
            }
        }
        let known = self.list()?;
        let number = known.first().map_or(1, |newest| newest.number + 1);
        let files =
            snapshot.files().map(|(name, file)| StoredFile { name: name.clone(), sha256: file.digest() });
        let host = env!("CARGO_PKG_VERSION").to_owned();
        let stored =
            StoredGeneration { form: FORM, number, id, at_ms, host, is_good, files: files.collect() };
        let text = serde_json::to_vec(&stored).expect("a list of names is JSON");
        let path = self.lists().join(format!("{number:06}-{id}.json"));
        write_whole(&path, &text)?;
        kept.written.push(path);
        Ok(kept)
    }

    /// Forgets every stored generation of that id: it was taken back.
    ///
    /// # Errors
    /// [`ReloadError::Store`].
    pub fn forget(&self, id: GenerationId) -> Result<(), ReloadError> {
        let _lock = self.lock()?;
        for path in self.list_files()? {
            if read_list(&path).is_ok_and(|stored| stored.id == id) {
                fs::remove_file(&path).map_err(failed("written", &path))?;
            }
        }
        Ok(())
    }

    /// Makes the folders and keeps other processes out while the file lives.
    fn lock(&self) -> Result<File, ReloadError> {
        for folder in [self.blobs(), self.lists()] {
            fs::create_dir_all(&folder).map_err(failed("written", &folder))?;
        }
        let path = self.folder.join("lock");
        let file = File::create(&path).map_err(failed("written", &path))?;
        file.lock().map_err(failed("locked", &path))?;
        Ok(file)
    }

    /// Every stored generation, newest first. A list that cannot be read is left out: it has its report when it is
    /// asked for by name.
    ///
    /// # Errors
    /// [`ReloadError::Store`] where the folder cannot be listed.
    pub fn list(&self) -> Result<Vec<StoredGeneration>, ReloadError> {
        let mut found: Vec<_> = self.list_files()?.iter().filter_map(|path| read_list(path).ok()).collect();
        found.sort_by_key(|stored| std::cmp::Reverse(stored.number));
        Ok(found)
    }

    /// The newest stored generation whose id begins with these digits.
    ///
    /// # Errors
    /// [`ReloadError::NotStored`], [`ReloadError::NotOne`].
    pub fn find(&self, digits: &str) -> Result<StoredGeneration, ReloadError> {
        let all = self.list()?;
        let mut found: Vec<StoredGeneration> = Vec::new();
        for stored in &all {
            let fits = !digits.is_empty() && stored.id.as_hex().starts_with(digits);
            if fits && found.iter().all(|known| known.id != stored.id) {
                found.push(stored.clone());
            }
        }
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => {
                let known = all.iter().map(|stored| stored.id.to_string()).collect();
                Err(ReloadError::NotStored { asked: digits.to_owned(), known })
            }
            _ => {
                let found = found.iter().map(|stored| stored.id.to_string()).collect();
                Err(ReloadError::NotOne { asked: digits.to_owned(), found })
            }
        }
    }

    /// The files of a stored generation.
    ///
    /// # Errors
    /// [`ReloadError::Store`], [`ReloadError::Corrupt`].
    pub fn load(&self, stored: &StoredGeneration, folders: &Folders) -> Result<Snapshot, ReloadError> {
        let mut files = BTreeMap::new();
        for StoredFile { name, sha256 } in &stored.files {
            let path = self.blob(*sha256);
            let file = SnapshotFile::new(fs::read(&path).map_err(failed("read", &path))?);
            if file.digest() != *sha256 {
                return Err(ReloadError::Corrupt { path, found: format!("digest {}", file.digest()) });
            }
            files.insert(name.clone(), file);
        }
        Ok(Snapshot::from_files(folders.clone(), files))
    }

    fn blobs(&self) -> PathBuf {
        self.folder.join("blobs")
    }

    fn lists(&self) -> PathBuf {
        self.folder.join("generations")
    }

    fn blob(&self, digest: Sha256Digest) -> PathBuf {
        self.blobs().join(digest.to_string())
    }

    fn list_files(&self) -> Result<Vec<PathBuf>, ReloadError> {
        let mut paths = files_of(&self.lists())?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        Ok(paths)
    }

    /// Removes what was left half-written, lists beyond the newest `keep`, and the blobs that no list names.
    fn forget_beyond(&self, keep: usize) -> Result<(), ReloadError> {
        for path in files_of(&self.lists())? {
            if path.extension().is_some_and(|extension| extension == "partial") {
                fs::remove_file(&path).map_err(failed("written", &path))?;
            }
        }
        let mut paths = self.list_files()?;
        paths.sort();
        let n_gone = paths.len().saturating_sub(keep);
        for path in paths.drain(..n_gone) {
            fs::remove_file(&path).map_err(failed("written", &path))?;
        }
        let mut named = BTreeSet::new();
        for path in &paths {
            match read_list(path) {
                Ok(stored) => named.extend(stored.files.iter().map(|file| file.sha256.to_string())),
                // What it names is not known: nothing is removed.
                Err(_) => return Ok(()),
            }
        }
        for path in files_of(&self.blobs())? {
            if path.file_name().is_none_or(|name| !named.contains(&*name.to_string_lossy())) {
                fs::remove_file(&path).map_err(failed("written", &path))?;
            }
        }
        Ok(())
    }
}

/// A generation that was stored a moment ago.
#[must_use]
pub struct Kept {
    store: GenerationStore,
    written: Vec<PathBuf>,
}

impl Kept {
    /// Waits until it is on disk, then forgets all but the newest `keep`.
    ///
    /// # Errors
    /// [`ReloadError::Store`].
    pub fn sync(self, keep: usize) -> Result<(), ReloadError> {
        // Another process may have forgotten it since.
        for path in self.written.iter().filter(|path| path.exists()) {
            File::open(path).and_then(|file| file.sync_all()).map_err(failed("synced", path))?;
        }
        for folder in [self.store.blobs(), self.store.lists()] {
            sync_folder(&folder)?;
        }
        let _lock = self.store.lock()?;
        self.store.forget_beyond(keep)
    }
}

fn read_list(path: &Path) -> Result<StoredGeneration, ReloadError> {
    let corrupt = |found: String| ReloadError::Corrupt { path: path.to_owned(), found };
    let text = fs::read(path).map_err(failed("read", path))?;
    let stored: StoredGeneration =
        serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
    if stored.form != FORM {
        return Err(corrupt(format!("form {}, this program reads {FORM}", stored.form)));
    }
    Ok(stored)
}

/// The files of a folder; none where it is not there.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, ReloadError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", folder)(error)),
    };
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed("read", folder))).collect()
}

/// Writes beside the place and renames.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ReloadError> {
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    let write = || -> io::Result<()> {
        fs::write(&partial, bytes)?;
        fs::rename(&partial, path)
    };
    write().map_err(failed("written", path))
}

/// A rename is on disk once its folder is.
fn sync_folder(folder: &Path) -> Result<(), ReloadError> {
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("written", folder))?;
    }
    Ok(())
}

fn failed(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ReloadError {
    let path = path.to_owned();
    move |source| ReloadError::Store { act, path, source }
}

#[cfg(test)]
mod tests;
