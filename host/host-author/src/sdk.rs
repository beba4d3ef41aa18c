//! The SDK for Rust as new plugins get it: its source, a manifest of its own, and the versions that were tested.
//!
//! A plugin's folder holds a copy, so that plain cargo builds it anywhere and nothing but its author changes what
//! it is built with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::{Table, Value};

use crate::error::AuthorError;
use crate::files;

/// The folder of the SDK in a plugin's folder.
pub(crate) const FOLDER: &str = "sdk";
/// Its crate, which a plugin cannot be called.
pub(crate) const CRATE: &str = "plugin-sdk";

/// Source, contract and guide, by path in the SDK's folder.
static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));
static MANIFEST: &str = include_str!("../../../plugin-sdk/Cargo.toml");
static WORKSPACE: &str = include_str!("../../../Cargo.toml");
static LOCK: &str = include_str!("../../../Cargo.lock");
static TOOLCHAIN: &str = include_str!("../../../rust-toolchain.toml");

const OURS: &str = "this file is part of the program, and a test reads it";

/// Writes the SDK into `folder`, which must not be there.
pub(crate) fn write(folder: &Path) -> Result<(), AuthorError> {
    files::write(&folder.join("Cargo.toml"), manifest())?;
    for (name, text) in FILES {
        files::write(&folder.join(name), text)?;
    }
    Ok(())
}

/// The toolchain that the SDK was tested with.
pub(crate) fn toolchain() -> String {
    let toolchain = table(TOOLCHAIN);
    toolchain["toolchain"]["channel"].as_str().expect(OURS).to_owned()
}

/// The SDK's manifest without its workspace.
fn manifest() -> String {
    let (mut manifest, workspace) = (table(MANIFEST), table(WORKSPACE));
    for name in ["lints", "dev-dependencies"] {
        manifest.remove(name);
    }
    for part in ["package", "dependencies"] {
        let inherited = workspace["workspace"][part].as_table().expect(OURS);
        let own = manifest[part].as_table_mut().expect(OURS);
        for (key, value) in own {
            let Some(asked) = value.as_table_mut() else { continue };
            if asked.remove("workspace").is_some() {
                *value = merged(&inherited[key.as_str()], std::mem::take(asked));
            }
        }
    }
    toml::to_string(&manifest).expect(OURS)
}

/// What the workspace says of a dependency, with what its user adds.
fn merged(inherited: &Value, asked: Table) -> Value {
    if asked.is_empty() {
        return inherited.clone();
    }
    let mut whole = match inherited {
        Value::String(version) => Table::from_iter([("version".to_owned(), Value::from(&**version))]),
        other => other.as_table().expect(OURS).clone(),
    };
    whole.extend(asked);
    Value::Table(whole)
}

/// A `Cargo.lock` for a plugin of this name: the versions with which the SDK was tested, and no others.
pub(crate) fn lock(plugin: &str) -> String {
    let whole = table(LOCK);
    let packages = whole["package"].as_array().expect(OURS);
    let mut by_name: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for package in packages {
        by_name.entry(package["name"].as_str().expect(OURS)).or_default().push(package);
    }
    let mut wanted = BTreeSet::new();
    let mut open = vec![CRATE];
    while let Some(dependency) = open.pop() {
        // `name`, or `name version` where there are several.
        let (name, version) = dependency.split_once(' ').unwrap_or((dependency, ""));
        let fits = |package: &&&Value| version.is_empty() || package["version"].as_str() == Some(version);
        let package = by_name[name].iter().find(fits).expect(OURS);
        if wanted.insert((name, package["version"].as_str().expect(OURS))) {
            let more = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
            open.extend(more.filter_map(Value::as_str));
        }
    }
    let is_wanted = |package: &&Value| {
        let text = |key| package.get(key).and_then(Value::as_str).expect(OURS);
        wanted.contains(&(text("name"), text("version")))
    };
    let own = Table::from_iter([
        ("name".to_owned(), Value::from(plugin)),
        ("version".to_owned(), Value::from("0.1.0")),
        ("dependencies".to_owned(), Value::from(vec![CRATE])),
    ]);
    let kept: Vec<Value> = packages.iter().filter(is_wanted).cloned().chain([Value::Table(own)]).collect();
    let lock = Table::from_iter([
        ("version".to_owned(), whole["version"].clone()),
        ("package".to_owned(), Value::Array(kept)),
    ]);
    toml::to_string(&lock).expect(OURS)
}

fn table(text: &str) -> Table {
    text.parse().expect(OURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_stands_alone() {
        let manifest = table(&manifest());
        assert_eq!(manifest["package"]["name"].as_str(), Some(CRATE));
        assert_eq!(manifest["package"]["edition"].as_str(), Some("2024"));
        assert!(manifest["dependencies"]["wit-bindgen"]["version"].is_str());
        assert!(!toml::to_string(&manifest).unwrap().contains("workspace"));
    }

    #[test]
    fn the_lock_holds_what_the_sdk_needs_and_nothing_of_the_host() {
        let lock = table(&lock("mine"));
        let packages = lock["package"].as_array().unwrap();
        let names: Vec<_> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
        for name in ["mine", "plugin-sdk", "wit-bindgen", "serde_json", "syn"] {
            assert!(names.contains(&name), "{name}");
        }
        assert!(!names.iter().any(|name| name.starts_with("host-") || *name == "wasmtime"), "{names:?}");
    }

    #[test]
    fn source_and_contract_are_there() {
        for name in ["src/lib.rs", "wit/0.1/world.wit", "wit/0.2/world.wit", "README.md"] {
            assert!(FILES.iter().any(|(found, _)| *found == name), "{name}");
        }
    }
}
