//! `compose.implementation` of a profile: the code that makes a runnable model, where it is not the device's own.

use std::fmt;

use semver::VersionReq;
use serde::de::{self, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize, Serializer};

use super::Sha256Digest;

/// An implementation by name: `"mine"`, or `{ id = "mine", version = "^1.0", digest = "…" }`.
#[derive(Clone, Debug, PartialEq)]
pub struct ImplementationRef {
    /// Its id.
    pub id: String,
    /// The versions that will do.
    pub version: VersionReq,
    /// The digest of the one build that will do.
    pub digest: Option<Sha256Digest>,
}

/// The table form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    id: String,
    version: VersionReq,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Sha256Digest>,
}

/// `mine ^1.0 9f812d2eb461fcbe`.
impl fmt::Display for ImplementationRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.version)?;
        self.digest.iter().try_for_each(|digest| write!(f, " {digest}"))
    }
}

impl Serialize for ImplementationRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ImplementationRef { id, version, digest } = self.clone();
        match (&version, digest) {
            (version, None) if *version == VersionReq::STAR => id.serialize(serializer),
            _ => Keys { id, version, digest }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ImplementationRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RefVisitor;
        impl<'de> Visitor<'de> for RefVisitor {
            type Value = ImplementationRef;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id, or { id = ID, version = RANGE }")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> Result<ImplementationRef, E> {
                Ok(ImplementationRef { id: id.to_owned(), version: VersionReq::STAR, digest: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ImplementationRef, A::Error> {
                let Keys { id, version, digest } = Keys::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ImplementationRef { id, version, digest })
            }
        }
        deserializer.deserialize_any(RefVisitor)
    }
}
