//! From the text of tokens to bytes: the decoder of a tokenizer, one token at a time.
//!
//! Published decoders work on the list of all tokens. Those that language models use can be said token by token,
//! plus a rule for the start of the text; in that form a stream and a whole text are decoded by the same code.
//! A decoder that cannot be said so is refused when the tokenizer is loaded.

use std::borrow::Cow;

use serde_json::Value;

use crate::TextError;
use crate::utf8::move_characters;

/// A decoder as steps for each token and a rule for the start of the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoder {
    steps: Vec<Step>,
    start: Start,
}

/// What happens to the text of each token.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Replace each occurrence.
    Replace { from: String, to: String },
    /// `<0x0A>` stands for that byte.
    ByteFallback,
    /// Each character stands for a byte, as in GPT-2; a token with another character stands for itself.
    ByteLevel,
    /// Remove up to so many of a character at the start and the end of the token.
    Strip { character: char, start: usize, end: usize },
}

/// What happens at the start of the text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    Keep,
    /// Remove up to `count` of `byte`.
    Strip {
        byte: u8,
        count: usize,
    },
    /// Remove the character wherever the first token has it.
    DropInFirstToken(char),
}

impl Decoder {
    /// The decoder of byte-level BPE.
    pub(crate) fn byte_level() -> Self {
        Decoder { steps: vec![Step::ByteLevel], start: Start::Keep }
    }

    /// The decoder of SentencePiece; `strip_space` removes the space that was put before the text.
    pub(crate) fn sentence_piece(strip_space: bool) -> Self {
        Decoder {
            steps: vec![Step::Replace { from: "▁".into(), to: " ".into() }, Step::ByteFallback],
            start: if strip_space { Start::Strip { byte: b' ', count: 1 } } else { Start::Keep },
        }
    }

    /// Reads the `decoder` of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`TextError::UnknownDecoder`] when it cannot be said token by token.
    pub(crate) fn from_json(json: &Value) -> Result<Self, TextError> {
        let mut reader = Reader { decoder: Decoder { steps: Vec::new(), start: Start::Keep }, fused: false };
        match reader.read(json) {
            Some(()) => Ok(reader.decoder),
            None => Err(TextError::UnknownDecoder { found: json.to_string() }),
        }
    }

    /// The bytes that one token stands for, wherever in a text.
    pub(crate) fn bytes(&self, token: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        spell(&self.steps, Cow::Borrowed(token), &mut bytes);
        bytes
    }

    /// The text of a whole sequence of tokens.
    pub(crate) fn decode<T: AsRef<str>>(&self, tokens: impl IntoIterator<Item = T>) -> String {
        let mut stream = Stream::new(self);
        let mut text = String::new();
        for token in tokens {
            stream.push(self, token.as_ref(), &mut text);
        }
        stream.flush(&mut text);
        text
    }
}

/// Turns the parts of a JSON decoder into steps; `None` says that a part is unknown.
struct Reader {
    decoder: Decoder,
    /// Whether the tokens have been joined, so that what follows acts on the whole text.
    fused: bool,
}

impl Reader {
    fn read(&mut self, json: &Value) -> Option<()> {
        match (json["type"].as_str()?, self.fused) {
            ("Sequence", _) => json["decoders"].as_array()?.iter().try_for_each(|part| self.read(part)),
            ("Fuse", _) => {
                self.fused = true;
                Some(())
            }
            ("ByteLevel", false) => {
                self.fused = true;
                self.step(Step::ByteLevel)
            }
            ("ByteFallback", false) => self.step(Step::ByteFallback),
            ("Replace", false) => {
                let (from, to) = (json["pattern"]["String"].as_str()?, json["content"].as_str()?);
                if from.is_empty() {
                    return None;
                }
                self.step(Step::Replace { from: from.into(), to: to.into() })
            }
            ("Strip", fused) => self.strip(json, fused),
            ("Metaspace", false) => self.metaspace(json),
            _ => None,
        }
    }

    fn step(&mut self, step: Step) -> Option<()> {
        self.decoder.steps.push(step);
        Some(())
    }

    fn strip(&mut self, json: &Value, fused: bool) -> Option<()> {
        let character = json["content"].as_str()?.parse().ok()?;
        let start = usize::try_from(json["start"].as_u64()?).ok()?;
        let end = usize::try_from(json["stop"].as_u64()?).ok()?;
        if !fused {
            return self.step(Step::Strip { character, start, end });
        }
        let byte = u8::try_from(character).ok().filter(u8::is_ascii)?;
        if end > 0 || self.decoder.start != Start::Keep {
            return None;
        }
        self.decoder.start = Start::Strip { byte, count: start };
        Some(())
    }

    fn metaspace(&mut self, json: &Value) -> Option<()> {
        let replacement: char = json["replacement"].as_str()?.parse().ok()?;
        let scheme = json.get("prepend_scheme").and_then(Value::as_str).unwrap_or("always");
        if scheme != "never" {
            if !self.decoder.steps.is_empty() || self.decoder.start != Start::Keep {
                return None;
            }
            self.decoder.start = Start::DropInFirstToken(replacement);
        }
        self.step(Step::Replace { from: replacement.to_string(), to: " ".into() })
    }
}

/// Where a stream of tokens stands: the bytes of an unfinished character, and whether the text has started.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pending: Vec<u8>,
    is_first_token: bool,
    strip_left: usize,
}

impl Stream {
    pub(crate) fn new(decoder: &Decoder) -> Self {
        let strip_left = match decoder.start {
            Start::Strip { count, .. } => count,
            _ => 0,
        };
        Stream { pending: Vec::new(), is_first_token: true, strip_left }
    }

    /// Adds a token, and appends to `text` each character that is now complete.
    pub(crate) fn push(&mut self, decoder: &Decoder, token: &str, text: &mut String) {
        let mut token = Cow::Borrowed(token);
        if let (Start::DropInFirstToken(character), true) = (decoder.start, self.is_first_token) {
            token = Cow::Owned(token.replace(character, ""));
        }
        self.is_first_token = false;
        let start = self.pending.len();
        spell(&decoder.steps, token, &mut self.pending);
        self.strip_start(decoder, start);
        move_characters(&mut self.pending, text);
    }

    /// Ends the stream: an unfinished character becomes U+FFFD.
    pub(crate) fn flush(&mut self, text: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Removes from the bytes added at `from` those that the start of the text must not have.
    fn strip_start(&mut self, decoder: &Decoder, from: usize) {
        let Start::Strip { byte, .. } = decoder.start else { return };
        let added = &self.pending[from..];
        let strip = added.iter().take(self.strip_left).take_while(|b| **b == byte).count();
        self.strip_left = if strip == added.len() { self.strip_left - strip } else { 0 };
        self.pending.drain(from..from + strip);
    }
}

/// Appends the bytes that a token stands for.
fn spell(steps: &[Step], token: Cow<'_, str>, bytes: &mut Vec<u8>) {
    let mut token = token;
    for step in steps {
        match step {
            Step::Replace { from, to } if token.contains(&from[..]) => {
                token = Cow::Owned(token.replace(&from[..], to))
            }
            Step::Replace { .. } => {}
            Step::ByteFallback => {
                if let Some(byte) = byte_of_token(&token) {
                    return bytes.push(byte);
                }
            }
            Step::ByteLevel => {
                if let Some(spelled) = token.chars().map(byte_of_character).collect::<Option<Vec<u8>>>() {
                    return bytes.extend(spelled);
                }
            }
            Step::Strip { character, start, end } => token = strip(&token, *character, *start, *end),
        }
    }
    bytes.extend_from_slice(token.as_bytes());
}

fn strip(token: &str, character: char, start: usize, end: usize) -> Cow<'static, str> {
    let mut token = token;
    for _ in 0..start {
        token = token.strip_prefix(character).unwrap_or(token);
    }
    for _ in 0..end {
        token = token.strip_suffix(character).unwrap_or(token);
    }
    Cow::Owned(token.to_owned())
}

/// The byte that a token of byte fallback stands for: `<0x0A>` is 10.
pub(crate) fn byte_of_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_hex { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The byte that a character of byte-level BPE stands for.
///
/// The printable characters of Latin-1 stand for themselves; the other 68 bytes, in order, are U+0100 and up
/// (GPT-2's `bytes_to_unicode`).
pub(crate) fn byte_of_character(character: char) -> Option<u8> {
    match character as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokenizers::Decoder as _;
    use tokenizers::DecoderWrapper;

    fn llama() -> Value {
        json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]})
    }

    fn byte_level() -> Value {
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})
    }

    #[test]
    fn each_byte_has_one_character() {
        let alphabet = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        let mut bytes: Vec<u8> = alphabet.into_iter().map(|c| byte_of_character(c).unwrap()).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of_character('Ġ'), Some(b' '));
        assert_eq!(byte_of_character('Ċ'), Some(b'\n'));
        assert_eq!(byte_of_character('ń'), None);
    }

    #[test]
    fn byte_tokens_are_exactly_two_hexadecimal_digits() {
        for (token, byte) in
            [("<0x0A>", Some(10)), ("<0xfF>", Some(255)), ("<0x+1>", None), ("<0x1>", None), ("0x0A", None)]
        {
            assert_eq!(byte_of_token(token), byte, "{token}");
        }
    }

    /// Decodes as the published library does, whole; the two must agree wherever the bytes are valid.
    fn check(decoder: &Value, tokens: &[&str], expected: &str) {
        let ours = Decoder::from_json(decoder).unwrap();
        assert_eq!(ours.decode(tokens), expected, "{tokens:?}");
        let theirs: DecoderWrapper = serde_json::from_value(decoder.clone()).unwrap();
        let tokens = tokens.iter().map(|token| token.to_string()).collect();
        assert_eq!(theirs.decode(tokens).unwrap(), expected);
    }

    #[test]
    fn decodes_as_the_published_decoders_do() {
        check(&byte_level(), &["Hello", "Ġworld", "Ċ", "ðŁ", "¦Ģ"], "Hello world\n🦀");
        check(&byte_level(), &["<|im_end|>", "名"], "<|im_end|>名");
        check(&byte_level(), &["ðŁ", "a"], "\u{fffd}a");
        check(&llama(), &["▁Hello", "▁world", "<0xF0>", "<0x9F>", "<0xA6>", "<0x80>"], "Hello world🦀");
        check(&llama(), &["▁▁a", "▁"], " a ");
        check(&llama(), &["▁", "▁", "a"], " a");
        check(&llama(), &["<0x20>", "a▁b"], "a b");
        check(&llama(), &["a", "<0xE4>"], "a\u{fffd}");
        let metaspace = |scheme| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
        check(&metaspace("always"), &["▁Hey", "▁you▁"], "Hey you ");
        check(&metaspace("never"), &["▁Hey", "▁you"], " Hey you");
        check(&json!({"type": "Strip", "content": "_", "start": 1, "stop": 2}), &["__a___", "abc"], "_a_abc");
    }

    #[test]
    fn what_cannot_be_said_token_by_token_is_refused() {
        let whole = json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}]});
        let regex = json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""});
        for decoder in
            [Value::Null, json!({"type": "WordPiece", "prefix": "##", "cleanup": true}), whole, regex]
        {
            assert!(
                matches!(Decoder::from_json(&decoder), Err(TextError::UnknownDecoder { .. })),
                "{decoder}"
            );
        }
    }
}
