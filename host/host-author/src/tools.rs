//! What all commands work with: the runtimes, opened once.

use std::path::Path;

use host_lua::{LuaPlugin, LuaPolicy, LuaQuant};
use host_plugins::{
    Budget, GraphPlugin, LogSink, PluginError, PluginPackage, QuantPlugin, Runtime, SamplingPolicy,
};
use host_wasm::WasmRuntime;

/// The runtimes, and where a plugin's log lines go.
#[derive(Debug)]
pub struct Tools {
    wasm: WasmRuntime,
    log: LogSink,
}

impl Tools {
    /// Starts the engine. Compiled components are kept in `cache`, or nowhere when it is `None`.
    ///
    /// # Errors
    /// Those of [`WasmRuntime::new`].
    pub fn new(cache: Option<&Path>, log: LogSink) -> Result<Self, PluginError> {
        Ok(Tools { wasm: WasmRuntime::new(cache)?, log })
    }

    /// A sampling policy, ready for requests.
    ///
    /// # Errors
    /// Whatever a host would refuse it for.
    pub fn policy(
        &self,
        package: &PluginPackage,
        budget: Budget,
    ) -> Result<Box<dyn SamplingPolicy>, PluginError> {
        let log = self.log.clone();
        Ok(match package.manifest().runtime {
            Runtime::Lua => Box::new(LuaPolicy::open(package, budget, log)?),
            Runtime::Wasm => Box::new(self.wasm.open_policy(package, budget, log)?),
        })
    }

    /// A model's graph, ready to build.
    ///
    /// # Errors
    /// As [`Tools::policy`].
    pub fn graph(
        &self,
        package: &PluginPackage,
        budget: Budget,
    ) -> Result<Box<dyn GraphPlugin>, PluginError> {
        let log = self.log.clone();
        Ok(match package.manifest().runtime {
            Runtime::Lua => Box::new(LuaPlugin::open(package, budget, log)?),
            Runtime::Wasm => Box::new(self.wasm.open(package, budget, log)?),
        })
    }

    /// A quantisation profile, ready to plan.
    ///
    /// # Errors
    /// As [`Tools::policy`].
    pub fn quant(
        &self,
        package: &PluginPackage,
        budget: Budget,
    ) -> Result<Box<dyn QuantPlugin>, PluginError> {
        let log = self.log.clone();
        Ok(match package.manifest().runtime {
            Runtime::Lua => Box::new(LuaQuant::open(package, budget, log)?),
            Runtime::Wasm => Box::new(self.wasm.open_quant(package, budget, log)?),
        })
    }
}
