//! Pipelines in Lua: a script asks a [`PipelineHost`] for generations.
//!
//! Each run has a fresh sandboxed state. `main(args)` and what it spawns are tasks: coroutines that a scheduler
//! resumes when what they wait for has come. While tasks wait, the host runs their generations in one batch.

mod calls;
mod clock;
mod fault;
mod json;
mod options;
mod run;
mod shared;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use host_plugins::pipeline::{PipelineBudget, PipelineError, PipelineHost, PipelineSource};
use mlua::chunk::Compiler;

use self::run::Run;

#[cfg(test)]
mod tests;

/// A pipeline whose sources compile.
#[derive(Debug)]
pub struct LuaPipeline {
    source: Arc<PipelineSource>,
}

/// What one run is given.
pub struct PipelineRun {
    /// Models, sessions and generations.
    pub host: Box<dyn PipelineHost>,
    /// What `main` gets.
    pub args: BTreeMap<String, String>,
    /// What it may spend.
    pub budget: PipelineBudget,
    /// Raised from outside to end the run.
    pub cancel: Arc<AtomicBool>,
    /// Gets each emitted text; with `false` nobody reads any more, and the run is cancelled.
    pub emit: Box<dyn FnMut(&str) -> bool + Send>,
    /// Gets each line of log.
    pub log: Box<dyn FnMut(&str) + Send>,
}

/// What one run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineOutcome {
    /// What `main` returned.
    pub value: serde_json::Value,
    /// Milliseconds in Lua.
    pub lua_ms: u64,
    /// Calls of the host.
    pub host_calls: usize,
    /// Tasks that were spawned.
    pub tasks: usize,
}

impl LuaPipeline {
    /// Checks that every source compiles; nothing of it runs.
    ///
    /// # Errors
    /// [`PipelineError::Syntax`].
    pub fn open(source: PipelineSource) -> Result<Self, PipelineError> {
        let modules = source.module_names().filter_map(|name| source.module(name));
        for script in std::iter::once(source.main()).chain(modules) {
            Compiler::new()
                .set_debug_level(1)
                .compile(&script.text)
                .map_err(|error| fault::syntax(&error, &script.name, &source))?;
        }
        Ok(LuaPipeline { source: Arc::new(source) })
    }

    /// Runs `main(args)` and every task that it spawns to their ends.
    ///
    /// Whatever the outcome, generations that still run are cancelled and sessions closed before this returns.
    ///
    /// # Errors
    /// What ended the run: an error of the script with its line, a bound of the budget, [`PipelineError::Cancelled`].
    pub fn run(&self, run: PipelineRun) -> Result<PipelineOutcome, PipelineError> {
        Run::start(Arc::clone(&self.source), run)?.into_outcome()
    }
}
