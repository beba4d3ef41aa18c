//! The quant-profile hook: one call with all tensors gives a scheme for each.

use std::sync::Arc;

use host_core::quant::{QuantError, QuantProfile, Scheme, TensorFacts};
use host_core::{Report, Reported};

use crate::error::PluginError;
use crate::package::PluginName;

/// Chooses how each tensor of a checkpoint is stored.
pub trait QuantPlugin: Send + Sync {
    /// Which plugin this is.
    fn name(&self) -> &PluginName;

    /// One scheme a tensor, in order. `config` is the text of `config.json`, `params` a JSON object.
    ///
    /// Each call runs in a fresh guest.
    ///
    /// # Errors
    /// [`PluginError`]: refused params, a scheme that does not exist, a fault of the guest, a budget spent.
    fn plan(&self, config: &str, params: &str, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, PluginError>;
}

/// A plugin that several hold.
impl<P: QuantPlugin + ?Sized> QuantPlugin for Arc<P> {
    fn name(&self) -> &PluginName {
        (**self).name()
    }

    fn plan(&self, config: &str, params: &str, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, PluginError> {
        (**self).plan(config, params, tensors)
    }
}

/// A plugin with what a profile and a checkpoint give it: a quantisation profile like any other.
pub struct PluginQuant {
    /// The plugin.
    pub plugin: Box<dyn QuantPlugin>,
    /// The text of `config.json`.
    pub config: String,
    /// The profile's params, a JSON object.
    pub params: String,
}

impl PluginQuant {
    /// What the plugin answers, once every tensor can take its scheme.
    fn checked(&self, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, PluginError> {
        let schemes = self.plugin.plan(&self.config, &self.params, tensors)?;
        check(&schemes, tensors).map_err(|error| PluginError::Scheme {
            plugin: self.plugin.name().clone(),
            hook: "plan",
            place: None,
            error: Box::new(error),
        })?;
        Ok(schemes)
    }
}

fn check(schemes: &[Scheme], tensors: &[TensorFacts]) -> Result<(), QuantError> {
    if schemes.len() != tensors.len() {
        return Err(QuantError::Count { expected: tensors.len(), found: schemes.len() });
    }
    schemes.iter().zip(tensors).try_for_each(|(scheme, tensor)| scheme.check(tensor))
}

impl QuantProfile for PluginQuant {
    fn plan(&self, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, Report> {
        self.checked(tensors).map_err(|error| error.report())
    }
}
