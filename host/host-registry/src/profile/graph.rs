//! `compose.graph` of a profile: a plugin that builds the graph, or a graph that was frozen.

use semver::VersionReq;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use super::{PluginRef, Sha256Digest};

/// Where the graph comes from: `{ plugin = "llama", version = "^1.0" }`, or
/// `{ frozen = "llama-135m", digest = "…" }`.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphRef {
    /// A plugin builds it.
    Plugin(PluginRef),
    /// It was built before, and is read from a file.
    Frozen(FrozenRef),
}

impl GraphRef {
    /// The plugin's id, or the frozen graph's name.
    pub fn name(&self) -> &str {
        match self {
            GraphRef::Plugin(wanted) => &wanted.plugin,
            GraphRef::Frozen(wanted) => &wanted.frozen,
        }
    }
}

/// A frozen graph by name: `graphs/NAME.graph` in a folder of profiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FrozenRef {
    /// Its name.
    pub frozen: String,
    /// The digest of the whole file.
    pub digest: Sha256Digest,
}

/// What may stand in the table; `frozen` with its digest, or `plugin` with its own keys.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "{ plugin = ID, version = RANGE } or { frozen = NAME, digest = DIGEST }"
)]
struct Keys {
    plugin: Option<String>,
    version: Option<VersionReq>,
    runtime: Option<String>,
    digest: Option<Sha256Digest>,
    frozen: Option<String>,
}

impl TryFrom<Keys> for GraphRef {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Self, String> {
        let Keys { plugin, version, runtime, digest, frozen } = keys;
        let Some(frozen) = frozen else {
            let plugin = plugin.ok_or("missing field `plugin`")?;
            let version = version.ok_or("missing field `version`")?;
            return Ok(GraphRef::Plugin(PluginRef { plugin, version, runtime, digest }));
        };
        let of_plugin =
            [("plugin", plugin.is_some()), ("version", version.is_some()), ("runtime", runtime.is_some())];
        if let Some((key, _)) = of_plugin.iter().find(|(_, is_there)| *is_there) {
            return Err(format!("`{key}` beside `frozen`, expected `frozen` and `digest` alone"));
        }
        let digest = digest.ok_or("missing field `digest`")?;
        Ok(GraphRef::Frozen(FrozenRef { frozen, digest }))
    }
}

impl Serialize for GraphRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            GraphRef::Plugin(plugin) => plugin.serialize(serializer),
            GraphRef::Frozen(frozen) => frozen.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for GraphRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Keys::deserialize(deserializer)?.try_into().map_err(de::Error::custom)
    }
}
