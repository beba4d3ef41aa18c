//! Opening a model in the program's order: configuration, profile, composition, headers, graph, device, weights.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host_core::{Numeric, Report, Reported};
use host_cpu::CpuDevice;
use host_device::{Device, Executable};
use host_graph::{Catalogue, Graph, TensorFacts};
use host_lua::LuaPlugin;
use host_plugins::{Budget, GraphPlugin, LogSink, PluginFolder};
use host_registry::{
    Composition, Decision, DeviceFacts, GraphPart, LoopFacts, ModelFacts, ModelIdentity, Overrides, Parts,
    PluginFacts, ProfileSet, Registry, Threads, cache_kinds, sampler_kinds,
};
use host_text::Tokenizer;
use host_wasm::WasmRuntime;
use host_weights::{Checkpoint, ConfigOrigin, Encoding, ModelConfig, read_config};

use crate::places::workspace;
use crate::skip;

/// What runs a graph plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// The scripts in `plugins/`.
    Lua,
    /// The components that `cargo xtask plugins` builds.
    Wasm,
}

/// Plugins of one runtime, the profiles that name them, and the device of this machine.
#[derive(Debug)]
pub struct Host {
    plugins: PluginFolder,
    profiles: ProfileSet,
    registry: Registry,
    device: CpuDevice,
    wasm: Option<WasmRuntime>,
}

impl Host {
    /// The first-party plugins of one runtime; `None` where they are not built, which has been said aloud.
    pub fn load(runtime: Runtime) -> Option<Host> {
        let (folder, wasm) = match runtime {
            Runtime::Lua => (workspace().join("plugins"), None),
            Runtime::Wasm => (skip::wasm_plugins()?, Some(told(WasmRuntime::new(None)))),
        };
        let plugins = told(PluginFolder::scan(&[folder]));
        let device = CpuDevice::new();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let registry = told(Registry::new(Parts {
            plugins: plugins.packages().map(PluginFacts::from).collect(),
            graphs: Vec::new(),
            devices: vec![DeviceFacts::of(&device, 1)],
            loaders: names(&["safetensors", "gguf"]),
            quants: names(&["as-published"]),
            loops: vec![LoopFacts::autoregressive()],
            caches: cache_kinds(),
            samplers: sampler_kinds(),
            ..Parts::default()
        }));
        let profiles =
            ProfileSet::from_texts(profile_texts(runtime)).expect("the shipped profiles are sound");
        Some(Host { plugins, profiles, registry, device, wasm })
    }

    /// The host that needs nothing built.
    pub fn lua() -> Host {
        Host::load(Runtime::Lua).expect("scripts need no build")
    }

    /// Chooses a profile for a configuration.
    pub fn decide(&self, config: &ModelConfig) -> Decision {
        self.profiles.match_config(&config.json)
    }

    /// Reads the configuration, chooses a profile and composes what it names. Opens no weights.
    ///
    /// # Errors
    /// The report of whatever refuses.
    pub fn compose(&self, model: &Path, overrides: &Overrides) -> Result<Composition, Report> {
        let config = reported(read_config(model))?;
        let decision = self.decide(&config);
        let profile = decision.chosen().map_err(Reported::report)?;
        let format = match config.origin {
            ConfigOrigin::ConfigJson(_) => "safetensors",
            ConfigOrigin::GgufMetadata(_) => "gguf",
        };
        reported(self.registry.resolve(
            profile,
            ModelFacts { config: &config.json, format, identity: &ModelIdentity::NONE },
            overrides,
        ))
    }

    /// Composes, reads the headers and has the plugin build the graph. Reads no weights.
    ///
    /// # Errors
    /// The report of whatever refuses.
    pub fn open(&self, model: &Path, overrides: &Overrides) -> Result<Model, Report> {
        let composition = self.compose(model, overrides)?;
        let checkpoint = reported(Checkpoint::open(model))?;
        let graph = self.build(&composition, &checkpoint)?;
        let (path, device) = (model.to_owned(), self.device);
        Ok(Model { path, composition, checkpoint, graph, device })
    }

    /// Has the plugin of a composition build the graph of a checkpoint whose headers were read.
    ///
    /// # Errors
    /// The plugin's report.
    pub fn build(&self, composition: &Composition, checkpoint: &Checkpoint) -> Result<Graph, Report> {
        let config = serde_json::Value::Object(checkpoint.config().json.clone()).to_string();
        reported(self.plugin(composition)?.build(&config, tensors(checkpoint)))
    }

    fn plugin(&self, composition: &Composition) -> Result<Box<dyn GraphPlugin>, Report> {
        let GraphPart::Plugin(wanted) = composition.graph() else {
            panic!("the shipped profiles name plugins")
        };
        let package = self.plugins.packages().find(|package| PluginFacts::from(*package) == *wanted);
        let package = package.expect("the registry knows no other plugins than these");
        let log = LogSink::new(|plugin, line| println!("{plugin}: {line}"));
        match &self.wasm {
            Some(wasm) => Ok(Box::new(reported(wasm.open(package, Budget::default(), log))?)),
            None => Ok(Box::new(reported(LuaPlugin::open(package, Budget::default(), log))?)),
        }
    }
}

/// A model up to where its weights would be read.
#[derive(Debug)]
pub struct Model {
    /// The folder or file.
    pub path: PathBuf,
    /// What its profile composes.
    pub composition: Composition,
    /// Its headers, and its tensors when they are taken.
    pub checkpoint: Checkpoint,
    /// What the plugin built.
    pub graph: Graph,
    device: CpuDevice,
}

impl Model {
    /// Reads and repacks the weights.
    pub fn compile(&self) -> Box<dyn Executable> {
        self.compile_on(&self.device)
    }

    /// As [`Model::compile`], on another device than the composition's.
    pub fn compile_on(&self, device: &dyn Device) -> Box<dyn Executable> {
        let options = self.composition.options();
        told(device.check(&self.graph, self.checkpoint.catalogue(), options));
        told(device.compile(&self.graph, &self.checkpoint, options, &mut |_, _| ()))
    }

    /// The tokenizer that the model brings.
    pub fn tokenizer(&self) -> Arc<Tokenizer> {
        Arc::new(told(match self.checkpoint.vocabulary() {
            Some(vocabulary) => Tokenizer::from_vocabulary(vocabulary),
            None => Tokenizer::from_folder(&self.path),
        }))
    }
}

/// What a plugin knows of a checkpoint's tensors.
pub fn tensors(checkpoint: &Checkpoint) -> Catalogue {
    let facts = checkpoint.catalogue().iter().map(|info| {
        let is_dense = matches!(info.encoding, Encoding::Dense(_));
        (info.name.clone(), TensorFacts { shape: info.shape.clone(), is_dense })
    });
    facts.collect()
}

/// What a test sets instead of the profile: numbers and sizes, on one thread, so that tests which run beside each
/// other do not wait for each other's threads.
pub fn overrides(
    numeric: Numeric,
    context_tokens: usize,
    max_sequences: usize,
    max_step_tokens: usize,
) -> Overrides {
    Overrides {
        numeric: Some(numeric),
        n_threads: Some(Threads::Count(1)),
        context_tokens: Some(context_tokens),
        max_sequences: Some(max_sequences),
        max_step_tokens: Some(max_step_tokens),
        ..Overrides::default()
    }
}

/// The value; a refusal fails the test with its report.
pub fn told<T, E: Reported>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{}", error.report()))
}

fn reported<T, E: Reported>(result: Result<T, E>) -> Result<T, Report> {
    result.map_err(|error| error.report())
}

/// The shipped profiles; for scripts, naming the plugin's twin in Lua as a user's own profile would.
fn profile_texts(runtime: Runtime) -> Vec<(String, String)> {
    let folder = workspace().join("profiles");
    let files =
        fs::read_dir(&folder).expect("there are profiles").map(|entry| entry.expect("a profile").path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a profile can be read");
        let text = match runtime {
            Runtime::Wasm => text,
            Runtime::Lua => ["llama", "gemma3", "qwen3"].iter().fold(text, |text, id| {
                text.replace(&format!("plugin = \"{id}\""), &format!("plugin = \"{id}-lua\""))
            }),
        };
        (path.display().to_string(), text)
    };
    files.map(read).collect()
}
