//! The rules of `deny.toml` without cargo-deny: licences, sources and duplicates.
//!
//! cargo-deny is used where it is installed, for it also reads the advisories. Building it takes minutes, so
//! this checks the other three rules from `cargo metadata` alone, by the same file and with the same meaning.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::workspace::{self, Failure, Outcome, Workspace, say};

mod licence;

/// How cargo begins the source of a package that comes from a registry.
const REGISTRY: &str = "registry+";

/// Check the licences, sources and duplicates of all dependencies against deny.toml.
///
/// cargo-deny does it where it is installed, advisories included; else our own reading of the same file does.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Checks the dependencies by cargo-deny, or else by the rules here.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    if workspace::works(&mut workspace.cargo(["deny", "--version"])) {
        say("deny: licences, sources, duplicates and advisories, by cargo-deny");
        return workspace::run(&mut workspace.cargo(["deny", "check"]));
    }
    say("deny: licences, sources and duplicates, by our own check of deny.toml");
    eprintln!("   not checked: advisories; `cargo install cargo-deny` brings the tool that does");
    let rules = Rules::read(&workspace::read_toml(&workspace.root.join("deny.toml"))?)?;
    let packages = packages(workspace, &rules.targets)?;
    let faults = rules.check(&packages);
    faults.iter().for_each(|fault| eprintln!("   {fault}"));
    eprintln!("   {} packages from elsewhere, {} faults", packages.len(), faults.len());
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Failure::new("deny.toml is not kept").mend("see the lines above"))
    }
}

/// A package that is not of this workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    source: String,
}

/// All packages that any of the targets is built from.
fn packages(workspace: &Workspace, targets: &[String]) -> Outcome<BTreeSet<Package>> {
    let mut packages = BTreeSet::new();
    for target in targets {
        let mut command =
            workspace.cargo(["metadata", "--locked", "--format-version", "1", "--filter-platform"]);
        packages.extend(read_metadata(&workspace::json(&workspace::captured(command.arg(target))?)?)?);
    }
    Ok(packages)
}

/// The outside packages of one `cargo metadata`, as far as its target needs them.
fn read_metadata(metadata: &Value) -> Outcome<Vec<Package>> {
    let strange = || Failure::new("cargo metadata has another shape than expected");
    let nodes = metadata["resolve"]["nodes"].as_array().ok_or_else(strange)?;
    let needed: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let mut packages = Vec::new();
    for package in metadata["packages"].as_array().ok_or_else(strange)? {
        let text = |key: &str| package[key].as_str();
        let (Some(id), Some(name), Some(version)) = (text("id"), text("name"), text("version")) else {
            return Err(strange());
        };
        if let (true, Some(source)) = (needed.contains(id), text("source")) {
            packages.push(Package {
                name: name.to_owned(),
                version: version.to_owned(),
                licence: text("license").map(str::to_owned),
                source: source.to_owned(),
            });
        }
    }
    Ok(packages)
}

/// The parts of `deny.toml` that are kept here.
#[derive(Debug, Default)]
struct Rules {
    targets: Vec<String>,
    allowed: BTreeSet<String>,
    /// Licences allowed for one crate.
    exceptions: BTreeMap<String, BTreeSet<String>>,
    /// `(name, beginning of the version)` of duplicates that are explained.
    skipped: Vec<(String, String)>,
}

impl Rules {
    fn read(table: &toml::Table) -> Outcome<Rules> {
        let licences = section(table, "licenses")?;
        let bans = section(table, "bans")?;
        let mut rules = Rules {
            targets: texts(section(table, "graph")?, "targets")?,
            allowed: texts(licences, "allow")?.into_iter().collect(),
            ..Rules::default()
        };
        for exception in tables(licences, "exceptions") {
            let allowed = texts(exception, "allow")?.into_iter().collect();
            rules.exceptions.insert(text(exception, "crate")?, allowed);
        }
        for skip in tables(bans, "skip") {
            text(skip, "reason")?;
            let spec = text(skip, "crate")?;
            let (name, version) = spec.split_once('@').unwrap_or((&spec, ""));
            rules.skipped.push((name.to_owned(), version.to_owned()));
        }
        Ok(rules)
    }

    /// Every fault as a line.
    fn check(&self, packages: &BTreeSet<Package>) -> Vec<String> {
        let mut faults: Vec<String> =
            packages.iter().filter_map(|package| self.licence_fault(package)).collect();
        // One registry for all: neither a second one nor a repository.
        let home = packages.iter().map(|package| package.source.as_str()).find(|s| s.starts_with(REGISTRY));
        let foreign = packages.iter().filter(|package| Some(package.source.as_str()) != home);
        faults
            .extend(foreign.map(|package| format!("source: {} comes from {}", package.name, package.source)));
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for package in
            packages.iter().filter(|package| !self.skipped.iter().any(|skip| is_skip(skip, package)))
        {
            versions.entry(&package.name).or_default().push(&package.version);
        }
        let doubles = versions.iter().filter(|(_, versions)| versions.len() > 1);
        faults
            .extend(doubles.map(|(name, versions)| format!("duplicate: {name} {}", versions.join(" and "))));
        let idle = self.skipped.iter().filter(|skip| !packages.iter().any(|package| is_skip(skip, package)));
        faults.extend(idle.map(|(name, version)| format!("deny.toml: nothing is {name}@{version} any more")));
        faults
    }

    fn licence_fault(&self, package: &Package) -> Option<String> {
        let Package { name, version, licence, .. } = package;
        let Some(licence) = licence else {
            return Some(format!("licence: {name} {version} names none"));
        };
        let exceptions = self.exceptions.get(name);
        let allows = |id: &str| self.allowed.contains(id) || exceptions.is_some_and(|ids| ids.contains(id));
        match licence::is_allowed(licence, &allows) {
            Some(true) => None,
            Some(false) => Some(format!("licence: {name} {version} is under `{licence}`")),
            None => Some(format!("licence: {name} {version} has an unreadable expression `{licence}`")),
        }
    }
}

fn is_skip((name, version): &(String, String), package: &Package) -> bool {
    let rest = package.version.strip_prefix(version.as_str());
    *name == package.name
        && rest.is_some_and(|rest| version.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

fn section<'a>(table: &'a toml::Table, key: &str) -> Outcome<&'a toml::Table> {
    let found = table.get(key).and_then(toml::Value::as_table);
    found.ok_or_else(|| Failure::new(format!("deny.toml has no [{key}]")))
}

fn tables<'a>(table: &'a toml::Table, key: &str) -> impl Iterator<Item = &'a toml::Table> {
    table.get(key).and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_table)
}

fn text(table: &toml::Table, key: &str) -> Outcome<String> {
    let found = table.get(key).and_then(toml::Value::as_str);
    found
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("an entry of deny.toml has no `{key}`: {table}")))
}

fn texts(table: &toml::Table, key: &str) -> Outcome<Vec<String>> {
    let found = table.get(key).and_then(toml::Value::as_array);
    let found = found.ok_or_else(|| Failure::new(format!("deny.toml has no list `{key}`")))?;
    Ok(found.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;
