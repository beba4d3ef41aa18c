//! Packages of plugins, built from source where there is source.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use host_plugins::{Budget, LogSink, PluginPackage};
use host_wasm::{WasmPlugin, WasmRuntime};

/// The folder of this workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

/// A manifest for a guest of these suites that builds a graph.
pub fn manifest(id: &str, runtime: &str) -> String {
    manifest_of("model-graph", id, runtime)
}

/// A manifest for a guest of these suites.
pub(crate) fn manifest_of(kind: &str, id: &str, runtime: &str) -> String {
    format!(
        "id = \"{id}\"\nversion = \"1.0.0\"\nkind = \"{kind}\"\nruntime = \"{runtime}\"\n\
         entry = \"plugin.{runtime}\"\nsdk = \"0.1\"\n"
    )
}

/// The package of a first-party plugin written in Lua.
pub fn lua_package(folder: &str) -> PluginPackage {
    PluginPackage::read(&workspace().join("plugins").join(folder)).expect("the plugin's folder is complete")
}

/// A package of one script.
pub fn lua_script(source: &str) -> PluginPackage {
    let bytes = source.as_bytes().to_vec();
    PluginPackage::from_parts(&manifest("script", "lua"), bytes, Path::new("script"))
        .expect("a good manifest")
}

/// A package of one script of this kind.
pub fn lua_script_of(kind: &str, source: &str) -> PluginPackage {
    let bytes = source.as_bytes().to_vec();
    PluginPackage::from_parts(&manifest_of(kind, "script", "lua"), bytes, Path::new("script"))
        .expect("a good manifest")
}

/// The package of a first-party plugin written in Rust.
pub fn wasm_package(folder: &str) -> PluginPackage {
    from_crate(folder, &workspace().join("plugins").join(folder))
}

/// The plugin that misbehaves on demand, in Rust.
pub fn misbehave_wasm() -> PluginPackage {
    from_crate("misbehave", &workspace().join("tests/guests/misbehave"))
}

/// The plugin that misbehaves on demand, in Lua.
pub fn misbehave_lua() -> PluginPackage {
    let path = workspace().join("tests/guests/misbehave/misbehave.lua");
    let source = fs::read(&path).expect("the script is beside the crate");
    PluginPackage::from_parts(&manifest("misbehave", "lua"), source, Path::new("misbehave"))
        .expect("a good manifest")
}

/// The policy that misbehaves on demand, in Rust.
pub fn misbehave_policy_wasm() -> PluginPackage {
    from_crate("misbehave-policy", &workspace().join("tests/guests/misbehave-policy"))
}

/// The policy that misbehaves on demand, in Lua.
pub fn misbehave_policy_lua() -> PluginPackage {
    let path = workspace().join("tests/guests/misbehave-policy/misbehave.lua");
    let source = fs::read(&path).expect("the script is beside the crate");
    let manifest = manifest_of("sampling-policy", "misbehave-policy", "lua");
    PluginPackage::from_parts(&manifest, source, Path::new("misbehave-policy")).expect("a good manifest")
}

/// The policy that forces a token; what it does stands in its bytes, for a suite to write over.
pub fn forced_wasm() -> PluginPackage {
    from_crate("forced", &workspace().join("tests/guests/forced"))
}

/// The policy whose step is a mask of sixteen runs.
pub fn sixteen_runs_wasm() -> PluginPackage {
    from_crate("sixteen-runs", &workspace().join("tests/guests/sixteen-runs"))
}

/// The policy that does nothing.
pub fn pass_through_wasm() -> PluginPackage {
    from_crate("pass-through", &workspace().join("tests/guests/pass-through"))
}

/// A component that the SDK of a released contract built, as it was stored then.
pub fn released_package(contract: &str, id: &str) -> PluginPackage {
    let folder = workspace().join(format!("tests/guests/fixtures/contract-{contract}")).join(id);
    PluginPackage::read(&folder).expect("the fixture is complete")
}

/// Opens a component with the default budget on an engine that all tests of a process share.
pub fn wasm_plugin(package: &PluginPackage) -> WasmPlugin {
    static RUNTIME: OnceLock<WasmRuntime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| WasmRuntime::new(None).expect("the engine starts"));
    runtime.open(package, Budget::default(), LogSink::discard()).expect("the package is good")
}

fn from_crate(name: &str, folder: &Path) -> PluginPackage {
    let manifest = fs::read_to_string(folder.join("plugin.toml")).expect("the plugin has a manifest");
    PluginPackage::from_parts(&manifest, component_of(name), folder).expect("the manifest is good")
}

/// Builds a crate as `cargo xtask plugins` does, once a process, and makes a component of it.
fn component_of(name: &str) -> Vec<u8> {
    static BUILT: Mutex<Option<HashMap<String, Vec<u8>>>> = Mutex::new(None);
    let mut guard = BUILT.lock().expect("no build panicked before");
    let built = guard.get_or_insert_with(HashMap::new);
    if let Some(component) = built.get(name) {
        return component.clone();
    }
    let target = "wasm32-unknown-unknown";
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(workspace())
        .args(["build", "--quiet", "--target", target, "--profile", "plugin", "--package", name])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "building `{name}` for {target} failed");
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let path = folder.join(target).join("plugin").join(format!("{}.wasm", name.replace('-', "_")));
    let module = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let component = host_build::encode(&module).expect("the module makes a component");
    built.insert(name.to_owned(), component.clone());
    component
}
