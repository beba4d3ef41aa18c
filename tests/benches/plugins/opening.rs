//! What a graph plugin adds to opening a model, compared with a graph that is in memory already.

use std::path::Path;

use guests::measure::Times;
use host_graph::{Catalogue, TensorFacts};
use host_lua::LuaPlugin;
use host_plugins::{Budget, GraphPlugin, LogSink, PluginPackage};
use host_wasm::WasmRuntime;
use host_weights::{Checkpoint, Encoding};
use tests::places::workspace;
use tests::skip;

use crate::figure::{Figure, Report};

const TARGET_US: f64 = 5_000.0;

/// From the plugin's folder to the graph, all of it: reading and checking the package, starting the runtime, taking the
/// compiled component from the cache, building. The program does this beside reading the model's headers.
pub(crate) fn measure(model: &Path, report: &mut Report) {
    let checkpoint = Checkpoint::open(model).unwrap();
    let config = serde_json::Value::Object(checkpoint.config().json.clone()).to_string();
    let facts = checkpoint.catalogue().iter().map(|info| {
        let is_dense = matches!(info.encoding, Encoding::Dense(_));
        (info.name.clone(), TensorFacts { shape: info.shape.clone(), is_dense })
    });
    let catalogue: Catalogue = facts.collect();
    let plugins = skip::wasm_plugins().expect("`cargo xtask plugins` builds them");
    let cache = tempfile::tempdir().unwrap();
    let (budget, log) = (Budget::default(), LogSink::discard());
    let wasm = || {
        let package = PluginPackage::read(&plugins.join("llama")).unwrap();
        let runtime = WasmRuntime::new(Some(cache.path())).unwrap();
        let plugin = runtime.open(&package, budget, log.clone()).unwrap();
        let graph = plugin.build(&config, catalogue.clone()).unwrap();
        (runtime, plugin, graph)
    };
    let cold = Times::new(vec![time(wasm)]);
    report.add(Figure::new("opening SmolLM2, the plugin compiled anew (once)", "wasm", &cold, &[]));
    let warm = Times::of(200, wasm);
    let target = [("p50", TARGET_US)];
    report.add(Figure::new("opening SmolLM2, more than a graph in memory", "wasm", &warm, &target));
    let lua = Times::of(200, || {
        let package = PluginPackage::read(&workspace().join("plugins/llama-lua")).unwrap();
        let plugin = LuaPlugin::open(&package, budget, log.clone()).unwrap();
        plugin.build(&config, catalogue.clone()).unwrap()
    });
    report.add(Figure::new("opening SmolLM2, more than a graph in memory", "lua", &lua, &target));
}

fn time<T>(act: impl FnOnce() -> T) -> std::time::Duration {
    let begun = std::time::Instant::now();
    let made = act();
    let time = begun.elapsed();
    drop(made);
    time
}
