//! A component as the host sees it.

use std::fmt;
use std::sync::Arc;

use host_graph::{BuildError, Catalogue, Graph, Value};
use host_plugins::{Budget, FieldProblem, GraphPlugin, GraphSession, LogSink, PluginError, PluginName, clip};
use wasmtime::{Engine, Store, Trap};

use crate::bindings::tenon::plugin::types::FieldError;
use crate::bindings::{ModelGraphPre, PluginError as Given};
use crate::guest::{Fault, Guest};
use crate::ticker::Ticker;

const HOOK: &str = "build";
/// Fields in one error of a guest.
const MAX_FIELDS: usize = 256;

/// A model-graph plugin as a component.
pub struct WasmPlugin {
    name: PluginName,
    instance: ModelGraphPre<Guest>,
    ticker: Arc<Ticker>,
    budget: Budget,
    log: LogSink,
}

impl fmt::Debug for WasmPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmPlugin").field("name", &self.name).finish_non_exhaustive()
    }
}

impl WasmPlugin {
    pub(crate) fn new(
        name: PluginName,
        instance: ModelGraphPre<Guest>,
        ticker: Arc<Ticker>,
        budget: Budget,
        log: LogSink,
    ) -> Self {
        WasmPlugin { name, instance, ticker, budget, log }
    }

    fn engine(&self) -> &Engine {
        self.instance.engine()
    }

    /// Instantiates and calls the hook. The deadline covers both.
    fn call(&self, store: &mut Store<Guest>, config: &str) -> wasmtime::Result<Result<u32, Given>> {
        store.limiter(|guest| &mut guest.limits);
        store.set_epoch_deadline(Ticker::epochs(self.budget.time_ms));
        store.epoch_deadline_trap();
        let _running = self.ticker.run();
        self.instance.instantiate(&mut *store)?.call_build(&mut *store, config)
    }

    /// What a call that did not return means.
    fn fault(&self, error: &wasmtime::Error, last_line: Option<String>) -> PluginError {
        let plugin = self.name.clone();
        if let Some(fault) = error.downcast_ref::<Fault>() {
            return match fault {
                Fault::Memory => {
                    PluginError::Memory { plugin, hook: HOOK, budget_bytes: self.budget.memory_bytes }
                }
                Fault::Table => self.output("table elements", crate::guest::MAX_TABLE_ELEMENTS),
                Fault::Log => self.output("bytes of log text", self.budget.log_bytes),
            };
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => PluginError::Time { plugin, hook: HOOK, budget_ms: self.budget.time_ms },
            Some(trap) => {
                let panic = last_line.filter(|line| line.starts_with("panicked at"));
                let message = clip(panic.unwrap_or_else(|| trap.to_string()));
                PluginError::Trap { plugin, hook: HOOK, message }
            }
            None => {
                let message = clip(error.root_cause().to_string());
                PluginError::Trap { plugin, hook: HOOK, message }
            }
        }
    }

    fn output(&self, what: &'static str, limit: usize) -> PluginError {
        PluginError::Output { plugin: self.name.clone(), hook: HOOK, what, limit }
    }

    fn refused(&self, error: BuildError) -> PluginError {
        PluginError::Build { plugin: self.name.clone(), place: None, error: Box::new(error) }
    }

    /// What a guest gave up with. A refusal passed on unchanged is reported as the builder's own.
    fn given(&self, given: Given, session: &GraphSession) -> PluginError {
        let plugin = self.name.clone();
        match given {
            Given::InvalidConfig(fields) | Given::Unsupported(fields) if fields.len() > MAX_FIELDS => {
                self.output("fields of an error", MAX_FIELDS)
            }
            Given::InvalidConfig(fields) => {
                PluginError::InvalidConfig { plugin, fields: problems(fields), place: None }
            }
            Given::Unsupported(fields) => {
                PluginError::Unsupported { plugin, fields: problems(fields), place: None }
            }
            Given::Build(error) => {
                let own = session.last_refusal();
                match own.filter(|own| own.op == error.op && own.ordinal == error.ordinal as usize) {
                    Some(own) => self.refused(own.clone()),
                    None => {
                        let message = "it passes on a builder error that the builder never gave".to_owned();
                        PluginError::Guest { plugin, message, place: None }
                    }
                }
            }
            Given::Internal(message) => PluginError::Guest { plugin, message: clip(message), place: None },
        }
    }
}

impl GraphPlugin for WasmPlugin {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn build(&self, config: &str, catalogue: Catalogue) -> Result<Graph, PluginError> {
        if config.len() > self.budget.config_bytes {
            let field = FieldProblem {
                path: "config.json".to_owned(),
                expected: format!("at most {} bytes", self.budget.config_bytes),
                found: config.len().to_string(),
            };
            return Err(PluginError::InvalidConfig {
                plugin: self.name.clone(),
                fields: vec![field],
                place: None,
            });
        }
        let session = GraphSession::new(self.name.clone(), catalogue, &self.budget, self.log.clone());
        let mut store = Store::new(self.engine(), Guest::new(session, &self.budget));
        let result = self.call(&mut store, config);
        let guest = store.into_data();
        match result {
            Ok(Ok(logits)) => guest.session.finish(Value(logits)).map_err(|error| self.refused(error)),
            Ok(Err(given)) => Err(self.given(given, &guest.session)),
            Err(error) => Err(self.fault(&error, guest.last_line)),
        }
    }
}

fn problems(fields: Vec<FieldError>) -> Vec<FieldProblem> {
    let problem = |field: FieldError| FieldProblem {
        path: clip(field.path),
        expected: clip(field.expected),
        found: clip(field.found),
    };
    fields.into_iter().map(problem).collect()
}
