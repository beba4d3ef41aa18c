//! Tests of manifests, packages, folders and reports.

use std::fs;
use std::path::Path;

use host_core::Reported;
use semver::VersionReq;

use crate::{ContractVersion, Kind, Manifest, PluginError, PluginFolder, PluginPackage, Runtime};

const GOOD: &str = "\
id = \"llama\"
version = \"1.2.3\"
kind = \"model-graph\"
runtime = \"lua\"
entry = \"llama.lua\"
sdk = \"0.1\"
";

fn parse(text: &str) -> Result<Manifest, PluginError> {
    Manifest::parse(text, Path::new("plugins/llama/plugin.toml"))
}

mod step;

#[test]
fn a_manifest_is_read() {
    let manifest = parse(&format!("{GOOD}about = \"Llama\"\nlicense = \"MIT\"\n")).unwrap();
    assert_eq!(manifest.id, "llama");
    assert_eq!(manifest.version.to_string(), "1.2.3");
    assert_eq!((manifest.kind, manifest.runtime), (Kind::ModelGraph, Runtime::Lua));
    assert_eq!(
        (manifest.entry.as_str(), manifest.sdk),
        ("llama.lua", ContractVersion { major: 0, minor: 1 })
    );
    assert_eq!((manifest.about.as_deref(), manifest.license.as_deref()), (Some("Llama"), Some("MIT")));
}

/// The good manifest with one line replaced.
fn with(key: &str, line: &str) -> String {
    GOOD.lines().map(|old| if old.starts_with(key) { line } else { old }).collect::<Vec<_>>().join("\n")
}

#[test]
fn manifests_that_do_not_fit_are_refused() {
    for (text, code, message) in [
        (String::new(), "plugin.manifest", "missing field `id`"),
        (with("id", ""), "plugin.manifest", "missing field `id`"),
        (format!("{GOOD}colour = \"red\""), "plugin.manifest", "unknown field `colour`"),
        (with("kind", "kind = \"decoder\""), "plugin.manifest", "unknown variant `decoder`"),
        (with("runtime", "runtime = \"python\""), "plugin.manifest", "unknown variant `python`"),
        (with("version", "version = \"1\""), "plugin.manifest", "unexpected end of input"),
        (with("version", "version = 1"), "plugin.manifest", "invalid type"),
        (with("sdk", "sdk = \"0.1.0\""), "plugin.manifest", "is not a contract version"),
        (with("sdk", "sdk = \"+0.1\""), "plugin.manifest", "is not a contract version"),
        (with("sdk", "sdk = \"0.3\""), "plugin.contract-version", "llama 1.2.3"),
        (with("kind", "kind = \"pipeline\""), "plugin.kind-not-served", "`pipeline`"),
        (with("id", "id = \"Llama\""), "plugin.manifest-field", "`id` is `Llama`"),
        (with("id", "id = \"\""), "plugin.manifest-field", "`id` is ``"),
        (with("id", "id = \"../x\""), "plugin.manifest-field", "`id` is `../x`"),
        (with("id", "id = \"1st\""), "plugin.manifest-field", "`id` is `1st`"),
        (with("entry", "entry = \"../x.lua\""), "plugin.manifest-field", "`entry` is `../x.lua`"),
        (with("entry", "entry = \"a/b.lua\""), "plugin.manifest-field", "`entry` is `a/b.lua`"),
        (with("entry", "entry = \"/etc/passwd\""), "plugin.manifest-field", "`entry` is `/etc/passwd`"),
        (with("entry", "entry = \".hidden\""), "plugin.manifest-field", "`entry` is `.hidden`"),
        (with("entry", "entry = \"\""), "plugin.manifest-field", "`entry` is ``"),
    ] {
        let report = parse(&text).expect_err(&text).report();
        assert_eq!(report.code, code, "{text}\n{report}");
        assert!(report.message.contains(message), "{text}\n{report}");
    }
}

#[test]
fn a_manifest_error_underlines_its_place() {
    let report = parse(&with("kind", "kind = \"decoder\"")).unwrap_err().report();
    let place = report.place.unwrap();
    assert_eq!(place.file, "plugins/llama/plugin.toml");
    assert_eq!((place.line, place.column, place.width), (Some(3), Some(8), 9));
    assert_eq!(place.excerpt.as_deref(), Some("kind = \"decoder\""));
}

#[test]
fn the_contract_error_shows_both_sides() {
    let report = parse(&with("sdk", "sdk = \"7.1\"")).unwrap_err().report();
    assert_eq!(report.message, "plugin llama 1.2.3 needs model-graph 7.1; this host serves 0.1 and 0.2");
    assert_eq!(report.expected.as_deref(), Some("contract 0.1 and 0.2"));
    assert_eq!(report.found.as_deref(), Some("model-graph 7.1"));
}

#[test]
fn a_digest_covers_manifest_and_entry() {
    let package = |manifest: &str, entry: &str| {
        PluginPackage::from_parts(manifest, entry.as_bytes().to_vec(), Path::new("x")).unwrap()
    };
    let digest = |manifest: &str, entry: &str| package(manifest, entry).digest().clone();
    let base = digest(GOOD, "a");
    assert_eq!(digest(GOOD, "a"), base);
    assert_ne!(digest(GOOD, "b"), base);
    assert_ne!(digest(&format!("{GOOD}about = \"\""), "a"), base);
    // The border between the two belongs to the digest.
    assert_ne!(digest(&format!("{GOOD}\n"), "a"), digest(GOOD, "\na"));
    assert_eq!(base.as_hex().len(), 64);
    assert_eq!(base.to_string(), base.as_hex()[..16]);
    assert_eq!(package(GOOD, "a").name().to_string(), "llama 1.2.3");
}

/// Writes a plugin folder.
fn write(dir: &Path, folder: &str, manifest: &str, entry: Option<&str>) {
    let folder = dir.join(folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("plugin.toml"), manifest).unwrap();
    if let Some(entry) = entry {
        fs::write(folder.join("llama.lua"), entry).unwrap();
    }
}

fn find(found: &PluginFolder, id: &str, version: &str) -> Result<String, PluginError> {
    let package = found.find(id, &VersionReq::parse(version).unwrap())?;
    Ok(package.name().to_string())
}

#[test]
fn folders_are_scanned_and_searched() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", GOOD, Some("one"));
    write(dir.path(), "b", &with("version", "version = \"1.10.0\""), Some("two"));
    write(dir.path(), "c", &with("version", "version = \"2.0.0\""), Some("three"));
    write(dir.path(), "d", &with("id", "id = \"gemma\""), Some("four"));
    fs::create_dir(dir.path().join("no-plugin")).unwrap();
    fs::write(dir.path().join("README"), "").unwrap();
    let found = PluginFolder::scan(&[dir.path()]).unwrap();
    assert!(found.problems().is_empty());
    assert_eq!(found.packages().count(), 4);
    assert_eq!(find(&found, "llama", "^1.0").unwrap(), "llama 1.10.0");
    assert_eq!(find(&found, "llama", "=1.2.3").unwrap(), "llama 1.2.3");
    assert_eq!(find(&found, "llama", "*").unwrap(), "llama 2.0.0");
    let report = find(&found, "llama", "^3").unwrap_err().report();
    assert_eq!(
        (report.code, report.found.as_deref()),
        ("plugin.not-found", Some("`llama` 1.2.3, 1.10.0, 2.0.0"))
    );
    let report = find(&found, "qwen", "*").unwrap_err().report();
    assert_eq!(report.found.as_deref(), Some("plugins gemma, llama"));
}

#[test]
fn a_broken_plugin_is_a_problem_and_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", GOOD, Some("one"));
    write(dir.path(), "b", "id = 1", Some(""));
    write(dir.path(), "c", &with("id", "id = \"gemma\""), None);
    let found = PluginFolder::scan(&[dir.path()]).unwrap();
    assert_eq!(find(&found, "llama", "*").unwrap(), "llama 1.2.3");
    let codes: Vec<_> = found.problems().iter().map(|problem| problem.report().code).collect();
    assert_eq!(codes, ["plugin.manifest", "plugin.read"]);
    let report = find(&found, "gemma", "*").unwrap_err().report();
    assert_eq!(report.notes.len(), 2);
}

#[test]
fn two_plugins_of_one_name_are_refused_both() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (dir, entry) in dirs.iter().zip(["one", "other"]) {
        write(dir.path(), "a", GOOD, Some(entry));
    }
    let found = PluginFolder::scan(&[dirs[0].path(), dirs[1].path()]).unwrap();
    assert_eq!(found.packages().count(), 0);
    assert_eq!(found.problems()[0].report().code, "plugin.duplicate");
    assert!(find(&found, "llama", "*").unwrap_err().report().notes[0].contains("more than once"));
    // The same bytes in two places are one plugin.
    write(dirs[1].path(), "a", GOOD, Some("one"));
    let found = PluginFolder::scan(&[dirs[0].path(), dirs[1].path()]).unwrap();
    assert_eq!((found.packages().count(), found.problems().len()), (1, 0));
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let error = PluginFolder::scan(&["/nowhere/at/all"]).unwrap_err();
    assert_eq!(error.report().code, "plugin.read");
}

#[test]
fn words_of_a_guest_are_cut_at_a_character() {
    let long = "é".repeat(5_000);
    let cut = crate::clip(long);
    assert_eq!(cut.chars().count(), 4_097);
    assert!(cut.ends_with("é…"));
    assert_eq!(crate::clip("short".to_owned()), "short");
}

#[test]
fn harmless_keys_are_listed_once_and_sorted() {
    let keys: Vec<_> = crate::harmless_config_keys().collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert!(keys.contains(&"quantization") && keys.contains(&"torch_dtype"));
    assert!(!keys.contains(&"hidden_act") && !keys.iter().any(|key| key.starts_with('#')));
}
