//! A component as the host sees it.

use std::fmt;
use std::sync::Arc;

use host_graph::{BuildError, Catalogue, Graph, Value};
use host_plugins::{Budget, GraphPlugin, GraphSession, LogSink, PluginError, PluginName, Ticker};
use wasmtime::{Engine, Store};

use crate::contract_0_2::graph::{ModelGraphPre, PluginError as Given};
use crate::guest::Guest;
use crate::hook::Hook;

const HOOK: &str = "build";

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
        store.set_epoch_deadline(Ticker::periods(self.budget.time_ms));
        store.epoch_deadline_trap();
        let _running = self.ticker.run();
        self.instance.instantiate(&mut *store)?.call_build(&mut *store, config)
    }

    fn hook(&self) -> Hook<'_> {
        Hook { plugin: &self.name, name: HOOK, budget: &self.budget }
    }

    fn refused(&self, error: BuildError) -> PluginError {
        PluginError::Build { plugin: self.name.clone(), hook: HOOK, place: None, error: Box::new(error) }
    }

    /// What a guest gave up with. A refusal passed on unchanged is reported as the builder's own.
    fn given(&self, given: Given, session: &GraphSession) -> PluginError {
        let own = match &given {
            Given::Build(error) => session
                .last_refusal()
                .filter(|own| own.op == error.op && own.ordinal == error.ordinal as usize),
            _ => None,
        };
        self.hook().given(given, own.map(|own| self.refused(own.clone())))
    }
}

impl GraphPlugin for WasmPlugin {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn build(&self, config: &str, catalogue: Catalogue) -> Result<Graph, PluginError> {
        self.hook().check_text("config.json", config)?;
        let session = GraphSession::new(self.name.clone(), catalogue, &self.budget, self.log.clone());
        let mut store = Store::new(self.engine(), Guest::new(session, &self.budget));
        let result = self.call(&mut store, config);
        let guest = store.into_data();
        match result {
            Ok(Ok(logits)) => guest.session.finish(Value(logits)).map_err(|error| self.refused(error)),
            Ok(Err(given)) => Err(self.given(given, &guest.session)),
            Err(error) => Err(self.hook().fault(&error, guest.last_line)),
        }
    }
}
