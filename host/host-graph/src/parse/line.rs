//! One line of a text, read from left to right.

use std::str::FromStr;

use crate::text_error::TextError;

/// Beyond this a line is not shown whole.
const SHOWN_CHARS: usize = 100;

/// A line with how far it was read.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    number: usize,
    text: &'a str,
    /// Bytes read.
    at: usize,
}

/// The beginning of a text, so that a report stays readable; control characters, which a terminal would obey,
/// as Rust writes them.
pub(super) fn shown(text: &str) -> String {
    let escaped = |part: &str| part.escape_debug().to_string().replace("\\\"", "\"");
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", escaped(&text[..end])),
        None => escaped(text),
    }
}

impl<'a> Line<'a> {
    pub(super) fn new(number: usize, text: &'a str) -> Self {
        Line { number, text, at: 0 }
    }

    /// Counted from 1.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn unexpected(&self, expected: &str) -> TextError {
        TextError::Syntax {
            line: self.number,
            column: self.text[..self.at].chars().count() + 1,
            expected: expected.to_owned(),
            found: match self.rest() {
                "" => "the end of the line".to_owned(),
                rest => shown(rest),
            },
        }
    }

    /// Reads these characters, if they stand here.
    pub(super) fn eat(&mut self, token: &str) -> bool {
        let is_here = self.rest().starts_with(token);
        self.at += if is_here { token.len() } else { 0 };
        is_here
    }

    pub(super) fn keyword(&mut self, token: &str) -> Result<(), TextError> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    /// Reads ` key=`.
    pub(super) fn key(&mut self, key: &str) -> Result<(), TextError> {
        self.keyword(&format!(" {key}="))
    }

    /// Reads ` key=`, if it stands here.
    pub(super) fn has_key(&mut self, key: &str) -> bool {
        self.eat(&format!(" {key}="))
    }

    pub(super) fn end(&self) -> Result<(), TextError> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.unexpected("the end of the line")) }
    }

    /// Lower-case letters, digits and `_`.
    pub(super) fn word(&mut self, expected: &str) -> Result<&'a str, TextError> {
        let is_part = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_');
        match self.take(is_part) {
            "" => Err(self.unexpected(expected)),
            word => Ok(word),
        }
    }

    /// The characters up to the first that is none of these.
    fn take(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// A number of any kind that Rust prints and reads back.
    pub(super) fn number_of<T: FromStr>(&mut self, expected: &str) -> Result<T, TextError> {
        let start = self.clone();
        let token = self.take(|c| matches!(c, '0'..='9' | '.' | '-' | 'e'));
        token.parse().map_err(|_| start.unexpected(expected))
    }

    /// `%7`.
    pub(super) fn value(&mut self) -> Result<u32, TextError> {
        let start = self.clone();
        if self.eat("%") {
            self.number_of("a value such as `%7`")
        } else {
            Err(start.unexpected("a value such as `%7`"))
        }
    }

    /// `[1, 2]`.
    pub(super) fn list<T: FromStr>(&mut self, expected: &str) -> Result<Vec<T>, TextError> {
        self.keyword("[")?;
        let mut items = Vec::new();
        while !self.eat("]") {
            if !items.is_empty() {
                self.keyword(", ")?;
            }
            items.push(self.number_of(expected)?);
        }
        Ok(items)
    }

    /// A text between quotes, with the escapes of Rust's debug form.
    pub(super) fn name(&mut self) -> Result<String, TextError> {
        let start = self.clone();
        self.unescaped().ok_or_else(|| start.unexpected("a name between quotes"))
    }

    fn unescaped(&mut self) -> Option<String> {
        let mut chars = self.rest().char_indices();
        if chars.next() != Some((0, '"')) {
            return None;
        }
        let mut name = String::new();
        loop {
            match chars.next()? {
                (end, '"') => {
                    self.at += end + 1;
                    return Some(name);
                }
                (_, '\\') => name.push(match chars.next()?.1 {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    '0' => '\0',
                    c @ ('"' | '\'' | '\\') => c,
                    'u' => {
                        let code: String = chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').collect();
                        char::from_u32(u32::from_str_radix(code.strip_prefix('{')?, 16).ok()?)?
                    }
                    _ => return None,
                }),
                (_, c) => name.push(c),
            }
        }
    }

    /// What stands before the type, and the type, which no quoted name can hold: it comes last.
    pub(super) fn split_type(self) -> Result<(Line<'a>, Line<'a>), TextError> {
        const MARK: &str = " : ";
        let Some(mark) = self.rest().rfind(MARK) else {
            let at_end = Line { at: self.text.len(), ..self };
            return Err(at_end.unexpected("` : ` and the type of the result"));
        };
        let mark = self.at + mark;
        let attributes = Line { text: &self.text[..mark], ..self };
        Ok((attributes, Line { at: mark + MARK.len(), ..self }))
    }
}
