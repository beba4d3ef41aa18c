//! Which safetensors entries a checkpoint becomes: names, dtypes, shapes and sizes, tensor by tensor.

use std::path::Path;

use half::f16;
use host_core::DType;

use super::ExportFault;
use crate::catalogue::{Encoding, Offset, TensorInfo};
use crate::checkpoint::Checkpoint;
use crate::error::WeightsError;
use crate::tensor::{AffineTensor, Tensor};

/// One tensor of the checkpoint with the entries that it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedTensor {
    /// Its name in the checkpoint.
    pub(super) name: String,
    pub(super) entries: Vec<Planned>,
}

impl PlannedTensor {
    /// Bytes of all entries.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }
}

/// One entry to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// The entry's name.
    pub(super) name: String,
    pub(super) part: Part,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: u64,
}

/// What of a tensor an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Numbers,
    Codes,
    Scales,
    Biases,
}

/// An error of planning, before the folder is known.
pub(super) enum PlanError {
    Read(WeightsError),
    Fault(ExportFault),
}

impl PlanError {
    pub(super) fn at(self, folder: &Path) -> WeightsError {
        match self {
            PlanError::Read(error) => error,
            PlanError::Fault(source) => WeightsError::Export { folder: folder.to_owned(), source },
        }
    }
}

/// Plans all tensors, in the catalogue's order.
pub(super) fn plan(checkpoint: &Checkpoint) -> Result<Vec<PlannedTensor>, PlanError> {
    let mut tensors = Vec::new();
    for info in checkpoint.catalogue() {
        let entries = match info.encoding {
            Encoding::Dense(dtype) => vec![entry(&info.name, Part::Numbers, dtype, info.shape.clone())],
            Encoding::Affine { bits, group_size, scale_dtype, offset } => {
                let dtype = value_dtype(checkpoint, info, scale_dtype, offset).map_err(PlanError::Read)?;
                quantised(info, bits, group_size, dtype, &[Part::Scales, Part::Biases])?
            }
            Encoding::FloatGroups { mode, group_size } => {
                quantised(info, mode.bits(), group_size, DType::U8, &[Part::Scales])?
            }
        };
        tensors.push(PlannedTensor { name: info.name.clone(), entries });
    }
    Ok(tensors)
}

/// The codes and group values of a quantised matrix.
fn quantised(
    info: &TensorInfo,
    bits: u8,
    group_size: usize,
    dtype: DType,
    values: &[Part],
) -> Result<Vec<Planned>, PlanError> {
    let module = info.name.strip_suffix(".weight").filter(|_| info.shape.len() >= 2);
    let Some(module) = module else {
        return Err(PlanError::Fault(ExportFault::NotAWeight { tensor: info.name.clone() }));
    };
    let with_last = |last: usize| {
        let mut shape = info.shape.clone();
        *shape.last_mut().expect("a matrix has a last dimension") = last;
        shape
    };
    let cols = info.shape[info.shape.len() - 1];
    let words = cols * usize::from(bits) / 32;
    let mut entries = vec![entry(&info.name, Part::Codes, DType::U32, with_last(words))];
    for part in values {
        let name = if *part == Part::Scales { "scales" } else { "biases" };
        entries.push(entry(&format!("{module}.{name}"), *part, dtype, with_last(cols / group_size)));
    }
    Ok(entries)
}

fn entry(name: &str, part: Part, dtype: DType, shape: Vec<usize>) -> Planned {
    let bytes = shape.iter().product::<usize>() as u64 * dtype.size_bytes() as u64;
    Planned { name: name.to_owned(), part, dtype, shape, bytes }
}

/// The dtype that holds scales and biases exactly: the stored one, or F32 where a bias made from a zero point
/// leaves the range of F16.
fn value_dtype(
    checkpoint: &Checkpoint,
    info: &TensorInfo,
    stored: DType,
    offset: Offset,
) -> Result<DType, WeightsError> {
    if offset == Offset::Biases || stored != DType::F16 {
        return Ok(stored);
    }
    let Tensor::Affine(tensor) = checkpoint.tensor(&info.name)? else {
        unreachable!("the catalogue says that the tensor is affine")
    };
    Ok(if biases_fit_f16(&tensor) { stored } else { DType::F32 })
}

fn biases_fit_f16(tensor: &AffineTensor<'_>) -> bool {
    let mut codes = vec![0; tensor.cols()];
    let (mut scales, mut biases) = (vec![0.0; tensor.groups()], vec![0.0; tensor.groups()]);
    (0..tensor.rows()).all(|row| {
        tensor.unpack_row(row, &mut codes, &mut scales, &mut biases);
        biases.iter().all(|bias| f16::from_f32(*bias).to_f32() == *bias)
    })
}
