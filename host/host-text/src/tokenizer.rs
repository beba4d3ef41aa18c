//! The tokenizer of a model, whatever it was published as.

mod byte_level;
mod export;
mod facts;
mod folder;
mod pieces;
mod pipeline;
mod pre_tokenizers;
mod sentence_piece;
mod special;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::Path;

use host_core::{Sampler, SamplingChain, Vocabulary};

pub use facts::tokenizer_facts;
pub use special::{SpecialToken, SpecialTokens};

use crate::decoder::Decoder;
use crate::{ChatTemplate, TextError};
use pipeline::Pipeline;
use sentence_piece::SentencePiece;

/// The most bytes that one text may have.
const LIMIT_BYTES: usize = 256 << 20;

/// The kinds of GGUF vocabulary (`tokenizer.ggml.model`) that are built here.
const GGUF_MODELS: [&str; 2] = ["gpt2", "llama"];

/// Turns text into token ids and back, exactly as the model was trained to see them.
#[derive(Debug)]
pub struct Tokenizer {
    model: Model,
    decoder: Decoder,
    special: SpecialTokens,
    /// Chat templates with their names; a single one is named `default`.
    templates: Vec<(String, String)>,
}

/// What splits text into tokens.
#[derive(Debug)]
enum Model {
    /// A `tokenizer.json`, or byte-level BPE built from a GGUF vocabulary.
    Pipeline(Box<Pipeline>),
    /// SentencePiece with scores, from a GGUF vocabulary.
    SentencePiece(Box<SentencePiece>),
}

impl Tokenizer {
    /// Reads the tokenizer of a model folder.
    ///
    /// `tokenizer.json` describes it. `tokenizer_config.json`, `special_tokens_map.json`, `generation_config.json`,
    /// `config.json`, `chat_template.jinja` and `chat_template.json`, where present, name the special tokens, the
    /// tokens that end a generation, and the chat template. As in `transformers`, `add_bos_token` and
    /// `add_eos_token` in `tokenizer_config.json` replace the post-processor of `tokenizer.json`.
    ///
    /// # Errors
    /// A file that cannot be read or has the wrong form; a tokenizer that cannot be built exactly.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self, TextError> {
        folder::read(folder.as_ref())
    }

    /// Builds the tokenizer of a GGUF file from its vocabulary.
    ///
    /// `gpt2` is byte-level BPE with the pre-tokenizer that `pre` names, `llama` is SentencePiece with scores.
    /// Where the file does not say whether a prompt starts with the beginning-of-sequence token or with a space,
    /// the format's own rule holds (SentencePiece: both; byte-level BPE: as the pre-tokenizer's family does).
    ///
    /// # Errors
    /// An unknown kind or pre-tokenizer, with the known ones; a vocabulary that contradicts itself.
    pub fn from_vocabulary(vocabulary: &Vocabulary) -> Result<Self, TextError> {
        special::check(vocabulary)?;
        let templates = vocabulary
            .chat_template
            .iter()
            .map(|template| ("default".to_owned(), template.clone()))
            .collect();
        match &vocabulary.model[..] {
            "gpt2" => {
                let (pipeline, special) = byte_level::build(vocabulary)?;
                let (model, decoder) = (Model::Pipeline(Box::new(pipeline)), Decoder::byte_level());
                Ok(Tokenizer { model, decoder, special, templates })
            }
            "llama" => {
                let (pieces, special) = sentence_piece::build(vocabulary)?;
                let decoder = Decoder::sentence_piece(pieces.adds_space_prefix());
                let model = Model::SentencePiece(Box::new(pieces));
                Ok(Tokenizer { model, decoder, special, templates })
            }
            other => Err(TextError::UnknownModel { known: &GGUF_MODELS, found: other.to_owned() }),
        }
    }

    /// The token ids of `text`.
    ///
    /// `add_special` adds the tokens that a prompt starts and ends with. `parse_special` reads special tokens
    /// written in the text as such; without it their text is spelled like any other, so that text from outside
    /// cannot pretend to be one. (Tokens that are added but not special are always recognised.)
    ///
    /// # Errors
    /// A text that is too long, or that the vocabulary cannot spell.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>, TextError> {
        if text.len() > LIMIT_BYTES {
            return Err(TextError::TooLong { limit_bytes: LIMIT_BYTES, found_bytes: text.len() });
        }
        let (before, after) = match add_special {
            true => (&self.special.before[..], &self.special.after[..]),
            false => (&[][..], &[][..]),
        };
        let mut ids = before.to_vec();
        match &self.model {
            Model::Pipeline(pipeline) => pipeline.encode(text, parse_special, &mut ids)?,
            Model::SentencePiece(pieces) => pieces.encode(text, parse_special, &mut ids)?,
        }
        ids.extend_from_slice(after);
        Ok(ids)
    }

    /// The text of `ids`; `skip_special` leaves out special tokens.
    ///
    /// Bytes that form no character become U+FFFD. An id without a token (models often have more rows than the
    /// vocabulary has tokens) stands for no text.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        self.decoder.decode(ids.iter().filter_map(|id| self.shown_text(*id, skip_special)))
    }

    /// The text of a token as the vocabulary stores it (`Ġworld`, `▁world`, `<0x0A>`).
    pub fn token_text(&self, id: u32) -> Option<Cow<'_, str>> {
        match &self.model {
            Model::Pipeline(pipeline) => pipeline.text(id).map(Cow::Owned),
            Model::SentencePiece(pieces) => pieces.text(id).map(Cow::Borrowed),
        }
    }

    /// The bytes that a token adds to a text, for grammars and other rules over bytes; `None` for an id without a
    /// token.
    ///
    /// Byte-level BPE is spelled byte for byte (`Ġworld` is ` world`), SentencePiece's `▁` is a space and its
    /// `<0x0A>` one byte. What holds for the start of a text alone is left out, so that tokens can be joined. A
    /// special token marks structure and gives its name.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let text = self.token_text(id)?;
        Some(if self.is_special(id) { text.into_owned().into_bytes() } else { self.decoder.bytes(&text) })
    }

    /// The ids of the tokens whose bytes hold `text`.
    pub fn ids_holding(&self, text: &str) -> Vec<u32> {
        let holds = |id: &u32| {
            let bytes = self.token_bytes(*id).unwrap_or_default();
            !text.is_empty() && bytes.windows(text.len()).any(|part| part == text.as_bytes())
        };
        (0..self.n_vocab() as u32).filter(holds).collect()
    }

    /// Puts token ids in a sampling chain where it has texts, and names the ids that XTC never drops: those that
    /// stop a generation and those that spell a new line.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`].
    pub fn resolve_chain(&self, chain: &mut SamplingChain) -> Result<(), TextError> {
        chain.resolve(|text| self.ids_holding(text));
        if chain.samplers.iter().any(|sampler| matches!(sampler, Sampler::Xtc { .. })) {
            chain.special_ids = self.stop_ids().to_vec();
            chain.special_ids.extend(self.encode("\n", false, false)?);
        }
        Ok(())
    }

    /// The id of the token that the vocabulary stores as `text`.
    pub fn id(&self, text: &str) -> Option<u32> {
        match &self.model {
            Model::Pipeline(pipeline) => pipeline.id(text),
            Model::SentencePiece(pieces) => pieces.id(text),
        }
    }

    /// How many ids there are: one more than the largest.
    pub fn n_vocab(&self) -> usize {
        match &self.model {
            Model::Pipeline(pipeline) => pipeline.n_vocab(),
            Model::SentencePiece(pieces) => pieces.n_vocab(),
        }
    }

    /// Whether a token is special: it marks structure and is left out of decoded text on request.
    pub fn is_special(&self, id: u32) -> bool {
        match &self.model {
            Model::Pipeline(pipeline) => pipeline.is_special(id),
            Model::SentencePiece(pieces) => pieces.is_special(id),
        }
    }

    /// The named special tokens, and those that start, end and stop a sequence.
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// Beginning of sequence.
    pub fn bos_id(&self) -> Option<u32> {
        self.special.bos.as_ref().map(|token| token.id)
    }

    /// End of sequence.
    pub fn eos_id(&self) -> Option<u32> {
        self.special.eos.as_ref().map(|token| token.id)
    }

    /// The tokens that end a generation, as the model's files declare them.
    pub fn stop_ids(&self) -> &[u32] {
        &self.special.stop_ids
    }

    /// Whether the model brings a chat template.
    pub fn has_chat_template(&self) -> bool {
        !self.templates.is_empty()
    }

    /// The model's chat template; of several, the one named `default`.
    ///
    /// # Errors
    /// [`TextError::NoTemplate`], [`TextError::AmbiguousTemplate`], or a template that is not valid Jinja.
    pub fn chat_template(&self) -> Result<ChatTemplate, TextError> {
        let named = |wanted: &str| self.templates.iter().find(|(name, _)| name == wanted);
        match (&self.templates[..], named("default")) {
            ([], _) => Err(TextError::NoTemplate),
            ([(_, source)], _) | (_, Some((_, source))) => ChatTemplate::new(source),
            (several, None) => {
                let found = several.iter().map(|(name, _)| name.clone()).collect();
                Err(TextError::AmbiguousTemplate { found })
            }
        }
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// The text of a token, unless it has none or is special and `skip_special` is set.
    pub(crate) fn shown_text(&self, id: u32, skip_special: bool) -> Option<Cow<'_, str>> {
        if skip_special && self.is_special(id) { None } else { self.token_text(id) }
    }
}
