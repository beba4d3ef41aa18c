//! `compose.quant` of a profile: weights as they were published, or quantised by rules or by a plugin.

use std::fmt;

use semver::VersionReq;
use serde::de::{self, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{PluginRef, Sha256Digest};

/// What becomes of the weights: a name such as `"as-published"`, `{ scheme = "uniform-4bit" }`, or
/// `{ plugin = "quant-uniform", version = "^1.0", params = { bits = 4, group_size = 64 } }`.
#[derive(Clone, Debug, PartialEq)]
pub enum Quant {
    /// A way that the host itself has: `as-published`.
    Named(String),
    /// Quantisation rules by name.
    Scheme(String),
    /// A quantisation profile that is a plugin.
    Plugin(Box<QuantRef>),
}

/// A quantisation profile by its plugin's name and version range, and what it gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuantRef {
    /// The plugin's id.
    pub plugin: String,
    /// The versions that will do.
    pub version: VersionReq,
    /// `wasm` or `lua`, where an id exists in both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The digest of the one build that will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256Digest>,
    /// What it is called with; a plugin without params needs none.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
}

impl QuantRef {
    /// Any version of a plugin, as a command line names it.
    pub fn any_version(plugin: String, params: Map<String, Value>) -> Self {
        QuantRef { plugin, version: VersionReq::STAR, runtime: None, digest: None, params }
    }

    /// The plugin alone.
    pub fn plugin_ref(&self) -> PluginRef {
        PluginRef {
            plugin: self.plugin.clone(),
            version: self.version.clone(),
            runtime: self.runtime.clone(),
            digest: self.digest,
        }
    }
}

/// `quant-uniform ^1.0 {"bits":4,"group_size":64}`.
impl fmt::Display for QuantRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.plugin, self.version)?;
        if self.params.is_empty() { Ok(()) } else { write!(f, " {}", Value::Object(self.params.clone())) }
    }
}

impl fmt::Display for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quant::Named(name) | Quant::Scheme(name) => f.write_str(name),
            Quant::Plugin(plugin) => plugin.fmt(f),
        }
    }
}

/// What may stand in the table; `scheme` alone, or `plugin` with its own keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    scheme: Option<String>,
    plugin: Option<String>,
    version: Option<VersionReq>,
    runtime: Option<String>,
    digest: Option<Sha256Digest>,
    params: Option<Map<String, Value>>,
}

impl TryFrom<Keys> for Quant {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Self, String> {
        let Keys { scheme, plugin, version, runtime, digest, params } = keys;
        let of_plugin = [
            ("plugin", plugin.is_some()),
            ("version", version.is_some()),
            ("runtime", runtime.is_some()),
            ("digest", digest.is_some()),
            ("params", params.is_some()),
        ];
        match (scheme, plugin) {
            (Some(scheme), _) => match of_plugin.iter().find(|(_, is_there)| *is_there) {
                Some((key, _)) => Err(format!("`{key}` beside `scheme`, expected `scheme` alone")),
                None => Ok(Quant::Scheme(scheme)),
            },
            (None, Some(plugin)) => {
                let version = version.ok_or("missing field `version`")?;
                let params = params.unwrap_or_default();
                Ok(Quant::Plugin(Box::new(QuantRef { plugin, version, runtime, digest, params })))
            }
            (None, None) => Err("a table without `scheme` and `plugin`, expected one of them".to_owned()),
        }
    }
}

impl Serialize for Quant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The table of rules.
        #[derive(Serialize)]
        struct Scheme<'a> {
            scheme: &'a str,
        }
        match self {
            Quant::Named(name) => name.serialize(serializer),
            Quant::Scheme(scheme) => Scheme { scheme }.serialize(serializer),
            Quant::Plugin(plugin) => plugin.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Quant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuantVisitor;
        impl<'de> Visitor<'de> for QuantVisitor {
            type Value = Quant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"as-published\", { scheme = NAME } or { plugin = ID, version = RANGE, params = TABLE }",
                )
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Quant, E> {
                Ok(Quant::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Quant, A::Error> {
                Keys::deserialize(MapAccessDeserializer::new(map))?.try_into().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(QuantVisitor)
    }
}
