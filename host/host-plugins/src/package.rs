//! A plugin's files in memory, read once and named by content.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use semver::Version;
use sha2::{Digest as _, Sha256};

use crate::error::PluginError;
use crate::manifest::Manifest;

/// The name of the manifest file.
pub const MANIFEST_FILE: &str = "plugin.toml";
/// The largest manifest that is read, in bytes.
pub const MANIFEST_BYTES: u64 = 64 << 10;
/// The largest entry that is read, in bytes.
pub const ENTRY_BYTES: u64 = 32 << 20;

/// SHA-256 over manifest and entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Digest(String);

impl Digest {
    /// All 64 hexadecimal digits.
    pub fn as_hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0[..16])
    }
}

/// A plugin's id and version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginName {
    /// The id in its manifest.
    pub id: String,
    /// The version in its manifest.
    pub version: Version,
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.version)
    }
}

/// A plugin as it was on disk when it was read. Nothing reads the files again; clones share the bytes.
#[derive(Clone, Debug)]
pub struct PluginPackage {
    manifest: Manifest,
    name: PluginName,
    folder: PathBuf,
    entry: Arc<[u8]>,
    digest: Digest,
}

impl PluginPackage {
    /// Reads `folder/plugin.toml` and the entry that it names.
    ///
    /// # Errors
    /// Those of [`Manifest::parse`], [`PluginError::Read`] and [`PluginError::TooLarge`].
    pub fn read(folder: &Path) -> Result<Self, PluginError> {
        let path = folder.join(MANIFEST_FILE);
        let bytes = read_at_most(&path, MANIFEST_BYTES)?;
        let text = String::from_utf8(bytes).map_err(|error| PluginError::Read {
            path: path.clone(),
            source: std::io::Error::new(std::io::ErrorKind::InvalidData, error),
        })?;
        let manifest = Manifest::parse(&text, &path)?;
        let entry = read_at_most(&folder.join(&manifest.entry), ENTRY_BYTES)?;
        Ok(PluginPackage::new(manifest, &text, entry.into(), folder))
    }

    /// A package from parts in memory; `folder` is only named in errors.
    ///
    /// # Errors
    /// Those of [`Manifest::parse`].
    pub fn from_parts(
        manifest: &str,
        entry: impl Into<Arc<[u8]>>,
        folder: &Path,
    ) -> Result<Self, PluginError> {
        let parsed = Manifest::parse(manifest, &folder.join(MANIFEST_FILE))?;
        Ok(PluginPackage::new(parsed, manifest, entry.into(), folder))
    }

    fn new(manifest: Manifest, text: &str, entry: Arc<[u8]>, folder: &Path) -> Self {
        let name = PluginName { id: manifest.id.clone(), version: manifest.version.clone() };
        let digest = digest(text.as_bytes(), &entry);
        PluginPackage { manifest, name, folder: folder.to_owned(), entry, digest }
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its id and version.
    pub fn name(&self) -> &PluginName {
        &self.name
    }

    /// The folder it was read from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The bytes of its entry.
    pub fn entry(&self) -> &[u8] {
        &self.entry
    }

    /// The hash of manifest and entry.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
}

/// The manifest's length stands in front, so that no two pairs of files share their bytes.
fn digest(manifest: &[u8], entry: &[u8]) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update((manifest.len() as u64).to_be_bytes());
    hasher.update(manifest);
    hasher.update(entry);
    Digest(hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("writing to a string cannot fail");
        hex
    }))
}

fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>, PluginError> {
    let failed = |source| PluginError::Read { path: path.to_owned(), source };
    let found = std::fs::metadata(path).map_err(failed)?.len();
    if found > limit {
        return Err(PluginError::TooLarge { path: path.to_owned(), limit, found });
    }
    std::fs::read(path).map_err(failed)
}
