//! A Lua plugin as the host sees it.

use std::sync::{Arc, Mutex};

use host_core::Place;
use host_graph::{Catalogue, Graph, Value};
use host_plugins::{
    Budget, GraphPlugin, GraphSession, LogSink, PluginError, PluginName, PluginPackage, Runtime,
};
use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Function, Lua};

use crate::builder::{Builder, GraphValue, SharedSession};
use crate::config::Config;
use crate::fault::plugin_error;
use crate::sandbox::fresh_state;
use crate::watchdog::Watchdog;

/// A script is read by people; compiling cannot be interrupted.
const SOURCE_BYTES: usize = 1 << 20;

/// What the names of scripts begin with in errors.
pub(crate) const CHUNK_ROOT: &str = "plugins/";

/// A model-graph plugin in Lua.
#[derive(Debug)]
pub struct LuaPlugin {
    name: PluginName,
    script: Script,
    bytecode: Vec<u8>,
    budget: Budget,
    log: LogSink,
}

/// The source, kept for the excerpts in errors.
#[derive(Debug)]
pub(crate) struct Script {
    chunk_name: String,
    source: String,
}

impl Script {
    /// `plugins/<id>/<file>`, as errors name it.
    pub(crate) fn chunk_name(&self) -> &str {
        &self.chunk_name
    }

    /// The place with the text of its line.
    pub(crate) fn excerpt(&self, place: Option<Place>) -> Option<Box<Place>> {
        let mut place = place?;
        if place.file == self.chunk_name {
            let line = place.line.and_then(|line| self.source.lines().nth((line as usize).checked_sub(1)?));
            place.excerpt = line.map(str::to_owned);
        }
        Some(Box::new(place))
    }
}

impl LuaPlugin {
    /// Compiles the script of a package; nothing of it runs.
    ///
    /// # Errors
    /// [`PluginError::WrongRuntime`], [`PluginError::Load`] for a source that is not text or too long,
    /// [`PluginError::Syntax`].
    pub fn open(package: &PluginPackage, budget: Budget, log: LogSink) -> Result<Self, PluginError> {
        let (name, manifest) = (package.name().clone(), package.manifest());
        if manifest.runtime != Runtime::Lua {
            let (expected, found) = (Runtime::Lua.name(), manifest.runtime.name());
            return Err(PluginError::WrongRuntime { plugin: name, expected, found });
        }
        if package.entry().len() > SOURCE_BYTES {
            let message =
                format!("a script has at most {SOURCE_BYTES} bytes, this one {}", package.entry().len());
            return Err(PluginError::Load { plugin: name, message });
        }
        let source = String::from_utf8(package.entry().to_vec())
            .map_err(|error| PluginError::Load { plugin: name.clone(), message: error.to_string() })?;
        let chunk_name = format!("{CHUNK_ROOT}{}/{}", name.id, manifest.entry);
        let script = Script { chunk_name, source };
        let compiled = Compiler::new().set_debug_level(1).compile(&script.source);
        let bytecode = compiled.map_err(|error| plugin_error(&error, &script, &name, &budget))?;
        Ok(LuaPlugin { name, script, bytecode, budget, log })
    }

    fn run(&self, lua: &Lua, config: Config, session: &SharedSession) -> mlua::Result<Option<Value>> {
        let chunk = lua.load(self.bytecode.as_slice()).set_mode(ChunkMode::Binary);
        chunk.set_name(format!("@{}", self.script.chunk_name)).exec()?;
        let Some(build) = lua.globals().get::<Option<Function>>("build")? else { return Ok(None) };
        let logits: GraphValue = build.call((config, Builder(Arc::clone(session))))?;
        Ok(Some(logits.0))
    }
}

impl GraphPlugin for LuaPlugin {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn build(&self, config: &str, catalogue: Catalogue) -> Result<Graph, PluginError> {
        let plugin = || self.name.clone();
        let config = Config::parse(config, &self.budget).map_err(|fields| PluginError::InvalidConfig {
            plugin: plugin(),
            fields,
            place: None,
        })?;
        let session = GraphSession::new(plugin(), catalogue, &self.budget, self.log.clone());
        let session: SharedSession = Arc::new(Mutex::new(Some(session)));
        let watchdog = Watchdog::start(self.budget.time_ms)
            .map_err(|error| PluginError::Load { plugin: plugin(), message: error.to_string() })?;
        let lua = fresh_state(self.budget.memory_bytes, watchdog.flag(), &session)
            .map_err(|error| plugin_error(&error, &self.script, &self.name, &self.budget))?;
        let result = self.run(&lua, config, &session);
        if watchdog.is_expired() {
            let budget_ms = self.budget.time_ms;
            return Err(PluginError::Time { plugin: plugin(), hook: "build", budget_ms });
        }
        let logits = result.map_err(|error| plugin_error(&error, &self.script, &self.name, &self.budget))?;
        let Some(logits) = logits else {
            return Err(PluginError::MissingExport { plugin: plugin(), export: "build" });
        };
        let session = session.lock().ok().and_then(|mut session| session.take());
        let session =
            session.expect("only this function takes the session, and no lock is held across a panic");
        session.finish(logits).map_err(|error| PluginError::Build {
            plugin: plugin(),
            place: None,
            error: Box::new(error),
        })
    }
}
