//! A plugin's folder as its author has it: manifest, source, the built component, the cases.

use std::fs;
use std::path::{Path, PathBuf};

use host_plugins::{Manifest, PluginPackage, Runtime};

use crate::error::AuthorError;
use crate::files;

/// The manifest's name.
pub(crate) const MANIFEST: &str = "plugin.toml";
/// The folder of the cases.
pub(crate) const CASES: &str = "tests";

/// A plugin's folder whose manifest was read.
#[derive(Debug)]
pub struct Project {
    folder: PathBuf,
    manifest: Manifest,
}

impl Project {
    /// Reads the manifest of a folder; nothing else is looked at.
    ///
    /// # Errors
    /// [`AuthorError::NoPlugin`], [`AuthorError::Plugin`] with what is wrong in the manifest.
    pub fn open(folder: &Path) -> Result<Self, AuthorError> {
        let path = folder.join(MANIFEST);
        if !path.is_file() {
            return Err(AuthorError::NoPlugin { path: folder.to_owned() });
        }
        let manifest = Manifest::parse(&files::read(&path)?, &path)?;
        Ok(Project { folder: folder.to_owned(), manifest })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The file that is run.
    pub fn entry(&self) -> PathBuf {
        self.folder.join(&self.manifest.entry)
    }

    /// Whether it is a crate, which has to be built. A component without a crate was built by other means.
    pub fn is_crate(&self) -> bool {
        self.manifest.runtime == Runtime::Wasm && self.folder.join("Cargo.toml").is_file()
    }

    /// The plugin as a host would read it.
    ///
    /// # Errors
    /// [`AuthorError::NotBuilt`], [`AuthorError::Stale`], [`AuthorError::Plugin`].
    pub fn package(&self) -> Result<PluginPackage, AuthorError> {
        if self.is_crate() {
            self.check_fresh()?;
        }
        Ok(PluginPackage::read(&self.folder)?)
    }

    /// Refuses a component that is older than a file it was built from: what is tested must be what was written.
    fn check_fresh(&self) -> Result<(), AuthorError> {
        let entry = self.entry();
        if !entry.is_file() {
            return Err(AuthorError::NotBuilt { entry });
        }
        let changed = |path: &Path| {
            let facts = fs::metadata(path).map_err(AuthorError::file("read", path))?;
            facts.modified().map_err(AuthorError::file("read", path))
        };
        let built = changed(&entry)?;
        let mut sources = vec![self.folder.join("Cargo.toml")];
        for folder in ["src", crate::sdk::FOLDER] {
            let folder = self.folder.join(folder);
            if folder.is_dir() {
                sources.extend(files::below(&folder)?);
            }
        }
        for source_file in sources {
            if changed(&source_file)? > built {
                return Err(AuthorError::Stale { source_file, entry });
            }
        }
        Ok(())
    }
}
