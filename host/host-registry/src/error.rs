//! What is wrong with a profile file, or with the choice among profiles.

use std::path::PathBuf;

use host_core::{Place, Report, Reported};

use crate::profile::{SCHEMA_VERSION, ValueFault};
use crate::source::{ProfileSource, short};

/// A fault of the profile files.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A folder or file that cannot be read.
    #[error("`{}` cannot be read", .path.display())]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is no page of text.
    #[error("`{}` has {found} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
        /// Its size.
        found: u64,
    },
    /// A file that is not UTF-8.
    #[error("`{}` is not UTF-8", .path.display())]
    Encoding {
        /// The file.
        path: PathBuf,
        /// The first byte that is not.
        offset: usize,
    },
    /// No TOML.
    #[error("{}: {message}", short(.place))]
    Syntax {
        /// Where.
        place: Box<Place>,
        /// What the parser says.
        message: String,
    },
    /// Another schema version, or none.
    #[error("{}: the profile is not of schema version {SCHEMA_VERSION}", short(.place))]
    SchemaVersion {
        /// The key, or the file without it.
        place: Box<Place>,
        /// What it says.
        found: String,
    },
    /// A key that the schema does not have.
    #[error("{}: there is no key `{key}` here", short(.place))]
    UnknownKey {
        /// Where.
        place: Box<Place>,
        /// The key.
        key: String,
        /// The keys that may stand here.
        known: Vec<String>,
        /// Those most like it.
        nearest: Vec<String>,
    },
    /// A key that must be there.
    #[error("{}: the key `{key}` is missing", short(.place))]
    MissingKey {
        /// The table that lacks it.
        place: Box<Place>,
        /// The key.
        key: String,
    },
    /// A value of another type or form.
    #[error("{}: `{key}`: {found}", short(.place))]
    Type {
        /// Where.
        place: Box<Place>,
        /// The key, its parts joined by dots.
        key: String,
        /// What is wrong with it.
        found: String,
        /// What would do; empty where the message says it all.
        expected: String,
    },
    /// A value outside its range.
    #[error("{}: `{key}` is {found}", short(.place))]
    Value {
        /// Where.
        place: Box<Place>,
        /// The key, its parts joined by dots.
        key: String,
        /// What would do.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Two profiles with one id.
    #[error("{}: there is another profile `{id}`", short(.place))]
    DuplicateId {
        /// The id.
        id: String,
        /// `file:line` of the other.
        first: String,
        /// The second.
        place: Box<Place>,
    },
    /// No profile has the id asked for.
    #[error("there is no profile `{id}`")]
    UnknownId {
        /// The id.
        id: String,
        /// The ids most like it.
        nearest: Vec<String>,
        /// Every id.
        known: Vec<String>,
    },
}

impl ProfileError {
    pub(crate) fn value(source: &ProfileSource, fault: ValueFault) -> Self {
        let path: Vec<&str> = fault.key.iter().map(String::as_str).collect();
        ProfileError::Value {
            place: Box::new(source.place(&path)),
            key: fault.key.join("."),
            expected: fault.expected,
            found: fault.found,
        }
    }
}

impl Reported for ProfileError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            ProfileError::Read { source, .. } => Report::new("profile.unreadable", text)
                .found(source.to_string())
                .mend("check the path and its permissions"),
            ProfileError::TooLarge { limit, found, .. } => Report::new("profile.too-large", text)
                .expected(format!("at most {limit} bytes"))
                .found(format!("{found} bytes"))
                .mend("move the file out of the profile folder if it is no profile"),
            ProfileError::Encoding { offset, .. } => Report::new("profile.encoding", text)
                .expected("UTF-8")
                .found(format!("another encoding at byte {offset}"))
                .mend("save the file as UTF-8"),
            ProfileError::Syntax { place, .. } => {
                Report::new("profile.syntax", text).mend("mend the TOML at this place").at(*place.clone())
            }
            ProfileError::SchemaVersion { place, found } => Report::new("profile.schema-version", text)
                .expected(format!("schema = {SCHEMA_VERSION}"))
                .found(found)
                .mend(format!(
                    "write `schema = {SCHEMA_VERSION}`, or use a program that reads the other version"
                ))
                .at(*place.clone()),
            ProfileError::UnknownKey { place, known, nearest, .. } => {
                let mend = match nearest.as_slice() {
                    [] => "remove the key".to_owned(),
                    names => format!("write `{}`, or remove the key", names.join("` or `")),
                };
                let expected = if known.is_empty() { "no key".to_owned() } else { known.join(", ") };
                Report::new("profile.unknown-key", text).expected(expected).mend(mend).at(*place.clone())
            }
            ProfileError::MissingKey { place, key } => Report::new("profile.missing-key", text)
                .expected(format!("`{key} = …`"))
                .mend("add the key; nothing is chosen where a profile is silent")
                .at(*place.clone()),
            ProfileError::Type { place, expected, .. } => {
                let report = Report::new("profile.type", text).mend("change the value").at(*place.clone());
                if expected.is_empty() { report } else { report.expected(expected) }
            }
            ProfileError::Value { place, expected, found, .. } => Report::new("profile.value", text)
                .expected(expected)
                .found(found)
                .mend("change the value")
                .at(*place.clone()),
            ProfileError::DuplicateId { id, first, place } => Report::new("profile.duplicate-id", text)
                .expected("each id once")
                .found(format!("`{id}` also in {first}"))
                .mend("rename or remove one of them")
                .at(*place.clone()),
            ProfileError::UnknownId { nearest, known, .. } => {
                let mend = match nearest.as_slice() {
                    [] => "name one of the profiles that are there".to_owned(),
                    names => format!("did you mean `{}`?", names.join("` or `")),
                };
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Report::new("profile.unknown-id", text).expected(format!("one of: {known}")).mend(mend)
            }
        }
    }
}
