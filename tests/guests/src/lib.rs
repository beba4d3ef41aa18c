//! Plugins under test: what the suites over both runtimes share.

use std::fs;
use std::path::{Path, PathBuf};

use host_graph::{Catalogue, TensorFacts};
use host_plugins::PluginPackage;
use serde_json::Value as Json;

/// The folder of this workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

/// The package of a first-party plugin written in Lua.
pub fn lua_package(folder: &str) -> PluginPackage {
    PluginPackage::read(&workspace().join("plugins").join(folder)).expect("the plugin's folder is complete")
}

/// A fixture's `config.json`.
pub fn fixture_config(name: &str) -> String {
    let path = workspace().join("tests/fixtures").join(name).join("config.json");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The tensors of a fixture's plain safetensors files.
pub fn fixture_catalogue(name: &str) -> Catalogue {
    let folder = workspace().join("tests/fixtures").join(name);
    let mut catalogue = Catalogue::new();
    for entry in fs::read_dir(&folder).expect("the fixture exists") {
        let path = entry.expect("the fixture can be listed").path();
        if path.extension().is_some_and(|ext| ext == "safetensors") {
            read_header(&fs::read(&path).expect("the fixture can be read"), &mut catalogue);
        }
    }
    catalogue
}

fn read_header(bytes: &[u8], catalogue: &mut Catalogue) {
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header: Json = serde_json::from_slice(&bytes[8..8 + length]).expect("a header in JSON");
    for (name, facts) in header.as_object().expect("an object") {
        if name != "__metadata__" {
            let dims = facts["shape"].as_array().expect("a shape").iter();
            let shape = dims.map(|n| n.as_u64().expect("a number") as usize).collect();
            catalogue.insert(name.clone(), TensorFacts { shape, is_dense: true });
        }
    }
}
