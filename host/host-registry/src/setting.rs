//! One option of a composition, with where it was asked for.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// One option as it was resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The profile's key: `limits.n_threads`.
    pub key: Cow<'static, str>,
    /// The value as it was asked for: `all`.
    pub asked: String,
    /// The value that holds, where it depends on the model or the machine: `2`.
    pub value: String,
    /// Where it was asked for.
    #[serde(flatten)]
    pub origin: Origin,
}

/// Where an option was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "origin", rename_all = "kebab-case")]
pub enum Origin {
    /// In the profile.
    Profile {
        /// `file:line`.
        at: String,
    },
    /// On the command line.
    Flag {
        /// The flag.
        flag: &'static str,
        /// What the profile says, if it says anything.
        instead_of: Option<String>,
    },
}

impl Origin {
    /// `file:line`, or the flag.
    pub fn place(&self) -> &str {
        match self {
            Origin::Profile { at } => at,
            Origin::Flag { flag, .. } => flag,
        }
    }
}

impl Setting {
    /// Whether a flag asks for something else than the profile does.
    pub fn is_changed(&self) -> bool {
        match &self.origin {
            Origin::Profile { .. } => false,
            Origin::Flag { instead_of, .. } => instead_of.as_ref() != Some(&self.asked),
        }
    }

    pub(crate) fn is_by_flag(&self) -> bool {
        matches!(self.origin, Origin::Flag { .. })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<35} {:<8}", self.key, self.value)?;
        if self.value != self.asked {
            write!(f, " (asked: {})", self.asked)?;
        }
        match &self.origin {
            Origin::Profile { at } => write!(f, " {at}"),
            Origin::Flag { flag, instead_of } => {
                write!(f, " {flag}")?;
                instead_of.iter().try_for_each(|value| write!(f, ", the profile says {value}"))
            }
        }
    }
}

/// A key of a profile, and the flag that may override it.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) flag: Option<&'static str>,
}

impl Key {
    pub(crate) const fn new(name: &'static str) -> Self {
        Key { name, flag: None }
    }

    pub(crate) const fn with_flag(name: &'static str, flag: &'static str) -> Self {
        Key { name, flag: Some(flag) }
    }

    /// The key's path in the file.
    pub(crate) fn path(self) -> Vec<&'static str> {
        self.name.split('.').collect()
    }
}
