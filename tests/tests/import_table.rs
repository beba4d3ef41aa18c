//! The import table: which crate of the workspace may import which, and the one home of each heavy dependency.
//!
//! Crossing a line means editing the tables here, on purpose. What a crate ships counts (its dependencies and
//! those of its build script); its tests may play other parts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// What each crate may import from the workspace. Names that end in `*` stand for every crate so named.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("host-core", &[]),
    ("kernels", &[]),
    ("plugin-sdk", &[]),
    ("host-graph", &["host-core"]),
    ("host-text", &["host-core"]),
    ("host-weights", &["host-core"]),
    ("host-plugins", &["host-core", "host-graph"]),
    ("host-models", &["host-core"]),
    ("host-device", &["host-graph", "host-weights", "host-core"]),
    ("host-cpu", &["host-device", "host-graph", "host-weights", "kernels", "host-core"]),
    ("host-mlx", &["host-device", "host-graph", "host-weights", "kernels", "host-core"]),
    ("host-registry", &["host-plugins", "host-device", "host-graph", "host-core"]),
    ("host-wasm", &["host-plugins", "host-graph", "host-core"]),
    ("host-lua", &["host-plugins", "host-graph", "host-core"]),
    ("host-engine", &["host-device", "host-registry", "host-plugins", "host-text", "host-core"]),
    ("host-server", &["host-engine", "host-registry", "host-core"]),
    ("host-cli", &["host-*"]),
    ("xtask", &[]),
    ("tests", &["host-*", "plugin-sdk"]),
];

/// Crates that nothing imports: programs.
const NOT_IMPORTED: &[&str] = &["host-cli", "xtask", "tests"];

/// Each heavy dependency with the crates that may have it. `xtask` runs at build time and ships nothing.
const HOMES: &[(&str, &[&str])] = &[
    ("mlx-rs", &["host-mlx"]),
    ("wasmtime", &["host-wasm"]),
    ("mlua", &["host-lua"]),
    ("axum", &["host-server"]),
    ("hyper", &["host-server"]),
    ("clap", &["host-cli", "xtask"]),
    ("clap_complete", &["host-cli"]),
    ("miette", &["host-cli"]),
    ("rustyline", &["host-cli"]),
    ("indicatif", &["host-cli", "xtask"]),
    ("tokenizers", &["host-text"]),
    ("minijinja", &["host-text"]),
    ("minijinja-contrib", &["host-text"]),
    ("safetensors", &["host-weights"]),
    ("memmap2", &["host-weights"]),
    ("hf-hub", &["host-models"]),
    ("ureq", &["host-models"]),
    ("zip", &["host-models"]),
    ("notify", &["host-registry"]),
    // Profiles and plugin manifests; xtask reads the workspace's own manifests.
    ("toml", &["host-registry", "host-plugins", "xtask"]),
];

/// A crate with the names of what it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The crates of the workspace that lie in `plugins/`.
struct Workspace {
    imports: Imports,
    plugins: BTreeSet<String>,
}

#[test]
fn the_workspace_keeps_its_import_table() {
    let workspace = workspace();
    assert!(workspace.imports.len() > 10, "the workspace was not read");
    assert_eq!(violations(&workspace), Vec::<String>::new());
}

#[test]
fn a_crossed_line_is_found() {
    let check = |importer: &str, imported: &str, expected: &[&str]| {
        let imports = Imports::from([
            (importer.to_owned(), BTreeSet::from([imported.to_owned()])),
            ("host-core".to_owned(), BTreeSet::new()),
            ("host-cli".to_owned(), BTreeSet::new()),
            ("plugin-sdk".to_owned(), BTreeSet::new()),
            ("host-engine".to_owned(), BTreeSet::new()),
            ("llama".to_owned(), BTreeSet::new()),
        ]);
        let plugins = BTreeSet::from(["llama".to_owned(), "gemma3".to_owned()]);
        assert_eq!(violations(&Workspace { imports, plugins }), expected, "{importer} imports {imported}");
    };
    check("host-text", "host-core", &[]);
    check("gemma3", "plugin-sdk", &[]);
    check("host-text", "tokenizers", &[]);
    check("host-text", "host-engine", &["host-text imports host-engine; it may import host-core"]);
    check("gemma3", "host-core", &["gemma3 imports host-core; it may import plugin-sdk"]);
    check("gemma3", "llama", &["gemma3 imports llama; it may import plugin-sdk"]);
    check("tests", "host-cli", &["tests imports host-cli, which nothing imports"]);
    check("tests", "wasmtime", &["tests has wasmtime, whose home is host-wasm"]);
    check("host-new", "serde", &["host-new is not in the import table"]);
}

/// Every line that is crossed.
fn violations(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for (importer, imports) in &workspace.imports {
        let Some(allowed) = may_import(workspace, importer) else {
            found.push(format!("{importer} is not in the import table"));
            continue;
        };
        for imported in imports {
            if !workspace.imports.contains_key(imported) {
                found.extend(away_from_home(importer, imported));
            } else if !allowed.iter().any(|pattern| fits(pattern, imported)) {
                let allowed = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
                found.push(format!("{importer} imports {imported}; it may import {allowed}"));
            } else if NOT_IMPORTED.contains(&imported.as_str()) {
                found.push(format!("{importer} imports {imported}, which nothing imports"));
            }
        }
    }
    found
}

fn may_import(workspace: &Workspace, importer: &str) -> Option<&'static [&'static str]> {
    if workspace.plugins.contains(importer) {
        return Some(&["plugin-sdk"]);
    }
    MAY_IMPORT.iter().find(|(name, _)| *name == importer).map(|(_, allowed)| *allowed)
}

fn fits(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

fn away_from_home(importer: &str, dependency: &str) -> Option<String> {
    let (_, homes) = HOMES.iter().find(|(name, _)| *name == dependency)?;
    let is_home = homes.contains(&importer);
    (!is_home).then(|| format!("{importer} has {dependency}, whose home is {}", homes.join(", ")))
}

fn workspace() -> Workspace {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace");
    let metadata: Metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo reads the workspace");
    let mut workspace = Workspace { imports: Imports::new(), plugins: BTreeSet::new() };
    for package in &metadata.packages {
        let shipped =
            package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
        let names = shipped.map(|dependency| dependency.name.clone()).collect();
        workspace.imports.insert(package.name.to_string(), names);
        if package.manifest_path.starts_with(root.join("plugins")) {
            workspace.plugins.insert(package.name.to_string());
        }
    }
    workspace
}
