//! What `extends = "ID"` means: how the table of a profile is laid over that of its base.
//!
//! Sections merge key by key; everything else is one value, and the profile's own takes the base's place whole: a
//! number, a list, and also a table that means one thing, such as `graph = { plugin, version }` or a line of
//! `[match]`. What belongs to one file alone is not inherited. `without = ["limits.memory_bytes"]` takes keys of the
//! base away, since TOML has no word for nothing.

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use crate::source::ProfileSource;

/// How many profiles may stand above each other.
pub(crate) const DEPTH_LIMIT: usize = 8;

/// What each file says for itself.
const OWN: [&str; 7] = ["schema", "id", "about", "extends", "without", "only_named", "fallbacks"];

/// The tables whose keys merge; `*` stands for any key.
const SECTIONS: [&[&str]; 10] = [
    &["match"],
    &["compose"],
    &["kv"],
    &["kernels"],
    &["sampling"],
    &["serve"],
    &["limits"],
    &["limits", "quarantine"],
    &["plugins"],
    &["plugins", "*"],
];

/// What must be known of a text before it can be read as a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) extends: Option<String>,
}

impl Head {
    /// The head of a text, as far as it is one; a key of another type is for the schema to refuse.
    pub(crate) fn of(source: &ProfileSource) -> Head {
        let table = DeTable::parse(source.text()).map(Spanned::into_inner).unwrap_or_default();
        let text = |key: &str| match table.get(key).map(Spanned::get_ref) {
            Some(DeValue::String(text)) => Some(text.to_string()),
            _ => None,
        };
        Head { id: text("id").unwrap_or_default(), extends: text("extends") }
    }

    /// The keys that a text does without.
    pub(crate) fn without(source: &ProfileSource) -> Vec<String> {
        without(&DeTable::parse(source.text()).map(Spanned::into_inner).unwrap_or_default())
    }
}

/// The base's table with the profile's own over it, and the entries of `without` that name nothing of the base.
pub(crate) fn merge<'i>(mut base: DeTable<'i>, own: DeTable<'i>) -> (DeTable<'i>, Vec<String>) {
    let idle = without(&own).into_iter().filter(|path| !take(&mut base, path)).collect();
    base = kept(base, |key| !OWN.contains(&key));
    drop_other_sampling(&mut base, &own);
    (lay_over(base, own, &mut Vec::new()), idle)
}

/// A chain takes the place of all flat keys, or it would stand beside them.
fn drop_other_sampling(base: &mut DeTable<'_>, own: &DeTable<'_>) {
    let of = |table: &DeTable<'_>| match table.get("sampling").map(Spanned::get_ref) {
        Some(DeValue::Table(sampling)) => sampling.contains_key("chain"),
        _ => false,
    };
    if of(own)
        && let Some(DeValue::Table(sampling)) = base.get_mut("sampling").map(Spanned::get_mut)
    {
        *sampling = kept(std::mem::take(sampling), |key| key == "policy");
    }
}

fn kept<'i>(table: DeTable<'i>, keep: impl Fn(&str) -> bool) -> DeTable<'i> {
    table.into_iter().filter(|(key, _)| keep(key.get_ref())).collect()
}

fn lay_over<'i>(base: DeTable<'i>, mut own: DeTable<'i>, path: &mut Vec<String>) -> DeTable<'i> {
    let mut merged = DeTable::new();
    for (key, value) in base {
        let Some((own_key, own_value)) = own.remove_entry(key.get_ref().as_ref()) else {
            merged.insert(key, value);
            continue;
        };
        path.push(key.get_ref().to_string());
        let span = own_value.span();
        let value = match (value.into_inner(), own_value.into_inner()) {
            (DeValue::Table(base), DeValue::Table(own)) if is_section(path) => {
                DeValue::Table(lay_over(base, own, path))
            }
            (_, own) => own,
        };
        path.pop();
        merged.insert(own_key, Spanned::new(span, value));
    }
    merged.extend(own);
    merged
}

fn is_section(path: &[String]) -> bool {
    let fits = |section: &&[&str]| {
        section.len() == path.len()
            && section.iter().zip(path).all(|(wanted, part)| *wanted == "*" || wanted == part)
    };
    SECTIONS.iter().any(fits)
}

/// The entries of `without`; one that is no text is for the schema to refuse.
fn without(own: &DeTable<'_>) -> Vec<String> {
    let Some(DeValue::Array(entries)) = own.get("without").map(Spanned::get_ref) else { return Vec::new() };
    let text = |entry: &Spanned<DeValue<'_>>| match entry.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    };
    entries.iter().filter_map(text).collect()
}

/// Takes a key away; whether it was there. A line of `[match]` is named as it is written there, dots and all.
fn take(table: &mut DeTable<'_>, path: &str) -> bool {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    if rest.is_empty() {
        return !OWN.contains(&first) && table.remove(first).is_some();
    }
    let Some(DeValue::Table(inner)) = table.get_mut(first).map(Spanned::get_mut) else { return false };
    if inner.contains_key(rest) { inner.remove(rest).is_some() } else { take(inner, rest) }
}

/// A table with each position moved by as many bytes.
pub(crate) fn moved(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    if by == 0 {
        return table;
    }
    table.into_iter().map(|(key, value)| (moved_key(key, by), moved_value(value, by))).collect()
}

fn moved_key(key: Spanned<DeString<'_>>, by: usize) -> Spanned<DeString<'_>> {
    let span = key.span();
    Spanned::new(span.start + by..span.end + by, key.into_inner())
}

fn moved_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = value.span();
    let inner = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(moved(table, by)),
        DeValue::Array(values) => {
            DeValue::Array(values.into_iter().map(|value| moved_value(value, by)).collect::<DeArray<'_>>())
        }
        other => other,
    };
    Spanned::new(span.start + by..span.end + by, inner)
}
