//! The engine that all components of a process share.

use std::path::Path;
use std::sync::Arc;

use host_plugins::{Budget, LogSink, PluginError, PluginPackage, Runtime};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Engine};

use crate::bindings::{ModelGraph, ModelGraphPre};
use crate::cache::{Cache, deserialize};
use crate::contract;
use crate::guest::Guest;
use crate::plugin::WasmPlugin;
use crate::ticker::Ticker;

/// An engine, its clock and its cache.
#[derive(Clone)]
pub struct WasmRuntime {
    engine: Engine,
    ticker: Arc<Ticker>,
    cache: Option<Cache>,
    linker: Linker<Guest>,
}

impl std::fmt::Debug for WasmRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasmRuntime").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl WasmRuntime {
    /// An engine that keeps compiled components in `cache`, or nowhere when it is `None`.
    ///
    /// # Errors
    /// [`PluginError::Cache`] when the folder cannot be made, [`PluginError::Engine`] when this machine
    /// cannot run the engine.
    pub fn new(cache: Option<&Path>) -> Result<Self, PluginError> {
        let failed = |message: String| PluginError::Engine { message };
        let engine = Engine::new(&settings()).map_err(|error| failed(error.to_string()))?;
        let mut linker = Linker::new(&engine);
        ModelGraph::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut Guest| guest)
            .map_err(|error| failed(error.to_string()))?;
        let ticker = Arc::new(Ticker::start(&engine).map_err(|error| failed(error.to_string()))?);
        let open = |folder: &Path| {
            Cache::open(folder).map_err(|source| PluginError::Cache { path: folder.to_owned(), source })
        };
        Ok(WasmRuntime { engine, ticker, cache: cache.map(open).transpose()?, linker })
    }

    /// Checks a package, compiles it or takes it from the cache; nothing of it runs.
    ///
    /// # Errors
    /// [`PluginError::WrongRuntime`], [`PluginError::Binary`], [`PluginError::Contract`],
    /// [`PluginError::ForeignImport`], [`PluginError::MissingExport`], [`PluginError::Load`].
    pub fn open(
        &self,
        package: &PluginPackage,
        budget: Budget,
        log: LogSink,
    ) -> Result<WasmPlugin, PluginError> {
        let (name, manifest) = (package.name().clone(), package.manifest());
        if manifest.runtime != Runtime::Wasm {
            let (expected, found) = (Runtime::Wasm.name(), manifest.runtime.name());
            return Err(PluginError::WrongRuntime { plugin: name, expected, found });
        }
        contract::check(package.entry(), &name, manifest.sdk)?;
        let component = self.component(package)?;
        let load = |error: wasmtime::Error| PluginError::Load {
            plugin: name.clone(),
            message: format!("{error:#}"),
        };
        let instance = self.linker.instantiate_pre(&component).map_err(load)?;
        let instance = ModelGraphPre::new(instance).map_err(load)?;
        Ok(WasmPlugin::new(name, instance, Arc::clone(&self.ticker), budget, log))
    }

    fn component(&self, package: &PluginPackage) -> Result<Component, PluginError> {
        let load = |message: String| PluginError::Load { plugin: package.name().clone(), message };
        let known = self.cache.as_ref().and_then(|cache| cache.load(&self.engine, package.digest()));
        if let Some(component) = known {
            return Ok(component);
        }
        let code = self.engine.precompile_component(package.entry());
        let code = code.map_err(|error| load(format!("{error:#}")))?;
        if let Some(cache) = &self.cache {
            cache
                .store(&self.engine, package.digest(), &code)
                .map_err(|source| PluginError::Cache { path: package.folder().to_owned(), source })?;
        }
        deserialize(&self.engine, &code).ok_or_else(|| load("the engine refused its own code".to_owned()))
    }
}

/// Epochs stop a guest at its deadline; canonical NaNs keep what a guest computes the same on every machine.
fn settings() -> Config {
    let mut config = Config::new();
    config.wasm_component_model(true);
    config.epoch_interruption(true);
    config.cranelift_nan_canonicalization(true);
    config.max_wasm_stack(512 << 10);
    config
}
