//! What a process has whatever its folders say: devices, the model cache, the runtimes, the ledger of faults.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use host_cpu::CpuDevice;
use host_device::Device;
use host_models::{ModelStore, Settings};
use host_plugins::{LogSink, MonotonicClock, PluginError, Quarantine};
use host_registry::{Composition, DeviceFacts};
use host_wasm::WasmRuntime;

use crate::failure::Failure;

/// One a process.
pub struct Machine {
    /// Those of this machine and this build, the preferred one first.
    devices: Vec<Box<dyn Device>>,
    settings: Settings,
    store: ModelStore,
    /// What is known of plugins that failed, over all compositions of this process.
    quarantine: Arc<Quarantine>,
    log: LogSink,
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
            quarantine: Quarantine::new(MonotonicClock::start(), log.clone()),
            log,
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

    /// The ledger of plugins' faults.
    pub fn quarantine(&self) -> &Arc<Quarantine> {
        &self.quarantine
    }

    /// Where plugins' log lines go.
    pub fn log(&self) -> LogSink {
        self.log.clone()
    }

    /// The cache folder.
    pub fn cache(&self) -> &Path {
        &self.settings.cache
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
