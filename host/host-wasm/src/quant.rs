//! A quantisation profile as a component: one call in an instance of its own.

use std::fmt;
use std::sync::Arc;

use host_core::quant::{QuantError, Role, Scheme, TensorFacts};
use host_plugins::{Budget, LogSink, PluginError, PluginName, QuantPlugin, Ticker};
use wasmtime::Store;

use crate::contract_0_2::graph::tenon::plugin::types;
use crate::contract_0_2::quant::QuantProfilePre;
use crate::contract_0_2::quant::tenon::plugin::quant;
use crate::guest::{Fault, Memory};
use crate::hook::Hook;

/// A quantisation profile as a component.
pub struct WasmQuant {
    name: PluginName,
    instance: QuantProfilePre<QuantGuest>,
    ticker: Arc<Ticker>,
    budget: Budget,
    log: LogSink,
}

impl fmt::Debug for WasmQuant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmQuant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All that belongs to one plan.
pub(crate) struct QuantGuest {
    plugin: PluginName,
    log: LogSink,
    log_left: usize,
    limits: Memory,
    last_line: Option<String>,
}

impl types::Host for QuantGuest {}

impl quant::Host for QuantGuest {
    fn log(&mut self, line: String) -> wasmtime::Result<()> {
        self.log_left = self.log_left.checked_sub(line.len() + 1).ok_or(Fault::Log)?;
        self.log.write(&self.plugin, &line);
        self.last_line = Some(line);
        Ok(())
    }
}

impl WasmQuant {
    pub(crate) fn new(
        name: PluginName,
        instance: QuantProfilePre<QuantGuest>,
        ticker: Arc<Ticker>,
        budget: Budget,
        log: LogSink,
    ) -> Self {
        WasmQuant { name, instance, ticker, budget, log }
    }

    /// Instantiates and calls the hook. The deadline covers both.
    fn call(
        &self,
        store: &mut Store<QuantGuest>,
        config: &str,
        params: &str,
        tensors: &[quant::TensorFacts],
    ) -> wasmtime::Result<Result<Vec<quant::Scheme>, types::PluginError>> {
        store.limiter(|guest| &mut guest.limits);
        store.set_epoch_deadline(Ticker::periods(self.budget.time_ms));
        store.epoch_deadline_trap();
        let _running = self.ticker.run();
        self.instance.instantiate(&mut *store)?.call_plan(&mut *store, config, params, tensors)
    }
}

impl QuantPlugin for WasmQuant {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn plan(&self, config: &str, params: &str, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, PluginError> {
        let hook = Hook { plugin: &self.name, name: "plan", budget: &self.budget };
        hook.check_text("config.json", config)?;
        hook.check_text("params", params)?;
        let guest = QuantGuest {
            plugin: self.name.clone(),
            log: self.log.clone(),
            log_left: self.budget.log_bytes,
            limits: Memory::new(&self.budget),
            last_line: None,
        };
        let mut store = Store::new(self.instance.engine(), guest);
        let facts: Vec<_> = tensors.iter().map(facts).collect();
        let schemes = match self.call(&mut store, config, params, &facts) {
            Ok(Ok(schemes)) => schemes,
            Ok(Err(given)) => return Err(hook.given(given, None)),
            Err(error) => return Err(hook.fault(&error, store.into_data().last_line)),
        };
        let schemes = schemes.into_iter().map(scheme).collect::<Result<_, _>>();
        schemes.map_err(|error| PluginError::Scheme {
            plugin: self.name.clone(),
            hook: hook.name,
            place: None,
            error: Box::new(error),
        })
    }
}

fn facts(tensor: &TensorFacts) -> quant::TensorFacts {
    let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    quant::TensorFacts {
        name: tensor.name.clone(),
        shape: tensor.shape.iter().copied().map(narrow).collect(),
        dtype: tensor.dtype.to_string(),
        role: role(tensor.role),
        layer: tensor.layer.map(narrow),
    }
}

fn role(role: Role) -> quant::Role {
    match role {
        Role::Embedding => quant::Role::Embedding,
        Role::AttentionQ => quant::Role::AttentionQ,
        Role::AttentionK => quant::Role::AttentionK,
        Role::AttentionV => quant::Role::AttentionV,
        Role::AttentionO => quant::Role::AttentionO,
        Role::MlpGate => quant::Role::MlpGate,
        Role::MlpUp => quant::Role::MlpUp,
        Role::MlpDown => quant::Role::MlpDown,
        Role::Router => quant::Role::Router,
        Role::Expert => quant::Role::Expert,
        Role::Head => quant::Role::Head,
        Role::Norm => quant::Role::Norm,
        Role::Bias => quant::Role::Bias,
        Role::Other => quant::Role::Other,
    }
}

fn scheme(scheme: quant::Scheme) -> Result<Scheme, QuantError> {
    match scheme {
        quant::Scheme::Keep => Ok(Scheme::Keep),
        quant::Scheme::Affine(affine) => Scheme::affine(affine.bits.into(), affine.group_size.into()),
        quant::Scheme::Mxfp4 => Ok(Scheme::Mxfp4),
        quant::Scheme::Mxfp8 => Ok(Scheme::Mxfp8),
        quant::Scheme::Nvfp4 => Ok(Scheme::Nvfp4),
    }
}
