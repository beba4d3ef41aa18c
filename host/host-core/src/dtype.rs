//! The element types of stored tensors, named as safetensors headers name them.

use std::fmt;
use std::str::FromStr;

/// How one element of a stored tensor is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// 8-bit float, 4 exponent and 3 mantissa bits, finite (OCP `E4M3FN`).
    F8E4M3,
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 32-bit integer; also the words of packed codes.
    U32,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every dtype with its name in a safetensors header.
    pub const ALL: [(DType, &'static str); 15] = [
        (DType::F64, "F64"),
        (DType::F32, "F32"),
        (DType::F16, "F16"),
        (DType::BF16, "BF16"),
        (DType::F8E4M3, "F8_E4M3"),
        (DType::F8E5M2, "F8_E5M2"),
        (DType::U64, "U64"),
        (DType::I64, "I64"),
        (DType::U32, "U32"),
        (DType::I32, "I32"),
        (DType::U16, "U16"),
        (DType::I16, "I16"),
        (DType::U8, "U8"),
        (DType::I8, "I8"),
        (DType::Bool, "BOOL"),
    ];

    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            DType::F64 | DType::U64 | DType::I64 => 8,
            DType::F32 | DType::U32 | DType::I32 => 4,
            DType::F16 | DType::BF16 | DType::U16 | DType::I16 => 2,
            DType::F8E4M3 | DType::F8E5M2 | DType::U8 | DType::I8 | DType::Bool => 1,
        }
    }

    /// Whether the elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2)
    }

    /// The name in a safetensors header.
    pub fn name(self) -> &'static str {
        DType::ALL.iter().find(|(dtype, _)| *dtype == self).map_or("?", |(_, name)| name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        DType::ALL.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype).ok_or(())
    }
}
