//! The `quantization` block of a `config.json`: how each module of an MLX-style checkpoint is quantised.
//!
//! The block gives the bits, group size and mode of all quantised modules, and may override them for a module by
//! its path, with an object (fields that it leaves out are inherited) or with `false` (not quantised). What the
//! block says beyond that is refused: a key that we do not know may change what the weights mean.

use std::collections::BTreeMap;
use std::fmt;

use host_core::{Report, Reported};
use serde_json::{Map, Value};

use crate::catalogue::FloatMode;
use crate::json::kind;

/// Code widths of affine quantisation.
pub(crate) const AFFINE_BITS: [u8; 6] = [2, 3, 4, 5, 6, 8];
/// Group sizes of affine quantisation.
pub(crate) const AFFINE_GROUP_SIZES: [usize; 4] = [16, 32, 64, 128];

/// The key of the block, and the one that transformers gives it.
pub(crate) const BLOCK_KEYS: [&str; 2] = ["quantization", "quantization_config"];
const FIELDS: [&str; 3] = ["bits", "group_size", "mode"];

/// How one module is quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantSpec {
    /// Bits of a code.
    pub bits: u8,
    /// Elements that share a scale.
    pub group_size: usize,
    /// What codes and scales mean.
    pub mode: QuantMode,
}

/// What codes and scales mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantMode {
    /// Integer codes with a scale and a bias a group.
    Affine,
    /// Floating-point codes with a scale a group.
    Float(FloatMode),
}

impl fmt::Display for QuantSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bits, groups of {}, mode {}", self.bits, self.group_size, self.mode.name())
    }
}

impl QuantMode {
    const ALL: [QuantMode; 4] = [
        QuantMode::Affine,
        QuantMode::Float(FloatMode::Mxfp4),
        QuantMode::Float(FloatMode::Mxfp8),
        QuantMode::Float(FloatMode::Nvfp4),
    ];

    /// The name in the block.
    pub const fn name(self) -> &'static str {
        match self {
            QuantMode::Affine => "affine",
            QuantMode::Float(mode) => mode.name(),
        }
    }

    fn from_name(name: &str) -> Option<QuantMode> {
        QuantMode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// How the modules of a checkpoint are quantised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantization {
    /// For modules without an override.
    pub default: QuantSpec,
    /// Overrides by module path; `None` says that the module is not quantised.
    pub modules: BTreeMap<String, Option<QuantSpec>>,
}

impl Quantization {
    /// Reads and checks the block of a configuration; `None` where there is none.
    ///
    /// `quantization` and `quantization_config` mean the same, at the top level or under `text_config`; where
    /// more than one is present they must agree.
    ///
    /// # Errors
    /// A [`QuantizationFault`] for unknown keys, modes and widths, wrong types, and blocks that differ.
    pub fn from_config(config: &Map<String, Value>) -> Result<Option<Quantization>, QuantizationFault> {
        let text = config.get("text_config").and_then(Value::as_object);
        let mut blocks = [Some(config), text].into_iter().flatten().flat_map(|level| {
            BLOCK_KEYS
                .into_iter()
                .filter_map(|key| level.get(key).filter(|block| !block.is_null()).map(|block| (key, block)))
        });
        let Some((first_key, first)) = blocks.next() else { return Ok(None) };
        if let Some((other_key, _)) = blocks.find(|(_, other)| *other != first) {
            return Err(QuantizationFault::Disagree { first: first_key, other: other_key });
        }
        Quantization::from_block(first_key, first).map(Some)
    }

    fn from_block(key: &'static str, block: &Value) -> Result<Quantization, QuantizationFault> {
        let block = block
            .as_object()
            .ok_or_else(|| QuantizationFault::NotAnObject { at: key.to_owned(), found: kind(block) })?;
        if let Some(method) = block.get("quant_method") {
            return Err(QuantizationFault::OtherMethod { found: method.to_string() });
        }
        let default = QuantSpec::from_fields(key, block, None)?;
        let mut modules = BTreeMap::new();
        for (path, value) in block.iter().filter(|(path, _)| !FIELDS.contains(&path.as_str())) {
            let spec = match value {
                Value::Bool(false) => None,
                Value::Object(fields) => {
                    if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
                        return Err(QuantizationFault::UnknownKey { key: format!("{path}.{unknown}") });
                    }
                    Some(QuantSpec::from_fields(path, fields, Some(default))?)
                }
                _ => return Err(QuantizationFault::UnknownKey { key: path.clone() }),
            };
            modules.insert(path.clone(), spec);
        }
        Ok(Quantization { default, modules })
    }

    /// How the module at `path` is quantised, if it is.
    pub fn of(&self, path: &str) -> Option<QuantSpec> {
        self.modules.get(path).copied().unwrap_or(Some(self.default))
    }
}

impl QuantSpec {
    /// Reads the three fields; those that are absent come from `inherited`, and `mode` is affine without it.
    fn from_fields(
        at: &str,
        fields: &Map<String, Value>,
        inherited: Option<QuantSpec>,
    ) -> Result<QuantSpec, QuantizationFault> {
        let count = |field: &'static str, inherited: Option<u64>| match fields.get(field) {
            None => inherited.ok_or(QuantizationFault::Missing { at: at.to_owned(), field }),
            Some(value) => value.as_u64().ok_or_else(|| QuantizationFault::WrongType {
                at: format!("{at}.{field}"),
                expected: "a whole number",
                found: value.to_string(),
            }),
        };
        let bits = count("bits", inherited.map(|spec| spec.bits.into()))?;
        let group_size = count("group_size", inherited.map(|spec| spec.group_size as u64))?;
        let mode = match fields.get("mode") {
            None => inherited.map_or(QuantMode::Affine, |spec| spec.mode),
            Some(Value::String(name)) => QuantMode::from_name(name)
                .ok_or_else(|| QuantizationFault::UnknownMode { found: name.clone() })?,
            Some(value) => {
                return Err(QuantizationFault::WrongType {
                    at: format!("{at}.mode"),
                    expected: "a string",
                    found: value.to_string(),
                });
            }
        };
        QuantSpec::checked(bits, group_size, mode).ok_or_else(|| QuantizationFault::Unsupported {
            at: at.to_owned(),
            mode: mode.name(),
            bits,
            group_size,
        })
    }

    fn checked(bits: u64, group_size: u64, mode: QuantMode) -> Option<QuantSpec> {
        let (bits, group_size) = (u8::try_from(bits).ok()?, usize::try_from(group_size).ok()?);
        let fits = match mode {
            QuantMode::Affine => AFFINE_BITS.contains(&bits) && AFFINE_GROUP_SIZES.contains(&group_size),
            QuantMode::Float(mode) => bits == mode.bits() && group_size == mode.group_size(),
        };
        fits.then_some(QuantSpec { bits, group_size, mode })
    }
}

/// What is wrong with a quantisation block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantizationFault {
    /// Two blocks that mean the same differ.
    #[error("the configuration has two quantisation blocks that differ")]
    Disagree {
        /// The key of the first.
        first: &'static str,
        /// The key of the other.
        other: &'static str,
    },
    /// The block is of another library's quantisation.
    #[error("the checkpoint is quantised by a method that is not supported")]
    OtherMethod {
        /// Its `quant_method`.
        found: String,
    },
    /// The block is no object.
    #[error("`{at}` is no object")]
    NotAnObject {
        /// The key.
        at: String,
        /// What it is.
        found: &'static str,
    },
    /// A key that is neither a field nor a module's override.
    #[error("the quantisation block has the unknown key {key:?}")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A field is absent and nothing gives it.
    #[error("`{at}` does not say its `{field}`")]
    Missing {
        /// The block.
        at: String,
        /// The field.
        field: &'static str,
    },
    /// A field has another JSON type.
    #[error("`{at}` has the wrong type")]
    WrongType {
        /// The field.
        at: String,
        /// The type it must have.
        expected: &'static str,
        /// Its value.
        found: String,
    },
    /// The mode is none that is known.
    #[error("the quantisation mode {found:?} is not known")]
    UnknownMode {
        /// The mode.
        found: String,
    },
    /// Bits and group size do not go with the mode.
    #[error("{at:?} asks for a quantisation that does not exist")]
    Unsupported {
        /// The block or module.
        at: String,
        /// The mode.
        mode: &'static str,
        /// The bits.
        bits: u64,
        /// The group size.
        group_size: u64,
    },
}

impl Reported for QuantizationFault {
    fn report(&self) -> Report {
        let message = self.to_string();
        match self {
            QuantizationFault::Disagree { first, other } => {
                Report::new("weights.quantization-disagrees", message)
                    .expected(format!("`{first}` and `{other}` with the same content"))
                    .mend("remove one of them")
            }
            QuantizationFault::OtherMethod { found } => Report::new("weights.quantization-method", message)
                .expected("a block with `bits`, `group_size` and `mode`, without `quant_method`")
                .found(format!("quant_method {found}"))
                .mend("use an MLX-style, GGUF or unquantised form of the model"),
            QuantizationFault::NotAnObject { found, .. } => {
                Report::new("weights.quantization-type", message).expected("an object").found(*found)
            }
            QuantizationFault::UnknownKey { .. } => Report::new("weights.quantization-key", message)
                .expected("`bits`, `group_size`, `mode`, and module paths with an object or false")
                .mend("remove the key if it does not change the weights"),
            QuantizationFault::Missing { .. } => Report::new("weights.quantization-missing", message)
                .expected("whole numbers `bits` and `group_size`")
                .mend("add it to the block"),
            QuantizationFault::WrongType { expected, found, .. } => {
                Report::new("weights.quantization-type", message).expected(*expected).found(found.clone())
            }
            QuantizationFault::UnknownMode { .. } => Report::new("weights.quantization-mode", message)
                .expected(QuantMode::ALL.map(QuantMode::name).join(", "))
                .mend("use a checkpoint in one of these modes"),
            QuantizationFault::Unsupported { mode, bits, group_size, .. } => {
                Report::new("weights.quantization-width", message)
                    .expected(widths(mode))
                    .found(format!("{bits} bits, groups of {group_size}, mode {mode}"))
                    .mend("use a checkpoint with one of these widths")
            }
        }
    }
}

fn widths(mode: &str) -> String {
    match QuantMode::from_name(mode) {
        Some(QuantMode::Float(mode)) => {
            format!("{} bits, groups of {}, mode {}", mode.bits(), mode.group_size(), mode.name())
        }
        _ => format!("bits {AFFINE_BITS:?}, groups of {AFFINE_GROUP_SIZES:?}, mode affine"),
    }
}
