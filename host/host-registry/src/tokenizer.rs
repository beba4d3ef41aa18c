//! What lines of `[match]` ask of a model's tokenizer, and what they see of it.

use std::collections::BTreeSet;

use host_core::{TokenizerFact, TokenizerFacts, TokenizerKey};
use serde_json::Value;

use crate::profile::Match;
use crate::set::ProfileSet;

/// What such a line's key begins with; no key of the configuration is looked up under it.
pub(crate) const TOKENIZER: &str = "tokenizer";

/// What a line that is no key of the configuration sees.
pub(crate) enum Beside {
    /// A value.
    Is(Value),
    /// The model has none, with why: what a line that asks for absence holds for.
    Absent(String),
    /// It cannot be told, with why: no line holds.
    Unknown(String),
}

/// What a key asks of the tokenizer: nothing where it is a key of the configuration, no [`TokenizerKey`] where there is
/// no such question.
pub(crate) fn asked_by(key: &str) -> Option<Option<TokenizerKey>> {
    let rest = key.strip_prefix(TOKENIZER)?;
    match rest.strip_prefix('.') {
        Some(name) => Some(TokenizerKey::from_name(name)),
        None => rest.is_empty().then_some(None),
    }
}

/// The keys that may be asked, as reports list them.
pub(crate) fn known_keys() -> String {
    TokenizerKey::ALL.map(|key| format!("`{TOKENIZER}.{}`", key.name())).join(", ")
}

/// What a line sees of a tokenizer.
pub(crate) fn seen(facts: Option<&TokenizerFacts>, key: Option<TokenizerKey>) -> Beside {
    match key.and_then(|key| facts?.get(&key)) {
        Some(TokenizerFact::Text(text)) => Beside::Is(text.as_str().into()),
        Some(TokenizerFact::Count(count)) => Beside::Is((*count).into()),
        Some(TokenizerFact::Absent(why)) => Beside::Absent(why.clone()),
        Some(TokenizerFact::Unreadable(why)) => Beside::Unknown(format!("unreadable: {why}")),
        None => Beside::Unknown("none: the model's tokenizer was not looked at".to_owned()),
    }
}

impl Match {
    /// What its lines ask of a tokenizer.
    pub fn tokenizer_keys(&self) -> BTreeSet<TokenizerKey> {
        self.keys().filter_map(|key| asked_by(key).flatten()).collect()
    }
}

impl ProfileSet {
    /// What any of its profiles asks of a model's tokenizer, which is what [`crate::ModelIdentity::tokenizer`] must
    /// answer. Mostly nothing.
    pub fn tokenizer_keys(&self) -> BTreeSet<TokenizerKey> {
        self.iter().flat_map(|loaded| loaded.profile().match_.tokenizer_keys()).collect()
    }
}
