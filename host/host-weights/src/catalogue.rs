//! What a checkpoint holds, before any of it is read: names, logical shapes, encodings, sizes.

use std::fmt;
use std::path::PathBuf;

use host_core::DType;

/// How the checkpoint is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A folder with `config.json` and one or more safetensors files.
    Safetensors,
    /// One GGUF file.
    Gguf,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Safetensors => "safetensors",
            Format::Gguf => "gguf",
        })
    }
}

/// How the elements of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// One number an element.
    Dense(DType),
    /// Integer codes; each group of a row has a scale and an offset: `w = scale * code + bias`.
    Affine {
        /// Bits of a code: 2 to 6, or 8.
        bits: u8,
        /// Consecutive elements of a row that share a scale.
        group_size: usize,
        /// The narrowest of F16, BF16 and F32 that the format promises to hold each scale exactly.
        scale_dtype: DType,
        /// Where the bias of a group comes from.
        offset: Offset,
    },
    /// Small floating-point codes; each group of a row has a scale: `w = scale * value(code)`.
    FloatGroups {
        /// The code and scale formats.
        mode: FloatMode,
        /// Consecutive elements of a row that share a scale.
        group_size: usize,
    },
}

/// Where the bias of an affine group comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offset {
    /// Each group stores its own.
    Biases,
    /// One code of the whole tensor stands for zero: `bias = -zero_point * scale`.
    ZeroPoint(u8),
}

/// The grouped floating-point formats that MLX writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatMode {
    /// E2M1 codes, groups of 32, E8M0 scales (OCP microscaling).
    Mxfp4,
    /// E4M3 codes, groups of 32, E8M0 scales (OCP microscaling).
    Mxfp8,
    /// E2M1 codes, groups of 16, E4M3 scales.
    Nvfp4,
}

impl FloatMode {
    /// The name in a `quantization` block.
    pub const fn name(self) -> &'static str {
        match self {
            FloatMode::Mxfp4 => "mxfp4",
            FloatMode::Mxfp8 => "mxfp8",
            FloatMode::Nvfp4 => "nvfp4",
        }
    }

    /// Bits of a code.
    pub const fn bits(self) -> u8 {
        match self {
            FloatMode::Mxfp4 | FloatMode::Nvfp4 => 4,
            FloatMode::Mxfp8 => 8,
        }
    }

    /// Elements that share a scale; the format fixes it.
    pub const fn group_size(self) -> usize {
        match self {
            FloatMode::Mxfp4 | FloatMode::Mxfp8 => 32,
            FloatMode::Nvfp4 => 16,
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Encoding::Dense(dtype) => write!(f, "{dtype}"),
            Encoding::Affine { bits, group_size, .. } => {
                write!(f, "affine {bits}-bit, groups of {group_size}")
            }
            Encoding::FloatGroups { mode, group_size } => {
                write!(f, "{}, groups of {group_size}", mode.name())
            }
        }
    }
}

/// One tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name in the published checkpoint: `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// The logical shape, e.g. `[out, in]`, whatever the packing.
    pub shape: Vec<usize>,
    /// How the elements are stored.
    pub encoding: Encoding,
    /// Bytes in the file, with scales and biases.
    pub bytes: u64,
    /// The file that holds it (the codes, where a triple is spread over shards).
    pub file: PathBuf,
}

impl TensorInfo {
    /// The dtype of its numbers: the stored one, or that of the scales where it is stored as codes. Small floats
    /// count as BF16, which holds each of them.
    pub fn number_dtype(&self) -> DType {
        match self.encoding {
            Encoding::Dense(dtype) | Encoding::Affine { scale_dtype: dtype, .. } => dtype,
            Encoding::FloatGroups { .. } => DType::BF16,
        }
    }

    /// Logical elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The tensors of a checkpoint, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    tensors: Vec<TensorInfo>,
}

impl Catalogue {
    /// Sorts `tensors` by name. The readers have refused equal names before.
    pub(crate) fn new(mut tensors: Vec<TensorInfo>) -> Self {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        Catalogue { tensors }
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.position(name).map(|at| &self.tensors[at])
    }

    /// Where the tensor of that name stands in [`Catalogue::iter`].
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.tensors.binary_search_by(|tensor| tensor.name.as_str().cmp(name)).ok()
    }

    /// The tensors, by name.
    pub(crate) fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensors, by name.
    pub fn iter(&self) -> std::slice::Iter<'_, TensorInfo> {
        self.tensors.iter()
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Stored bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Up to five known names that are closest to `name`, for error messages.
    pub fn nearest(&self, name: &str) -> Vec<String> {
        let mut scored: Vec<_> =
            self.tensors.iter().map(|tensor| (likeness(&tensor.name, name), &tensor.name)).collect();
        scored.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        scored.into_iter().filter(|(score, _)| *score > 0).take(5).map(|(_, name)| name.clone()).collect()
    }
}

impl<'a> IntoIterator for &'a Catalogue {
    type Item = &'a TensorInfo;
    type IntoIter = std::slice::Iter<'a, TensorInfo>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Dotted parts that two names share, counted from the front and from the back.
fn likeness(a: &str, b: &str) -> usize {
    let common = |a: &mut dyn Iterator<Item = &str>, b: &mut dyn Iterator<Item = &str>| {
        a.zip(b).take_while(|(a, b)| a == b).count()
    };
    common(&mut a.split('.'), &mut b.split('.')) + common(&mut a.rsplit('.'), &mut b.rsplit('.'))
}
