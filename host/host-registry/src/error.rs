//! What is wrong with a profile file, or with the choice among profiles.

use std::path::PathBuf;

use host_core::{Place, Report, Reported};

use crate::profile::{Conflict, SCHEMA_VERSION, ValueFault};
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
        /// The key of `config.json` that was meant, where it is written as a table.
        dotted: Option<String>,
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
    /// The profile that is extended is not there.
    #[error("{}: there is no profile `{id}` to extend", short(.place))]
    BaseUnknown {
        /// Where it is named.
        place: Box<Place>,
        /// Its id.
        id: String,
        /// The ids most like it.
        nearest: Vec<String>,
        /// Every other id.
        known: Vec<String>,
    },
    /// A profile that extends itself, by way of others or at once.
    #[error("{}: the profile extends itself", short(.place))]
    BaseCycle {
        /// Where the profile says what it extends.
        place: Box<Place>,
        /// The ids on the way from the profile back to one of them.
        chain: Vec<String>,
    },
    /// Too many profiles above each other.
    #[error("{}: more than {limit} profiles extend each other", short(.place))]
    BaseDepth {
        /// Where the profile says what it extends.
        place: Box<Place>,
        /// The most that may.
        limit: usize,
        /// The ids on the way.
        chain: Vec<String>,
    },
    /// The profile that is extended has faults of its own.
    #[error("{}: the profile `{id}` that it extends is refused", short(.place))]
    BaseRefused {
        /// Where it is named.
        place: Box<Place>,
        /// Its id.
        id: String,
    },
    /// An entry of `without` that takes nothing away.
    #[error("{}: there is no key `{key}` to do without", short(.place))]
    WithoutIdle {
        /// Where.
        place: Box<Place>,
        /// The entry.
        key: String,
        /// The profile that is extended; `None` where none is.
        base: Option<String>,
    },
    /// A line of `[match]` that another one makes impossible.
    #[error("{}: the line `{key}` can never hold", short(.place))]
    MatchConflict {
        /// The line.
        place: Box<Place>,
        /// Its key.
        key: String,
        /// The key of the other line.
        other: String,
        /// `file:line` of the other.
        at: String,
        /// What the other asks.
        because: String,
    },
    /// A fallback that cannot serve.
    #[error("{}: `{id}` is no fallback: {found}", short(.place))]
    Fallback {
        /// Where.
        place: Box<Place>,
        /// Its id.
        id: String,
        /// What is wrong with it.
        found: String,
        /// What would do.
        expected: String,
        /// The ids most like it.
        nearest: Vec<String>,
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

    pub(crate) fn conflict(source: &ProfileSource, conflict: Conflict) -> Self {
        let Conflict { key, other, because } = conflict;
        ProfileError::MatchConflict {
            place: Box::new(source.place(&["match", &key])),
            at: source.line_of(&["match", &other]),
            key,
            other,
            because,
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
            ProfileError::UnknownKey { place, known, nearest, dotted, .. } => {
                let mend = match (dotted, nearest.as_slice()) {
                    (Some(dotted), _) => format!("write one key in quotes, `\"{dotted}\" = …`"),
                    (None, []) => "remove the key".to_owned(),
                    (None, names) => format!("write `{}`, or remove the key", names.join("` or `")),
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
            ProfileError::BaseUnknown { place, nearest, known, .. } => {
                let mend = match nearest.as_slice() {
                    [] => "name a profile of these folders, or remove the key".to_owned(),
                    names => format!("did you mean `{}`?", names.join("` or `")),
                };
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Report::new("profile.base-unknown", text)
                    .expected(format!("one of: {known}"))
                    .mend(mend)
                    .at(*place.clone())
            }
            ProfileError::BaseCycle { place, chain } => Report::new("profile.base-cycle", text)
                .expected("a base that does not lead back")
                .found(chain.join(" extends "))
                .mend("let one of them extend nothing")
                .at(*place.clone()),
            ProfileError::BaseDepth { place, limit, chain } => Report::new("profile.base-depth", text)
                .expected(format!("at most {limit}"))
                .found(chain.join(" extends "))
                .mend("extend a profile nearer to the first")
                .at(*place.clone()),
            ProfileError::BaseRefused { place, id } => Report::new("profile.base-refused", text)
                .expected(format!("`{id}` without faults"))
                .mend(format!("mend `{id}`, whose own reports tell what is wrong"))
                .at(*place.clone()),
            ProfileError::WithoutIdle { place, base, .. } => Report::new("profile.without-idle", text)
                .expected(match base {
                    Some(base) => format!("a key that `{base}` has, such as `limits.memory_bytes`"),
                    None => "`extends`, since there is nothing to do without".to_owned(),
                })
                .mend("remove the entry, or name the key as the base writes it")
                .at(*place.clone()),
            ProfileError::MatchConflict { place, key, other, at, because } => {
                let report = Report::new("profile.match-conflict", text).at(*place.clone());
                if key == other {
                    return report
                        .expected("conditions that one value can meet")
                        .found(because)
                        .mend("remove one of the conditions");
                }
                let is_of_base = at.rsplit_once(':').is_none_or(|(file, _)| file != place.file);
                let report = report
                    .expected("lines that can hold together")
                    .found(format!("`{other}` must be {because} ({at})"));
                report.mend(match is_of_base {
                    true => format!("remove this line, or the base's by `without = [\"match.{other}\"]`"),
                    false => "remove one of the two lines".to_owned(),
                })
            }
            ProfileError::Fallback { place, expected, nearest, .. } => {
                let mend = match nearest.as_slice() {
                    [] => "remove it from the list, or name another profile".to_owned(),
                    names => format!("did you mean `{}`?", names.join("` or `")),
                };
                Report::new("profile.fallback", text).expected(expected).mend(mend).at(*place.clone())
            }
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
