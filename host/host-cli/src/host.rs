//! What this program has: plugins, profiles, a device, the model cache; and the registry over them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use host_cpu::CpuDevice;
use host_device::Device;
use host_lua::{LuaPlugin, LuaPolicy, LuaQuant};
use host_models::{ModelStore, Settings};
use host_plugins::{
    Budget, GraphPlugin, LogSink, MonotonicClock, PluginError, PluginFolder, PluginPackage, QuantPlugin,
    Quarantine, QuarantineRules, Runtime, SamplingPolicy,
};
use host_registry::{
    Composition, DeviceFacts, Parts, PluginFacts, ProfileSet, QuantFacts, QuantSet, Registry,
};
use host_wasm::WasmRuntime;

use crate::args::FolderArgs;
use crate::error::Failure;
use crate::folders;

/// The checkpoint formats that `host-weights` reads.
const LOADERS: [&str; 2] = ["safetensors", "gguf"];
/// What can become of weights.
const QUANTS: [&str; 1] = ["as-published"];
/// The decoding loops of `host-engine`.
const LOOPS: [&str; 1] = ["autoregressive"];

/// Everything that does not depend on a model.
pub(crate) struct Host {
    pub(crate) plugin_dirs: Vec<PathBuf>,
    pub(crate) profile_dirs: Vec<PathBuf>,
    pub(crate) plugins: PluginFolder,
    pub(crate) profiles: ProfileSet,
    pub(crate) quants: QuantSet,
    /// Those of this machine and this build, the preferred one first.
    pub(crate) devices: Vec<Box<dyn Device>>,
    pub(crate) registry: Registry,
    pub(crate) settings: Settings,
    pub(crate) store: ModelStore,
    /// What is known of plugins that failed, over all compositions of this process.
    pub(crate) quarantine: Arc<Quarantine>,
    /// Started by the first component; all share its clock and its cache.
    wasm: Mutex<Option<WasmRuntime>>,
}

impl Host {
    /// Reads the manifests of all plugins and all profiles.
    ///
    /// # Errors
    /// Folders that are not there, every fault of every profile, two plugins that cannot be told apart. A broken
    /// plugin alone is no error: it is reported when a profile names it.
    pub(crate) fn load(args: &FolderArgs) -> Result<Self, Failure> {
        let (plugin_dirs, profile_dirs) = (folders::plugins(args)?, folders::profiles(args)?);
        let plugins = PluginFolder::scan(&plugin_dirs)?;
        let profiles = profiles(args)?;
        let quants = QuantSet::load(&profile_dirs).map_err(|errors| Failure::several(&errors))?;
        let devices = devices();
        let registry = registry(&plugins, &quants, &devices)?;
        let settings = Settings::from_environment(None)?;
        let store = ModelStore::with_settings(settings.clone());
        let quarantine = Quarantine::new(MonotonicClock::start(), log_to_stderr());
        let wasm = Mutex::default();
        Ok(Host {
            plugin_dirs,
            profile_dirs,
            plugins,
            profiles,
            quants,
            devices,
            registry,
            settings,
            store,
            quarantine,
            wasm,
        })
    }

    /// The device of a composition.
    pub(crate) fn device(&self, composition: &Composition) -> &dyn Device {
        let found = self.devices.iter().find(|device| device.id() == composition.device());
        found.expect("the registry knows no other devices than these").as_ref()
    }

    /// The plugin of a composition, ready to build.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub(crate) fn graph_plugin(&self, composition: &Composition) -> Result<Box<dyn GraphPlugin>, Failure> {
        let package = self.package(composition.graph());
        let (budget, log) = (Budget::default(), log_to_stderr());
        let plugin: Box<dyn GraphPlugin> = match package.manifest().runtime {
            Runtime::Lua => Box::new(LuaPlugin::open(package, budget, log)?),
            Runtime::Wasm => Box::new(self.wasm()?.open(package, budget, log)?),
        };
        Ok(match composition.quarantine() {
            Some(rules) => self.quarantine.graph(rules, plugin),
            None => plugin,
        })
    }

    /// A sampling policy of the registry, ready for requests; kept out as `rules` say.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub(crate) fn sampling_policy(
        &self,
        plugin: &PluginFacts,
        rules: Option<QuarantineRules>,
    ) -> Result<Box<dyn SamplingPolicy>, Failure> {
        let package = self.package(plugin);
        let (budget, log) = (Budget::default(), log_to_stderr());
        let plugin: Box<dyn SamplingPolicy> = match package.manifest().runtime {
            Runtime::Lua => Box::new(LuaPolicy::open(package, budget, log)?),
            Runtime::Wasm => Box::new(self.wasm()?.open_policy(package, budget, log)?),
        };
        Ok(match rules {
            Some(rules) => self.quarantine.policy(rules, plugin),
            None => plugin,
        })
    }

    /// A quantisation profile of the registry, ready to plan; kept out as `rules` say.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub(crate) fn quant_plugin(
        &self,
        plugin: &PluginFacts,
        rules: Option<QuarantineRules>,
    ) -> Result<Box<dyn QuantPlugin>, Failure> {
        let package = self.package(plugin);
        let (budget, log) = (Budget::default(), log_to_stderr());
        let plugin: Box<dyn QuantPlugin> = match package.manifest().runtime {
            Runtime::Lua => Box::new(LuaQuant::open(package, budget, log)?),
            Runtime::Wasm => Box::new(self.wasm()?.open_quant(package, budget, log)?),
        };
        Ok(match rules {
            Some(rules) => self.quarantine.quant(rules, plugin),
            None => plugin,
        })
    }

    fn package(&self, wanted: &PluginFacts) -> &PluginPackage {
        let package = self.plugins.packages().find(|package| PluginFacts::from(*package) == *wanted);
        package.expect("the registry knows no other plugins than these")
    }

    fn wasm(&self) -> Result<WasmRuntime, PluginError> {
        let mut started = self.wasm.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*started {
            return Ok(runtime.clone());
        }
        Ok(started.insert(WasmRuntime::new(Some(&self.compiled_plugins()))?).clone())
    }

    /// Where compiled plugins are kept.
    fn compiled_plugins(&self) -> PathBuf {
        self.settings.cache.join("plugins")
    }
}

/// All profiles.
///
/// # Errors
/// A folder that is not there, and every fault of every profile.
pub(crate) fn profiles(args: &FolderArgs) -> Result<ProfileSet, Failure> {
    ProfileSet::load(&folders::profiles(args)?).map_err(|errors| Failure::several(&errors))
}

/// How many threads `all` means here.
pub(crate) fn n_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The devices of this machine and this build.
fn devices() -> Vec<Box<dyn Device>> {
    #[cfg(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64")))]
    return vec![Box::new(host_mlx::MlxDevice::new()), Box::new(CpuDevice::new())];
    #[cfg(not(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64"))))]
    return vec![Box::new(CpuDevice::new())];
}

fn registry(
    plugins: &PluginFolder,
    quants: &QuantSet,
    devices: &[Box<dyn Device>],
) -> Result<Registry, Failure> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Ok(Registry::new(Parts {
        plugins: plugins.packages().map(PluginFacts::from).collect(),
        devices: devices.iter().map(|device| DeviceFacts::of(device.as_ref(), n_threads())).collect(),
        loaders: names(&LOADERS),
        quants: names(&QUANTS),
        schemes: quants.iter().map(|rules| QuantFacts::from(&**rules)).collect(),
        loops: names(&LOOPS),
    })?)
}

fn log_to_stderr() -> LogSink {
    LogSink::new(|plugin, line| eprintln!("plugin {plugin}: {line}"))
}
