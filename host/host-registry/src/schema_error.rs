//! Turns what serde says of a text that does not fit the schema into a refusal with key, place and mend.

use toml::de::DeTable;

use crate::error::ProfileError;
use crate::nearest::nearest;
use crate::profile::SCHEMA_VERSION;
use crate::source::ProfileSource;
use crate::tokenizer::TOKENIZER;

/// Looks at `schema` before anything else, so that a text of another version is not judged by this one's keys.
pub(crate) fn check_version(source: &ProfileSource) -> Result<(), ProfileError> {
    let place = Box::new(source.place(&["schema"]));
    let wrong = |found: String| Err(ProfileError::SchemaVersion { place: place.clone(), found });
    let table = DeTable::parse(source.text()).map(toml::Spanned::into_inner).unwrap_or_default();
    match table.get("schema").map(|value| value.get_ref()) {
        None => wrong("no `schema` key".to_owned()),
        Some(value) => match value.as_integer().and_then(|number| number.as_str().parse::<u32>().ok()) {
            Some(SCHEMA_VERSION) => Ok(()),
            Some(other) => wrong(other.to_string()),
            None => wrong(source.place(&["schema"]).excerpt.unwrap_or_default()),
        },
    }
}

/// The name under which the TOML reader hands out a date.
const DATE_KEY: &str = "$__toml_private_datetime";

/// The refusal for an error of deserialisation.
pub(crate) fn explain(source: &ProfileSource, error: &toml::de::Error) -> ProfileError {
    let place = Box::new(source.place_of(error.span().unwrap_or(0..0)));
    let message = error.message();
    let key = source.key_at(error.span().unwrap_or(0..0));
    if message.contains(DATE_KEY) {
        return ProfileError::Type { place, key, found: "a date".to_owned(), expected: "no date".to_owned() };
    }
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let names = quoted(rest);
        if let Some((unknown, known)) = names.split_first() {
            let near = nearest(unknown, known.iter().copied());
            let known = known.iter().map(|name| (*name).to_owned()).collect();
            let path = error.span().and_then(|span| source.path_at(unknown, span.start));
            let dotted = path.and_then(|path| dotted_line(path, &near));
            let key = (*unknown).to_owned();
            return ProfileError::UnknownKey { place, key, known, nearest: near, dotted };
        }
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        let key = quoted(rest).first().copied().unwrap_or(rest).to_owned();
        return ProfileError::MissingKey { place, key };
    }
    let (found, expected) = match message.split_once(", expected ") {
        Some((found, expected)) => (found, expected),
        None => (message, ""),
    };
    let found = found.trim_end_matches(" as i128").to_owned();
    ProfileError::Type { place, key, found, expected: in_words(expected).to_owned() }
}

/// The line of `[match]` that was meant by `a.b = …`, which is a table in TOML and not the key `"a.b"`; none where the
/// key is a condition misspelt.
fn dotted_line(path: &[String], nearest: &[String]) -> Option<String> {
    let [table, line, _] = path else { return None };
    let is_line = table == "match" && (line == TOKENIZER || nearest.is_empty());
    is_line.then(|| path[1..].join("."))
}

/// Serde names Rust's types; a profile's author thinks in TOML's.
fn in_words(expected: &str) -> &str {
    match expected {
        "usize" | "u32" | "u64" => "a whole number, 0 or more",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// The names that a message puts between backticks.
fn quoted(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}
