//! Checkpoint tensors as MLX arrays: what MLX has a product for, how large it gets, and how it is loaded.

use std::collections::HashMap;
use std::ffi::CStr;

use host_core::{DType, Numeric};
use host_device::DeviceError;
use host_graph::Graph;
use host_weights::tensor::pack_row;
use host_weights::{
    AffineTensor, Catalogue, Checkpoint, DenseTensor, Encoding, FloatGroupsTensor, FloatMode, Tensor,
    TensorInfo, WeightsError,
};
use mlx_rs::{Array, Dtype};

use crate::DEVICE_ID;
use crate::fault::Fault;
use crate::ops::{self, Packed};

/// The affine widths that MLX multiplies with.
pub(crate) const BITS: [u8; 6] = [2, 3, 4, 5, 6, 8];
/// The affine groups that MLX multiplies with.
pub(crate) const GROUPS: [usize; 3] = [32, 64, 128];

/// One checkpoint tensor on the device.
#[derive(Clone, Debug)]
pub(crate) enum Weight {
    /// Numbers in the activation dtype.
    Dense(Array),
    /// Codes and scales.
    Packed(Packed),
}

/// How a tensor is stored on the device; products of one input are joined where theirs are stored alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Numbers in the activation dtype.
    Dense,
    /// Affine codes.
    Affine { bits: usize, group_size: usize },
    /// Floating-point codes.
    FloatGroups(&'static CStr),
}

impl Kind {
    /// What a tensor of a checkpoint becomes.
    pub(crate) fn of(info: &TensorInfo) -> Self {
        match info.encoding {
            Encoding::Dense(_) => Kind::Dense,
            Encoding::Affine { bits, group_size, .. } => Kind::Affine { bits: usize::from(bits), group_size },
            Encoding::FloatGroups { mode, .. } => Kind::FloatGroups(mode_name(mode)),
        }
    }
}

impl Weight {
    /// How it is stored.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Weight::Dense(_) => Kind::Dense,
            Weight::Packed(packed) => packed.kind(),
        }
    }
}

impl Packed {
    fn kind(&self) -> Kind {
        match self.biases {
            Some(_) => Kind::Affine { bits: self.bits, group_size: self.group_size },
            None => Kind::FloatGroups(self.mode),
        }
    }
}

/// A matrix as products take it.
#[derive(Clone, Debug)]
pub(crate) enum Matrix {
    Dense(Turned),
    Packed(Packed),
}

/// A dense matrix in both orders, which share their memory.
#[derive(Clone, Debug)]
pub(crate) struct Turned {
    /// `[out, in]`, as it is stored.
    pub(crate) stored: Array,
    /// `[in, out]`.
    pub(crate) turned: Array,
}

impl Matrix {
    /// How it is stored.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Matrix::Dense(_) => Kind::Dense,
            Matrix::Packed(packed) => packed.kind(),
        }
    }

    pub(crate) fn of(weight: &Weight) -> Result<Self, Fault> {
        Ok(match weight {
            Weight::Dense(w) => {
                let turned = settled(ops::transpose(w, &[1, 0])?)?;
                Matrix::Dense(Turned { stored: w.clone(), turned })
            }
            Weight::Packed(w) => Matrix::Packed(w.clone()),
        })
    }
}

/// The activation dtype of a numeric profile over a checkpoint: float32 when exact, else the dtype in which
/// the table of the first embedding (or its scales) is stored.
pub(crate) fn activation_dtype(graph: &Graph, catalogue: &Catalogue, numeric: Numeric) -> Dtype {
    if numeric == Numeric::Exact {
        return Dtype::Float32;
    }
    let first = graph.tensors().into_iter().find_map(|name| catalogue.get(name));
    let stored = match first.map(|info| info.encoding) {
        Some(Encoding::Dense(dtype)) | Some(Encoding::Affine { scale_dtype: dtype, .. }) => dtype,
        Some(Encoding::FloatGroups { .. }) => DType::BF16,
        None => DType::F32,
    };
    match stored {
        DType::BF16 => Dtype::Bfloat16,
        DType::F16 => Dtype::Float16,
        _ => Dtype::Float32,
    }
}

/// Refuses a tensor that MLX has no product for.
pub(crate) fn check(info: &TensorInfo) -> Result<(), DeviceError> {
    let refuse = |has| {
        let (tensor, found) = (info.name.clone(), info.encoding.to_string());
        Err(DeviceError::Encoding { device: DEVICE_ID, tensor, found, has })
    };
    match info.encoding {
        Encoding::Dense(DType::F32 | DType::F16 | DType::BF16) | Encoding::FloatGroups { .. } => Ok(()),
        Encoding::Dense(_) => refuse("F32, F16 or BF16"),
        Encoding::Affine { bits, group_size, .. } if BITS.contains(&bits) && GROUPS.contains(&group_size) => {
            Ok(())
        }
        Encoding::Affine { .. } => refuse("affine codes of 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128"),
    }
}

/// Bytes of a tensor on the device.
pub(crate) fn bytes(info: &TensorInfo, dtype: Dtype) -> u64 {
    let n = info.elements() as u64;
    let size = size_bytes(dtype);
    match info.encoding {
        Encoding::Dense(_) => n * size,
        Encoding::Affine { bits, group_size, .. } => n * u64::from(bits) / 8 + 2 * size * n / group_size as u64,
        Encoding::FloatGroups { mode, group_size } => n * u64::from(mode.bits()) / 8 + n / group_size as u64,
    }
}

/// Bytes of one element.
pub(crate) fn size_bytes(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::Float16 | Dtype::Bfloat16 => 2,
        _ => 4,
    }
}

/// All tensors of a graph, loaded one after the other; the file's pages are given back behind each.
pub(crate) fn load(
    graph: &Graph,
    checkpoint: &Checkpoint,
    dtype: Dtype,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<HashMap<String, Weight>, DeviceError> {
    let names = graph.tensors();
    let size = |name: &str| checkpoint.catalogue().get(name).map_or(0, |info| bytes(info, dtype));
    let all = names.iter().map(|name| size(name)).sum();
    let mut done = 0;
    let mut weights = HashMap::new();
    progress(0, all);
    for name in names {
        let weight = match checkpoint.tensor(name)? {
            Tensor::Dense(tensor) => Weight::Dense(dense(&tensor, dtype)?),
            Tensor::Affine(tensor) => Weight::Packed(affine(&tensor, dtype)?),
            Tensor::FloatGroups(tensor) => Weight::Packed(float_groups(&tensor)),
        };
        weights.insert(name.to_owned(), weight);
        checkpoint.release(name);
        done += size(name);
        progress(done, all);
    }
    Ok(weights)
}

/// Sizes as MLX counts them. The graph bounds every dimension that a device can hold.
pub(crate) fn shape_of(dims: &[usize]) -> Vec<i32> {
    dims.iter().map(|n| *n as i32).collect()
}

fn with_last(shape: &[usize], last: usize) -> Vec<i32> {
    let leading = &shape[..shape.len().saturating_sub(1)];
    shape_of(leading).into_iter().chain([last as i32]).collect()
}

fn mlx_dtype(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F32 => Some(Dtype::Float32),
        DType::F16 => Some(Dtype::Float16),
        DType::BF16 => Some(Dtype::Bfloat16),
        _ => None,
    }
}

/// Evaluates now, so that the stored form does not stay beside the converted one.
fn settled(array: Array) -> Result<Array, Fault> {
    ops::eval([&array])?;
    Ok(array)
}

fn dense(tensor: &DenseTensor<'_>, dtype: Dtype) -> Result<Array, DeviceError> {
    let stored = mlx_dtype(tensor.dtype()).ok_or_else(|| WeightsError::NotNumbers {
        tensor: String::new(),
        found: tensor.dtype(),
    })?;
    let array = ops::from_bytes(&tensor.bytes(), &shape_of(tensor.shape()), stored);
    Ok(settled(ops::cast(&array, dtype)?)?)
}

fn affine(tensor: &AffineTensor<'_>, dtype: Dtype) -> Result<Packed, DeviceError> {
    let (bits, group_size) = (usize::from(tensor.bits()), tensor.group_size());
    let codes_shape = with_last(tensor.shape(), tensor.cols() * bits / 32);
    let groups_shape = with_last(tensor.shape(), tensor.groups());
    let (codes, scales, biases) = match (tensor.packed(), mlx_dtype(tensor.scale_dtype())) {
        (Some([codes, scales, biases]), Some(stored)) => (
            ops::from_bytes(codes, &codes_shape, Dtype::Uint32),
            ops::cast(&ops::from_bytes(scales, &groups_shape, stored), dtype)?,
            ops::cast(&ops::from_bytes(biases, &groups_shape, stored), dtype)?,
        ),
        _ => repacked(tensor, &codes_shape, &groups_shape, dtype)?,
    };
    let (scales, biases) = (settled(scales)?, settled(biases)?);
    Ok(Packed { codes, scales, biases: Some(biases), bits, group_size, mode: c"affine" })
}

/// GGUF's blocks in MLX's packing: the same codes, each group's scale and offset widened exactly.
fn repacked(
    tensor: &AffineTensor<'_>,
    codes_shape: &[i32],
    groups_shape: &[i32],
    dtype: Dtype,
) -> Result<(Array, Array, Array), Fault> {
    let (rows, cols, groups) = (tensor.rows(), tensor.cols(), tensor.groups());
    let row_bytes = cols * usize::from(tensor.bits()) / 8;
    let mut packed = vec![0; rows * row_bytes];
    let (mut scales, mut biases) = (vec![0.0; rows * groups], vec![0.0; rows * groups]);
    let mut codes = vec![0; cols];
    for row in 0..rows {
        let of_row = row * groups..(row + 1) * groups;
        tensor.unpack_row(row, &mut codes, &mut scales[of_row.clone()], &mut biases[of_row]);
        pack_row(tensor.bits(), &codes, &mut packed[row * row_bytes..][..row_bytes]);
    }
    Ok((
        ops::from_bytes(&packed, codes_shape, Dtype::Uint32),
        ops::from_floats(&scales, groups_shape, dtype)?,
        ops::from_floats(&biases, groups_shape, dtype)?,
    ))
}

/// MLX's name of a format.
fn mode_name(mode: FloatMode) -> &'static CStr {
    match mode {
        FloatMode::Mxfp4 => c"mxfp4",
        FloatMode::Mxfp8 => c"mxfp8",
        FloatMode::Nvfp4 => c"nvfp4",
    }
}

fn float_groups(tensor: &FloatGroupsTensor<'_>) -> Packed {
    let bits = usize::from(tensor.mode().bits());
    let [codes, scales] = tensor.packed();
    let mode = mode_name(tensor.mode());
    Packed {
        codes: ops::from_bytes(codes, &with_last(tensor.shape(), tensor.cols() * bits / 32), Dtype::Uint32),
        scales: ops::from_bytes(scales, &with_last(tensor.shape(), tensor.groups()), Dtype::Uint8),
        biases: None,
        bits,
        group_size: tensor.group_size(),
        mode,
    }
}

/// Several matrices with the same inputs as one, their outputs one behind the other. All are stored alike.
pub(crate) fn joined(weights: &[&Weight]) -> Result<Weight, Fault> {
    let join = |part: &dyn Fn(&Weight) -> Array| -> Result<Array, Fault> {
        let parts: Vec<Array> = weights.iter().map(|weight| part(weight)).collect();
        settled(ops::concat(&parts.iter().collect::<Vec<_>>(), 0)?)
    };
    let packed = |weight: &Weight| match weight {
        Weight::Packed(packed) => packed.clone(),
        Weight::Dense(_) => unreachable!("all are stored like the first"),
    };
    Ok(match weights[0] {
        Weight::Dense(_) => Weight::Dense(join(&|weight| match weight {
            Weight::Dense(array) => array.clone(),
            Weight::Packed(_) => unreachable!("all are stored like the first"),
        })?),
        Weight::Packed(first) => Weight::Packed(Packed {
            codes: join(&|weight| packed(weight).codes)?,
            scales: join(&|weight| packed(weight).scales)?,
            biases: match &first.biases {
                None => None,
                Some(of_first) => Some(join(&|weight| packed(weight).biases.unwrap_or_else(|| of_first.clone()))?),
            },
            ..first.clone()
        }),
    })
}
