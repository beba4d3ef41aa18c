//! `[sampling]` of a profile: the flat keys, every one of them, or `chain` in their place; and a policy beside them.

use std::fmt;

use host_core::{Breaker, Sampler, SamplingChain, SamplingSettings};
use host_plugins::Right;
use semver::VersionReq;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{PluginRef, Sha256Digest};

/// The whole table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Keys", into = "Keys")]
pub struct SamplingTable {
    /// The flat keys or the chain.
    pub defaults: SamplingDefaults,
    /// The policy that edits each step of every request; absent adds none.
    pub policy: Option<PolicyRef>,
}

/// A sampling policy by name and version range, and what it gets:
/// `policy = { plugin = "no-repeat", version = "^1.0", params = { ngram = 3 }, grants = [] }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRef {
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
    /// What it is opened with; a policy without params needs none.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// The rights that it gets: `full-logits` to read every logit; absent grants none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Right>,
}

impl PolicyRef {
    /// Any version of a plugin, as a command line names it.
    pub fn any_version(plugin: String, params: Map<String, Value>, grants: Vec<Right>) -> Self {
        PolicyRef { plugin, version: VersionReq::STAR, runtime: None, digest: None, params, grants }
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

/// `no-repeat ^1.0 {"ngram":3} grants=full-logits`.
impl fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.plugin, self.version)?;
        if !self.params.is_empty() {
            write!(f, " {}", Value::Object(self.params.clone()))?;
        }
        let grants: Vec<&str> = self.grants.iter().map(|right| right.name()).collect();
        if grants.is_empty() { Ok(()) } else { write!(f, " grants={}", grants.join(",")) }
    }
}

/// The sampling of a request that says nothing of it.
#[derive(Clone, Debug, PartialEq)]
pub enum SamplingDefaults {
    /// The flat keys, in the words of [`SamplingSettings`]; seed and logit bias are the request's.
    Flat(Box<SamplingSettings>),
    /// `chain = [{ sampler = "min_p", p = 0.05, min_keep = 1 }, …]`: these samplers in this order.
    Chain(Vec<Sampler>),
}

impl SamplingDefaults {
    /// The chain of a request with this seed.
    pub fn with_seed(&self, seed: u64) -> SamplingChain {
        SamplingChain { samplers: self.samplers(), special_ids: Vec::new(), seed }
    }

    /// The samplers in the order in which they act.
    pub fn samplers(&self) -> Vec<Sampler> {
        match self {
            SamplingDefaults::Flat(settings) => settings.samplers(),
            SamplingDefaults::Chain(samplers) => samplers.clone(),
        }
    }

    /// The flat keys, where the profile has those.
    pub fn flat(&self) -> Option<&SamplingSettings> {
        match self {
            SamplingDefaults::Flat(settings) => Some(settings),
            SamplingDefaults::Chain(_) => None,
        }
    }
}

/// A sampler on one line: its name, then each parameter.
pub(crate) fn line(sampler: &Sampler) -> String {
    let text = serde_json::to_string(sampler).expect("numbers, texts and lists have a JSON form");
    // Read back from the text, numbers keep the digits of their float32.
    let object: Map<String, Value> = serde_json::from_str(&text).expect("it was just written");
    let parameters = object.iter().filter(|(key, _)| *key != "sampler");
    parameters.fold(sampler.name().to_owned(), |line, (key, value)| format!("{line} {key}={value}"))
}

macro_rules! keys {
    ($($key:ident: $type:ty),+ $(,)?) => {
        /// What may stand in the table.
        #[derive(Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Keys {
            $(#[serde(skip_serializing_if = "Option::is_none")] $key: Option<$type>,)+
            #[serde(skip_serializing_if = "Option::is_none")]
            chain: Option<Vec<Sampler>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            policy: Option<PolicyRef>,
        }

        impl TryFrom<Keys> for SamplingTable {
            type Error = String;

            fn try_from(mut keys: Keys) -> Result<Self, String> {
                let policy = keys.policy.take();
                Ok(SamplingTable { defaults: keys.try_into()?, policy })
            }
        }

        impl From<SamplingTable> for Keys {
            fn from(table: SamplingTable) -> Keys {
                Keys { policy: table.policy, ..table.defaults.into() }
            }
        }

        impl TryFrom<Keys> for SamplingDefaults {
            type Error = String;

            fn try_from(keys: Keys) -> Result<Self, String> {
                if let Some(samplers) = keys.chain {
                    $(if keys.$key.is_some() {
                        return Err(format!("`{}` beside `chain`, expected one of them", stringify!($key)));
                    })+
                    return Ok(SamplingDefaults::Chain(samplers));
                }
                Ok(SamplingDefaults::Flat(Box::new(SamplingSettings {
                    $($key: keys.$key.ok_or_else(|| format!("missing field `{}`", stringify!($key)))?,)+
                    logit_bias: Vec::new(),
                    seed: 0,
                })))
            }
        }

        impl From<SamplingDefaults> for Keys {
            fn from(sampling: SamplingDefaults) -> Keys {
                match sampling {
                    SamplingDefaults::Flat(settings) => {
                        let SamplingSettings { $($key,)+ .. } = *settings;
                        Keys { $($key: Some($key),)+ ..Keys::default() }
                    }
                    SamplingDefaults::Chain(samplers) => Keys { chain: Some(samplers), ..Keys::default() },
                }
            }
        }

        /// Every flat key with its value as text.
        pub(crate) fn flat_values(settings: &SamplingSettings) -> Vec<(&'static str, String)> {
            vec![$((concat!("sampling.", stringify!($key)), shown(&settings.$key)),)+]
        }
    };
}

keys! {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    xtc_probability: f32,
    xtc_threshold: f32,
    repetition_penalty: f32,
    repetition_context_tokens: u32,
    presence_penalty: f32,
    presence_context_tokens: u32,
    frequency_penalty: f32,
    frequency_context_tokens: u32,
    dry_multiplier: f32,
    dry_base: f32,
    dry_allowed_length: u32,
    dry_context_tokens: u32,
    dry_sequence_breakers: Vec<Breaker>,
}

/// Numbers in their shortest form, texts quoted.
fn shown(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("numbers and texts have a JSON form");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}
