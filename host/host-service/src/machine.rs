//! What a process has whatever its folders say: devices, the model cache, the runtimes, the ledger of faults.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use host_cpu::CpuDevice;
use host_device::Device;
use host_engine::TokenTables;
use host_lua::{LuaPlugin, LuaPolicy, LuaQuant};
use host_models::{ModelStore, Settings};
use host_plugins::{
    Budget, GraphPlugin, LogSink, MonotonicClock, PluginError, PluginHealth, PluginPackage, QuantPlugin,
    Quarantine, Runtime, SamplingPolicy,
};
use host_registry::{Composition, DeviceFacts, FallbackCounts};
use host_wasm::WasmRuntime;

use crate::by_content::ByContent;
use crate::failure::Failure;

/// Vocabularies whose tables are kept, also when no model holds them any more.
const TOKEN_TABLES: usize = 4;

/// One a process.
pub struct Machine {
    /// Those of this machine and this build, the preferred one first.
    devices: Vec<Box<dyn Device>>,
    settings: Settings,
    store: ModelStore,
    /// What is known of plugins that failed, over all compositions of this process: a ledger for each build, so that
    /// a mended plugin begins anew and requests that still run with the old one say nothing of it.
    ledgers: ByContent<Quarantine>,
    clock: MonotonicClock,
    fallbacks: FallbackCounts,
    log: LogSink,
    code: CodeCache,
    /// The tokens of models as grammars see them, with the grammars that were compiled for them.
    token_tables: Arc<TokenTables>,
    /// Started by the first component; all share its clock and its cache.
    wasm: Mutex<Option<WasmRuntime>>,
}

impl Machine {
    /// This machine, with the model cache that the environment names. Plugins' log lines and the ledger's notices go
    /// to `log`.
    ///
    /// # Errors
    /// A variable of the model cache that cannot be what it says.
    pub fn new(log: LogSink) -> Result<Arc<Self>, Failure> {
        let settings = Settings::from_environment(None)?;
        Ok(Arc::new(Machine {
            devices: devices(),
            store: ModelStore::with_settings(settings.clone()),
            settings,
            ledgers: ByContent::default(),
            clock: MonotonicClock::start(),
            fallbacks: FallbackCounts::default(),
            log,
            code: CodeCache::default(),
            token_tables: Arc::new(TokenTables::new(TOKEN_TABLES)),
            wasm: Mutex::default(),
        }))
    }

    /// Those of this machine and this build, the preferred one first.
    pub fn devices(&self) -> impl Iterator<Item = &dyn Device> {
        self.devices.iter().map(AsRef::as_ref)
    }

    /// The device of a composition.
    pub fn device(&self, composition: &Composition) -> &dyn Device {
        let found = self.devices().find(|device| device.id() == composition.device());
        found.expect("the registry knows no other devices than these")
    }

    /// What the registry knows of the devices.
    pub(crate) fn device_facts(&self) -> Vec<DeviceFacts> {
        self.devices().map(|device| DeviceFacts::of(device, n_threads())).collect()
    }

    /// Where models come from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The model cache.
    pub fn store(&self) -> &ModelStore {
        &self.store
    }

    /// The ledger of a build's faults. It lasts as long as something can run that build.
    pub(crate) fn ledger(&self, package: &PluginPackage) -> Arc<Quarantine> {
        let made = || Ok::<_, Infallible>(Quarantine::new(self.clock, self.log()));
        let Ok(ledger) = self.ledgers.get(package.digest().as_hex(), made);
        ledger
    }

    /// How every plugin stands that ever faulted and was not forgiven.
    pub fn plugin_health(&self) -> Vec<PluginHealth> {
        self.ledgers.all().iter().flat_map(|ledger| ledger.health()).collect()
    }

    /// How often a profile served in place of another.
    pub fn fallbacks(&self) -> &FallbackCounts {
        &self.fallbacks
    }

    /// The tokens of models as grammars see them, with the grammars that were compiled for them: models with the same
    /// vocabulary share them, in whatever generation they serve.
    pub fn token_tables(&self) -> &Arc<TokenTables> {
        &self.token_tables
    }

    /// Where plugins' log lines go.
    pub fn log(&self) -> LogSink {
        self.log.clone()
    }

    /// The cache folder.
    pub fn cache(&self) -> &Path {
        &self.settings.cache
    }

    /// A graph plugin's code within a budget, loaded once for all that hold it.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub(crate) fn graph_code(
        &self,
        package: &PluginPackage,
        budget: Budget,
    ) -> Result<Arc<dyn GraphPlugin>, PluginError> {
        self.code.graphs.get(&code_key(package, &budget), || {
            let log = self.log();
            Ok(match package.manifest().runtime {
                Runtime::Lua => Arc::new(LuaPlugin::open(package, budget, log)?),
                Runtime::Wasm => Arc::new(self.wasm()?.open(package, budget, log)?),
            })
        })
    }

    /// The same for a sampling policy.
    ///
    /// # Errors
    /// As [`Machine::graph_code`].
    pub(crate) fn policy_code(
        &self,
        package: &PluginPackage,
        budget: Budget,
    ) -> Result<Arc<dyn SamplingPolicy>, PluginError> {
        self.code.policies.get(&code_key(package, &budget), || {
            let log = self.log();
            Ok(match package.manifest().runtime {
                Runtime::Lua => Arc::new(LuaPolicy::open(package, budget, log)?),
                Runtime::Wasm => Arc::new(self.wasm()?.open_policy(package, budget, log)?),
            })
        })
    }

    /// The same for a quantisation profile.
    ///
    /// # Errors
    /// As [`Machine::graph_code`].
    pub(crate) fn quant_code(
        &self,
        package: &PluginPackage,
        budget: Budget,
    ) -> Result<Arc<dyn QuantPlugin>, PluginError> {
        self.code.quants.get(&code_key(package, &budget), || {
            let log = self.log();
            Ok(match package.manifest().runtime {
                Runtime::Lua => Arc::new(LuaQuant::open(package, budget, log)?),
                Runtime::Wasm => Arc::new(self.wasm()?.open_quant(package, budget, log)?),
            })
        })
    }

    /// The runtime of components, started at the first call.
    ///
    /// # Errors
    /// [`PluginError::Cache`], [`PluginError::Engine`].
    pub fn wasm(&self) -> Result<WasmRuntime, PluginError> {
        let mut started = self.wasm.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*started {
            return Ok(runtime.clone());
        }
        Ok(started.insert(WasmRuntime::new(Some(&self.compiled_plugins()))?).clone())
    }

    /// Where compiled plugins are kept.
    fn compiled_plugins(&self) -> PathBuf {
        self.cache().join("plugins")
    }
}

/// A build within a budget: two profiles that bound one plugin differently do not share its code.
fn code_key(package: &PluginPackage, budget: &Budget) -> String {
    format!("{} {budget:?}", package.digest().as_hex())
}

/// Plugins' code by the digest of manifest and entry, and by budget.
#[derive(Default)]
struct CodeCache {
    graphs: ByContent<dyn GraphPlugin>,
    policies: ByContent<dyn SamplingPolicy>,
    quants: ByContent<dyn QuantPlugin>,
}

/// How many threads `all` means here.
pub fn n_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The devices of this machine and this build.
fn devices() -> Vec<Box<dyn Device>> {
    #[cfg(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64")))]
    return vec![Box::new(host_mlx::MlxDevice::new()), Box::new(CpuDevice::new())];
    #[cfg(not(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64"))))]
    return vec![Box::new(CpuDevice::new())];
}
