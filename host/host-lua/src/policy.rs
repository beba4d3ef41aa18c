//! A sampling policy in Lua: a state for each request, which its forks share.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use host_plugins::{
    Budget, Grants, Kind, LogSink, Needs, NoVocabulary, PluginError, PluginName, PluginPackage, PolicyInput,
    PolicyInstance, PolicyStep, PolicyTraits, PolicyVocabulary, SamplingPolicy,
};
use host_sampling::Edits;
use mlua::chunk::{ChunkMode, Compiler};
use mlua::{AnyUserData, Function, Lua, Table, Value};

use crate::args::{as_id, as_text};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::fault::{Raised, plugin_error};
use crate::library;
use crate::sandbox::Prelude;
use crate::script::Script;
use crate::spare::{Retiring, Spare, Stock};
use crate::step::{SharedStep, Step, Vocabulary, lock, log as log_line};

/// A sampling policy in Lua.
///
/// The script defines `open(params, vocabulary)`, which gives an object with `step(self, step)` and, where
/// `describe()` offers them, `rollback(self, n)` and `fork(self)`.
///
/// Some guests are made ahead of their requests, by a thread of their own: as many as requests were seen to need, at most
/// 32 of a script, and 24 MiB for all scripts together. The first request has the first one made.
pub struct LuaPolicy {
    script: Arc<Script>,
    pub(crate) stock: Stock<Ready>,
}

impl fmt::Debug for LuaPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LuaPolicy").field("script", &self.script).finish_non_exhaustive()
    }
}

/// One request's guest.
struct Request {
    deadline: Deadline,
    step: SharedStep,
    handles: Handles,
    /// What ended the guest, if something did.
    ended_by: Option<String>,
    lua: Retiring<Lua>,
}

/// What every request's script is handed, and how its steps are called.
struct Handles {
    step: AnyUserData,
    vocabulary: AnyUserData,
    /// `policy.luau`.
    call_step: Function,
}

/// A guest that has run its script and said what it needs, but knows no request yet.
pub(crate) struct Ready {
    guest: Result<(Request, PolicyTraits), PluginError>,
    /// What it logged meanwhile: for the request that takes it.
    lines: Arc<Mutex<Vec<String>>>,
}

impl Spare for Ready {
    fn bytes(&self) -> usize {
        self.guest.as_ref().map_or(0, |(request, _)| request.lua.used_memory())
    }
}

impl Request {
    /// Runs a hook. A script whose time, memory or output is spent does not run again.
    fn call<T>(
        &mut self,
        script: &Script,
        hook: &'static str,
        call: impl FnOnce(&Lua, &Handles) -> mlua::Result<T>,
    ) -> Result<T, PluginError> {
        if let Some(cause) = self.ended_by.clone() {
            return Err(PluginError::Ended { plugin: script.name.clone(), hook, cause });
        }
        let result = script.call(&self.deadline, hook, || call(&self.lua, &self.handles));
        if let Err(
            fault @ (PluginError::Time { .. } | PluginError::Memory { .. } | PluginError::Output { .. }),
        ) = &result
        {
            self.ended_by = Some(fault.to_string());
        }
        result
    }
}

impl Ready {
    /// Makes a guest of its own and asks it what it needs.
    fn make(script: &Script) -> Self {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&lines);
        let log = LogSink::new(move |_, line| {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        });
        Ready { guest: Self::try_make(script, log), lines }
    }

    fn try_make(script: &Script, log: LogSink) -> Result<(Request, PolicyTraits), PluginError> {
        let step = PolicyStep::new(script.name.clone(), Arc::new(NoVocabulary), &script.budget, log);
        let step: SharedStep = Arc::new(Mutex::new(step));
        let logged = Arc::clone(&step);
        let hook = "describe";
        let (lua, deadline) = script.state(Prelude::None, hook, move |_, line| log_line(&logged, line))?;
        let handles =
            Handles::new(&lua, &step, script).map_err(|error| plugin_error(&error, script, hook))?;
        let mut request = Request { lua: Retiring::new(lua), deadline, step, handles, ended_by: None };
        let traits = request.call(script, hook, |lua, _| {
            script.exec(lua)?;
            match lua.globals().get::<Option<Function>>("describe")? {
                Some(describe) => traits_of(&describe.call::<Value>(())?),
                None => Ok(PLAIN),
            }
        })?;
        lock(&request.step).set_needs(traits.needs);
        Ok((request, traits))
    }

    /// The guest of a request: its log goes on where it stopped, and its faults are told now.
    fn serve(
        self,
        script: &Script,
        vocabulary: Arc<dyn PolicyVocabulary>,
    ) -> Result<(Request, PolicyTraits), PluginError> {
        for line in &*self.lines.lock().unwrap_or_else(PoisonError::into_inner) {
            script.log.write(&script.name, line);
        }
        let (request, traits) = self.guest?;
        lock(&request.step).serve(vocabulary, script.log.clone());
        Ok((request, traits))
    }
}

/// `policy.luau`, compiled.
static CALL_STEP: LazyLock<Vec<u8>> = LazyLock::new(|| {
    Compiler::new()
        .compile(include_str!("policy.luau"))
        .expect("it is part of this program and its tests load it")
});

impl Handles {
    fn new(lua: &Lua, step: &SharedStep, script: &Script) -> mlua::Result<Self> {
        let contract = script.contract;
        let chunk = lua.load(CALL_STEP.as_slice()).set_mode(ChunkMode::Binary);
        // A type's first value brings its methods into the state.
        lua.create_userdata(Config::empty(script))?;
        Ok(Handles {
            step: lua.create_userdata(Step { step: Arc::clone(step), contract })?,
            vocabulary: lua.create_userdata(Vocabulary { step: Arc::clone(step), contract })?,
            call_step: chunk.set_name(format!("={}", library::CHUNK)).call(())?,
        })
    }
}

impl LuaPolicy {
    /// Compiles the script of a package; nothing of it runs.
    ///
    /// # Errors
    /// As [`crate::LuaPlugin::open`].
    pub fn open(package: &PluginPackage, budget: Budget, log: LogSink) -> Result<Self, PluginError> {
        let script = Arc::new(Script::open(package, Kind::SamplingPolicy, budget, log)?);
        let of_stock = Arc::clone(&script);
        // A guest that failed is kept for no request: that makes its own, and is told.
        let stock = Stock::new(move || Some(Ready::make(&of_stock)).filter(|ready| ready.guest.is_ok()));
        Ok(LuaPolicy { script, stock })
    }

    /// A guest that no other request has: one that is ready, or a new one. Others are made ready behind its back, once
    /// it is known that the script can be.
    fn start(&self, vocabulary: Arc<dyn PolicyVocabulary>) -> Result<(Request, PolicyTraits), PluginError> {
        let ready = self.stock.take().unwrap_or_else(|| Ready::make(&self.script));
        let started = ready.serve(&self.script, vocabulary)?;
        self.stock.fill();
        Ok(started)
    }
}

/// What a policy without `describe` says of itself.
const PLAIN: PolicyTraits = PolicyTraits {
    needs: Needs::MaskOnly,
    is_argmax_invariant: false,
    supports_rollback: false,
    supports_fork: false,
};

/// Reads what `describe` gave; no unknown key passes.
fn traits_of(found: &Value) -> mlua::Result<PolicyTraits> {
    let wrong = |message: &str| Raised::Argument(format!("describe: {message}"), None).into_lua();
    let Value::Table(table) = found else { return Err(wrong("it gives no table")) };
    let mut traits = PLAIN;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let key = as_text(&key).ok_or_else(|| wrong("a key is no string"))?;
        let truth = || value.as_boolean().ok_or_else(|| wrong(&format!("`{key}` is not true or false")));
        match &*key {
            "needs" => traits.needs = needs_of(&value).ok_or_else(|| wrong(NEEDS))?,
            "argmax_invariant" => traits.is_argmax_invariant = truth()?,
            "supports_rollback" => traits.supports_rollback = truth()?,
            "supports_fork" => traits.supports_fork = truth()?,
            _ => return Err(wrong(&format!("there is no `{key}`"))),
        }
    }
    Ok(traits)
}

const NEEDS: &str = "`needs` is none of \"mask-only\", { top_k = n }, \"full-logits\"";

fn needs_of(value: &Value) -> Option<Needs> {
    match value {
        Value::Table(table) => Some(Needs::TopK(as_id(&table.get::<Value>("top_k").ok()?)?)),
        text => match &*as_text(text)? {
            "mask-only" => Some(Needs::MaskOnly),
            "full-logits" => Some(Needs::FullLogits),
            _ => None,
        },
    }
}

impl SamplingPolicy for LuaPolicy {
    fn name(&self) -> &PluginName {
        &self.script.name
    }

    fn describe(&self) -> Result<PolicyTraits, PluginError> {
        Ok(Ready::make(&self.script).serve(&self.script, Arc::new(NoVocabulary))?.1)
    }

    fn open(
        &self,
        params: &str,
        vocabulary: Arc<dyn PolicyVocabulary>,
        grants: &Grants,
    ) -> Result<Box<dyn PolicyInstance>, PluginError> {
        let script = &self.script;
        let params = Config::parse_params(params, script).map_err(|fields| PluginError::InvalidConfig {
            plugin: script.name.clone(),
            fields,
            place: None,
        })?;
        let (mut request, traits) = self.start(vocabulary)?;
        grants.cover(&script.name, traits)?;
        let object = request.call(script, "open", |lua, handles| {
            let Some(open) = lua.globals().get::<Option<Function>>("open")? else { return Ok(None) };
            open.call::<Table>((params, &handles.vocabulary)).map(Some)
        })?;
        let Some(object) = object else {
            return Err(PluginError::MissingExport { plugin: script.name.clone(), export: "open" });
        };
        let step = Arc::clone(&request.step);
        let (script, request) = (Arc::clone(script), Arc::new(Mutex::new(request)));
        Ok(Box::new(LuaPolicyInstance { script, object, step, request, traits }))
    }
}

/// The policy of one request, or a fork of it.
struct LuaPolicyInstance {
    script: Arc<Script>,
    object: Table,
    step: SharedStep,
    request: Arc<Mutex<Request>>,
    traits: PolicyTraits,
}

impl LuaPolicyInstance {
    /// A guest is ended by its own faults alone; a panic elsewhere left it as it was.
    fn request(&self) -> MutexGuard<'_, Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offered(&self, is_offered: bool, hook: &'static str) -> Result<(), PluginError> {
        if is_offered {
            return Ok(());
        }
        Err(PluginError::NotOffered { plugin: self.script.name.clone(), hook })
    }

    /// Calls a method of the policy's object.
    fn method<A, R>(&self, hook: &'static str, argument: A) -> Result<R, PluginError>
    where
        A: mlua::IntoLua,
        R: mlua::FromLuaMulti,
    {
        let found = self.request().call(&self.script, hook, |_, _| {
            let Some(method) = self.object.get::<Option<Function>>(hook)? else { return Ok(None) };
            method.call::<R>((&self.object, argument)).map(Some)
        })?;
        found.ok_or_else(|| self.missing(hook))
    }

    fn missing(&self, export: &'static str) -> PluginError {
        PluginError::MissingExport { plugin: self.script.name.clone(), export }
    }
}

impl PolicyInstance for LuaPolicyInstance {
    fn name(&self) -> &PluginName {
        &self.script.name
    }

    fn traits(&self) -> PolicyTraits {
        self.traits
    }

    fn step(&mut self, input: &PolicyInput<'_>) -> Result<Edits, PluginError> {
        let hook = "step";
        lock(&self.step).begin(input);
        let is_there = self.request().call(&self.script, hook, |_, handles| {
            handles.call_step.call::<bool>((&self.object, &handles.step))
        });
        let edits = lock(&self.step).end();
        if is_there? { Ok(edits) } else { Err(self.missing(hook)) }
    }

    fn rollback(&mut self, n: u32) -> Result<(), PluginError> {
        self.offered(self.traits.supports_rollback, "rollback")?;
        self.method("rollback", n)
    }

    fn fork(&mut self) -> Result<Box<dyn PolicyInstance>, PluginError> {
        self.offered(self.traits.supports_fork, "fork")?;
        let object: Table = self.method("fork", Value::Nil)?;
        Ok(Box::new(LuaPolicyInstance {
            script: Arc::clone(&self.script),
            object,
            step: Arc::clone(&self.step),
            request: Arc::clone(&self.request),
            traits: self.traits,
        }))
    }
}
