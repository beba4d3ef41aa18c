//! A model's tokens as policies and constraints see them.

use std::sync::{Arc, OnceLock};

use host_engine::{ConstraintError, TokenTable, TokenTables};
use host_plugins::PolicyVocabulary;
use host_registry::TextFacts;
use host_text::{TextError, Tokenizer};

/// The model's tokens as policies see them. `n_vocab` is the width of the logits; `tables` are shared with every other
/// model of the process ([`crate::Machine::token_tables`]).
pub fn vocabulary(
    tokenizer: &Arc<Tokenizer>,
    n_vocab: usize,
    tables: &Arc<TokenTables>,
) -> Arc<dyn PolicyVocabulary> {
    let (tokenizer, tables) = (Arc::clone(tokenizer), Arc::clone(tables));
    Arc::new(ModelVocabulary { tokenizer, n_vocab, tables, table: OnceLock::new() })
}

/// The tokenizer's tokens as bytes: the table of an equal vocabulary, where `tables` holds one.
///
/// # Errors
/// [`ConstraintError::Vocabulary`].
pub fn token_table(
    tokenizer: &Tokenizer,
    n_vocab: usize,
    tables: &TokenTables,
) -> Result<Arc<TokenTable>, ConstraintError> {
    let ids = 0..tokenizer.n_vocab() as u32;
    let special: Vec<u32> = ids.clone().filter(|id| tokenizer.is_special(*id)).collect();
    let tokens = ids.map(|id| tokenizer.token_bytes(id).unwrap_or_default()).collect();
    tables.get(n_vocab, tokens, &special, tokenizer.stop_ids())
}

struct ModelVocabulary {
    tokenizer: Arc<Tokenizer>,
    n_vocab: usize,
    tables: Arc<TokenTables>,
    /// Looked up when the first constraint asks for it.
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
        self.table.get_or_init(|| token_table(&self.tokenizer, self.n_vocab, &self.tables)).clone()
    }
}

/// What a request must know of the model's text side.
pub fn text_facts(tokenizer: &Tokenizer, n_vocab: usize) -> TextFacts {
    let template = tokenizer.chat_template();
    TextFacts {
        n_vocab,
        // A template that is broken is there, and tells itself what is wrong with it.
        has_template: !matches!(template, Err(TextError::NoTemplate)),
        tells_tools: template.is_ok_and(|template| template.source().contains("tools")),
    }
}
