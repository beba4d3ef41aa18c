//! `[sampling]` of a profile: the flat keys, every one of them, or `chain` alone.

use host_core::{Breaker, Sampler, SamplingChain, SamplingSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The sampling of a request that says nothing of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Keys", into = "Keys")]
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
                        Keys { $($key: Some($key),)+ chain: None }
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
