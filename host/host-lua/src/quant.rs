//! A quantisation profile in Lua: one call in a state of its own.

use std::sync::{Arc, Mutex, PoisonError};

use host_core::quant::{Scheme, TensorFacts};
use host_plugins::{Budget, Kind, LogSink, PluginError, PluginName, PluginPackage, QuantPlugin};
use mlua::{Function, Value};

use crate::args::{as_text, as_whole};
use crate::config::Config;
use crate::fault::Raised;
use crate::luau::given;
use crate::sandbox::Prelude;
use crate::script::Script;

const HOOK: &str = "plan";

/// A quantisation profile in Lua.
///
/// The script defines `plan(params, tensors, config)` and gives a list of schemes: `"keep"`, `"mxfp4"`, `"mxfp8"`,
/// `"nvfp4"` or `{ bits = 4, group_size = 64 }`.
#[derive(Debug)]
pub struct LuaQuant {
    script: Script,
}

impl LuaQuant {
    /// Compiles the script of a package; nothing of it runs.
    ///
    /// # Errors
    /// As [`crate::LuaPlugin::open`].
    pub fn open(package: &PluginPackage, budget: Budget, log: LogSink) -> Result<Self, PluginError> {
        Ok(LuaQuant { script: Script::open(package, Kind::QuantProfile, budget, log)? })
    }

    fn invalid(&self, fields: Vec<host_plugins::FieldProblem>) -> PluginError {
        PluginError::InvalidConfig { plugin: self.script.name.clone(), fields, place: None }
    }
}

impl QuantPlugin for LuaQuant {
    fn name(&self) -> &PluginName {
        &self.script.name
    }

    fn plan(&self, config: &str, params: &str, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, PluginError> {
        let script = &self.script;
        let config = Config::parse(config, script).map_err(|fields| self.invalid(fields))?;
        let params = Config::parse_params(params, script).map_err(|fields| self.invalid(fields))?;
        let (plugin, log) = (script.name.clone(), script.log.clone());
        let left = Arc::new(Mutex::new(script.budget.log_bytes));
        let (lua, deadline) = script.state(Prelude::None, HOOK, move |_, line| {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            *left = left.checked_sub(line.len() + 1).ok_or_else(|| Raised::Log.into_lua())?;
            log.write(&plugin, line);
            Ok(())
        })?;
        let schemes = script.call(&deadline, HOOK, || {
            script.exec(&lua)?;
            let Some(plan) = lua.globals().get::<Option<Function>>(HOOK)? else { return Ok(None) };
            let facts: Vec<Tensor> = tensors.iter().map(Tensor::from).collect();
            plan.call::<Vec<Value>>((params, facts, config)).map(Some)
        })?;
        let Some(schemes) = schemes else {
            return Err(PluginError::MissingExport { plugin: script.name.clone(), export: HOOK });
        };
        schemes.iter().enumerate().map(|(i, value)| self.scheme(i, value)).collect()
    }
}

given! {
    /// A tensor as `plan` gets it.
    Tensor as "Tensor" {
        name: String,
        shape: Vec<usize>,
        /// As safetensors spells it: "F32", "BF16".
        dtype: String,
        /// "embedding", "attention-q", "mlp-down", "head", "norm", …
        role: &'static str,
        layer: Option<usize>,
    }
}

impl From<&TensorFacts> for Tensor {
    fn from(facts: &TensorFacts) -> Self {
        Tensor {
            name: facts.name.clone(),
            shape: facts.shape.clone(),
            dtype: facts.dtype.to_string(),
            role: facts.role.name(),
            layer: facts.layer,
        }
    }
}

impl LuaQuant {
    fn scheme(&self, i: usize, value: &Value) -> Result<Scheme, PluginError> {
        let plugin = || self.script.name.clone();
        let refuse = || {
            let message = format!("scheme {} is none of the forms that exist", i + 1);
            PluginError::Script { plugin: plugin(), hook: HOOK, message, place: None }
        };
        if let Value::Table(table) = value {
            let whole = |key: &str| table.get::<Value>(key).ok().as_ref().and_then(as_whole);
            let (bits, group_size) = whole("bits").zip(whole("group_size")).ok_or_else(refuse)?;
            return Scheme::affine(bits as u64, group_size as u64).map_err(|error| PluginError::Scheme {
                plugin: plugin(),
                hook: HOOK,
                place: None,
                error: Box::new(error),
            });
        }
        match as_text(value).ok_or_else(refuse)?.as_str() {
            "keep" => Ok(Scheme::Keep),
            "mxfp4" => Ok(Scheme::Mxfp4),
            "mxfp8" => Ok(Scheme::Mxfp8),
            "nvfp4" => Ok(Scheme::Nvfp4),
            _ => Err(refuse()),
        }
    }
}
