//! Folders of plugins: what is there, by id and version.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use semver::VersionReq;

use crate::error::PluginError;
use crate::package::{MANIFEST_FILE, PluginName, PluginPackage};

/// Plugins found by one scan.
///
/// A broken plugin does not hide the others: its error is kept among [`PluginFolder::problems`].
#[derive(Debug, Default)]
pub struct PluginFolder {
    packages: BTreeMap<PluginName, PluginPackage>,
    problems: Vec<PluginError>,
}

impl PluginFolder {
    /// Reads every sub-folder of `dirs` that has a `plugin.toml`.
    ///
    /// Two plugins of one id and version are both refused, unless their bytes are the same.
    ///
    /// # Errors
    /// [`PluginError::Read`] when a folder of `dirs` cannot be listed.
    pub fn scan<P: AsRef<Path>>(dirs: &[P]) -> Result<Self, PluginError> {
        let mut folders = Vec::new();
        for dir in dirs {
            folders.extend(plugin_folders(dir.as_ref())?);
        }
        Ok(PluginFolder::of(folders.iter().map(|folder| PluginPackage::read(folder))))
    }

    /// Plugins that were read already, each with its outcome. Two of one id and version are refused as
    /// [`PluginFolder::scan`] does.
    pub fn of(read: impl IntoIterator<Item = Result<PluginPackage, PluginError>>) -> Self {
        let mut found = PluginFolder::default();
        let mut duplicates = Vec::new();
        for outcome in read {
            match outcome {
                Ok(package) => found.enter(package, &mut duplicates),
                Err(problem) => found.problems.push(problem),
            }
        }
        for name in duplicates {
            found.packages.remove(&name);
        }
        found
    }

    fn enter(&mut self, package: PluginPackage, duplicates: &mut Vec<PluginName>) {
        let name = package.name().clone();
        match self.packages.get(&name) {
            Some(known) if known.digest() == package.digest() => {}
            Some(known) => {
                let folders = vec![known.folder().to_owned(), package.folder().to_owned()];
                self.problems.push(PluginError::Duplicate { plugin: name.clone(), folders });
                duplicates.push(name);
            }
            None => {
                self.packages.insert(name, package);
            }
        }
    }

    /// All plugins, by id, then version.
    pub fn packages(&self) -> impl Iterator<Item = &PluginPackage> {
        self.packages.values()
    }

    /// What could not be read, one error a plugin.
    pub fn problems(&self) -> &[PluginError] {
        &self.problems
    }

    /// The newest version of `id` that fits `version`.
    ///
    /// # Errors
    /// [`PluginError::NotFound`] with what there is instead.
    pub fn find(&self, id: &str, version: &VersionReq) -> Result<&PluginPackage, PluginError> {
        let fits =
            |package: &&PluginPackage| package.name().id == id && version.matches(&package.name().version);
        self.packages.values().rev().find(fits).ok_or_else(|| self.not_found(id, version))
    }

    fn not_found(&self, id: &str, version: &VersionReq) -> PluginError {
        let versions: Vec<_> =
            self.packages.keys().filter(|name| name.id == id).map(|name| name.version.to_string()).collect();
        let mut known: Vec<_> = self.packages.keys().map(|name| name.id.clone()).collect();
        known.dedup();
        PluginError::NotFound {
            id: id.to_owned(),
            version: version.to_string(),
            versions,
            known,
            problems: self.problems.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Sub-folders with a manifest, in name order, so that a scan does not depend on the file system.
fn plugin_folders(dir: &Path) -> Result<Vec<PathBuf>, PluginError> {
    let failed = |source| PluginError::Read { path: dir.to_owned(), source };
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.join(MANIFEST_FILE).is_file() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}
