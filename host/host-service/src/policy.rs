//! Sampling policies of a model: an instance for each request or session.

use std::sync::Arc;

use host_plugins::{Grants, PolicyInstance, PolicyVocabulary, QuarantineRules, SamplingPolicy};
use host_registry::Policy;
use serde_json::Value;

use crate::failure::Failure;
use crate::host::Host;

/// A policy with what it is opened with.
pub struct RequestPolicy {
    plugin: Box<dyn SamplingPolicy>,
    params: String,
    grants: Grants,
    vocabulary: Arc<dyn PolicyVocabulary>,
}

impl RequestPolicy {
    /// A policy that was resolved; kept out as `rules` say.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub fn of(
        host: &Host,
        policy: &Policy,
        rules: Option<QuarantineRules>,
        vocabulary: Arc<dyn PolicyVocabulary>,
    ) -> Result<Self, Failure> {
        let plugin = host.sampling_policy(&policy.plugin, policy.budget, rules)?;
        let (params, grants) = (Value::Object(policy.params.clone()).to_string(), policy.grants.clone());
        Ok(RequestPolicy { plugin, params, grants, vocabulary })
    }

    /// Another instance.
    ///
    /// # Errors
    /// Params that the plugin refuses, a right that is not granted, a fault.
    pub fn open(&self) -> Result<Box<dyn PolicyInstance>, Failure> {
        self.open_over(Arc::clone(&self.vocabulary))
    }

    /// The same over another view of the model's vocabulary.
    ///
    /// # Errors
    /// As [`RequestPolicy::open`].
    pub fn open_over(
        &self,
        vocabulary: Arc<dyn PolicyVocabulary>,
    ) -> Result<Box<dyn PolicyInstance>, Failure> {
        Ok(self.plugin.open(&self.params, vocabulary, &self.grants)?)
    }

    /// The model's vocabulary.
    pub fn vocabulary(&self) -> &Arc<dyn PolicyVocabulary> {
        &self.vocabulary
    }
}
