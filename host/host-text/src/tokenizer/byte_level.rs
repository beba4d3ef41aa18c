//! Byte-level BPE from the vocabulary of a GGUF file (`tokenizer.ggml.model = "gpt2"`).

use std::collections::hash_map::Entry;

use host_core::Vocabulary;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, PostProcessorWrapper};

use super::pipeline::{Pipeline, contained};
use super::pre_tokenizers::PreTokenizer;
use super::special::{Kind, SpecialTokens, kinds};
use crate::TextError;

/// Builds the pipeline and names its special tokens. The vocabulary must have passed [`super::special::check`].
pub(crate) fn build(vocabulary: &Vocabulary) -> Result<(Pipeline, SpecialTokens), TextError> {
    let pre_tokenizer = PreTokenizer::named(vocabulary.pre.as_deref())?;
    let kinds = kinds(vocabulary)?;
    let special = SpecialTokens::of_vocabulary(vocabulary, pre_tokenizer.adds_bos);
    let bpe = BPE::builder()
        .vocab_and_merges(ids_of_tokens(vocabulary, &kinds)?, merges(vocabulary)?)
        .ignore_merges(pre_tokenizer.ignores_merges);
    let built = contained(|| {
        let mut tokenizer = tokenizers::Tokenizer::new(bpe.build()?);
        tokenizer.with_normalizer(pre_tokenizer.normalizer());
        tokenizer.with_pre_tokenizer(Some(pre_tokenizer.build()?));
        tokenizer.with_decoder(Some(ByteLevel::default()));
        tokenizer.with_post_processor(Some(post_processor(&special)?));
        tokenizer.add_tokens(&added_tokens(vocabulary, &kinds));
        Ok(tokenizer)
    });
    let tokenizer =
        built.map_err(|reason| TextError::InvalidTokenizer { from: "the GGUF vocabulary".into(), reason })?;
    Ok((Pipeline::new(tokenizer, vocabulary.tokens.len()), special))
}

/// The id of each text. Unused tokens often share one text; nothing can spell them, so they need no entry.
fn ids_of_tokens(vocabulary: &Vocabulary, kinds: &[Kind]) -> Result<Vocab, TextError> {
    let mut ids = Vocab::with_capacity(vocabulary.tokens.len());
    for ((id, text), kind) in (0u32..).zip(&vocabulary.tokens).zip(kinds) {
        match ids.entry(text.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(id);
            }
            Entry::Occupied(_) if *kind == Kind::Unused => {}
            Entry::Occupied(first) => {
                return Err(TextError::InvalidVocabulary {
                    what: "its tokens",
                    expected: "a different text for each".into(),
                    found: format!("`{}` twice, first at id {}", text.escape_debug(), first.get()),
                });
            }
        }
    }
    Ok(ids)
}

fn merges(vocabulary: &Vocabulary) -> Result<Vec<(String, String)>, TextError> {
    let pair = |merge: &String| match merge.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
            Ok((left.to_owned(), right.to_owned()))
        }
        _ => Err(TextError::InvalidVocabulary {
            what: "a merge",
            expected: "two pieces joined by one space".into(),
            found: format!("`{}`", merge.escape_debug()),
        }),
    };
    vocabulary.merges.iter().map(pair).collect()
}

/// Tokens that are recognised in the text before it is split.
fn added_tokens(vocabulary: &Vocabulary, kinds: &[Kind]) -> Vec<AddedToken> {
    let added = |(text, kind): (&String, &Kind)| match kind {
        Kind::Control | Kind::Unknown => Some(AddedToken::from(text.clone(), true).normalized(false)),
        Kind::UserDefined => Some(AddedToken::from(text.clone(), false).normalized(false)),
        Kind::Normal | Kind::Unused | Kind::Byte => None,
    };
    vocabulary.tokens.iter().zip(kinds).filter_map(added).collect()
}

/// Puts the prompt's first and last tokens around it, for whoever reads the exported `tokenizer.json`.
fn post_processor(special: &SpecialTokens) -> tokenizers::Result<PostProcessorWrapper> {
    match super::export::template_processing(special) {
        Some(template) => Ok(serde_json::from_value(template)?),
        None => Ok(ByteLevel::new(false, false, false).into()),
    }
}
