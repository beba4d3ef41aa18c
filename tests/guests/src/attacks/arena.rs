//! Where attacks take place: one process, one engine, plugins that stay open from attack to attack.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use host_core::quant::{Role, TensorFacts};
use host_core::{DType, Report, Reported, SamplingSettings};
use host_graph::{Catalogue, Limits, TensorFacts as GraphTensor};
use host_lua::{LuaPlugin, LuaPolicy, LuaQuant};
use host_plugins::{
    Budget, Grants, GraphPlugin, LogSink, PluginError, PluginPackage, PolicyInstance, QuantPlugin, Runtime,
    SamplingPolicy, StepBudget,
};
use host_wasm::WasmRuntime;
use serde_json::json;

use super::Guest;
use crate::core_guest::world_guest;
use crate::packages::{
    lua_script_of, manifest_of, misbehave_lua, misbehave_policy_lua, misbehave_policy_wasm, misbehave_wasm,
};
use crate::{Loop, core_guest, numbers};

/// Milliseconds of every hook but those of a step.
pub const TIME_MS: u64 = 300;
/// Milliseconds of a step, a rollback, a fork and a destructor.
pub const STEP_MS: u64 = 150;
/// Bytes of a guest's memory.
pub const MEMORY_BYTES: usize = 8 << 20;
/// Bytes of a guest's log.
pub const LOG_BYTES: usize = 4_096;
/// Calls on a step.
pub const CALLS: usize = 1_000;
/// Entries of a list on a step.
pub const LIST_ENTRIES: usize = 8_192;

const N_VOCAB: u32 = 50;

/// Whether a script, and what its `describe` does.
type Opened = (bool, &'static str);

/// One engine with the guests of this folder.
pub struct Arena {
    engine: WasmRuntime,
    /// Opened once; what is compiled is kept as a program keeps it.
    policies: Mutex<BTreeMap<Opened, Box<dyn SamplingPolicy>>>,
    graphs: [Box<dyn GraphPlugin>; 2],
}

fn budget() -> Budget {
    let step = StepBudget { time_ms: STEP_MS, calls: CALLS, list_entries: LIST_ENTRIES, text_bytes: 4_096 };
    let graph = Limits { max_nodes: 1_000, max_slots: 100, ..Limits::default() };
    let of_call =
        Budget { time_ms: TIME_MS, memory_bytes: MEMORY_BYTES, log_bytes: LOG_BYTES, ..Budget::default() };
    Budget { graph, step, ..of_call }
}

impl Arena {
    /// Builds and opens the guests.
    pub fn open() -> Self {
        let engine = WasmRuntime::new(None).expect("the engine starts");
        let graph = engine.open(&misbehave_wasm(), budget(), LogSink::discard()).expect("a good component");
        let script = LuaPlugin::open(&misbehave_lua(), budget(), LogSink::discard()).expect("a good script");
        Arena { engine, policies: Mutex::default(), graphs: [Box::new(graph), Box::new(script)] }
    }

    /// Lets a guest do its worst.
    ///
    /// # Errors
    /// How it ended.
    pub fn run(&self, runtime: Runtime, guest: Guest) -> Result<(), Report> {
        let result = match guest {
            Guest::Policy(deed) => self.policy(runtime, "nothing", deed),
            Guest::Describe(deed) => self.policy(runtime, deed, "nothing"),
            Guest::Graph(deed) => self.graphs[usize::from(runtime == Runtime::Lua)]
                .build(&json!({ "do": deed }).to_string(), catalogue())
                .map(drop),
            Guest::Build(imports, text) => self.build(core_guest(imports, text)),
            Guest::BuildAlone(imports, text) => self.build(world_guest("model-graph", imports, text)),
            Guest::Plan(text) => self.plan(text),
            Guest::Script(kind, source) => script(kind, source),
            Guest::Package(package) => package().and_then(|package| self.open_graph(&package)).map(drop),
        };
        result.map_err(|error| error.report())
    }

    /// The policy that misbehaves on demand, opened anew.
    pub fn misbehave(&self, runtime: Runtime) -> Box<dyn SamplingPolicy> {
        self.open_policy(runtime, "nothing").expect("a good policy until it is told otherwise")
    }

    /// What an attack of this kind must leave as it was: a policy, a graph and a plan that do what they should.
    ///
    /// # Errors
    /// What became of them.
    pub fn works(&self, runtime: Runtime) -> Result<(), Report> {
        self.run(runtime, Guest::Policy("nothing"))?;
        self.run(runtime, Guest::Graph("nothing"))
    }

    fn policy(&self, runtime: Runtime, describe: &'static str, deed: &str) -> Result<(), PluginError> {
        let mut open = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = match open.entry((runtime == Runtime::Lua, describe)) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                new.insert(self.open_policy(runtime, describe)?)
            }
        };
        drive(&**policy, deed)
    }

    fn open_policy(&self, runtime: Runtime, describe: &str) -> Result<Box<dyn SamplingPolicy>, PluginError> {
        let log = LogSink::discard();
        Ok(match runtime {
            Runtime::Wasm => {
                let package = with_describe(&misbehave_policy_wasm(), describe)?;
                Box::new(self.engine.open_policy(&package, budget(), log)?)
            }
            Runtime::Lua => {
                let package = with_describe(&misbehave_policy_lua(), describe)?;
                Box::new(LuaPolicy::open(&package, budget(), log)?)
            }
        })
    }

    fn open_graph(&self, package: &PluginPackage) -> Result<Box<dyn GraphPlugin>, PluginError> {
        let log = LogSink::discard();
        Ok(match package.manifest().runtime {
            Runtime::Wasm => Box::new(self.engine.open(package, budget(), log)?),
            Runtime::Lua => Box::new(LuaPlugin::open(package, budget(), log)?),
        })
    }

    fn build(&self, component: Vec<u8>) -> Result<(), PluginError> {
        let plugin = self.open_graph(&package("model-graph", component)?)?;
        plugin.build("{}", catalogue()).map(drop)
    }

    fn plan(&self, text: &str) -> Result<(), PluginError> {
        let package = package("quant-profile", world_guest("quant-profile", "", text))?;
        plan(&self.engine.open_quant(&package, budget(), LogSink::discard())?)
    }
}

/// A hand-made component in a package.
fn package(kind: &str, component: Vec<u8>) -> Result<PluginPackage, PluginError> {
    PluginPackage::from_parts(&manifest_of(kind, "guest", "wasm"), component, Path::new("guest"))
}

/// A whole request: every hook is called, forks go their own way, and one is dropped before the other's last step.
fn drive(policy: &dyn SamplingPolicy, deed: &str) -> Result<(), PluginError> {
    let chain = SamplingSettings::GREEDY.into();
    let mut request = Loop::new(N_VOCAB, &[1, 2], &chain);
    policy.describe()?;
    let mut instance =
        policy.open(&json!({ "do": deed }).to_string(), numbers(N_VOCAB), &Grants::default())?;
    let mut step = |instance: &mut Box<dyn PolicyInstance>| request.edits(&mut **instance);
    step(&mut instance)?;
    let mut fork = instance.fork()?;
    step(&mut fork)?;
    fork.rollback(1)?;
    drop(fork);
    step(&mut instance)?;
    Ok(())
}

fn script(kind: &str, source: &str) -> Result<(), PluginError> {
    let (package, log) = (lua_script_of(kind, source), LogSink::discard());
    match kind {
        "sampling-policy" => drive(&LuaPolicy::open(&package, budget(), log)?, "nothing"),
        "quant-profile" => plan(&LuaQuant::open(&package, budget(), log)?),
        _ => LuaPlugin::open(&package, budget(), log)?.build("{}", catalogue()).map(drop),
    }
}

fn plan(plugin: &dyn QuantPlugin) -> Result<(), PluginError> {
    let (name, shape) = ("model.embed_tokens.weight".to_owned(), vec![10, 64]);
    let tensor = TensorFacts { name, shape, dtype: DType::F32, role: Role::Embedding, layer: None };
    plugin.plan("{}", "{}", &[tensor]).map(drop)
}

fn catalogue() -> Catalogue {
    Catalogue::from([("table".to_owned(), GraphTensor { shape: vec![10, 4], is_dense: true })])
}

/// The policy with another deed in `describe`, which no param reaches: the name of the deed stands in its bytes.
fn with_describe(package: &PluginPackage, deed: &str) -> Result<PluginPackage, PluginError> {
    let (from, to) = (b"describe: nothing               ", format!("{:<32}", format!("describe: {deed}")));
    let mut bytes = package.entry().to_vec();
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the guest names its deed");
    bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    let runtime = package.manifest().runtime.name();
    let manifest = manifest_of("sampling-policy", "misbehave-policy", runtime);
    let manifest = manifest.replace("sdk = \"0.1\"", &format!("sdk = \"{}\"", package.manifest().sdk));
    PluginPackage::from_parts(&manifest, bytes, Path::new("misbehave-policy"))
}
