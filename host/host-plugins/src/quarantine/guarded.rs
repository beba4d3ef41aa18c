//! Plugins behind the ledger: the same hooks, with a pass for each request.

use std::sync::Arc;

use host_core::quant::{Scheme, TensorFacts};
use host_graph::{Catalogue, Graph};
use host_sampling::Edits;

use super::{Pass, Quarantine, QuarantineRules};
use crate::error::PluginError;
use crate::hook::GraphPlugin;
use crate::package::PluginName;
use crate::policy::{Grants, PolicyInput, PolicyInstance, PolicyTraits, PolicyVocabulary, SamplingPolicy};
use crate::quant::QuantPlugin;

struct Guarded<P: ?Sized> {
    ledger: Arc<Quarantine>,
    rules: QuarantineRules,
    plugin: Box<P>,
}

impl Quarantine {
    /// The same policy, refused while it is in quarantine.
    pub fn policy(
        self: &Arc<Self>,
        rules: QuarantineRules,
        plugin: Box<dyn SamplingPolicy>,
    ) -> Box<dyn SamplingPolicy> {
        Box::new(Guarded { ledger: Arc::clone(self), rules, plugin })
    }

    /// The same graph plugin, refused while it is in quarantine.
    pub fn graph(
        self: &Arc<Self>,
        rules: QuarantineRules,
        plugin: Box<dyn GraphPlugin>,
    ) -> Box<dyn GraphPlugin> {
        Box::new(Guarded { ledger: Arc::clone(self), rules, plugin })
    }

    /// The same quantisation profile, refused while it is in quarantine.
    pub fn quant(
        self: &Arc<Self>,
        rules: QuarantineRules,
        plugin: Box<dyn QuantPlugin>,
    ) -> Box<dyn QuantPlugin> {
        Box::new(Guarded { ledger: Arc::clone(self), rules, plugin })
    }
}

impl GraphPlugin for Guarded<dyn GraphPlugin> {
    fn name(&self) -> &PluginName {
        self.plugin.name()
    }

    fn build(&self, config: &str, catalogue: Catalogue) -> Result<Graph, PluginError> {
        let pass = self.ledger.admit(self.plugin.name(), self.rules)?;
        pass.judge(self.plugin.build(config, catalogue))
    }
}

impl QuantPlugin for Guarded<dyn QuantPlugin> {
    fn name(&self) -> &PluginName {
        self.plugin.name()
    }

    fn plan(&self, config: &str, params: &str, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, PluginError> {
        let pass = self.ledger.admit(self.plugin.name(), self.rules)?;
        pass.judge(self.plugin.plan(config, params, tensors))
    }
}

impl SamplingPolicy for Guarded<dyn SamplingPolicy> {
    fn name(&self) -> &PluginName {
        self.plugin.name()
    }

    fn describe(&self) -> Result<PolicyTraits, PluginError> {
        let pass = self.ledger.admit(self.plugin.name(), self.rules)?;
        pass.blame(self.plugin.describe())
    }

    fn open(
        &self,
        params: &str,
        vocabulary: Arc<dyn PolicyVocabulary>,
        grants: &Grants,
    ) -> Result<Box<dyn PolicyInstance>, PluginError> {
        let pass = self.ledger.admit(self.plugin.name(), self.rules)?;
        let instance = pass.blame(self.plugin.open(params, vocabulary, grants))?;
        Ok(Box::new(GuardedInstance { instance, pass: Arc::new(pass) }))
    }
}

/// A policy's instance with the pass that its forks share.
struct GuardedInstance {
    instance: Box<dyn PolicyInstance>,
    pass: Arc<Pass>,
}

impl PolicyInstance for GuardedInstance {
    fn name(&self) -> &PluginName {
        self.instance.name()
    }

    fn traits(&self) -> PolicyTraits {
        self.instance.traits()
    }

    fn step(&mut self, input: &PolicyInput<'_>) -> Result<Edits, PluginError> {
        self.pass.judge(self.instance.step(input))
    }

    fn rollback(&mut self, n: u32) -> Result<(), PluginError> {
        self.pass.blame(self.instance.rollback(n))
    }

    fn fork(&mut self) -> Result<Box<dyn PolicyInstance>, PluginError> {
        let instance = self.pass.blame(self.instance.fork())?;
        Ok(Box::new(GuardedInstance { instance, pass: Arc::clone(&self.pass) }))
    }
}
