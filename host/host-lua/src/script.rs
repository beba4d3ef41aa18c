//! The script of a package, compiled: what the plugins of every kind begin with.

use host_core::Place;
use host_plugins::{Budget, ContractVersion, Kind, LogSink, PluginError, PluginName, PluginPackage, Runtime};
use mlua::Lua;
use mlua::chunk::{ChunkMode, Compiler};

use crate::deadline::Deadline;
use crate::fault::plugin_error;
use crate::sandbox::{Prelude, fresh_state};

/// A script is read by people; compiling cannot be interrupted.
const SOURCE_BYTES: usize = 1 << 20;

/// What the names of scripts begin with in errors.
pub(crate) const CHUNK_ROOT: &str = "plugins/";

/// A compiled script with what it may spend.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: PluginName,
    pub(crate) budget: Budget,
    pub(crate) log: LogSink,
    /// The contract that its manifest names: it sees what that has, and no more.
    pub(crate) contract: ContractVersion,
    chunk_name: String,
    /// Kept for the excerpts in errors.
    source: String,
    bytecode: Vec<u8>,
}

impl Script {
    /// Compiles the script of a package of this kind; nothing of it runs.
    pub(crate) fn open(
        package: &PluginPackage,
        kind: Kind,
        budget: Budget,
        log: LogSink,
    ) -> Result<Self, PluginError> {
        let (name, manifest) = (package.name().clone(), package.manifest());
        if manifest.runtime != Runtime::Lua {
            let (expected, found) = (Runtime::Lua.name(), manifest.runtime.name());
            return Err(PluginError::WrongRuntime { plugin: name, expected, found });
        }
        manifest.need_kind(kind)?;
        if package.entry().len() > SOURCE_BYTES {
            let message =
                format!("a script has at most {SOURCE_BYTES} bytes, this one {}", package.entry().len());
            return Err(PluginError::Load { plugin: name, message });
        }
        let source = String::from_utf8(package.entry().to_vec())
            .map_err(|error| PluginError::Load { plugin: name.clone(), message: error.to_string() })?;
        let chunk_name = format!("{CHUNK_ROOT}{}/{}", name.id, manifest.entry);
        let mut script =
            Script { name, budget, log, contract: manifest.sdk, chunk_name, source, bytecode: Vec::new() };
        let compiled = Compiler::new().set_debug_level(1).compile(&script.source);
        script.bytecode = compiled.map_err(|error| plugin_error(&error, &script, "load"))?;
        Ok(script)
    }

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

    /// A fresh state and the deadline that its interrupt looks at; the script has not run yet.
    pub(crate) fn state(
        &self,
        prelude: Prelude,
        hook: &'static str,
        log: impl Fn(&Lua, &str) -> mlua::Result<()> + Send + 'static,
    ) -> Result<(Lua, Deadline), PluginError> {
        let deadline = Deadline::new()
            .map_err(|error| PluginError::Load { plugin: self.name.clone(), message: error.to_string() })?;
        let lua = fresh_state(self.budget.memory_bytes, deadline.clone(), prelude, log)
            .map_err(|error| plugin_error(&error, self, hook))?;
        Ok((lua, deadline))
    }

    /// Runs the script's own lines, which define its functions.
    pub(crate) fn exec(&self, lua: &Lua) -> mlua::Result<()> {
        let chunk = lua.load(self.bytecode.as_slice()).set_mode(ChunkMode::Binary);
        chunk.set_name(format!("@{}", self.chunk_name)).exec()
    }

    /// Runs a hook under its deadline. A script that swallowed the end of its time is told of all the same.
    pub(crate) fn call<T>(
        &self,
        deadline: &Deadline,
        hook: &'static str,
        call: impl FnOnce() -> mlua::Result<T>,
    ) -> Result<T, PluginError> {
        let budget_ms = self.budget.time_ms(hook);
        let running = deadline.arm(budget_ms);
        let result = call();
        let is_over = deadline.is_over();
        drop(running);
        if is_over {
            return Err(PluginError::Time { plugin: self.name.clone(), hook, budget_ms });
        }
        result.map_err(|error| plugin_error(&error, self, hook))
    }
}
