//! A plugin written twice must say the same graph.

use guests::{fixture_catalogue, fixture_config, lua_package};
use host_core::Reported;
use host_lua::LuaPlugin;
use host_plugins::{Budget, GraphPlugin, LogSink};

#[test]
fn lua_builds_every_fixture() {
    for name in [
        "tiny-llama-gqa-f32",
        "tiny-llama-mha-bias",
        "tiny-llama-mqa-attention-bias",
        "tiny-llama-rope-yarn",
        "tiny-llama-rope-yarn-full",
        "tiny-llama-rope-llama3",
        "tiny-llama-rope-llama3-new",
        "tiny-llama-rope-linear",
        "tiny-llama-tied",
        "tiny-llama-sharded",
        "tiny-gemma3-window",
        "tiny-gemma3-window-old-config",
        "tiny-gemma3-softcap",
        "tiny-gemma3-rope-linear",
    ] {
        let folder = if name.contains("gemma") { "gemma3-lua" } else { "llama-lua" };
        let log = LogSink::new(|plugin, line| println!("{plugin}: {line}"));
        let plugin = LuaPlugin::open(&lua_package(folder), Budget::default(), log).unwrap();
        let start = std::time::Instant::now();
        match plugin.build(&fixture_config(name), fixture_catalogue(name)) {
            Ok(graph) => println!("{name} {} {:?}\n{}", graph.fingerprint(), start.elapsed(), graph.text()),
            Err(error) => panic!("{name}: {} {:?}", error.report(), error.report().place),
        }
    }
}
