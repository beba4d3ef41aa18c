//! The import table: which crate of the workspace may import which, and the one home of each heavy dependency.
//!
//! Crossing a line means editing the tables here, on purpose. What a crate ships counts (its dependencies and
//! those of its build script); its tests may play other parts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// What each crate may import from the workspace. A name that ends in `*` stands for every crate so named.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("host-core", &[]),
    ("kernels", &[]),
    ("plugin-sdk", &[]),
    ("host-graph", &["host-core"]),
    ("host-text", &["host-core"]),
    ("host-weights", &["host-core"]),
    ("host-plugins", &["host-sampling", "host-graph", "host-core"]),
    ("host-models", &["host-core"]),
    ("host-device", &["host-graph", "host-weights", "host-core"]),
    ("host-cpu", &["host-device", "host-graph", "host-weights", "kernels", "host-core"]),
    ("host-mlx", &["host-device", "host-graph", "host-weights", "kernels", "host-core"]),
    ("host-registry", &["host-plugins", "host-device", "host-graph", "host-core"]),
    ("host-wasm", &["host-plugins", "host-sampling", "host-graph", "host-core"]),
    ("host-lua", &["host-plugins", "host-sampling", "host-graph", "host-core"]),
    ("host-sampling", &["host-device", "host-core"]),
    (
        "host-engine",
        &["host-sampling", "host-device", "host-registry", "host-plugins", "host-text", "host-core"],
    ),
    ("host-server", &["host-service", "host-engine", "host-registry", "host-core"]),
    ("host-build", &["host-core"]),
    (
        "host-author",
        &[
            "host-build",
            "host-lua",
            "host-wasm",
            "host-plugins",
            "host-sampling",
            "host-device",
            "host-graph",
            "host-core",
        ],
    ),
    (
        "host-service",
        &[
            "host-engine",
            "host-registry",
            "host-models",
            "host-wasm",
            "host-lua",
            "host-plugins",
            "host-text",
            "host-mlx",
            "host-cpu",
            "host-device",
            "host-weights",
            "host-graph",
            "host-core",
        ],
    ),
    ("host-cli", &["host-*"]),
    ("xtask", &["host-build", "host-core"]),
    ("tests", &["host-*", "guests", "plugin-sdk"]),
    ("guests", &["host-*", "plugin-sdk"]),
];

/// The same for whole folders, of which the first that holds a crate counts.
const FOLDER_MAY_IMPORT: &[(&str, &[&str])] =
    &[("plugins", &["plugin-sdk"]), ("tests/guests", &["plugin-sdk"]), ("examples", &["host-*"])];

/// Crates that nothing imports: programs.
const NOT_IMPORTED: &[&str] = &["host-cli", "xtask", "tests"];

/// Each heavy dependency with the crates that may have it. `xtask` runs at build time and ships nothing.
const HOMES: &[(&str, &[&str])] = &[
    ("mlx-rs", &["host-mlx"]),
    ("mlx-sys", &["host-mlx"]),
    // Reads the headers of MLX's C interface.
    ("bindgen", &["xtask"]),
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
    ("llguidance", &["host-sampling"]),
    ("minijinja", &["host-text"]),
    ("minijinja-contrib", &["host-text"]),
    // The tests read goldens with the published crate, to judge ours.
    ("safetensors", &["host-weights", "tests"]),
    ("memmap2", &["host-weights"]),
    ("hf-hub", &["host-models"]),
    ("ureq", &["host-models"]),
    ("zip", &["host-models", "xtask"]),
    ("notify", &["host-service"]),
    // Profiles, plugin manifests, cases and settings; xtask reads the workspace's own manifests.
    ("toml", &["host-registry", "host-plugins", "host-author", "host-service", "xtask"]),
    // Makes components; the tests make broken ones.
    ("wit-component", &["host-build", "guests"]),
];

/// One crate of the workspace.
struct Member {
    /// Its folder, relative to the root.
    folder: String,
    /// What it imports.
    imports: BTreeSet<String>,
}

/// The crates of the workspace by name.
type Workspace = BTreeMap<String, Member>;

#[test]
fn the_workspace_keeps_its_import_table() {
    let workspace = workspace();
    assert!(workspace.len() > 10, "the workspace was not read");
    assert_eq!(violations(&workspace), Vec::<String>::new());
}

#[test]
fn a_crossed_line_is_found() {
    let member = |folder: &str, imports: &[&str]| Member {
        folder: folder.to_owned(),
        imports: imports.iter().map(|name| (*name).to_owned()).collect(),
    };
    let check = |importer: &str, imported: &str, expected: &[&str]| {
        let mut workspace = Workspace::new();
        for name in ["host/host-core", "host/host-cli", "host/host-engine", "plugin-sdk", "plugins/llama"] {
            let (_, crate_name) = name.rsplit_once('/').unwrap_or(("", name));
            workspace.insert(crate_name.to_owned(), member(name, &[]));
        }
        let (folder, name) = importer.rsplit_once('/').unwrap_or(("", importer));
        workspace.insert(name.to_owned(), member(&format!("{folder}/{name}"), &[imported]));
        assert_eq!(violations(&workspace), expected, "{importer} imports {imported}");
    };
    check("host/host-text", "host-core", &[]);
    check("plugins/gemma3", "plugin-sdk", &[]);
    check("host/host-text", "tokenizers", &[]);
    check("host/host-text", "host-engine", &["host-text imports host-engine; it may import host-core"]);
    check("plugins/gemma3", "host-core", &["gemma3 imports host-core; it may import plugin-sdk"]);
    check("plugins/gemma3", "llama", &["gemma3 imports llama; it may import plugin-sdk"]);
    check("examples/embed", "host-engine", &[]);
    check("examples/embed", "plugin-sdk", &["embed imports plugin-sdk; it may import host-*"]);
    check("tests/guests/loop", "host-core", &["loop imports host-core; it may import plugin-sdk"]);
    check("tests", "host-cli", &["tests imports host-cli, which nothing imports"]);
    check("tests", "wasmtime", &["tests has wasmtime, whose home is host-wasm"]);
    check("host/host-new", "serde", &["host-new is not in the import table"]);
}

/// Every line that is crossed.
fn violations(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for (importer, member) in workspace {
        let Some(allowed) = may_import(importer, &member.folder) else {
            found.push(format!("{importer} is not in the import table"));
            continue;
        };
        for imported in &member.imports {
            if !workspace.contains_key(imported) {
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

fn may_import(importer: &str, folder: &str) -> Option<&'static [&'static str]> {
    let by_name = MAY_IMPORT.iter().find(|(name, _)| *name == importer);
    let by_folder = FOLDER_MAY_IMPORT.iter().find(|(outer, _)| Path::new(folder).starts_with(outer));
    by_name.or(by_folder).map(|(_, allowed)| *allowed)
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
    let members = metadata.packages.iter().map(|package| {
        let shipped =
            package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
        let imports = shipped.map(|dependency| dependency.name.clone()).collect();
        let folder = package.manifest_path.parent().and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.expect("a member lies in the workspace").to_string();
        (package.name.to_string(), Member { folder, imports })
    });
    members.collect()
}
