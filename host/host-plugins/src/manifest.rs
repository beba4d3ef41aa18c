//! `plugin.toml`: what a plugin says of itself.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use host_core::Place;
use semver::Version;
use serde::{Deserialize, Deserializer};

use crate::error::PluginError;
use crate::package::PluginName;

/// What a plugin is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Builds the graph of a model.
    ModelGraph,
    /// Chooses tokens.
    SamplingPolicy,
    /// Chooses how each tensor is quantised.
    QuantProfile,
    /// Drives generation.
    Pipeline,
}

impl Kind {
    /// The name in `plugin.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ModelGraph => "model-graph",
            Kind::SamplingPolicy => "sampling-policy",
            Kind::QuantProfile => "quant-profile",
            Kind::Pipeline => "pipeline",
        }
    }

    /// Whether this host has a contract for it.
    fn is_served(self) -> bool {
        self != Kind::Pipeline
    }
}

/// What runs a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// A WebAssembly component.
    Wasm,
    /// A Luau script.
    Lua,
}

impl Runtime {
    /// The name in `plugin.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Runtime::Wasm => "wasm",
            Runtime::Lua => "lua",
        }
    }
}

/// A version of the contract between host and plugins: `major.minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContractVersion {
    /// Changes with a break.
    pub major: u16,
    /// Changes with an addition; before 1.0 with anything.
    pub minor: u16,
}

impl ContractVersion {
    /// The first one.
    pub const V0_1: ContractVersion = ContractVersion { major: 0, minor: 1 };
    /// Policies have constraints.
    pub const V0_2: ContractVersion = ContractVersion { major: 0, minor: 2 };
    /// The versions that this host serves, oldest first.
    pub const SERVED: [ContractVersion; 2] = [Self::V0_1, Self::V0_2];

    /// The newest version that this host serves: what new plugins are written against.
    pub fn newest() -> Self {
        let [.., newest] = Self::SERVED;
        newest
    }

    /// Whether this host serves it.
    pub fn is_served(self) -> bool {
        Self::SERVED.contains(&self)
    }

    /// All that this host serves, for people: `0.1 and 0.2`.
    pub(crate) fn served() -> String {
        let served = Self::SERVED.map(|version| version.to_string());
        let (last, others) = served.split_last().expect("a host serves a contract");
        if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) }
    }
}

impl fmt::Display for ContractVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ContractVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('.').and_then(|(major, minor)| {
            Some(ContractVersion { major: major.parse().ok()?, minor: minor.parse().ok()? })
        });
        let exact = parts.filter(|version| version.to_string() == text);
        exact.ok_or_else(|| format!("`{text}` is not a contract version such as `0.1`"))
    }
}

impl<'de> Deserialize<'de> for ContractVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A checked `plugin.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Lower-case letters, digits and hyphens, beginning with a letter; at most 64.
    pub id: String,
    /// The plugin's own version.
    pub version: Version,
    /// What it is for.
    pub kind: Kind,
    /// What runs it.
    pub runtime: Runtime,
    /// The file beside the manifest that is run: a plain file name.
    pub entry: String,
    /// The contract it was written against.
    pub sdk: ContractVersion,
    /// One line for people.
    pub about: Option<String>,
    /// Its licence, as an SPDX expression.
    pub license: Option<String>,
}

impl Manifest {
    /// Reads a manifest; `path` is named in errors.
    ///
    /// # Errors
    /// [`PluginError::Manifest`], [`PluginError::ManifestField`], [`PluginError::KindNotServed`] and
    /// [`PluginError::Contract`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, PluginError> {
        let manifest: Manifest = toml::from_str(text).map_err(|error| PluginError::Manifest {
            message: error.message().to_owned(),
            place: Box::new(Place::in_text(&path.display().to_string(), text, error.span())),
        })?;
        manifest.check(path)?;
        Ok(manifest)
    }

    /// Whether a text can be a plugin's id: lower-case letters, digits and hyphens, beginning with a letter; at most 64.
    pub fn is_id(id: &str) -> bool {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        id.starts_with(|c: char| c.is_ascii_lowercase()) && id.chars().all(is_plain) && id.len() <= 64
    }

    /// Refuses a plugin of another kind than the one that is needed.
    ///
    /// # Errors
    /// [`PluginError::WrongKind`].
    pub fn need_kind(&self, kind: Kind) -> Result<(), PluginError> {
        if self.kind == kind {
            return Ok(());
        }
        let plugin = PluginName { id: self.id.clone(), version: self.version.clone() };
        Err(PluginError::WrongKind { plugin, expected: kind.name(), found: self.kind.name() })
    }

    fn check(&self, path: &Path) -> Result<(), PluginError> {
        let refuse = |field: &'static str, expected: &str, found: &str| PluginError::ManifestField {
            path: path.to_owned(),
            field,
            expected: expected.to_owned(),
            found: found.to_owned(),
        };
        if !Self::is_id(&self.id) {
            let expected = "up to 64 lower-case letters, digits and hyphens, beginning with a letter";
            return Err(refuse("id", expected, &self.id));
        }
        if !is_file_name(&self.entry) {
            return Err(refuse("entry", "the name of a file beside plugin.toml", &self.entry));
        }
        if !self.kind.is_served() {
            return Err(PluginError::KindNotServed { path: path.to_owned(), kind: self.kind.name() });
        }
        if !self.sdk.is_served() {
            let plugin = format!("{} {}", self.id, self.version);
            let found = format!("{} {}", self.kind.name(), self.sdk);
            return Err(PluginError::Contract { plugin, found });
        }
        Ok(())
    }
}

/// No folder, no parent, nothing hidden: the entry lies beside its manifest.
fn is_file_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain) && name.len() <= 128
}
