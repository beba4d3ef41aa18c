//! The engine that all components of a process share.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use host_plugins::{Budget, ContractVersion, Kind, LogSink, PluginError, PluginPackage, Runtime, Ticker};
use wasmtime::Engine;
use wasmtime::component::{Component, InstancePre, Linker};

use crate::cache::{Cache, deserialize};
use crate::contract::{self, MODEL_GRAPH, QUANT_PROFILE, SAMPLING_POLICY, World};
use crate::contract_0_2::graph::ModelGraphPre;
use crate::contract_0_2::quant::QuantProfilePre;
use crate::guest::Guest;
use crate::plugin::WasmPlugin;
use crate::policy::WasmPolicy;
use crate::policy_exports::{PolicyPre, policy_0_1, policy_0_2};
use crate::policy_guest::PolicyGuest;
use crate::quant::{QuantGuest, WasmQuant};
use crate::settings::settings;
use crate::size;
use crate::{contract_0_1, contract_0_2};

/// An engine, its clock and its cache.
#[derive(Clone)]
pub struct WasmRuntime {
    engine: Engine,
    ticker: Arc<Ticker>,
    cache: Option<Cache>,
    linkers: Arc<[Linkers; 2]>,
}

/// What components of one contract may import.
struct Linkers {
    version: ContractVersion,
    graphs: Imports<Guest>,
    policies: Imports<PolicyGuest>,
    quants: Imports<QuantGuest>,
    policy: fn(InstancePre<PolicyGuest>) -> wasmtime::Result<Box<dyn PolicyPre>>,
}

/// What components of one world may import, listed when the first of them comes: most runs see one world of the six.
struct Imports<T: 'static> {
    list: fn(&Engine) -> wasmtime::Result<Linker<T>>,
    linker: OnceLock<Linker<T>>,
}

impl<T: 'static> Imports<T> {
    fn new(list: fn(&Engine) -> wasmtime::Result<Linker<T>>) -> Self {
        Imports { list, linker: OnceLock::new() }
    }

    fn linker(&self, engine: &Engine) -> Result<&Linker<T>, PluginError> {
        if let Some(linker) = self.linker.get() {
            return Ok(linker);
        }
        let linker = (self.list)(engine).map_err(|error| engine_error(&error))?;
        Ok(self.linker.get_or_init(|| linker))
    }
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
        let engine = Engine::new(&settings(guests)).map_err(|error| engine_error(&error))?;
        let ticker = epochs(&engine).map_err(|error| PluginError::Engine { message: error.to_string() })?;
        let open = |folder: &Path| {
            Cache::open(folder).map_err(|source| PluginError::Cache { path: folder.to_owned(), source })
        };
        let cache = cache.map(open).transpose()?;
        Ok(WasmRuntime { engine, ticker: Arc::new(ticker), cache, linkers: Arc::new(linkers()) })
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
        let (component, linkers) = self.component(package, Kind::ModelGraph, MODEL_GRAPH)?;
        let instance = pre_linked(package, &component, linkers.graphs.linker(&self.engine)?)?;
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
        let (component, linkers) = self.component(package, Kind::SamplingPolicy, SAMPLING_POLICY)?;
        let instance = pre_linked(package, &component, linkers.policies.linker(&self.engine)?)?;
        let instance = (linkers.policy)(instance).map_err(|error| load_error(package, &error))?;
        let (name, ticker) = (package.name().clone(), Arc::clone(&self.ticker));
        Ok(WasmPolicy::new(name, self.engine.clone(), instance, ticker, budget, log))
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
        let (component, linkers) = self.component(package, Kind::QuantProfile, QUANT_PROFILE)?;
        let instance = pre_linked(package, &component, linkers.quants.linker(&self.engine)?)?;
        let instance = QuantProfilePre::new(instance).map_err(|error| load_error(package, &error))?;
        Ok(WasmQuant::new(package.name().clone(), instance, Arc::clone(&self.ticker), budget, log))
    }

    /// Checks a package against its world; gives its component and what its contract offers.
    fn component(
        &self,
        package: &PluginPackage,
        kind: Kind,
        world: World,
    ) -> Result<(Component, &Linkers), PluginError> {
        let (name, manifest) = (package.name(), package.manifest());
        if manifest.runtime != Runtime::Wasm {
            let (expected, found) = (Runtime::Wasm.name(), manifest.runtime.name());
            return Err(PluginError::WrongRuntime { plugin: name.clone(), expected, found });
        }
        manifest.need_kind(kind)?;
        size::check(package)?;
        let known = self.cache.as_ref().and_then(|cache| cache.load(&self.engine, package.digest()));
        if known.is_none() {
            contract::validate(package.entry(), name)?;
        }
        let version = contract::check(package.entry(), name, manifest.sdk, world)?;
        let linkers = self.linkers.iter().find(|linkers| linkers.version == version);
        let component = known.map_or_else(|| self.compile(package), Ok)?;
        Ok((component, linkers.expect("each served contract has its linkers")))
    }

    fn compile(&self, package: &PluginPackage) -> Result<Component, PluginError> {
        let load = |message: String| PluginError::Load { plugin: package.name().clone(), message };
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

fn pre_linked<T: 'static>(
    package: &PluginPackage,
    component: &Component,
    linker: &Linker<T>,
) -> Result<InstancePre<T>, PluginError> {
    linker.instantiate_pre(component).map_err(|error| load_error(package, &error))
}

/// The clock of the engine's epochs.
fn epochs(engine: &Engine) -> std::io::Result<Ticker> {
    let engine = engine.weak();
    Ticker::start("wasm-epochs", move |n| {
        let Some(engine) = engine.upgrade() else { return false };
        (0..n).for_each(|_| engine.increment_epoch());
        true
    })
}

/// One for each served contract.
fn linkers() -> [Linkers; 2] {
    [
        Linkers {
            version: ContractVersion::V0_1,
            graphs: Imports::new(contract_0_1::graphs),
            policies: Imports::new(contract_0_1::policies),
            quants: Imports::new(contract_0_1::quants),
            policy: policy_0_1,
        },
        Linkers {
            version: ContractVersion::V0_2,
            graphs: Imports::new(contract_0_2::graphs),
            policies: Imports::new(contract_0_2::policies),
            quants: Imports::new(contract_0_2::quants),
            policy: policy_0_2,
        },
    ]
}

fn engine_error(error: &wasmtime::Error) -> PluginError {
    PluginError::Engine { message: format!("{error:#}") }
}

fn load_error(package: &PluginPackage, error: &wasmtime::Error) -> PluginError {
    PluginError::Load { plugin: package.name().clone(), message: format!("{error:#}") }
}
