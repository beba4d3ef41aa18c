//! The engine that all components of a process share.

use std::path::Path;
use std::sync::Arc;

use host_plugins::{Budget, Kind, LogSink, PluginError, PluginPackage, Runtime};
use wasmtime::Engine;
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};

use crate::bindings::graph::tenon::plugin::types;
use crate::bindings::graph::{ModelGraph, ModelGraphPre};
use crate::bindings::quant::{QuantProfile, QuantProfilePre};
use crate::bindings::sampling::{SamplingPolicy, SamplingPolicyPre};
use crate::cache::{Cache, deserialize};
use crate::contract::{self, MODEL_GRAPH, QUANT_PROFILE, SAMPLING_POLICY, World};
use crate::guest::Guest;
use crate::plugin::WasmPlugin;
use crate::policy::WasmPolicy;
use crate::policy_guest::PolicyGuest;
use crate::quant::{QuantGuest, WasmQuant};
use crate::settings::settings;
use crate::size;
use crate::ticker::Ticker;

/// An engine, its clock and its cache.
#[derive(Clone)]
pub struct WasmRuntime {
    engine: Engine,
    ticker: Arc<Ticker>,
    cache: Option<Cache>,
    graphs: Linker<Guest>,
    policies: Linker<PolicyGuest>,
    quants: Linker<QuantGuest>,
}

impl std::fmt::Debug for WasmRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasmRuntime").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl WasmRuntime {
    /// Guests that exist at once, unless the caller says otherwise: each running request with a policy has one.
    pub const GUESTS: u32 = 256;

    /// An engine that keeps compiled components in `cache`, or nowhere when it is `None`, with room for
    /// [`WasmRuntime::GUESTS`].
    ///
    /// # Errors
    /// [`PluginError::Cache`] when the folder cannot be made, [`PluginError::Engine`] when this machine
    /// cannot run the engine.
    pub fn new(cache: Option<&Path>) -> Result<Self, PluginError> {
        Self::with_guests(cache, Self::GUESTS)
    }

    /// The same with room for so many guests at once; one more is refused with [`PluginError::NoRoom`].
    ///
    /// # Errors
    /// As [`WasmRuntime::new`].
    pub fn with_guests(cache: Option<&Path>, guests: u32) -> Result<Self, PluginError> {
        let failed = |message: String| PluginError::Engine { message };
        let engine = Engine::new(&settings(guests)).map_err(|error| failed(format!("{error:#}")))?;
        let (graphs, policies, quants) = linkers(&engine).map_err(|error| failed(error.to_string()))?;
        let ticker = Arc::new(Ticker::start(&engine).map_err(|error| failed(error.to_string()))?);
        let open = |folder: &Path| {
            Cache::open(folder).map_err(|source| PluginError::Cache { path: folder.to_owned(), source })
        };
        Ok(WasmRuntime { engine, ticker, cache: cache.map(open).transpose()?, graphs, policies, quants })
    }

    /// Checks a package, compiles it or takes it from the cache; nothing of it runs.
    ///
    /// # Errors
    /// [`PluginError::WrongRuntime`], [`PluginError::WrongKind`], [`PluginError::Binary`], [`PluginError::Contract`],
    /// [`PluginError::ComponentTooLarge`], [`PluginError::ForeignImport`], [`PluginError::MissingExport`], [`PluginError::Load`].
    pub fn open(
        &self,
        package: &PluginPackage,
        budget: Budget,
        log: LogSink,
    ) -> Result<WasmPlugin, PluginError> {
        let instance = self.instance(package, Kind::ModelGraph, MODEL_GRAPH, &self.graphs)?;
        let instance = ModelGraphPre::new(instance).map_err(|error| load_error(package, &error))?;
        Ok(WasmPlugin::new(package.name().clone(), instance, Arc::clone(&self.ticker), budget, log))
    }

    /// The same for a sampling policy.
    ///
    /// # Errors
    /// As [`WasmRuntime::open`].
    pub fn open_policy(
        &self,
        package: &PluginPackage,
        budget: Budget,
        log: LogSink,
    ) -> Result<WasmPolicy, PluginError> {
        let instance = self.instance(package, Kind::SamplingPolicy, SAMPLING_POLICY, &self.policies)?;
        let instance = SamplingPolicyPre::new(instance).map_err(|error| load_error(package, &error))?;
        Ok(WasmPolicy::new(package.name().clone(), instance, Arc::clone(&self.ticker), budget, log))
    }

    /// The same for a quantisation profile.
    ///
    /// # Errors
    /// As [`WasmRuntime::open`].
    pub fn open_quant(
        &self,
        package: &PluginPackage,
        budget: Budget,
        log: LogSink,
    ) -> Result<WasmQuant, PluginError> {
        let instance = self.instance(package, Kind::QuantProfile, QUANT_PROFILE, &self.quants)?;
        let instance = QuantProfilePre::new(instance).map_err(|error| load_error(package, &error))?;
        Ok(WasmQuant::new(package.name().clone(), instance, Arc::clone(&self.ticker), budget, log))
    }

    /// Checks a package against its world and links it.
    fn instance<T: 'static>(
        &self,
        package: &PluginPackage,
        kind: Kind,
        world: World,
        linker: &Linker<T>,
    ) -> Result<InstancePre<T>, PluginError> {
        let (name, manifest) = (package.name(), package.manifest());
        if manifest.runtime != Runtime::Wasm {
            let (expected, found) = (Runtime::Wasm.name(), manifest.runtime.name());
            return Err(PluginError::WrongRuntime { plugin: name.clone(), expected, found });
        }
        manifest.need_kind(kind)?;
        size::check(package)?;
        contract::check(package.entry(), name, manifest.sdk, world)?;
        let component = self.component(package)?;
        linker.instantiate_pre(&component).map_err(|error| load_error(package, &error))
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

type Linkers = (Linker<Guest>, Linker<PolicyGuest>, Linker<QuantGuest>);

/// What components of each world may import.
fn linkers(engine: &Engine) -> wasmtime::Result<Linkers> {
    let mut graphs = Linker::new(engine);
    ModelGraph::add_to_linker::<_, HasSelf<_>>(&mut graphs, |guest: &mut Guest| guest)?;
    let mut policies = Linker::new(engine);
    types::add_to_linker::<_, HasSelf<_>>(&mut policies, |guest: &mut PolicyGuest| guest)?;
    SamplingPolicy::add_to_linker::<_, HasSelf<_>>(&mut policies, |guest: &mut PolicyGuest| guest)?;
    let mut quants = Linker::new(engine);
    types::add_to_linker::<_, HasSelf<_>>(&mut quants, |guest: &mut QuantGuest| guest)?;
    QuantProfile::add_to_linker::<_, HasSelf<_>>(&mut quants, |guest: &mut QuantGuest| guest)?;
    Ok((graphs, policies, quants))
}

fn load_error(package: &PluginPackage, error: &wasmtime::Error) -> PluginError {
    PluginError::Load { plugin: package.name().clone(), message: format!("{error:#}") }
}
