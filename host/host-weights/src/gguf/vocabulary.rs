//! The tokenizer's vocabulary, from a GGUF file's metadata.

use host_core::Vocabulary;

use super::fault::GgufFault;
use super::metadata::{Array, Metadata, Value};

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";

/// Reads the vocabulary; lengths and ids are checked against the tokens.
pub(super) fn read(metadata: &Metadata<'_>) -> Result<Vocabulary, GgufFault> {
    let text = |key: &str| Ok(metadata.text(key)?.map(str::to_owned));
    let missing = |key: &str| GgufFault::MissingKey { key: key.to_owned() };
    let model = text("tokenizer.ggml.model")?.ok_or_else(|| missing("tokenizer.ggml.model"))?;
    let tokens = list(metadata, TOKENS, "texts", as_text)?;
    if tokens.is_empty() {
        return Err(missing(TOKENS));
    }
    let scores = list(metadata, "tokenizer.ggml.scores", "floats", as_f32)?;
    let token_types = list(metadata, "tokenizer.ggml.token_type", "whole numbers", as_i32)?;
    for (key, found) in
        [("tokenizer.ggml.scores", scores.len()), ("tokenizer.ggml.token_type", token_types.len())]
    {
        if found != 0 && found != tokens.len() {
            return Err(GgufFault::Contradiction { key: key.to_owned(), expected: tokens.len(), found });
        }
    }
    let ids = special_ids(metadata)?;
    let flag = |key: &str| metadata.bool(key);
    Ok(Vocabulary {
        model,
        pre: text("tokenizer.ggml.pre")?,
        scores,
        token_types,
        merges: list(metadata, "tokenizer.ggml.merges", "texts", as_text)?,
        bos_token_id: ids.bos,
        eos_token_id: ids.eos,
        eot_token_id: ids.eot,
        unknown_token_id: token_id(metadata, "tokenizer.ggml.unknown_token_id")?,
        padding_token_id: token_id(metadata, "tokenizer.ggml.padding_token_id")?,
        add_bos_token: flag("tokenizer.ggml.add_bos_token")?,
        add_eos_token: flag("tokenizer.ggml.add_eos_token")?,
        add_space_prefix: flag("tokenizer.ggml.add_space_prefix")?,
        chat_template: text("tokenizer.chat_template")?,
        tokens,
    })
}

/// The tokens that begin a text, end it, and end a turn.
pub(super) struct SpecialIds {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) eot: Option<u32>,
}

pub(super) fn special_ids(metadata: &Metadata<'_>) -> Result<SpecialIds, GgufFault> {
    Ok(SpecialIds {
        bos: token_id(metadata, "tokenizer.ggml.bos_token_id")?,
        eos: token_id(metadata, "tokenizer.ggml.eos_token_id")?,
        eot: token_id(metadata, "tokenizer.ggml.eot_token_id")?,
    })
}

/// A token id, if the key is there; it must be one of the vocabulary's.
fn token_id(metadata: &Metadata<'_>, key: &str) -> Result<Option<u32>, GgufFault> {
    let Some(id) = metadata.count(key)? else { return Ok(None) };
    let n_tokens = metadata.array(TOKENS)?.map_or(0, |tokens| tokens.len);
    if id >= n_tokens {
        return Err(GgufFault::TokenId { key: key.to_owned(), n_tokens, found: id });
    }
    // Arrays have at most 2^24 elements.
    Ok(Some(id as u32))
}

/// The elements of an array, or none where the key is absent.
fn list<T>(
    metadata: &Metadata<'_>,
    key: &str,
    expected: &'static str,
    read: impl Fn(&Value<'_>) -> Option<T>,
) -> Result<Vec<T>, GgufFault> {
    let Some(array) = metadata.array(key)? else { return Ok(Vec::new()) };
    let wrong = |array: &Array<'_>| GgufFault::WrongValue {
        key: key.to_owned(),
        expected,
        found: Value::Array(array.clone()).to_string(),
    };
    array.values().map(|value| read(&value?).ok_or_else(|| wrong(&array))).collect()
}

fn as_text(value: &Value<'_>) -> Option<String> {
    match value {
        Value::Text(text) => Some((*text).to_owned()),
        _ => None,
    }
}

fn as_f32(value: &Value<'_>) -> Option<f32> {
    match value {
        Value::F32(value) => Some(*value),
        _ => None,
    }
}

fn as_i32(value: &Value<'_>) -> Option<i32> {
    match value {
        Value::Signed(value) => i32::try_from(*value).ok(),
        Value::Unsigned(value) => i32::try_from(*value).ok(),
        _ => None,
    }
}
