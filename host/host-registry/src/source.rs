//! The text of a profile with the place of each of its keys, so that every refusal can point at a line.

use std::collections::BTreeMap;
use std::ops::Range;

use host_core::Place;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Beyond this a line is not shown.
const EXCERPT_LIMIT_BYTES: usize = 1000;

/// The text of one profile file and where each key's value stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSource {
    file: String,
    text: String,
    spans: BTreeMap<Vec<String>, Range<usize>>,
}

impl ProfileSource {
    /// Indexes a text; `Err` is its first fault of TOML syntax.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, Box<SyntaxFault>> {
        let mut source =
            ProfileSource { file: file.to_owned(), text: text.to_owned(), spans: BTreeMap::new() };
        match DeTable::parse(text) {
            Ok(table) => {
                index(table.get_ref(), &mut Vec::new(), &mut source.spans);
                Ok(source)
            }
            Err(error) => Err(Box::new(SyntaxFault {
                place: source.place_of(error.span().unwrap_or(0..0)),
                message: error.message().to_owned(),
            })),
        }
    }

    /// The file as the user named it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where the value of a key stands: `["limits", "context_tokens"]`. A key that the text does not have
    /// points at the nearest table around it, and at the whole file where there is none.
    pub fn place(&self, path: &[&str]) -> Place {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        let found = (1..=path.len()).rev().find_map(|n| self.spans.get(&path[..n]));
        match found {
            Some(span) => self.place_of(span.clone()),
            None => Place { file: self.file.clone(), line: None, column: None, excerpt: None, width: 0 },
        }
    }

    /// `file:line`, or the file alone where the key is not in the text.
    pub fn line_of(&self, path: &[&str]) -> String {
        short(&self.place(path))
    }

    /// The key whose value covers a range of bytes, its parts joined by dots; empty where there is none.
    pub(crate) fn key_at(&self, span: Range<usize>) -> String {
        let covers = |known: &Range<usize>| known.start <= span.start && span.end <= known.end;
        let path = self.spans.iter().filter(|(_, known)| covers(known)).map(|(path, _)| path);
        path.max_by_key(|path| path.len()).map(|path| path.join(".")).unwrap_or_default()
    }

    /// The place of a range of bytes. The width ends with the line; control characters of the line, which a
    /// terminal would obey, are replaced; a line too long to show is left out.
    pub(crate) fn place_of(&self, span: Range<usize>) -> Place {
        let start = floor_boundary(&self.text, span.start);
        let end = floor_boundary(&self.text, span.end.max(span.start));
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let excerpt = self.text[line_start..line_end].trim_end_matches('\r');
        let count = |range: Range<usize>| u32::try_from(self.text[range].chars().count()).unwrap_or(u32::MAX);
        let line = self.text[..line_start].matches('\n').count() + 1;
        Place {
            file: self.file.clone(),
            line: Some(u32::try_from(line).unwrap_or(u32::MAX)),
            column: Some(count(line_start..start).saturating_add(1)),
            excerpt: (excerpt.len() <= EXCERPT_LIMIT_BYTES).then(|| without_controls(excerpt)),
            width: count(start..end.clamp(start, line_end)),
        }
    }
}

/// A text that is no TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxFault {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// `file:line`, or the file alone.
pub(crate) fn short(place: &Place) -> String {
    match place.line {
        Some(line) => format!("{}:{line}", place.file),
        None => place.file.clone(),
    }
}

fn index(table: &DeTable<'_>, path: &mut Vec<String>, spans: &mut BTreeMap<Vec<String>, Range<usize>>) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        spans.insert(path.clone(), span_to_show(key.span(), value));
        if let DeValue::Table(inner) = value.get_ref() {
            index(inner, path, spans);
        }
        path.pop();
    }
}

/// A table may run over many lines, so its key is shown instead.
fn span_to_show(key: Range<usize>, value: &Spanned<DeValue<'_>>) -> Range<usize> {
    match value.get_ref() {
        DeValue::Table(_) => key,
        _ => value.span(),
    }
}

fn without_controls(line: &str) -> String {
    line.chars().map(|c| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
