//! The `tokenizers` pipeline (normaliser, pre-tokenizer, model), with special tokens parsed or not for each call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use tokenizers::{
    AddedVocabulary, Encoding, Model as _, OffsetType, PostProcessor as _, PreTokenizer as _, Token,
};

use crate::TextError;

/// The most whitespace characters in a row.
///
/// Pre-tokenizer patterns with a look-ahead keep one backtracking state for each character of the run, of which
/// the regex engine allows a million; past that it gives up without saying so.
const LIMIT_WHITESPACE: usize = 500_000;

/// A `tokenizers` pipeline. Its post-processor, truncation and padding are never run on a text.
#[derive(Debug)]
pub(crate) struct Pipeline {
    tokenizer: tokenizers::Tokenizer,
    /// The added vocabulary that does not recognise special tokens, built when first asked for.
    spelling: OnceLock<AddedVocabulary>,
    n_vocab: usize,
}

impl Pipeline {
    /// `n_vocab` is one more than the largest id.
    pub(crate) fn new(tokenizer: tokenizers::Tokenizer, n_vocab: usize) -> Self {
        Pipeline { tokenizer, spelling: OnceLock::new(), n_vocab }
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(
        &self,
        text: &str,
        parse_special: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        check_whitespace(text)?;
        let added = match parse_special {
            true => self.tokenizer.get_added_vocabulary(),
            false => self.spelling.get_or_init(|| {
                let mut added = self.tokenizer.get_added_vocabulary().clone();
                added.set_encode_special_tokens(true);
                added
            }),
        };
        let encoding =
            contained(|| self.split(added, text)).map_err(|reason| TextError::EncodeFailed { reason })?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    fn split(&self, added: &AddedVocabulary, text: &str) -> tokenizers::Result<Encoding> {
        let mut pieces = added.extract_and_normalize(self.tokenizer.get_normalizer(), text);
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        let model = self.tokenizer.get_model();
        pieces.tokenize(|piece| model.tokenize(piece.get()))?;
        pieces.into_encoding(None, 0, OffsetType::None)
    }

    /// What the post-processor puts before and after a text.
    ///
    /// # Errors
    /// The post-processor's own, as text.
    pub(crate) fn surroundings(&self) -> Result<(Vec<u32>, Vec<u32>), String> {
        let Some(post_processor) = self.tokenizer.get_post_processor() else {
            return Ok((Vec::new(), Vec::new()));
        };
        const TEXT: u32 = u32::MAX;
        let text = Encoding::from_tokens(vec![Token::new(TEXT, String::new(), (0, 0))], 0);
        let encoding = contained(|| post_processor.process(text, None, true))?;
        let ids = encoding.get_ids();
        let at = ids.iter().position(|id| *id == TEXT).ok_or("the post-processor drops the text")?;
        Ok((ids[..at].to_vec(), ids[at + 1..].to_vec()))
    }

    pub(crate) fn text(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.tokenizer.token_to_id(text)
    }

    pub(crate) fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.tokenizer.get_added_vocabulary().get_added_tokens_decoder().get(&id).is_some_and(|t| t.special)
    }

    /// The `tokenizer.json` of this pipeline.
    pub(crate) fn to_json(&self) -> Result<String, String> {
        self.tokenizer.to_string(false).map_err(|error| error.to_string())
    }
}

/// Runs code of the `tokenizers` library, which panics on some malformed tokenizers where it should fail.
pub(crate) fn contained<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizers library gave up on it".into()),
    }
}

fn check_whitespace(text: &str) -> Result<(), TextError> {
    if text.len() <= LIMIT_WHITESPACE {
        return Ok(());
    }
    let (mut run, mut start) = (0, 0);
    for (offset, character) in text.char_indices() {
        if !character.is_whitespace() {
            run = 0;
            continue;
        }
        if run == 0 {
            start = offset;
        }
        run += 1;
        if run > LIMIT_WHITESPACE {
            return Err(TextError::WhitespaceRun { limit: LIMIT_WHITESPACE, offset: start });
        }
    }
    Ok(())
}
