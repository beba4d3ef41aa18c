//! Plugins under test, and what the suites over both runtimes share.

pub mod attacks;
mod core_guest;
mod fixtures;
pub mod measure;
mod packages;
mod policies;

pub use core_guest::{API_SECTION, core_guest, whole_guest, world_guest};
pub use fixtures::{fixture_catalogue, fixture_config, gemma3_catalogue, llama_catalogue};
pub use packages::{
    forced_wasm, lua_package, lua_script, lua_script_of, manifest, misbehave_lua, misbehave_policy_lua,
    misbehave_policy_wasm, misbehave_wasm, pass_through_wasm, released_package, sixteen_runs_wasm,
    wasm_package, wasm_plugin, workspace,
};
pub use policies::{Bytes, Loop, Numbers, Row, logits, numbers};
