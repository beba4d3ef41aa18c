//! The values of a rule: schemes, roles and ranges of layers.

use std::fmt;
use std::str::FromStr;

use host_core::quant::{Role, Scheme};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize, Serializer};

/// A [`Scheme`] as rules write it: `{ bits = 4, group_size = 64 }`, `"keep"`, `"mxfp4"`, `"mxfp8"`, `"nvfp4"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemeText(pub Scheme);

const NAMED: [(&str, Scheme); 4] =
    [("keep", Scheme::Keep), ("mxfp4", Scheme::Mxfp4), ("mxfp8", Scheme::Mxfp8), ("nvfp4", Scheme::Nvfp4)];

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Affine {
    bits: u64,
    group_size: u64,
}

impl Serialize for SchemeText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Scheme::Affine { bits, group_size } => {
                Affine { bits: bits.into(), group_size: group_size as u64 }.serialize(serializer)
            }
            named => serializer.collect_str(&named),
        }
    }
}

impl<'de> Deserialize<'de> for SchemeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SchemeVisitor;
        impl<'de> Visitor<'de> for SchemeVisitor {
            type Value = SchemeText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "{ bits = NUMBER, group_size = NUMBER }, \"keep\", \"mxfp4\", \"mxfp8\" or \"nvfp4\"",
                )
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<SchemeText, E> {
                let known = NAMED.iter().find(|(known, _)| *known == name);
                known
                    .map(|(_, scheme)| SchemeText(*scheme))
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SchemeText, A::Error> {
                let Affine { bits, group_size } = Affine::deserialize(MapAccessDeserializer::new(map))?;
                let scheme = Scheme::affine(bits, group_size).map_err(|error| {
                    let report = host_core::Reported::report(&error);
                    de::Error::custom(format!("{error}, expected {}", report.expected.unwrap_or_default()))
                })?;
                Ok(SchemeText(scheme))
            }
        }
        deserializer.deserialize_any(SchemeVisitor)
    }
}

/// One role or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles(pub Vec<Role>);

impl Serialize for Roles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [role] => role.serialize(serializer),
            roles => roles.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Roles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RolesVisitor;
        impl<'de> Visitor<'de> for RolesVisitor {
            type Value = Roles;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let names: Vec<_> = Role::ALL.iter().map(|(_, name)| *name).collect();
                write!(f, "a role or a list of roles: {}", names.join(", "))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Roles, E> {
                name.parse()
                    .map(|role| Roles(vec![role]))
                    .map_err(|()| E::invalid_value(de::Unexpected::Str(name), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Roles, A::Error> {
                let mut roles = Vec::new();
                while let Some(name) = seq.next_element::<String>()? {
                    roles.extend(self_role(&name).map_err(de::Error::custom)?);
                }
                if roles.is_empty() { Err(de::Error::invalid_length(0, &self)) } else { Ok(Roles(roles)) }
            }
        }
        deserializer.deserialize_any(RolesVisitor)
    }
}

fn self_role(name: &str) -> Result<Option<Role>, String> {
    name.parse().map(Some).map_err(|()| {
        let names: Vec<_> = Role::ALL.iter().map(|(_, name)| *name).collect();
        format!("invalid value: string \"{name}\", expected one of {}", names.join(", "))
    })
}

/// Layers `first..end`, the end not among them; either side may be left out, not both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerRange {
    first: Option<usize>,
    end: Option<usize>,
}

impl LayerRange {
    /// The one layer `layer`.
    pub fn one(layer: usize) -> Self {
        LayerRange { first: Some(layer), end: Some(layer + 1) }
    }

    /// Whether a layer is among them.
    pub fn contains(self, layer: usize) -> bool {
        self.first.is_none_or(|first| first <= layer) && self.end.is_none_or(|end| layer < end)
    }
}

impl fmt::Display for LayerRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.iter().try_for_each(|first| write!(f, "{first}"))?;
        f.write_str("..")?;
        self.end.iter().try_for_each(|end| write!(f, "{end}"))
    }
}

impl FromStr for LayerRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no range of layers, expected \"0..4\", \"4..\" or \"..4\"");
        let side = |side: &str| if side.is_empty() { Ok(None) } else { side.parse().map(Some) };
        let (first, end) = text.split_once("..").ok_or_else(wrong)?;
        let (first, end): (Option<usize>, Option<usize>) =
            (side(first).map_err(|_| wrong())?, side(end).map_err(|_| wrong())?);
        let is_empty = match (first, end) {
            (None, None) => true,
            (first, Some(end)) => first.unwrap_or(0) >= end,
            (Some(_), None) => false,
        };
        if is_empty { Err(wrong()) } else { Ok(LayerRange { first, end }) }
    }
}

impl Serialize for LayerRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LayerRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
