//! Tests of the Lua runtime.

use std::path::Path;

use host_core::Reported;
use host_graph::{Catalogue, Graph, TensorFacts};
use host_plugins::{Budget, GraphPlugin, LogSink, PluginError, PluginPackage};

use crate::LuaPlugin;

fn open(source: &str) -> Result<LuaPlugin, PluginError> {
    let manifest = "id = \"t\"\nversion = \"1.0.0\"\nkind = \"model-graph\"\nruntime = \"lua\"\nentry = \"t.lua\"\nsdk = \"0.1\"";
    let package = PluginPackage::from_parts(manifest, source.as_bytes().to_vec(), Path::new("t")).unwrap();
    LuaPlugin::open(&package, Budget::default(), LogSink::discard())
}

fn build(source: &str) -> Result<Graph, PluginError> {
    let mut catalogue = Catalogue::new();
    catalogue.insert("e".into(), TensorFacts { shape: vec![10, 4], is_dense: true });
    open(source)?.build("{\"a\": 1}", catalogue)
}

#[test]
fn tiny() {
    let graph = build(
        "function build(config, g)\n local h = g:embedding(g:tokens(), 'e')\n return g:linear(h, 'e')\nend",
    )
    .unwrap();
    println!("{}", graph.text());
    for source in [
        "function build(config, g)\n local h = g:embedding(g:tokens(), 'ee')\n return g:linear(h, 'e')\nend",
        "function build(config, g)\n  local x = nil\n  return x.y\nend",
        "function build(config, g)\n  local x = \nend",
        "x = 1",
        "function build(config, g)\n return rope.from_config(config, 'a') end",
        "function build(config, g)\n g:linear(1)\n end",
        "function build(config, g)\n while true do end\n end",
        "function build(config, g)\n config:usize('b')\n end",
        "function build(config, g)\n local t = {} while true do table.insert(t, string.rep('x', 1000000)) end end",
        "function build(config, g)\n local function f() return f() + 1 end f() end",
        "function build(config, g)\n error('no') end",
        "function build(config, g)\n error({code=1}) end",
        "function build(config, g)\n return 3 end",
    ] {
        let error = build(source).unwrap_err();
        println!("{}\n  at {:?}\n", error.report(), error.report().place);
    }
}
