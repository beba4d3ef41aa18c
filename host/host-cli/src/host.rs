//! What this program has: plugins, profiles, a device, the model cache; and the registry over them.

use std::path::PathBuf;
use std::thread;

use host_cpu::CpuDevice;
use host_device::Device;
use host_lua::LuaPlugin;
use host_models::{ModelStore, Settings};
use host_plugins::{Budget, GraphPlugin, LogSink, PluginFolder, PluginPackage, Runtime};
use host_registry::{Composition, DeviceFacts, Parts, PluginFacts, ProfileSet, Registry};
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
    pub(crate) device: CpuDevice,
    pub(crate) registry: Registry,
    pub(crate) settings: Settings,
    pub(crate) store: ModelStore,
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
        let device = CpuDevice::new();
        let registry = registry(&plugins, &device)?;
        let settings = Settings::from_environment(None)?;
        let store = ModelStore::with_settings(settings.clone());
        Ok(Host { plugin_dirs, profile_dirs, plugins, profiles, device, registry, settings, store })
    }

    /// The plugin of a composition, ready to build.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub(crate) fn graph_plugin(&self, composition: &Composition) -> Result<Box<dyn GraphPlugin>, Failure> {
        let wanted = composition.graph();
        let package = self.plugins.packages().find(|package| PluginFacts::from(*package) == *wanted);
        let package = package.expect("the registry knows no other plugins than these");
        Ok(self.open_plugin(package)?)
    }

    fn open_plugin(
        &self,
        package: &PluginPackage,
    ) -> Result<Box<dyn GraphPlugin>, host_plugins::PluginError> {
        let (budget, log) = (Budget::default(), log_to_stderr());
        match package.manifest().runtime {
            Runtime::Lua => Ok(Box::new(LuaPlugin::open(package, budget, log)?)),
            Runtime::Wasm => {
                let runtime = WasmRuntime::new(Some(&self.compiled_plugins()))?;
                Ok(Box::new(runtime.open(package, budget, log)?))
            }
        }
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

fn registry(plugins: &PluginFolder, device: &dyn Device) -> Result<Registry, Failure> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Ok(Registry::new(Parts {
        plugins: plugins.packages().map(PluginFacts::from).collect(),
        devices: vec![DeviceFacts::of(device, n_threads())],
        loaders: names(&LOADERS),
        quants: names(&QUANTS),
        loops: names(&LOOPS),
    })?)
}

fn log_to_stderr() -> LogSink {
    LogSink::new(|plugin, line| eprintln!("plugin {plugin}: {line}"))
}
