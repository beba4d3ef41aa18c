//! Model-graph plugins written in Lua: sandboxed Luau through mlua.
//!
//! A script defines `build(config, g)` and returns the logits. Each build runs in a fresh state that holds
//! the plain libraries and nothing else: no files, no clock, no random numbers, no loading of code.
//! Time and memory are bounded; an error names the script's file and line.

mod args;
mod builder;
mod config;
mod fault;
mod plugin;
mod sandbox;
mod watchdog;

pub use plugin::LuaPlugin;

#[cfg(test)]
mod tests;
