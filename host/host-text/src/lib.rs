//! Text on its way into and out of a model: tokenizers, chat templates, streaming detokenisation, stop strings.
//!
//! A [`Tokenizer`] is built from a model folder (`tokenizer.json` and its companions) or from the vocabulary of a
//! GGUF file. Nothing here knows a model, a device or a request; only [`Tokenizer::from_folder`] and [`tokenizer_facts`]
//! open files.

mod decoder;
mod detokenizer;
mod error;
mod stop;
mod template;
mod tokenizer;
mod utf8;

pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use stop::{StopMatcher, StopStep};
pub use template::{ChatInput, ChatTemplate, Content, Message};
pub use tokenizer::{SpecialToken, SpecialTokens, Tokenizer, tokenizer_facts};
pub use utf8::utf8_text;
