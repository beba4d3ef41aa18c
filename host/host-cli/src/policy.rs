//! The sampling policy of a composition: an instance for each request.

use std::sync::{Arc, OnceLock};

use host_engine::{ConstraintError, TokenTable};
use host_plugins::{PolicyInstance, PolicyVocabulary, SamplingPolicy};
use host_registry::Composition;
use host_text::Tokenizer;
use serde_json::Value;

use crate::constraint;
use crate::error::Failure;
use crate::host::Host;

/// A policy with what its profile gives it.
pub(crate) struct RequestPolicy {
    plugin: Box<dyn SamplingPolicy>,
    vocabulary: Arc<ModelVocabulary>,
}

impl RequestPolicy {
    /// The policy that a composition names, if it names one. `n_vocab` is the width of the logits.
    ///
    /// # Errors
    /// A plugin whose code cannot be loaded.
    pub(crate) fn of(
        host: &Host,
        composition: &Composition,
        tokenizer: &Arc<Tokenizer>,
        n_vocab: usize,
    ) -> Result<Option<Self>, Failure> {
        let Some(plugin) = host.sampling_policy(composition)? else { return Ok(None) };
        let vocabulary = Arc::new(ModelVocabulary::new(tokenizer, n_vocab));
        Ok(Some(RequestPolicy { plugin, vocabulary }))
    }

    /// The instance of one request.
    ///
    /// # Errors
    /// Params that the plugin refuses, a right that is not granted, a fault.
    pub(crate) fn open(&self, composition: &Composition) -> Result<Box<dyn PolicyInstance>, Failure> {
        let policy = composition.policy().expect("the plugin came from this composition");
        let params = Value::Object(policy.params.clone()).to_string();
        let vocabulary: Arc<dyn PolicyVocabulary> = self.vocabulary.clone();
        Ok(self.plugin.open(&params, vocabulary, &policy.grants)?)
    }
}

/// The model's tokens as policies see them.
struct ModelVocabulary {
    tokenizer: Arc<Tokenizer>,
    n_vocab: usize,
    /// Built when the first constraint asks for it.
    table: OnceLock<Result<Arc<TokenTable>, ConstraintError>>,
}

impl ModelVocabulary {
    fn new(tokenizer: &Arc<Tokenizer>, n_vocab: usize) -> Self {
        ModelVocabulary { tokenizer: Arc::clone(tokenizer), n_vocab, table: OnceLock::new() }
    }
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
