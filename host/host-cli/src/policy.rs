//! Sampling policies of a model: an instance for each request or session.

use std::sync::{Arc, OnceLock};

use host_engine::{ConstraintError, TokenTable};
use host_plugins::{Grants, PolicyInstance, PolicyVocabulary, QuarantineRules, SamplingPolicy};
use host_registry::Policy;
use host_text::Tokenizer;
use serde_json::Value;

use crate::constraint;
use crate::error::Failure;
use crate::host::Host;

/// A policy with what it is opened with.
pub(crate) struct RequestPolicy {
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
    pub(crate) fn of(
        host: &Host,
        policy: &Policy,
        rules: Option<QuarantineRules>,
        vocabulary: Arc<dyn PolicyVocabulary>,
    ) -> Result<Self, Failure> {
        let plugin = host.sampling_policy(&policy.plugin, rules)?;
        let (params, grants) = (Value::Object(policy.params.clone()).to_string(), policy.grants.clone());
        Ok(RequestPolicy { plugin, params, grants, vocabulary })
    }

    /// Another instance.
    ///
    /// # Errors
    /// Params that the plugin refuses, a right that is not granted, a fault.
    pub(crate) fn open(&self) -> Result<Box<dyn PolicyInstance>, Failure> {
        Ok(self.plugin.open(&self.params, Arc::clone(&self.vocabulary), &self.grants)?)
    }
}

/// The model's tokens as policies see them. `n_vocab` is the width of the logits.
pub(crate) fn vocabulary(tokenizer: &Arc<Tokenizer>, n_vocab: usize) -> Arc<dyn PolicyVocabulary> {
    Arc::new(ModelVocabulary { tokenizer: Arc::clone(tokenizer), n_vocab, table: OnceLock::new() })
}

struct ModelVocabulary {
    tokenizer: Arc<Tokenizer>,
    n_vocab: usize,
    /// Built when the first constraint asks for it.
    table: OnceLock<Result<Arc<TokenTable>, ConstraintError>>,
}

impl PolicyVocabulary for ModelVocabulary {
    fn n_vocab(&self) -> u32 {
        u32::try_from(self.n_vocab).expect("token ids have 32 bits")
    }

    fn eos_ids(&self) -> Vec<u32> {
        self.tokenizer.stop_ids().to_vec()
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.tokenizer.token_bytes(id)
    }

    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        self.tokenizer.encode(text, false, false).ok()
    }

    fn token_table(&self) -> Result<Arc<TokenTable>, ConstraintError> {
        self.table.get_or_init(|| constraint::table(&self.tokenizer, self.n_vocab)).clone()
    }
}
