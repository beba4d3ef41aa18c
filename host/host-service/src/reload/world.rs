//! A host made of a snapshot alone: no file is read again.

use std::path::Path;
use std::sync::Arc;

use host_core::{Report, Reported as _};
use host_plugins::{MANIFEST_FILE, PluginError, PluginFolder, PluginPackage};
use host_registry::{FrozenFile, FrozenSet, ProfileSet, QuantSet};

use super::error::ReloadError;
use super::snapshot::{Area, FileName, Snapshot, SnapshotFile};
use crate::host::Host;
use crate::machine::Machine;

/// The plugins of a snapshot; what does not read is among their problems.
pub(crate) fn plugins(snapshot: &Snapshot) -> PluginFolder {
    let manifests = snapshot.files().filter(|(name, _)| is_manifest(name));
    PluginFolder::of(manifests.map(|(name, manifest)| package(snapshot, name, manifest)))
}

fn is_manifest(name: &FileName) -> bool {
    name.area == Area::Plugins && name.path.ends_with(&format!("/{MANIFEST_FILE}"))
}

fn package(
    snapshot: &Snapshot,
    name: &FileName,
    manifest: &SnapshotFile,
) -> Result<PluginPackage, PluginError> {
    let path = snapshot.path_of(name);
    let unreadable = |path: &Path, kind, why: String| PluginError::Read {
        path: path.to_owned(),
        source: std::io::Error::new(kind, why),
    };
    let text = std::str::from_utf8(manifest.bytes())
        .map_err(|error| unreadable(&path, std::io::ErrorKind::InvalidData, error.to_string()))?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let parsed = host_plugins::Manifest::parse(text, &path)?;
    let plugin = name.path.strip_suffix(MANIFEST_FILE).unwrap_or_default();
    let entry = FileName { path: format!("{plugin}{}", parsed.entry), ..name.clone() };
    match snapshot.file(&entry) {
        Some(file) => PluginPackage::from_parts(text, Arc::clone(file.bytes()), &folder),
        None => {
            let why = snapshot.unreadable().find(|(unread, _)| **unread == entry).map(|(_, why)| why);
            let (kind, why) = match why {
                Some(why) => (std::io::ErrorKind::InvalidData, why),
                None => (std::io::ErrorKind::NotFound, "the file is not there"),
            };
            Err(unreadable(&folder.join(&parsed.entry), kind, why.to_owned()))
        }
    }
}

/// The host of a snapshot. Profiles whose texts are those of `before` are not read again.
///
/// # Errors
/// Every fault of every profile and of every set of rules, and plugins that cannot be told apart.
pub(crate) fn host(
    snapshot: &Snapshot,
    plugins: PluginFolder,
    machine: &Arc<Machine>,
    before: Option<&Host>,
) -> Result<Host, Vec<Report>> {
    let mut reports: Vec<Report> =
        snapshot.unreadable().map(|(name, why)| unreadable(snapshot, name, why)).collect();
    let (rules, profiles) = texts(snapshot, &mut reports);
    let profiles = match before {
        Some(before) => ProfileSet::from_texts_after(profiles, before.profiles()),
        None => ProfileSet::from_texts(profiles),
    };
    let quants = QuantSet::from_texts(rules);
    for errors in [profiles.as_ref().err(), quants.as_ref().err()].into_iter().flatten() {
        reports.extend(errors.iter().map(|error| error.report()));
    }
    match (profiles, quants) {
        (Ok(profiles), Ok(quants)) if reports.is_empty() => {
            let graphs = graphs(snapshot);
            Host::of(Arc::clone(machine), snapshot.folders().clone(), plugins, profiles, quants, &graphs)
                .map_err(|failure| failure.reports().to_vec())
        }
        _ => Err(reports),
    }
}

/// Frozen graphs; a broken one is refused when a profile names it.
fn graphs(snapshot: &Snapshot) -> FrozenSet {
    let is_graph = |name: &FileName| name.area == Area::Profiles && name.path.starts_with("graphs/");
    let files = snapshot.files().filter(|(name, _)| is_graph(name));
    FrozenSet::of(files.map(|(name, file)| FrozenFile::of(&snapshot.path_of(name), file.bytes())))
}

/// (Rules, profiles), each as (file, text).
type Texts = (Vec<(String, String)>, Vec<(String, String)>);

fn texts(snapshot: &Snapshot, reports: &mut Vec<Report>) -> Texts {
    let (mut rules, mut profiles) = Texts::default();
    let is_text = |name: &FileName| name.area == Area::Profiles && name.path.ends_with(".toml");
    for (name, file) in snapshot.files().filter(|(name, _)| is_text(name)) {
        let path = snapshot.path_of(name);
        match std::str::from_utf8(file.bytes()) {
            Ok(text) => {
                let into = if name.path.starts_with("quant/") { &mut rules } else { &mut profiles };
                into.push((path.display().to_string(), text.to_owned()));
            }
            Err(error) => reports.push(ReloadError::Encoding { path, offset: error.valid_up_to() }.report()),
        }
    }
    (rules, profiles)
}

fn unreadable(snapshot: &Snapshot, name: &FileName, why: &str) -> Report {
    Report::new("reload.unreadable", format!("`{}` cannot be read", snapshot.path_of(name).display()))
        .found(why)
        .mend("check the file, or move it out of the folder")
}
