//! The tokens that have a name or a duty, and the checks of a vocabulary that both GGUF kinds share.

use host_core::Vocabulary;
use serde_json::{Map, Value};

use crate::TextError;

/// A token with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialToken {
    /// The id.
    pub id: u32,
    /// The text as the vocabulary stores it.
    pub text: String,
}

/// The named special tokens of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecialTokens {
    /// Beginning of sequence.
    pub bos: Option<SpecialToken>,
    /// End of sequence.
    pub eos: Option<SpecialToken>,
    /// Stands for text the vocabulary cannot spell.
    pub unk: Option<SpecialToken>,
    /// Padding.
    pub pad: Option<SpecialToken>,
    /// The tokens that end a generation.
    pub stop_ids: Vec<u32>,
    /// What a prompt starts with.
    pub before: Vec<u32>,
    /// What a prompt ends with.
    pub after: Vec<u32>,
    /// Every named token as chat templates see it: `bos_token`, `eos_token` and so on, with their texts.
    pub named: Map<String, Value>,
}

impl SpecialTokens {
    /// The special tokens of a GGUF vocabulary; `adds_bos` holds where the file does not say.
    ///
    /// The vocabulary must have passed [`check`].
    pub(crate) fn of_vocabulary(vocabulary: &Vocabulary, adds_bos: bool) -> Self {
        let token = |id: Option<u32>| {
            let id = id?;
            let text = vocabulary.tokens.get(usize::try_from(id).ok()?)?.clone();
            Some(SpecialToken { id, text })
        };
        let mut special = SpecialTokens {
            bos: token(vocabulary.bos_token_id),
            eos: token(vocabulary.eos_token_id),
            unk: token(vocabulary.unknown_token_id),
            pad: token(vocabulary.padding_token_id),
            ..SpecialTokens::default()
        };
        for id in [vocabulary.eos_token_id, vocabulary.eot_token_id].into_iter().flatten() {
            if !special.stop_ids.contains(&id) {
                special.stop_ids.push(id);
            }
        }
        if vocabulary.add_bos_token.unwrap_or(adds_bos) {
            special.before.extend(vocabulary.bos_token_id);
        }
        if vocabulary.add_eos_token == Some(true) {
            special.after.extend(vocabulary.eos_token_id);
        }
        special.name_them();
        special
    }

    /// Fills `named` from the four tokens.
    fn name_them(&mut self) {
        let tokens = [
            ("bos_token", &self.bos),
            ("eos_token", &self.eos),
            ("unk_token", &self.unk),
            ("pad_token", &self.pad),
        ];
        self.named = tokens
            .into_iter()
            .filter_map(|(name, token)| Some((name.to_owned(), Value::from(token.as_ref()?.text.clone()))))
            .collect();
    }
}

/// The kind of a token in a GGUF vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    fn from_number(number: i32) -> Option<Self> {
        let kinds = [Kind::Normal, Kind::Unknown, Kind::Control, Kind::UserDefined, Kind::Unused, Kind::Byte];
        kinds.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }
}

/// The kind of each token; a vocabulary without kinds has normal tokens only.
///
/// # Errors
/// A number that is no kind.
pub(crate) fn kinds(vocabulary: &Vocabulary) -> Result<Vec<Kind>, TextError> {
    if vocabulary.token_types.is_empty() {
        return Ok(vec![Kind::Normal; vocabulary.tokens.len()]);
    }
    let numbers = vocabulary.token_types.iter();
    let kind = |number: &i32| {
        Kind::from_number(*number).ok_or_else(|| TextError::InvalidVocabulary {
            what: "a token type",
            expected: "1 to 6".into(),
            found: number.to_string(),
        })
    };
    numbers.map(kind).collect()
}

/// Checks what both kinds of GGUF vocabulary need: lengths that agree and special ids that exist.
///
/// # Errors
/// [`TextError::InvalidVocabulary`] with the part at fault.
pub(crate) fn check(vocabulary: &Vocabulary) -> Result<(), TextError> {
    let n_tokens = vocabulary.tokens.len();
    let invalid =
        |what, expected: String, found: String| Err(TextError::InvalidVocabulary { what, expected, found });
    if n_tokens == 0 || u32::try_from(n_tokens).is_err() {
        return invalid("its size", "1 to 4294967295 tokens".into(), format!("{n_tokens} tokens"));
    }
    for (what, found) in
        [("the scores", vocabulary.scores.len()), ("the token types", vocabulary.token_types.len())]
    {
        if found != 0 && found != n_tokens {
            return invalid(what, format!("one for each of {n_tokens} tokens"), found.to_string());
        }
    }
    for (what, id) in [
        ("the beginning-of-sequence id", vocabulary.bos_token_id),
        ("the end-of-sequence id", vocabulary.eos_token_id),
        ("the end-of-turn id", vocabulary.eot_token_id),
        ("the unknown-token id", vocabulary.unknown_token_id),
        ("the padding id", vocabulary.padding_token_id),
    ] {
        if let Some(id) = id.filter(|id| *id as usize >= n_tokens) {
            return invalid(what, format!("below {n_tokens}"), id.to_string());
        }
    }
    for (what, adds, id) in [
        ("add_bos_token", vocabulary.add_bos_token, vocabulary.bos_token_id),
        ("add_eos_token", vocabulary.add_eos_token, vocabulary.eos_token_id),
    ] {
        if adds == Some(true) && id.is_none() {
            return invalid(what, "the id of the token to add".into(), "none".into());
        }
    }
    Ok(())
}
