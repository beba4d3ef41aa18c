//! Turns what serde says of a text that does not fit the schema into a refusal with key, place and mend.

use toml::de::DeTable;

use crate::error::ProfileError;
use crate::nearest::nearest;
use crate::profile::SCHEMA_VERSION;
use crate::source::ProfileSource;

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

/// The refusal for an error of deserialisation.
pub(crate) fn explain(source: &ProfileSource, error: &toml::de::Error) -> ProfileError {
    let place = Box::new(source.place_of(error.span().unwrap_or(0..0)));
    let message = error.message();
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let names = quoted(rest);
        if let Some((key, known)) = names.split_first() {
            let near = nearest(key, known.iter().copied());
            let known = known.iter().map(|name| (*name).to_owned()).collect();
            return ProfileError::UnknownKey { place, key: (*key).to_owned(), known, nearest: near };
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
    ProfileError::Type { place, found: found.to_owned(), expected: expected.to_owned() }
}

/// The names that a message puts between backticks.
fn quoted(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}
