//! Plugins and pipelines written in Lua: sandboxed Luau through mlua.
//!
//! A script defines the functions of its kind: `build(config, g)` for a model's graph, `open(params, vocabulary)` for
//! a sampling policy, `plan(params, tensors, config)` for a quantisation profile. Each build, plan and request runs in
//! a fresh state that holds the plain libraries and nothing else: no files, no clock, no random numbers but the
//! request's, no loading of code.
//! Time and memory are bounded; an error names the script's file and line.

mod args;
mod builder;
mod class;
mod config;
mod deadline;
mod fault;
mod library;
mod luau;
mod options;
mod pipeline;
mod plugin;
mod policy;
mod quant;
mod sandbox;
mod script;
mod spare;
mod step;
mod stubs;

pub use pipeline::{LuaPipeline, PipelineOutcome, PipelineRun};
pub use plugin::LuaPlugin;
pub use policy::LuaPolicy;
pub use quant::LuaQuant;
pub use stubs::stubs;

#[cfg(test)]
mod tests;
