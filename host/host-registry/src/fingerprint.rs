//! Which model this is, beyond single keys: the fingerprint of its configuration, the artifact it came as, and what is
//! known of its tokenizer.
//!
//! The fingerprint is the key of a graph's shape, not the identity of a checkpoint: vocabulary, rotation, widths
//! of feed-forward layers and how weights are quantised are not in it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use host_core::TokenizerFacts;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::tokenizer::{Beside, asked_by, seen};

/// The line of `[match]` that asks for a fingerprint, and the one that asks for an artifact.
pub(crate) const FINGERPRINT: &str = "fingerprint";
pub(crate) const ARTIFACT: &str = "artifact";

/// More layers than any model has; a configuration may ask for no more of them.
const MAX_LAYERS: f64 = 100_000.0;

/// The first 16 hexadecimal digits of the SHA-256 of what a graph is made of.
///
/// The text is compact JSON: `layerTypes`, `hiddenSize`, `headDim`, `globalHeadDim`, `numAttentionHeads`,
/// `numKeyValueHeads`, `numGlobalKeyValueHeads`, `attentionKEqV`, `numKvSharedLayers`, `enableMoeBlock`,
/// `numExperts`, `topKExperts`, `hiddenSizePerLayerInput`, `slidingWindow`, `finalLogitSoftcapping`, `kvQuant`, in
/// this order, defaults filled in, numbers as JavaScript prints them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigFingerprint([u8; 8]);

/// How the keys and values of one layer are quantised: an entry of `kv_config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct KvQuant {
    /// The layer.
    pub layer_idx: u64,
    /// Bits of a code.
    pub bits: u64,
    /// Elements that share a scale.
    pub group_size: u64,
}

/// What is known of a model beside its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelIdentity {
    /// What `kv_config.json` says, in its order.
    pub kv_quant: Option<Vec<KvQuant>>,
    /// `hf:ORG/NAME@COMMIT`, where the model lies in a snapshot of the hub.
    pub artifact: Option<String>,
    /// The answers to what profiles ask of its tokenizer, [`crate::ProfileSet::tokenizer_keys`], where it was looked at. A
    /// line that asks what is not answered here does not hold.
    pub tokenizer: Option<TokenizerFacts>,
}

/// A model as the lines of `[match]` see it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// `config.json`, or what a GGUF file says in its words.
    pub config: &'a Map<String, Value>,
    /// What is known beside it.
    pub identity: &'a ModelIdentity,
}

/// A configuration from which no fingerprint follows, or an unreadable `kv_config.json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {found}, expected {expected}")]
pub struct IdentityFault {
    /// The key, or the file.
    pub key: String,
    /// What would do.
    pub expected: &'static str,
    /// What is there.
    pub found: String,
}

impl ModelIdentity {
    /// Of a configuration alone.
    pub const NONE: ModelIdentity = ModelIdentity { kv_quant: None, artifact: None, tokenizer: None };

    /// Of the folder or file in which a model lies: its `kv_config.json`, and the snapshot that the path names. Nothing
    /// of its tokenizer.
    ///
    /// # Errors
    /// A `kv_config.json` that cannot be read, or is no list of layers.
    pub fn read(model: &Path) -> Result<ModelIdentity, IdentityFault> {
        let path = model.join("kv_config.json");
        let fault = |found: String| IdentityFault {
            key: path.display().to_string(),
            expected: "a list of { layer_idx, bits, group_size }",
            found,
        };
        let kv_quant = match path.is_file() {
            false => None,
            true => {
                let text = crate::set::read_text(&path).map_err(|error| fault(error.to_string()))?;
                Some(serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?)
            }
        };
        Ok(ModelIdentity { kv_quant, artifact: artifact_of(model), tokenizer: None })
    }
}

/// `hf:ORG/NAME@COMMIT` of `models--ORG--NAME/snapshots/COMMIT`, or of a file in it; anything else has none.
pub fn artifact_of(model: &Path) -> Option<String> {
    let parts: Vec<&str> = model.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let from_end = |n: usize| parts.len().checked_sub(n).map(|at| parts[at]);
    let is_commit = |part: &str| {
        (40..=64).contains(&part.len()) && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    (1..=2).find_map(|n| {
        let commit = from_end(n).filter(|part| is_commit(part))?;
        from_end(n + 1).filter(|part| *part == "snapshots")?;
        let (org, name) = from_end(n + 2)?.strip_prefix("models--")?.split_once("--")?;
        (!org.is_empty() && !name.is_empty()).then(|| format!("hf:{org}/{name}@{commit}"))
    })
}

impl<'a> From<&'a Map<String, Value>> for Subject<'a> {
    fn from(config: &'a Map<String, Value>) -> Self {
        Subject { config, identity: &ModelIdentity::NONE }
    }
}

impl Subject<'_> {
    /// The fingerprint of its configuration.
    ///
    /// # Errors
    /// The first key without which no graph has a shape, or whose value has another type.
    pub fn fingerprint(&self) -> Result<ConfigFingerprint, IdentityFault> {
        let digest = Sha256::digest(shape_text(self.config, self.identity.kv_quant.as_deref())?.as_bytes());
        let (first, _) = digest.split_first_chunk().expect("a SHA-256 has 32 bytes");
        Ok(ConfigFingerprint(*first))
    }

    /// The fingerprint, or why there is none, for people.
    pub(crate) fn shown_fingerprint(&self) -> String {
        self.fingerprint().map_or_else(|fault| format!("none: {fault}"), |found| found.to_string())
    }

    /// What a line of `[match]` that is no key of the configuration sees.
    pub(crate) fn beside(&self, key: &str) -> Option<Beside> {
        match key {
            FINGERPRINT => Some(match self.fingerprint() {
                Ok(fingerprint) => Beside::Is(fingerprint.to_string().into()),
                Err(fault) => Beside::Unknown(format!("none: {fault}")),
            }),
            ARTIFACT => Some(match &self.identity.artifact {
                Some(artifact) => Beside::Is(artifact.as_str().into()),
                None => Beside::Unknown("none: the model does not lie in a snapshot of the hub".to_owned()),
            }),
            _ => asked_by(key).map(|asked| seen(self.identity.tokenizer.as_ref(), asked)),
        }
    }
}

/// The text whose hash is the fingerprint.
fn shape_text(config: &Map<String, Value>, kv_quant: Option<&[KvQuant]>) -> Result<String, IdentityFault> {
    let keys = Keys(config.get("text_config").and_then(Value::as_object).unwrap_or(config));
    let hidden_size = keys.required("hidden_size")?;
    let n_heads = keys.required("num_attention_heads")?;
    let n_kv_heads = keys.number("num_key_value_heads", n_heads)?;
    let head_dim = keys.number("head_dim", (hidden_size / n_heads).floor())?;
    let has_experts = keys.truth("enable_moe_block")?;
    let of_experts = |key| if has_experts { keys.number(key, 0.0) } else { Ok(0.0) };
    let softcap = match keys.get("final_logit_softcapping") {
        Some(_) => number(keys.required("final_logit_softcapping")?),
        None => "null".to_owned(),
    };
    let fields = [
        ("layerTypes", keys.layer_types()?),
        ("hiddenSize", number(hidden_size)),
        ("headDim", number(head_dim)),
        ("globalHeadDim", number(keys.number("global_head_dim", head_dim)?)),
        ("numAttentionHeads", number(n_heads)),
        ("numKeyValueHeads", number(n_kv_heads)),
        ("numGlobalKeyValueHeads", number(keys.number("num_global_key_value_heads", n_kv_heads)?)),
        ("attentionKEqV", keys.truth("attention_k_eq_v")?.to_string()),
        ("numKvSharedLayers", number(keys.number("num_kv_shared_layers", 0.0)?)),
        ("enableMoeBlock", has_experts.to_string()),
        ("numExperts", number(of_experts("num_experts")?)),
        ("topKExperts", number(of_experts("top_k_experts")?)),
        ("hiddenSizePerLayerInput", number(keys.number("hidden_size_per_layer_input", 0.0)?)),
        ("slidingWindow", number(keys.number("sliding_window", 0.0)?)),
        ("finalLogitSoftcapping", softcap),
        ("kvQuant", kv_quant_text(kv_quant)),
    ];
    let fields: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    Ok(format!("{{{}}}", fields.join(",")))
}

fn kv_quant_text(layers: Option<&[KvQuant]>) -> String {
    let Some(layers) = layers else { return "null".to_owned() };
    let entry = |KvQuant { layer_idx, bits, group_size }: &KvQuant| {
        format!("{{\"layerIdx\":{layer_idx},\"bits\":{bits},\"groupSize\":{group_size}}}")
    };
    format!("[{}]", layers.iter().map(entry).collect::<Vec<_>>().join(","))
}

/// The configuration of the text model; `null` counts as absent.
struct Keys<'a>(&'a Map<String, Value>);

impl Keys<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn fault(&self, key: &str, expected: &'static str) -> IdentityFault {
        let found = self.get(key).map_or("absent".to_owned(), ToString::to_string);
        IdentityFault { key: key.to_owned(), expected, found }
    }

    fn required(&self, key: &str) -> Result<f64, IdentityFault> {
        let number = self.get(key).and_then(Value::as_f64).filter(|number| *number > 0.0);
        number.ok_or_else(|| self.fault(key, "a number above 0"))
    }

    fn number(&self, key: &str, absent: f64) -> Result<f64, IdentityFault> {
        match self.get(key) {
            None => Ok(absent),
            Some(value) => value.as_f64().ok_or_else(|| self.fault(key, "a number")),
        }
    }

    fn truth(&self, key: &str) -> Result<bool, IdentityFault> {
        match self.get(key) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.fault(key, "true or false")),
        }
    }

    /// As they are listed; a llama without a list attends fully in every layer.
    fn layer_types(&self) -> Result<String, IdentityFault> {
        let is_texts =
            |value: &&Value| value.as_array().is_some_and(|types| types.iter().all(Value::is_string));
        if self.get("layer_types").is_some() {
            let types = self.get("layer_types").filter(is_texts).map(ToString::to_string);
            return types.ok_or_else(|| self.fault("layer_types", "a list of texts"));
        }
        if self.get("model_type").and_then(Value::as_str) != Some("llama") {
            return Ok("[]".to_owned());
        }
        let n_layers = self.required("num_hidden_layers")?;
        if n_layers > MAX_LAYERS {
            return Err(self.fault("num_hidden_layers", "at most 100000"));
        }
        Ok(format!("[{}]", vec!["\"full_attention\""; n_layers as usize].join(",")))
    }
}

/// A finite number as JavaScript prints it: the shortest digits that read back, an exponent below 1e-6 and from
/// 1e21 on. Source: ECMAScript, Number::toString.
fn number(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let sign = if number < 0.0 { "-" } else { "" };
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').expect("scientific form has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a whole number");
    let digits = mantissa.replace('.', "");
    // The decimal point stands behind so many digits.
    let (n_digits, point) = (digits.len() as i32, exponent + 1);
    let text = match point {
        _ if n_digits <= point && point <= 21 => digits.clone() + &"0".repeat((point - n_digits) as usize),
        1..=21 => format!("{}.{}", &digits[..point as usize], &digits[point as usize..]),
        -5..=0 => format!("0.{}{digits}", "0".repeat(-point as usize)),
        _ => {
            let fraction = if digits.len() > 1 { format!(".{}", &digits[1..]) } else { String::new() };
            format!("{}{fraction}e{exponent:+}", &digits[..1])
        }
    };
    format!("{sign}{text}")
}

impl fmt::Display for ConfigFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ConfigFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ConfigFingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 16 || !text.bytes().all(is_hex) {
            return Err(format!("expected 16 lower-case hexadecimal digits, found `{text}`"));
        }
        let bits = u64::from_str_radix(text, 16).expect("sixteen hexadecimal digits are a number");
        Ok(ConfigFingerprint(bits.to_be_bytes()))
    }
}

impl Serialize for ConfigFingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ConfigFingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
