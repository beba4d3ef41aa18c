//! Model-graph plugins as WebAssembly components, on wasmtime.
//!
//! A component imports the graph builder of `plugin-sdk/wit/` and nothing else; a foreign import is refused
//! by name before anything is compiled. Each build runs in an instance of its own, under a deadline and a
//! memory limit, and is dropped afterwards. Compiled code is kept in a folder that the caller names, so that
//! opening a plugin again compiles nothing.

mod cache;
mod contract;
mod guest;
mod plugin;
mod runtime;
mod ticker;
mod words;

pub use plugin::WasmPlugin;
pub use runtime::WasmRuntime;

/// Generated from the contract.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod bindings {
    wasmtime::component::bindgen!({
        path: "../../plugin-sdk/wit/0.1",
        world: "model-graph",
        imports: { "tenon:plugin/graph.log": trappable },
    });
}
