//! JSON objects from outside: bounded in size, and without repeated keys.
//!
//! A repeated key would let two readers of one file see two models, so it is refused rather than resolved.

use std::fmt;

use host_core::{Report, Reported};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Largest JSON file that is read: a tokenizer-free configuration or a shard index.
pub(crate) const JSON_LIMIT_BYTES: u64 = 64 << 20;

/// What is wrong with a JSON file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// It is longer than is read.
    #[error("the file is too large for what it is")]
    TooLarge {
        /// Most bytes that are read.
        limit: u64,
        /// Its bytes.
        found: u64,
    },
    /// It is not JSON, or has a repeated key.
    #[error("the file is not valid JSON")]
    Invalid {
        /// What the parser says, with line and column.
        detail: String,
    },
    /// It is JSON, but no object.
    #[error("the file holds no JSON object")]
    NotAnObject {
        /// What it holds.
        found: &'static str,
    },
}

impl Reported for JsonFault {
    fn report(&self) -> Report {
        let message = self.to_string();
        match self {
            JsonFault::TooLarge { limit, found } => Report::new("weights.json-too-large", message)
                .expected(format!("at most {limit} bytes"))
                .found(format!("{found} bytes"))
                .mend("check that the file is the one that was meant"),
            JsonFault::Invalid { detail } => Report::new("weights.json-invalid", message)
                .expected("one JSON object without repeated keys")
                .found(detail.clone())
                .mend("fetch the file again, or mend it at that place"),
            JsonFault::NotAnObject { found } => Report::new("weights.json-not-an-object", message)
                .expected("an object: { … }")
                .found(*found)
                .mend("fetch the file again"),
        }
    }
}

/// Parses one object; repeated keys at any depth are refused.
pub(crate) fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, JsonFault> {
    if bytes.len() as u64 > JSON_LIMIT_BYTES {
        return Err(JsonFault::TooLarge { limit: JSON_LIMIT_BYTES, found: bytes.len() as u64 });
    }
    let Strict(value) =
        serde_json::from_slice(bytes).map_err(|error| JsonFault::Invalid { detail: error.to_string() })?;
    match value {
        Value::Object(map) => Ok(map),
        other => Err(JsonFault::NotAnObject { found: kind(&other) }),
    }
}

/// The kind of a JSON value, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A JSON value whose objects have no repeated keys.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("repeated key {key:?}")));
            }
            let Strict(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
