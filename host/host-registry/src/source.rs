//! The text of a profile with the place of each of its keys, so that every refusal can point at a line.

use std::collections::BTreeMap;
use std::ops::Range;

use host_core::Place;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::extend;

/// Beyond this a line is not shown.
const EXCERPT_LIMIT_BYTES: usize = 1000;

/// The text of a profile and where each key's value stands in it.
///
/// A profile that extends others has their texts beneath its own, and each key's place is in the text that it comes
/// from. Positions run through all texts, one after the other, so that a position names its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSource {
    /// The oldest base first, the profile's own text last; never empty.
    layers: Vec<Layer>,
    spans: BTreeMap<Vec<String>, Range<usize>>,
}

/// One file of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layer {
    file: String,
    text: String,
    /// The position of its first byte.
    start: usize,
}

impl ProfileSource {
    /// Indexes a text; `Err` is its first fault of TOML syntax.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, Box<SyntaxFault>> {
        let layer = Layer { file: file.to_owned(), text: text.to_owned(), start: 0 };
        let mut source = ProfileSource { layers: vec![layer], spans: BTreeMap::new() };
        let mut spans = BTreeMap::new();
        match DeTable::parse(text) {
            Ok(table) => index(table.get_ref(), &mut Vec::new(), &mut spans),
            Err(error) => {
                return Err(Box::new(SyntaxFault {
                    place: source.place_of(error.span().unwrap_or(0..0)),
                    message: error.message().to_owned(),
                }));
            }
        }
        source.spans = spans;
        Ok(source)
    }

    /// This text over those of `base`, merged key by key; `Err` names entries of `without` that take nothing away.
    pub(crate) fn over(&self, base: &ProfileSource) -> Result<Self, Vec<String>> {
        let end = base.layers.last().map_or(0, |layer| layer.start + layer.text.len() + 1);
        let own = self.layers.iter().map(|layer| Layer { start: layer.start + end, ..layer.clone() });
        let layers: Vec<Layer> = base.layers.iter().cloned().chain(own).collect();
        let mut source = ProfileSource { layers, spans: BTreeMap::new() };
        let (table, idle) = source.merged();
        if !idle.is_empty() {
            return Err(idle);
        }
        let mut spans = BTreeMap::new();
        index(table.get_ref(), &mut Vec::new(), &mut spans);
        drop(table);
        source.spans = spans;
        Ok(source)
    }

    /// The whole table, its positions as they run through all texts.
    pub(crate) fn table(&self) -> Spanned<DeTable<'_>> {
        self.merged().0
    }

    /// The table, and the entries of the last `without` that take nothing away.
    fn merged(&self) -> (Spanned<DeTable<'_>>, Vec<String>) {
        let (first, others) = self.layers.split_first().expect("a profile has its own text");
        others.iter().fold((first.table(), Vec::new()), |(base, _), layer| {
            let own = layer.table();
            let span = own.span();
            let (merged, idle) = extend::merge(base.into_inner(), own.into_inner());
            (Spanned::new(span, merged), idle)
        })
    }

    fn own(&self) -> &Layer {
        self.layers.last().expect("a profile has its own text")
    }

    /// The file as the user named it.
    pub fn file(&self) -> &str {
        &self.own().file
    }

    /// The whole text of the file, without those of its bases.
    pub fn text(&self) -> &str {
        &self.own().text
    }

    /// The files of the profiles that this one extends, the nearest first.
    pub fn base_files(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().rev().skip(1).map(|layer| layer.file.as_str())
    }

    /// Where the value of a key stands: `["limits", "context_tokens"]`. A key that the text does not have
    /// points at the nearest table around it, and at the whole file where there is none.
    pub fn place(&self, path: &[&str]) -> Place {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        let found = (1..=path.len()).rev().find_map(|n| self.spans.get(&path[..n]));
        match found {
            Some(span) => self.place_of(span.clone()),
            None => Place { file: self.file().to_owned(), line: None, column: None, excerpt: None, width: 0 },
        }
    }

    /// `file:line`, or the file alone where the key is not in the text.
    pub fn line_of(&self, path: &[&str]) -> String {
        short(&self.place(path))
    }

    /// The key whose value covers a range of bytes, else the first key within it, as in the head of a table; its
    /// parts joined by dots, empty where there is none.
    pub(crate) fn key_at(&self, span: Range<usize>) -> String {
        let covers = |known: &Range<usize>| known.start <= span.start && span.end <= known.end;
        let path = self.spans.iter().filter(|(_, known)| covers(known)).map(|(path, _)| path);
        let covering = path.max_by_key(|path| path.len());
        let within = |known: &Range<usize>| span.start <= known.start && known.end <= span.end;
        let inside = || self.spans.iter().find(|(_, known)| within(known)).map(|(path, _)| path);
        covering.or_else(inside).map(|path| path.join(".")).unwrap_or_default()
    }

    /// The path of the key of this name that stands at a position; the place of a value may be kept in its place.
    pub(crate) fn path_at(&self, key: &str, at: usize) -> Option<&[String]> {
        let named = self.spans.iter().filter(|(path, _)| path.last().is_some_and(|last| last == key));
        let behind = named.filter(|(_, known)| known.start >= at);
        behind.min_by_key(|(_, known)| known.start).map(|(path, _)| path.as_slice())
    }

    /// The place of a range of bytes. The width ends with the line; control characters of the line, which a
    /// terminal would obey, are replaced; a line too long to show is left out.
    pub(crate) fn place_of(&self, span: Range<usize>) -> Place {
        let layer = self.layers.iter().rev().find(|layer| layer.start <= span.start);
        let Layer { file, text, start: before } = layer.unwrap_or(self.own());
        let start = floor_boundary(text, span.start - before);
        let end = floor_boundary(text, span.end.max(span.start) - before);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let excerpt = text[line_start..line_end].trim_end_matches('\r');
        let count = |range: Range<usize>| u32::try_from(text[range].chars().count()).unwrap_or(u32::MAX);
        let line = text[..line_start].matches('\n').count() + 1;
        Place {
            file: file.clone(),
            line: Some(u32::try_from(line).unwrap_or(u32::MAX)),
            column: Some(count(line_start..start).saturating_add(1)),
            excerpt: (excerpt.len() <= EXCERPT_LIMIT_BYTES).then(|| without_controls(excerpt)),
            width: count(start..end.clamp(start, line_end)),
        }
    }
}

impl Layer {
    /// The text's table, its positions as they run through all texts.
    fn table(&self) -> Spanned<DeTable<'_>> {
        let table = DeTable::parse(&self.text).expect("the text was indexed");
        let span = table.span();
        let moved = extend::moved(table.into_inner(), self.start);
        Spanned::new(span.start + self.start..span.end + self.start, moved)
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
