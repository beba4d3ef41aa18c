//! What a kernel is given and what it must give: data, template arguments, launches, tolerances.

use crate::numbers::{round_bf16, round_f16, widen_bf16, widen_f16};

/// The element types that kernels meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// binary32.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// Packed codes.
    U32,
    /// Counts.
    I32,
}

impl Dtype {
    /// The name in Metal.
    pub fn metal(self) -> &'static str {
        match self {
            Dtype::F32 => "float",
            Dtype::F16 => "float16_t",
            Dtype::Bf16 => "bfloat16_t",
            Dtype::U32 => "uint32_t",
            Dtype::I32 => "int32_t",
        }
    }

    /// Bytes of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::F32 | Dtype::U32 | Dtype::I32 => 4,
        }
    }

    /// The largest relative error of one rounding to this type.
    pub fn rounding(self) -> f64 {
        match self {
            Dtype::F16 => 2.0_f64.powi(-11),
            Dtype::Bf16 => 2.0_f64.powi(-8),
            _ => 2.0_f64.powi(-24),
        }
    }

    /// A number as this float type holds it.
    pub fn round(self, x: f32) -> f32 {
        match self {
            Dtype::F16 => widen_f16(round_f16(x)),
            Dtype::Bf16 => widen_bf16(round_bf16(x)),
            _ => x,
        }
    }
}

/// An array: shape, type, little-endian bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its element type.
    pub dtype: Dtype,
    /// Its elements, row-major.
    pub bytes: Vec<u8>,
}

impl Data {
    /// Numbers, rounded to a float type.
    pub fn floats(shape: &[usize], dtype: Dtype, numbers: &[f32]) -> Data {
        let bytes = numbers.iter().flat_map(|x| match dtype {
            Dtype::F16 => round_f16(*x).to_le_bytes().to_vec(),
            Dtype::Bf16 => round_bf16(*x).to_le_bytes().to_vec(),
            _ => x.to_le_bytes().to_vec(),
        });
        Data { shape: shape.to_vec(), dtype, bytes: bytes.collect() }
    }

    /// Words of packed codes.
    pub fn words(shape: &[usize], words: &[u32]) -> Data {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Data { shape: shape.to_vec(), dtype: Dtype::U32, bytes }
    }

    /// Counts.
    pub fn ints(shape: &[usize], ints: &[i32]) -> Data {
        let bytes = ints.iter().flat_map(|int| int.to_le_bytes()).collect();
        Data { shape: shape.to_vec(), dtype: Dtype::I32, bytes }
    }

    /// The elements as numbers.
    pub fn numbers(&self) -> Vec<f32> {
        numbers(self.dtype, &self.bytes)
    }
}

/// Little-endian elements as numbers.
pub(crate) fn numbers(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let fours = || bytes.as_chunks::<4>().0.iter();
    let twos = || bytes.as_chunks::<2>().0.iter().map(|two| u16::from_le_bytes(*two));
    match dtype {
        Dtype::F32 => fours().map(|four| f32::from_le_bytes(*four)).collect(),
        Dtype::U32 => fours().map(|four| u32::from_le_bytes(*four) as f32).collect(),
        Dtype::I32 => fours().map(|four| i32::from_le_bytes(*four) as f32).collect(),
        Dtype::F16 => twos().map(widen_f16).collect(),
        Dtype::Bf16 => twos().map(widen_bf16).collect(),
    }
}

/// A template argument of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Template {
    /// A type.
    Type(Dtype),
    /// A whole number.
    Int(i32),
}

impl Template {
    /// A float32 number, which a body reads as `as_type<float>(NAME)`: an input for it would be one more array, and on
    /// CUDA one that the host's memory may hold.
    pub fn float(x: f32) -> Template {
        Template::Int(x.to_bits() as i32)
    }
}

/// How one stage is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Threads in all, along x, y and z; a multiple of the group's.
    pub grid: [usize; 3],
    /// Threads of a group.
    pub group: [usize; 3],
    /// Template arguments by name.
    pub templates: Vec<(&'static str, Template)>,
    /// Shape and type of each output.
    pub outputs: Vec<(Vec<usize>, Dtype)>,
}

/// Inputs, launches and the right answer.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is special about it.
    pub name: String,
    /// Inputs of the first stage by name. A later stage takes the outputs before it, and these.
    pub inputs: Vec<(&'static str, Data)>,
    /// One a stage.
    pub launches: Vec<Launch>,
    /// The outputs of the last stage.
    pub expected: Vec<Vec<f32>>,
    /// The largest difference to them, in units of the largest number of an output (at least 1), as derived
    /// beside the kernel.
    pub tolerance: f64,
}
