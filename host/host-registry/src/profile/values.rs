//! The small values of a profile that TOML has no type for: byte counts, digests, names or lists of names.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize, Serializer};

/// A number of bytes, written `2147483648` or `"2GiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |unit: u64| self.0.is_multiple_of(unit) && self.0 >= unit;
        let (name, unit) = UNITS.into_iter().find(|(_, unit)| fits(*unit)).unwrap_or(("B", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected a whole number with B, KiB, MiB, GiB or TiB, found `{text}`");
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text[digits.len()..].trim();
        let factor = match UNITS.into_iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => factor,
            None if unit.is_empty() => 1,
            None => return Err(wrong()),
        };
        let number: u64 = digits.trim_end().parse().map_err(|_| wrong())?;
        number.checked_mul(factor).map(Bytes).ok_or_else(|| format!("`{text}` is more than 64 bits hold"))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes such as 2147483648 or \"2GiB\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Bytes, E> {
                u64::try_from(number)
                    .map(Bytes)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Bytes, E> {
                Ok(Bytes(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(BytesVisitor)
    }
}

/// Worker threads: `"all"` of the device, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// As many as the device has on this machine.
    All,
    /// This many.
    Count(usize),
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::All => f.write_str("all"),
            Threads::Count(n) => n.fmt(f),
        }
    }
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Threads::All);
        }
        let wrong = |_| format!("expected `all` or a whole number, found `{text}`");
        text.parse().map(Threads::Count).map_err(wrong)
    }
}

impl Serialize for Threads {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Threads::All => serializer.serialize_str("all"),
            Threads::Count(n) => n.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Threads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ThreadsVisitor;
        impl Visitor<'_> for ThreadsVisitor {
            type Value = Threads;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\" or a number of threads")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Threads, E> {
                usize::try_from(number)
                    .map(Threads::Count)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Threads, E> {
                match text {
                    "all" => Ok(Threads::All),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(ThreadsVisitor)
    }
}

/// How long a sequence may get: `8192`, or `{ at_most = 8192 }` for the model's own length up to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextTokens {
    /// This many; refused where the model's `max_position_embeddings` is less.
    Exactly(usize),
    /// The model's `max_position_embeddings`, and no more than this.
    AtMost(usize),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AtMost {
    at_most: usize,
}

impl ContextTokens {
    /// The number, whatever its form.
    pub fn limit(self) -> usize {
        match self {
            ContextTokens::Exactly(n) | ContextTokens::AtMost(n) => n,
        }
    }
}

impl fmt::Display for ContextTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContextTokens::Exactly(n) => n.fmt(f),
            ContextTokens::AtMost(n) => write!(f, "the model's, at most {n}"),
        }
    }
}

impl Serialize for ContextTokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ContextTokens::Exactly(n) => n.serialize(serializer),
            ContextTokens::AtMost(n) => AtMost { at_most: *n }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ContextTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContextVisitor;
        impl<'de> Visitor<'de> for ContextVisitor {
            type Value = ContextTokens;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of tokens or { at_most = NUMBER }")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<ContextTokens, E> {
                usize::try_from(number)
                    .map(ContextTokens::Exactly)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ContextTokens, A::Error> {
                let AtMost { at_most } = AtMost::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ContextTokens::AtMost(at_most))
            }
        }
        deserializer.deserialize_any(ContextVisitor)
    }
}

/// One name or a list of names, any of which will do: each is named explicitly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" or "))
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [name] => name.serialize(serializer),
            names => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor;
        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or a list of names")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Names, E> {
                Ok(Names(vec![name.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = seq.next_element()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_any(NamesVisitor)
    }
}

/// A name for every case, or one for each: the element type of keys and values by numeric profile, `"f16"` or
/// `{ exact = "f32", fast = "f16" }`; the device by operating system, `"cpu"` or `{ linux = "cpu", macos = "mlx" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByCase {
    /// In every case.
    Any(String),
    /// By case; one that is not listed is refused.
    By(BTreeMap<String, String>),
}

impl ByCase {
    /// The name in this case, if the profile gives one.
    pub fn of(&self, case: &str) -> Option<&str> {
        match self {
            ByCase::Any(name) => Some(name),
            ByCase::By(by) => by.get(case).map(String::as_str),
        }
    }
}

impl fmt::Display for ByCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ByCase::Any(name) => f.write_str(name),
            ByCase::By(by) => {
                let parts: Vec<_> = by.iter().map(|(case, name)| format!("{case}: {name}")).collect();
                f.write_str(&parts.join(", "))
            }
        }
    }
}

impl Serialize for ByCase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ByCase::Any(name) => name.serialize(serializer),
            ByCase::By(by) => by.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ByCase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByCaseVisitor;
        impl<'de> Visitor<'de> for ByCaseVisitor {
            type Value = ByCase;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, or a table with one for each case")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<ByCase, E> {
                Ok(ByCase::Any(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ByCase, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(ByCase::By)
            }
        }
        deserializer.deserialize_any(ByCaseVisitor)
    }
}

/// A SHA-256 digest, 64 hexadecimal digits, with or without `sha256:` before them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest;
        Sha256Digest(sha2::Sha256::digest(bytes).into())
    }

    /// The first 16 hexadecimal digits, for people.
    pub fn short(&self) -> String {
        self.to_string()[..16].to_owned()
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected 64 hexadecimal digits, found `{text}`");
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Sha256Digest(bytes))
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
