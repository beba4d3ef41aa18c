//! Every file that a generation depends on, read into memory once.
//!
//! Folders are listed anew at each reading, so a file that was renamed over, deleted or made again is seen as what it
//! is now. A reading counts when another one some milliseconds later gives the same bytes: a file that is being
//! written is not taken for whole.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host_plugins::{ENTRY_BYTES, MANIFEST_BYTES, MANIFEST_FILE, Manifest};
use host_registry::Sha256Digest;
use serde::{Deserialize, Serialize};

use super::error::ReloadError;
use super::settings::WatchSettings;
use crate::host::Folders;

/// A kind of files in a folder of profiles.
struct Place {
    /// The folder inside; empty for the folder itself.
    inside: &'static str,
    extension: &'static str,
    /// A file beyond this is something else.
    limit_bytes: u64,
}

/// What of a folder of profiles belongs to a generation: profiles, quantisation rules, frozen graphs.
const PLACES: [Place; 3] = [
    Place { inside: "", extension: "toml", limit_bytes: 1 << 20 },
    Place { inside: "quant", extension: "toml", limit_bytes: 1 << 20 },
    Place { inside: "graphs", extension: "graph", limit_bytes: 64 << 20 },
];

/// Which folders a file lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// Profiles and quantisation rules.
    Profiles,
    /// Plugins.
    Plugins,
}

/// A file by where it lies, not by where its folder is on this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileName {
    /// Which folders.
    pub area: Area,
    /// Which of them, counted from 0.
    pub folder: usize,
    /// The path inside, with `/`.
    pub path: String,
}

/// `profiles/llama.toml`; a folder after the first has its number.
impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let area = match self.area {
            Area::Profiles => "profiles",
            Area::Plugins => "plugins",
        };
        match self.folder {
            0 => write!(f, "{area}/{}", self.path),
            n => write!(f, "{area}[{n}]/{}", self.path),
        }
    }
}

/// A file's bytes. Clones share them.
#[derive(Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    bytes: Arc<[u8]>,
    digest: Sha256Digest,
}

impl SnapshotFile {
    /// These bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        SnapshotFile { digest: Sha256Digest::of(&bytes), bytes }
    }

    /// The bytes.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Their digest.
    pub fn digest(&self) -> Sha256Digest {
        self.digest
    }
}

impl fmt::Debug for SnapshotFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {}", self.bytes.len(), self.digest.short())
    }
}

/// All files of a generation, as they were at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    folders: Folders,
    files: BTreeMap<FileName, SnapshotFile>,
    /// Files that are there and cannot be read, with why.
    unreadable: BTreeMap<FileName, String>,
    digest: Sha256Digest,
}

impl Snapshot {
    /// Reads the folders until two readings are equal; `pause` lets time go by between them. Bytes that are the same
    /// as in `last` are shared with it.
    ///
    /// # Errors
    /// [`ReloadError::Unsettled`], and a folder that cannot be listed at two readings.
    pub(crate) fn settled(
        folders: &Folders,
        last: Option<&Snapshot>,
        settings: WatchSettings,
        mut pause: impl FnMut(std::time::Duration),
    ) -> Result<Snapshot, ReloadError> {
        let mut before = Snapshot::read(folders, last);
        for _ in 1..settings.settle_readings {
            pause(settings.settle());
            let now = Snapshot::read(folders, before.as_ref().ok().or(last));
            let is_same = match (&before, &now) {
                (Ok(before), Ok(now)) => before.digest == now.digest,
                (Err(before), Err(now)) => before.to_string() == now.to_string(),
                _ => false,
            };
            if is_same {
                return now;
            }
            before = now;
        }
        Err(ReloadError::Unsettled { readings: settings.settle_readings })
    }

    /// Reads the folders once.
    ///
    /// # Errors
    /// [`ReloadError::Read`] for a folder that cannot be listed.
    pub fn read(folders: &Folders, last: Option<&Snapshot>) -> Result<Snapshot, ReloadError> {
        let mut reading = Reading { last, files: BTreeMap::new(), unreadable: BTreeMap::new() };
        for (folder, dir) in folders.profiles.iter().enumerate() {
            reading.profiles(folder, dir)?;
        }
        for (folder, dir) in folders.plugins.iter().enumerate() {
            reading.plugins(folder, dir)?;
        }
        Ok(Snapshot::of(folders.clone(), reading.files, reading.unreadable))
    }

    /// A snapshot of files that were read elsewhere.
    pub(crate) fn from_files(folders: Folders, files: BTreeMap<FileName, SnapshotFile>) -> Snapshot {
        Snapshot::of(folders, files, BTreeMap::new())
    }

    fn of(
        folders: Folders,
        files: BTreeMap<FileName, SnapshotFile>,
        unreadable: BTreeMap<FileName, String>,
    ) -> Snapshot {
        let mut snapshot = Snapshot { folders, files, unreadable, digest: Sha256Digest::of(b"") };
        snapshot.digest = Sha256Digest::of(snapshot.canonical_text().as_bytes());
        snapshot
    }

    /// A line a file: its name and digest, or why it cannot be read.
    pub(crate) fn canonical_text(&self) -> String {
        let files = self.files.iter().map(|(name, file)| format!("file {name:?} {}\n", file.digest));
        let unreadable = self.unreadable.iter().map(|(name, why)| format!("unreadable {name:?} {why:?}\n"));
        files.chain(unreadable).collect()
    }

    /// The digest of all names and bytes.
    pub fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// Where the files lie.
    pub fn folders(&self) -> &Folders {
        &self.folders
    }

    /// Every file, by name.
    pub fn files(&self) -> impl Iterator<Item = (&FileName, &SnapshotFile)> {
        self.files.iter()
    }

    /// One file.
    pub fn file(&self, name: &FileName) -> Option<&SnapshotFile> {
        self.files.get(name)
    }

    /// Files that are there and cannot be read, with why.
    pub fn unreadable(&self) -> impl Iterator<Item = (&FileName, &str)> {
        self.unreadable.iter().map(|(name, why)| (name, why.as_str()))
    }

    /// Where a file lies on this machine.
    pub fn path_of(&self, name: &FileName) -> PathBuf {
        let folders = match name.area {
            Area::Profiles => &self.folders.profiles,
            Area::Plugins => &self.folders.plugins,
        };
        folders.get(name.folder).map_or_else(|| PathBuf::from(&name.path), |folder| folder.join(&name.path))
    }

    /// What is other than in `before`, for people: `changed profiles/llama.toml`.
    pub fn changes_since(&self, before: &Snapshot) -> Vec<String> {
        let mut changes = Vec::new();
        for (name, file) in &self.files {
            match before.files.get(name) {
                None => changes.push(format!("new {name}")),
                Some(old) if old.digest != file.digest => changes.push(format!("changed {name}")),
                Some(_) => {}
            }
        }
        let gone = before.files.keys().filter(|name| !self.files.contains_key(name));
        changes.extend(gone.map(|name| format!("gone {name}")));
        changes
    }
}

/// A reading under way.
struct Reading<'a> {
    last: Option<&'a Snapshot>,
    files: BTreeMap<FileName, SnapshotFile>,
    unreadable: BTreeMap<FileName, String>,
}

impl Reading<'_> {
    fn profiles(&mut self, folder: usize, dir: &Path) -> Result<(), ReloadError> {
        for Place { inside, extension, limit_bytes } in PLACES {
            let place = dir.join(inside);
            let names = match names(&place) {
                Ok(names) => names,
                // The folder itself must be there; what lies inside need not.
                Err(error) if !inside.is_empty() && error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(ReloadError::Read { path: place, source }),
            };
            let of_kind = |name: &&String| Path::new(name).extension().is_some_and(|end| end == extension);
            for name in names.iter().filter(of_kind) {
                let path = if inside.is_empty() { name.clone() } else { format!("{inside}/{name}") };
                self.file(FileName { area: Area::Profiles, folder, path }, &place.join(name), limit_bytes);
            }
        }
        Ok(())
    }

    fn plugins(&mut self, folder: usize, dir: &Path) -> Result<(), ReloadError> {
        let names = names(dir).map_err(|source| ReloadError::Read { path: dir.to_owned(), source })?;
        for plugin in names {
            let of_plugin = dir.join(&plugin);
            let name =
                |path: &str| FileName { area: Area::Plugins, folder, path: format!("{plugin}/{path}") };
            let manifest = name(MANIFEST_FILE);
            self.file(manifest.clone(), &of_plugin.join(MANIFEST_FILE), MANIFEST_BYTES);
            if let Some(entry) = self.files.get(&manifest).and_then(entry_of) {
                self.file(name(&entry), &of_plugin.join(&entry), ENTRY_BYTES);
            }
        }
        Ok(())
    }

    /// Reads one file, if it is there.
    fn file(&mut self, name: FileName, path: &Path, limit: u64) {
        match read_at_most(path, limit) {
            Ok(Some(bytes)) => {
                let file = SnapshotFile::new(bytes);
                let known = self.last.and_then(|last| last.files.get(&name));
                let shared = known.filter(|known| known.digest == file.digest).cloned();
                self.files.insert(name, shared.unwrap_or(file));
            }
            Ok(None) => {}
            Err(why) => {
                self.unreadable.insert(name, why);
            }
        }
    }
}

/// The names of a folder that do not begin with a dot, in order; names that are not Unicode are nobody's.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        if let Ok(name) = entry?.file_name().into_string()
            && !name.starts_with('.')
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The bytes; none where no file is there (any more).
fn read_at_most(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, String> {
    let read = || -> io::Result<Result<Vec<u8>, u64>> {
        let found = fs::metadata(path)?;
        if found.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if found.len() > limit { Ok(Err(found.len())) } else { fs::read(path).map(Ok) }
    };
    match read() {
        Ok(Ok(bytes)) => Ok(Some(bytes)),
        Ok(Err(found)) => Err(format!("it has {found} bytes, at most {limit} are read")),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The file that a manifest names. One that does not read is reported later, when the package is made of it.
fn entry_of(manifest: &SnapshotFile) -> Option<String> {
    let text = std::str::from_utf8(manifest.bytes()).ok()?;
    Manifest::parse(text, Path::new(MANIFEST_FILE)).ok().map(|manifest| manifest.entry)
}

#[cfg(test)]
mod tests;
