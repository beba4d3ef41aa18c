//! Puts the files of a stored generation back into the folders, so that every service over them loads it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use host_core::Reported as _;

use super::check::{Check, CheckCache};
use super::error::ReloadError;
use super::generation::Generation;
use super::id::GenerationId;
use super::service::{ServiceOptions, unix_ms};
use super::snapshot::Snapshot;
use super::store::StoredGeneration;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress::OpenProgress;

/// What was put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The stored generation.
    pub generation: StoredGeneration,
    /// What is other in the folders now, a line a file.
    pub changes: Vec<String>,
    /// What lay in the folders before, if that was stored first.
    pub before: Option<GenerationId>,
}

/// Checks what the folders say, as a reload would.
///
/// # Errors
/// Everything that is wrong.
pub fn check_folders(
    machine: &Arc<Machine>,
    options: &ServiceOptions,
    progress: &mut dyn OpenProgress,
) -> Result<Generation, Failure> {
    let snapshot = Snapshot::settled(&options.folders, None, options.settings.watch, std::thread::sleep)?;
    check_snapshot(machine, options, snapshot, progress)
}

fn check_snapshot(
    machine: &Arc<Machine>,
    options: &ServiceOptions,
    snapshot: Snapshot,
    progress: &mut dyn OpenProgress,
) -> Result<Generation, Failure> {
    let cache = CheckCache::default();
    let ServiceOptions { served, scope, settings, .. } = options;
    let check = Check { machine, cache: &cache, served, scope: *scope, settings, before: None };
    check.generation(snapshot, progress).map_err(|refusal| Failure::of(refusal.reports))
}

/// Puts the stored generation whose id begins with these digits back into the folders, after the same checks as any
/// other: the program may be another one now. What lies there is stored first, sound or not.
///
/// # Errors
/// No such generation, everything that is wrong with it, a file that cannot be written.
pub fn restore(
    machine: &Arc<Machine>,
    options: &ServiceOptions,
    digits: &str,
    progress: &mut dyn OpenProgress,
) -> Result<Restored, Failure> {
    let store = &options.store;
    let generation = store.find(digits)?;
    let wanted = store.load(&generation, &options.folders)?;
    check_snapshot(machine, options, wanted.clone(), progress)?;
    let found = Snapshot::settled(&options.folders, None, options.settings.watch, std::thread::sleep)?;
    let changes = wanted.changes_since(&found);
    let mut before = None;
    if !changes.is_empty() {
        let id = GenerationId::of(&found.canonical_text());
        store.keep(id, &found, false, unix_ms())?.sync(options.settings.store.keep)?;
        before = Some(id);
        write(&wanted, &found).map_err(|error| Failure::of(vec![error.report()]))?;
    }
    Ok(Restored { generation, changes, before })
}

/// Writes what differs, each file beside its place first; then removes what the stored generation does not have.
fn write(wanted: &Snapshot, found: &Snapshot) -> Result<(), ReloadError> {
    for (name, file) in wanted.files() {
        if found.file(name).is_some_and(|there| there.digest() == file.digest()) {
            continue;
        }
        let path = wanted.path_of(name);
        replace(&path, file.bytes()).map_err(|source| ReloadError::Store {
            act: "written",
            path: path.clone(),
            source,
        })?;
    }
    for (name, _) in found.files().filter(|(name, _)| wanted.file(name).is_none()) {
        let path = found.path_of(name);
        fs::remove_file(&path).map_err(|source| ReloadError::Store {
            act: "removed",
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}

/// A hidden name, so that nobody takes the half of it for a file.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    fs::create_dir_all(folder)?;
    let hidden = folder.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    fs::write(&hidden, bytes)?;
    fs::rename(hidden, path)
}
