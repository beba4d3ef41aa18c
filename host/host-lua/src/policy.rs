//! A sampling policy in Lua: a state for each request, which its forks share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host_plugins::{
    Budget, Grants, Kind, LogSink, Needs, NoVocabulary, PluginError, PluginName, PluginPackage, PolicyInput,
    PolicyInstance, PolicyStep, PolicyTraits, PolicyVocabulary, SamplingPolicy,
};
use host_sampling::Edits;
use mlua::{Function, Lua, Table, Value};

use crate::args::{as_id, as_text};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::fault::Raised;
use crate::sandbox::Prelude;
use crate::script::Script;
use crate::step::{SharedStep, Step, Vocabulary, lock, log};

/// A sampling policy in Lua.
///
/// The script defines `open(params, vocabulary)`, which gives an object with `step(self, step)` and, where
/// `describe()` offers them, `rollback(self, n)` and `fork(self)`.
#[derive(Debug)]
pub struct LuaPolicy {
    script: Arc<Script>,
}

/// One request's guest.
struct Request {
    lua: Lua,
    deadline: Deadline,
    step: SharedStep,
    /// What ended the guest, if something did.
    ended_by: Option<String>,
}

impl Request {
    /// Runs a hook. A script whose time, memory or output is spent does not run again.
    fn call<T>(
        &mut self,
        script: &Script,
        hook: &'static str,
        call: impl FnOnce(&Lua) -> mlua::Result<T>,
    ) -> Result<T, PluginError> {
        if let Some(cause) = self.ended_by.clone() {
            return Err(PluginError::Ended { plugin: script.name.clone(), hook, cause });
        }
        let result = script.call(&self.deadline, hook, || call(&self.lua));
        if let Err(
            fault @ (PluginError::Time { .. } | PluginError::Memory { .. } | PluginError::Output { .. }),
        ) = &result
        {
            self.ended_by = Some(fault.to_string());
        }
        result
    }
}

impl LuaPolicy {
    /// Compiles the script of a package; nothing of it runs.
    ///
    /// # Errors
    /// As [`crate::LuaPlugin::open`].
    pub fn open(package: &PluginPackage, budget: Budget, log: LogSink) -> Result<Self, PluginError> {
        Ok(LuaPolicy { script: Arc::new(Script::open(package, Kind::SamplingPolicy, budget, log)?) })
    }

    /// A guest of its own that was asked what it needs.
    fn start(&self, vocabulary: &Arc<dyn PolicyVocabulary>) -> Result<(Request, PolicyTraits), PluginError> {
        let script = &*self.script;
        let step =
            PolicyStep::new(script.name.clone(), Arc::clone(vocabulary), &script.budget, script.log.clone());
        let step: SharedStep = Arc::new(Mutex::new(step));
        let logged = Arc::clone(&step);
        let (lua, deadline) = script.state(Prelude::None, "describe", move |_, line| log(&logged, line))?;
        let mut request = Request { lua, deadline, step, ended_by: None };
        let traits = request.call(script, "describe", |lua| {
            script.exec(lua)?;
            match lua.globals().get::<Option<Function>>("describe")? {
                Some(describe) => traits_of(&describe.call::<Value>(())?),
                None => Ok(PLAIN),
            }
        })?;
        lock(&request.step).set_needs(traits.needs);
        Ok((request, traits))
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
        let vocabulary: Arc<dyn PolicyVocabulary> = Arc::new(NoVocabulary);
        Ok(self.start(&vocabulary)?.1)
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
        let (mut request, traits) = self.start(&vocabulary)?;
        grants.cover(&script.name, traits)?;
        let vocabulary =
            Vocabulary { of_model: vocabulary, step: Arc::clone(&request.step), contract: script.contract };
        let object = request.call(script, "open", |lua| {
            let Some(open) = lua.globals().get::<Option<Function>>("open")? else { return Ok(None) };
            open.call::<Table>((params, vocabulary)).map(Some)
        })?;
        let Some(object) = object else {
            return Err(PluginError::MissingExport { plugin: script.name.clone(), export: "open" });
        };
        let (script, request) = (Arc::clone(script), Arc::new(Mutex::new(request)));
        Ok(Box::new(LuaPolicyInstance { script, request, object, traits }))
    }
}

/// The policy of one request, or a fork of it.
struct LuaPolicyInstance {
    script: Arc<Script>,
    request: Arc<Mutex<Request>>,
    object: Table,
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
        let found = self.request().call(&self.script, hook, |_| {
            let Some(method) = self.object.get::<Option<Function>>(hook)? else { return Ok(None) };
            method.call::<R>((self.object.clone(), argument)).map(Some)
        })?;
        found.ok_or_else(|| PluginError::MissingExport { plugin: self.script.name.clone(), export: hook })
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
        let step = Arc::clone(&self.request().step);
        lock(&step).begin(input);
        let handle = Step { step: Arc::clone(&step), contract: self.script.contract };
        let result: Result<(), _> = self.method("step", handle);
        let edits = lock(&step).end();
        result.map(|()| edits)
    }

    fn rollback(&mut self, n: u32) -> Result<(), PluginError> {
        self.offered(self.traits.supports_rollback, "rollback")?;
        self.method("rollback", n)
    }

    fn fork(&mut self) -> Result<Box<dyn PolicyInstance>, PluginError> {
        self.offered(self.traits.supports_fork, "fork")?;
        let object: Table = self.method("fork", Value::Nil)?;
        let (script, request) = (Arc::clone(&self.script), Arc::clone(&self.request));
        Ok(Box::new(LuaPolicyInstance { script, request, object, traits: self.traits }))
    }
}
