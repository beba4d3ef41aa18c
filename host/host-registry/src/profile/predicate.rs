//! The lines of `[match]`: what each asks of one key of `config.json`, and whether it holds.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::fingerprint::Subject;
use crate::tokenizer::Beside;

/// The lines of `[match]`, in the file's order. All must hold.
///
/// A key is a path into `config.json`, its parts joined by dots (`"rope_scaling.rope_type"`). Where the
/// configuration has a `text_config`, keys are looked up there first and at the top level after it.
///
/// Some lines are no keys of the configuration: `fingerprint` is the [`crate::ConfigFingerprint`], `artifact` the
/// snapshot of the hub in which the model lies, `hf:ORG/NAME@COMMIT`, and `tokenizer.kind`, `tokenizer.pre`,
/// `tokenizer.class`, `tokenizer.n_vocab` and `tokenizer.digest` are what is known of its tokenizer
/// ([`host_core::TokenizerKey`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match(pub Vec<(String, Predicate)>);

/// What one line asks. Written as a plain value (equality) or as a table of conditions, which must all hold:
///
/// | condition | holds when the value |
/// |---|---|
/// | `equals = V` | equals V; numbers compare as numbers |
/// | `in = [V, …]` | equals one of them |
/// | `min = N`, `max = N` | is a number within |
/// | `contains = [V, …]` | is a list that has each of them, such as `architectures` |
/// | `present = true` or `false` | is there, or is not; `null` counts as not there |
/// | `keys = [K, …]` | is an object without other keys |
/// | `modules = true` | (beside `keys`) may have further keys, module paths, whose value is `false` or an object with only `keys` |
/// | `optional = true` | is not there; the other conditions are for when it is |
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Predicate {
    /// The one value that holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    /// The values that hold.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    /// The least number that holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest number that holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// What the list must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<Vec<Value>>,
    /// Whether the key must be there or must not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// The only keys that the object may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// Whether the object may override `keys` by module path.
    #[serde(default, skip_serializing_if = "is_false")]
    pub modules: bool,
    /// Whether the key may be absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
}

/// A line that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedPredicate {
    /// The key of `config.json`.
    pub key: String,
    /// What the profile asks.
    pub expected: String,
    /// What the configuration has.
    pub found: String,
}

impl Match {
    /// The keys, in the file's order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// Every line that does not hold for a model, in the file's order.
    pub fn failures<'a>(&self, model: impl Into<Subject<'a>>) -> Vec<FailedPredicate> {
        let model = model.into();
        let failure = |(key, predicate): &(String, Predicate)| {
            let found = match model.beside(key) {
                Some(Beside::Is(value)) => predicate.check(Some(&value))?,
                Some(Beside::Absent(why)) => format!("{}: {why}", predicate.check(None)?),
                Some(Beside::Unknown(why)) => why,
                None => predicate.check(lookup(model.config, key))?,
            };
            Some(FailedPredicate { key: key.clone(), expected: predicate.to_string(), found })
        };
        self.0.iter().filter_map(failure).collect()
    }
}

/// The value of a key, in `text_config` first; `null` counts as absent.
pub(crate) fn lookup<'a>(config: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let text = config.get("text_config").and_then(Value::as_object);
    [text, Some(config)].into_iter().flatten().find_map(|level| walk(level, key))
}

fn walk<'a>(level: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let mut parts = key.split('.');
    let first = level.get(parts.next()?)?;
    let value = parts.try_fold(first, |value, part| value.as_object()?.get(part))?;
    (!value.is_null()).then_some(value)
}

impl Predicate {
    /// A predicate that holds for one value.
    pub fn equals(value: impl Into<Value>) -> Self {
        Predicate { equals: Some(value.into()), ..Predicate::default() }
    }

    /// `None` when it holds, otherwise what was found instead.
    fn check(&self, value: Option<&Value>) -> Option<String> {
        let Some(value) = value else {
            let holds = self.optional || self.present == Some(false);
            return (!holds).then(|| "absent".to_owned());
        };
        if self.present == Some(false) {
            return Some(shown(value));
        }
        let number_holds = |holds: &dyn Fn(f64) -> bool| value.as_f64().is_some_and(holds);
        let holds = self.equals.as_ref().is_none_or(|expected| same(expected, value))
            && self.one_of.as_ref().is_none_or(|any| any.iter().any(|expected| same(expected, value)))
            && self.min.is_none_or(|min| number_holds(&|number| number >= min))
            && self.max.is_none_or(|max| number_holds(&|number| number <= max))
            && self.contains.as_ref().is_none_or(|wanted| has_each(value, wanted));
        if !holds {
            return Some(shown(value));
        }
        self.keys.as_ref().and_then(|keys| self.check_keys(keys, value))
    }

    fn check_keys(&self, keys: &[String], value: &Value) -> Option<String> {
        let Some(object) = value.as_object() else { return Some(shown(value)) };
        let unknown = |object: &Map<String, Value>| object.keys().find(|key| !keys.contains(key)).cloned();
        for (key, inner) in object.iter().filter(|(key, _)| !keys.contains(key)) {
            match inner {
                Value::Bool(false) if self.modules => {}
                Value::Object(fields) if self.modules => {
                    if let Some(field) = unknown(fields) {
                        return Some(format!("an object with the key \"{field}\" in the module \"{key}\""));
                    }
                }
                _ => return Some(format!("an object with the key \"{key}\"")),
            }
        }
        None
    }

    fn only_equals(&self) -> Option<&Value> {
        let value = self.equals.as_ref()?;
        (*self == Predicate { equals: Some(value.clone()), ..Predicate::default() }).then_some(value)
    }
}

fn has_each(value: &Value, wanted: &[Value]) -> bool {
    let has = |list: &Vec<Value>| wanted.iter().all(|one| list.iter().any(|held| same(one, held)));
    value.as_array().is_some_and(has)
}

/// Equality of JSON values where 1 and 1.0 are the same.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        _ => a == b,
    }
}

/// A value as reports show it: short JSON.
fn shown(value: &Value) -> String {
    const LIMIT: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(LIMIT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[Value]| values.iter().map(shown).collect::<Vec<_>>().join(", ");
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.equals.as_ref().map(shown));
        parts.extend(self.one_of.as_ref().map(|values| format!("one of {}", list(values))));
        match (self.min, self.max) {
            (Some(min), Some(max)) => parts.push(format!("{min} to {max}")),
            (Some(min), None) => parts.push(format!("at least {min}")),
            (None, Some(max)) => parts.push(format!("at most {max}")),
            (None, None) => {}
        }
        parts.extend(self.contains.as_ref().map(|values| format!("a list with {}", list(values))));
        if let Some(keys) = &self.keys {
            let modules = if self.modules { " and module paths" } else { "" };
            parts.push(format!("an object with no keys but {}{modules}", keys.join(", ")));
        }
        parts.extend(self.present.map(|present| if present { "present" } else { "absent" }.to_owned()));
        let absent = match self.optional {
            true if parts.len() > 1 || self.keys.is_some() => ", or absent",
            true => " or absent",
            false => "",
        };
        write!(f, "{}{absent}", parts.join(" and "))
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Serialize for Predicate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.only_equals() {
            Some(value) => value.serialize(serializer),
            None => Predicate::serialize(self, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Predicate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PredicateVisitor;
        impl<'de> Visitor<'de> for PredicateVisitor {
            type Value = Predicate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or a table of conditions such as { in = [\"silu\"] }")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Predicate, E> {
                Ok(Predicate::equals(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Predicate, E> {
                Ok(Predicate::equals(value))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Predicate, E> {
                Ok(Predicate::equals(value))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Predicate, E> {
                Ok(Predicate::equals(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Predicate, A::Error> {
                let mut values: Vec<Value> = Vec::new();
                while let Some(value) = seq.next_element()? {
                    values.push(value);
                }
                Ok(Predicate::equals(values))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Predicate, A::Error> {
                Predicate::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(PredicateVisitor)
    }
}

impl Serialize for Match {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, predicate) in &self.0 {
            map.serialize_entry(key, predicate)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Match {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MatchVisitor;
        impl<'de> Visitor<'de> for MatchVisitor {
            type Value = Match;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of conditions on keys of config.json")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Match, A::Error> {
                let mut lines = Vec::new();
                while let Some(line) = map.next_entry()? {
                    lines.push(line);
                }
                Ok(Match(lines))
            }
        }
        deserializer.deserialize_map(MatchVisitor)
    }
}
