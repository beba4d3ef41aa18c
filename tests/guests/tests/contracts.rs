//! Released contracts: their texts are frozen, and what was built against them still runs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use guests::{
    Loop, fixture_catalogue, fixture_config, lua_package, numbers, released_package, wasm_plugin,
    whole_guest, workspace,
};
use host_core::DType;
use host_core::SamplingSettings;
use host_core::quant::{Role, TensorFacts};
use host_lua::{LuaPlugin, LuaPolicy, LuaQuant};
use host_plugins::{
    Budget, ContractVersion, Grants, GraphPlugin, LogSink, PluginPackage, QuantPlugin, SamplingPolicy,
};
use host_wasm::WasmRuntime;
use sha2::{Digest, Sha256};

/// Every contract that was released; all are served.
const RELEASES: [&str; 2] = ["0.1", "0.2"];

fn sha256(path: &Path) -> String {
    let hash = Sha256::digest(fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// A plugin that was built against a contract goes by its text: a change is a new folder.
#[test]
fn released_contracts_are_frozen() {
    let released = [
        ("0.1", include_str!("../fixtures/contract-0.1/wit.sha256")),
        ("0.2", include_str!("../fixtures/contract-0.2/wit.sha256")),
    ];
    assert_eq!(released.map(|(version, _)| version), RELEASES);
    for (version, pinned) in released {
        let line = |path: &PathBuf| format!("{}  {}\n", sha256(path), path.file_name().unwrap().display());
        let found: String =
            files(&workspace().join("plugin-sdk/wit").join(version)).iter().map(line).collect();
        assert_eq!(found, pinned, "contract {version} is released");
    }
}

/// Every function of a contract's text is there for its components, with its types.
#[test]
fn each_served_contract_is_served_whole() {
    let runtime = WasmRuntime::new(None).unwrap();
    let (budget, log) = (Budget::default(), LogSink::discard());
    let package = |sdk: &str, world: &str| {
        let manifest = format!(
            "id = \"whole\"\nversion = \"1.0.0\"\nkind = \"{world}\"\nruntime = \"wasm\"\n\
             entry = \"plugin.wasm\"\nsdk = \"{sdk}\"\n"
        );
        PluginPackage::from_parts(&manifest, whole_guest(sdk, world), Path::new("whole")).unwrap()
    };
    for version in ContractVersion::SERVED.map(|version| version.to_string()) {
        runtime.open(&package(&version, "model-graph"), budget, log.clone()).unwrap();
        runtime.open_policy(&package(&version, "sampling-policy"), budget, log.clone()).unwrap();
        runtime.open_quant(&package(&version, "quant-profile"), budget, log.clone()).unwrap();
    }
}

#[test]
fn stored_components_are_as_they_were_built() {
    for (release, n_files) in RELEASES.into_iter().zip([6, 8]) {
        let folder = workspace().join("tests/guests/fixtures").join(format!("contract-{release}"));
        let text = fs::read_to_string(folder.join("PROVENANCE.toml")).unwrap();
        let provenance: toml::Table = text.parse().unwrap();
        let pinned: BTreeMap<_, _> = provenance["sha256"].as_table().unwrap().iter().collect();
        assert_eq!(pinned.len(), n_files, "{release}");
        for (name, digest) in pinned {
            assert_eq!(sha256(&folder.join(name)), digest.as_str().unwrap(), "{release} {name}");
        }
    }
}

#[test]
fn a_stored_graph_plugin_of_each_release_builds_the_same_graph() {
    let twin = LuaPlugin::open(&lua_package("llama-lua"), Budget::default(), LogSink::discard()).unwrap();
    for release in RELEASES {
        let stored = wasm_plugin(&released_package(release, "llama"));
        for fixture in ["tiny-llama-gqa-f32", "tiny-llama-rope-yarn", "tiny-llama-mha-bias"] {
            let build = |plugin: &dyn GraphPlugin| {
                plugin.build(&fixture_config(fixture), fixture_catalogue(fixture)).unwrap().fingerprint()
            };
            assert_eq!(build(&stored), build(&twin), "{release} {fixture}");
        }
    }
}

#[test]
fn a_stored_policy_of_each_release_gives_the_same_tokens() {
    let (budget, log) = (Budget::default(), LogSink::discard());
    let runtime = WasmRuntime::new(None).unwrap();
    let twin = LuaPolicy::open(&lua_package("no-repeat-lua"), budget, log.clone()).unwrap();
    let decode = |policy: &dyn SamplingPolicy| {
        let mut instance = policy.open(r#"{"ngram": 2}"#, numbers(50), &Grants::default()).unwrap();
        let mut request = Loop::new(50, &[1, 2, 3], &SamplingSettings::GREEDY.into());
        for _ in 0..60 {
            request.step(&mut *instance).unwrap();
        }
        let mut fork = instance.fork().unwrap();
        instance.rollback(3).unwrap();
        drop(instance);
        request.step(&mut *fork).unwrap();
        request.generated().to_vec()
    };
    for release in RELEASES {
        let package = released_package(release, "no-repeat");
        let stored = runtime.open_policy(&package, budget, log.clone()).unwrap();
        assert_eq!(stored.describe().unwrap(), twin.describe().unwrap(), "{release}");
        assert_eq!(decode(&stored), decode(&twin), "{release}");
    }
}

#[test]
fn a_stored_quantisation_profile_of_each_release_gives_the_same_plan() {
    let (budget, log) = (Budget::default(), LogSink::discard());
    let runtime = WasmRuntime::new(None).unwrap();
    let twin = LuaQuant::open(&lua_package("quant-uniform-lua"), budget, log.clone()).unwrap();
    let tensor = |name: &str, shape: &[usize], role| TensorFacts {
        name: name.to_owned(),
        shape: shape.to_vec(),
        dtype: DType::BF16,
        role,
        layer: Some(0),
    };
    let tensors = [
        tensor("model.layers.0.mlp.up_proj.weight", &[64, 128], Role::MlpUp),
        tensor("model.layers.0.mlp.down_proj.weight", &[128, 60], Role::MlpDown),
        tensor("model.layers.0.input_layernorm.weight", &[64], Role::Norm),
    ];
    let params = r#"{"bits": 4, "group_size": 64}"#;
    let plan = twin.plan("{}", params, &tensors).unwrap();
    for release in RELEASES {
        let package = released_package(release, "quant-uniform");
        let stored = runtime.open_quant(&package, budget, log.clone()).unwrap();
        assert_eq!(stored.plan("{}", params, &tensors).unwrap(), plan, "{release}");
    }
    assert_eq!(plan.iter().filter(|scheme| **scheme != host_core::quant::Scheme::Keep).count(), 1);
}
