//! What a generation is called.

use std::fmt;
use std::str::FromStr;

use host_registry::Sha256Digest;
use serde::{Deserialize, Serialize};

/// SHA-256 of everything that a generation is made of; people see the first 16 digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GenerationId(Sha256Digest);

impl GenerationId {
    /// The id of a generation's canonical text.
    pub(crate) fn of(canonical_text: &str) -> Self {
        GenerationId(Sha256Digest::of(canonical_text.as_bytes()))
    }

    /// All 64 digits.
    pub fn as_hex(&self) -> String {
        self.0.to_string()
    }
}

/// The first 16 digits.
impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.short())
    }
}

impl fmt::Debug for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// From all 64 digits.
impl FromStr for GenerationId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(GenerationId)
    }
}
