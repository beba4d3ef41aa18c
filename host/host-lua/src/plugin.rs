//! A model-graph plugin in Lua.

use std::sync::{Arc, Mutex};

use host_graph::{Catalogue, Graph, Value};
use host_plugins::{
    Budget, GraphPlugin, GraphSession, Kind, LogSink, PluginError, PluginName, PluginPackage,
};
use mlua::{Function, Lua};

use crate::builder::{self, Builder, GraphValue, SharedSession};
use crate::config::Config;
use crate::sandbox::Prelude;
use crate::script::Script;

const HOOK: &str = "build";

/// A model-graph plugin in Lua.
#[derive(Debug)]
pub struct LuaPlugin {
    script: Script,
}

impl LuaPlugin {
    /// Compiles the script of a package; nothing of it runs.
    ///
    /// # Errors
    /// [`PluginError::WrongRuntime`], [`PluginError::WrongKind`], [`PluginError::Load`] for a source that is not text
    /// or too long, [`PluginError::Syntax`].
    pub fn open(package: &PluginPackage, budget: Budget, log: LogSink) -> Result<Self, PluginError> {
        Ok(LuaPlugin { script: Script::open(package, Kind::ModelGraph, budget, log)? })
    }

    fn run(&self, lua: &Lua, config: Config, session: &SharedSession) -> mlua::Result<Option<Value>> {
        self.script.exec(lua)?;
        let Some(build) = lua.globals().get::<Option<Function>>(HOOK)? else { return Ok(None) };
        let logits: GraphValue = build.call((config, Builder(Arc::clone(session))))?;
        Ok(Some(logits.0))
    }
}

impl GraphPlugin for LuaPlugin {
    fn name(&self) -> &PluginName {
        &self.script.name
    }

    fn build(&self, config: &str, catalogue: Catalogue) -> Result<Graph, PluginError> {
        let Script { name, budget, log, .. } = &self.script;
        let config = Config::parse(config, &self.script).map_err(|fields| PluginError::InvalidConfig {
            plugin: name.clone(),
            fields,
            place: None,
        })?;
        let session = GraphSession::new(name.clone(), catalogue, budget, log.clone());
        let session: SharedSession = Arc::new(Mutex::new(Some(session)));
        let logged = Arc::clone(&session);
        let (lua, deadline) = self
            .script
            .state(Prelude::ModelGraph, HOOK, move |lua, line| builder::log(lua, &logged, line))?;
        let logits = self.script.call(&deadline, HOOK, || self.run(&lua, config, &session))?;
        let Some(logits) = logits else {
            return Err(PluginError::MissingExport { plugin: name.clone(), export: HOOK });
        };
        let session = session.lock().ok().and_then(|mut session| session.take());
        let session =
            session.expect("only this function takes the session, and no lock is held across a panic");
        session.finish(logits).map_err(|error| PluginError::Build {
            plugin: name.clone(),
            hook: HOOK,
            place: None,
            error: Box::new(error),
        })
    }
}
