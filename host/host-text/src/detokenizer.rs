//! Token ids become text while they are generated.

use std::sync::Arc;

use crate::Tokenizer;
use crate::decoder::Stream;

/// Turns a stream of token ids into text, never emitting a part of a character.
///
/// The pieces joined, with [`flush`](Detokenizer::flush) at the end, equal [`Tokenizer::decode`] of all the ids.
/// A push costs the bytes of its token, however long the text has become.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    stream: Stream,
    skip_special: bool,
}

impl Detokenizer {
    /// A stream that starts empty; `skip_special` leaves out special tokens.
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        let stream = Stream::new(tokenizer.decoder());
        Detokenizer { tokenizer, stream, skip_special }
    }

    /// Adds a token; gives the characters that it completes, or nothing when there are none.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let token = self.tokenizer.shown_text(id, self.skip_special)?;
        let mut text = String::new();
        self.stream.push(self.tokenizer.decoder(), &token, &mut text);
        (!text.is_empty()).then_some(text)
    }

    /// Ends the stream: a character that was never finished becomes U+FFFD.
    pub fn flush(&mut self) -> Option<String> {
        let mut text = String::new();
        self.stream.flush(&mut text);
        (!text.is_empty()).then_some(text)
    }
}
