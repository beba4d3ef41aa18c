//! Plugins as WebAssembly components, on wasmtime: model graphs, sampling policies, quantisation profiles.
//!
//! A component imports its world of `plugin-sdk/wit/` and nothing else; a foreign import is refused by name before
//! anything is compiled. Each released contract has a module with what its components may import. Each build, plan and request runs in a store of its own, under a memory limit and a
//! deadline that counts anew at each entry. Compiled code is kept in a folder that the caller names, so that
//! opening a plugin again compiles nothing.

mod cache;
mod contract;
mod contract_0_1;
mod contract_0_2;
mod guest;
mod hook;
mod plugin;
mod policy;
mod policy_exports;
mod policy_guest;
mod quant;
mod runtime;
mod settings;
mod size;
mod words;

pub use plugin::WasmPlugin;
pub use policy::WasmPolicy;
pub use quant::WasmQuant;
pub use runtime::WasmRuntime;
