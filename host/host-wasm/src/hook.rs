//! One call of a hook: whose it is, what it may spend, and what its end means.

use host_plugins::{Budget, FieldProblem, PluginError, PluginName, clip};
use wasmtime::{PoolConcurrencyLimitError, Trap};

use crate::contract_0_2::graph::tenon::plugin::types::{FieldError, PluginError as Given};
use crate::guest::{Fault, MAX_TABLE_ELEMENTS};

/// Fields in one error of a guest.
const MAX_FIELDS: usize = 256;

/// A hook that is called.
#[derive(Clone, Copy)]
pub(crate) struct Hook<'a> {
    pub(crate) plugin: &'a PluginName,
    pub(crate) name: &'static str,
    pub(crate) budget: &'a Budget,
}

impl Hook<'_> {
    /// What a call that did not return means.
    pub(crate) fn fault(&self, error: &wasmtime::Error, last_line: Option<String>) -> PluginError {
        let (plugin, hook) = (self.plugin.clone(), self.name);
        if let Some(fault) = error.downcast_ref::<Fault>() {
            return match fault {
                Fault::Memory => PluginError::Memory { plugin, hook, budget_bytes: self.budget.memory_bytes },
                Fault::Table => self.output("table elements", MAX_TABLE_ELEMENTS),
                Fault::Log => self.output("bytes of log text", self.budget.log_bytes),
                Fault::Calls => self.output("calls in a step", self.budget.step.calls),
            };
        }
        if let Some(full) = error.downcast_ref::<PoolConcurrencyLimitError>() {
            return PluginError::NoRoom { plugin, hook, message: full.to_string() };
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => PluginError::Time { plugin, hook, budget_ms: self.budget.time_ms(hook) },
            Some(trap) => {
                let panic = last_line.filter(|line| line.starts_with("panicked at"));
                let message = clip(panic.unwrap_or_else(|| trap.to_string()));
                PluginError::Trap { plugin, hook, message }
            }
            None => PluginError::Trap { plugin, hook, message: clip(error.root_cause().to_string()) },
        }
    }

    /// What a guest gave up with; `refused` tells of refusals that it passes on, if there was one.
    pub(crate) fn given(&self, given: Given, refused: Option<PluginError>) -> PluginError {
        let plugin = self.plugin.clone();
        match given {
            Given::InvalidConfig(fields) | Given::Unsupported(fields) if fields.len() > MAX_FIELDS => {
                self.output("fields of an error", MAX_FIELDS)
            }
            Given::InvalidConfig(fields) => {
                PluginError::InvalidConfig { plugin, fields: problems(fields), place: None }
            }
            Given::Unsupported(fields) => {
                PluginError::Unsupported { plugin, fields: problems(fields), place: None }
            }
            Given::Build(_) | Given::Step(_) => refused.unwrap_or_else(|| {
                let message = "it passes on a refusal that the host never gave".to_owned();
                PluginError::Guest { plugin, hook: self.name, message, place: None }
            }),
            Given::Internal(message) => {
                PluginError::Guest { plugin, hook: self.name, message: clip(message), place: None }
            }
        }
    }

    /// Refuses a text of the caller's that is beyond its bound.
    pub(crate) fn check_text(&self, name: &str, text: &str) -> Result<(), PluginError> {
        if text.len() <= self.budget.config_bytes {
            return Ok(());
        }
        let field = FieldProblem {
            path: name.to_owned(),
            expected: format!("at most {} bytes", self.budget.config_bytes),
            found: text.len().to_string(),
        };
        Err(PluginError::InvalidConfig { plugin: self.plugin.clone(), fields: vec![field], place: None })
    }

    /// A bound that was passed.
    pub(crate) fn output(&self, what: &'static str, limit: usize) -> PluginError {
        PluginError::Output { plugin: self.plugin.clone(), hook: self.name, what, limit }
    }
}

fn problems(fields: Vec<FieldError>) -> Vec<FieldProblem> {
    let problem = |field: FieldError| FieldProblem {
        path: clip(field.path),
        expected: clip(field.expected),
        found: clip(field.found),
    };
    fields.into_iter().map(problem).collect()
}
