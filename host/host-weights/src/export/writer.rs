//! Writes planned tensors as safetensors files, row by row and one tensor at a time.
//!
//! In a file wide dtypes come first so that each entry stands aligned; the entries of one tensor are written
//! together all the same, each at its place, so that a tensor is taken from the checkpoint once.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use half::{bf16, f16};
use host_core::DType;
use serde_json::{Map, Value, json};

use super::io_error;
use super::plan::{Part, Planned, PlannedTensor};
use crate::checkpoint::Checkpoint;
use crate::error::WeightsError;
use crate::tensor::{AffineTensor, FloatGroupsTensor, Tensor, pack_row};

/// Most bytes of tensors in one file, as the hub's tools have it.
const SHARD_LIMIT_BYTES: u64 = 5_000_000_000;
/// Bytes between two calls of the progress function.
const PROGRESS_STEP_BYTES: u64 = 1 << 20;

/// Writes one file, or shards with their index.
pub(super) fn write_shards(
    checkpoint: &Checkpoint,
    plan: &[PlannedTensor],
    folder: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), WeightsError> {
    let shards = split(plan, SHARD_LIMIT_BYTES);
    let total = plan.iter().map(PlannedTensor::bytes).sum();
    let mut progress = Progress { done: 0, told: 0, total, tell: progress };
    if let [whole] = shards.as_slice() {
        return write_file(checkpoint, whole, &folder.join("model.safetensors"), &mut progress);
    }
    let mut weight_map = Map::new();
    for (i, shard) in shards.iter().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", i + 1, shards.len());
        write_file(checkpoint, shard, &folder.join(&name), &mut progress)?;
        let entries = shard.iter().flat_map(|tensor| &tensor.entries);
        weight_map.extend(entries.map(|entry| (entry.name.clone(), Value::from(name.clone()))));
    }
    let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
    write_json(&index, &folder.join("model.safetensors.index.json"))
}

/// Cuts the plan where a file would pass the limit.
fn split(plan: &[PlannedTensor], limit: u64) -> Vec<&[PlannedTensor]> {
    let mut bytes = 0;
    plan.chunk_by(|before, after| {
        bytes += before.bytes();
        let fits = bytes + after.bytes() <= limit;
        if !fits {
            bytes = 0;
        }
        fits
    })
    .collect()
}

/// Writes a JSON file, readable.
pub(super) fn write_json(value: &Value, path: &Path) -> Result<(), WeightsError> {
    let mut text = serde_json::to_string_pretty(value).expect("a JSON value serialises");
    text.push('\n');
    let write = || {
        let mut file = File::create_new(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| io_error("write", path, source))
}

fn write_file(
    checkpoint: &Checkpoint,
    tensors: &[PlannedTensor],
    path: &Path,
    progress: &mut Progress<'_>,
) -> Result<(), WeightsError> {
    let io = |source| io_error("write", path, source);
    let mut out = BufWriter::with_capacity(1 << 20, File::create_new(path).map_err(io)?);
    let entries = aligned(tensors);
    let header = header(&entries);
    out.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    out.write_all(header.as_bytes()).map_err(io)?;
    let data_begin = 8 + header.len() as u64;
    let begins: HashMap<&str, u64> =
        entries.iter().map(|(entry, begin)| (entry.name.as_str(), data_begin + begin)).collect();
    for planned in tensors {
        let tensor = checkpoint.tensor(&planned.name)?;
        for entry in &planned.entries {
            out.seek(SeekFrom::Start(begins[entry.name.as_str()])).map_err(io)?;
            write_part(&tensor, entry, &mut out, progress).map_err(io)?;
        }
        checkpoint.release(&planned.name);
    }
    let file = out.into_inner().map_err(|error| io(error.into_error()))?;
    file.sync_all().map_err(io)
}

/// The entries of a file with where each begins after the header.
fn aligned(tensors: &[PlannedTensor]) -> Vec<(&Planned, u64)> {
    let mut entries: Vec<_> = tensors.iter().flat_map(|tensor| &tensor.entries).collect();
    entries.sort_by_key(|entry| (Reverse(entry.dtype.size_bytes()), &entry.name));
    let mut begin = 0;
    let place = |entry: &'_ Planned| {
        begin += entry.bytes;
        begin - entry.bytes
    };
    let begins: Vec<u64> = entries.iter().copied().map(place).collect();
    entries.into_iter().zip(begins).collect()
}

/// The header's JSON, padded with spaces so that the data stands aligned to eight bytes.
fn header(entries: &[(&Planned, u64)]) -> String {
    let mut map = Map::new();
    map.insert("__metadata__".to_owned(), json!({ "format": "mlx" }));
    for (entry, begin) in entries {
        let offsets = [*begin, begin + entry.bytes];
        let value = json!({ "dtype": entry.dtype.name(), "shape": entry.shape, "data_offsets": offsets });
        map.insert(entry.name.clone(), value);
    }
    let mut json = Value::Object(map).to_string();
    while !json.len().is_multiple_of(8) {
        json.push(' ');
    }
    json
}

fn write_part(
    tensor: &Tensor<'_>,
    entry: &Planned,
    out: &mut impl Write,
    progress: &mut Progress<'_>,
) -> io::Result<()> {
    match tensor {
        Tensor::Dense(tensor) => {
            for piece in tensor.bytes().chunks(PROGRESS_STEP_BYTES as usize) {
                out.write_all(piece)?;
                progress.add(piece.len());
            }
            Ok(())
        }
        Tensor::Affine(tensor) => write_affine(tensor, entry, out, progress),
        Tensor::FloatGroups(tensor) => write_float_groups(tensor, entry, out, progress),
    }
}

fn write_affine(
    tensor: &AffineTensor<'_>,
    entry: &Planned,
    out: &mut impl Write,
    progress: &mut Progress<'_>,
) -> io::Result<()> {
    let mut codes = vec![0; tensor.cols()];
    let (mut scales, mut biases) = (vec![0.0; tensor.groups()], vec![0.0; tensor.groups()]);
    let mut row_bytes = vec![0; row_bytes(entry, tensor.rows())];
    for row in 0..tensor.rows() {
        tensor.unpack_row(row, &mut codes, &mut scales, &mut biases);
        match entry.part {
            Part::Scales => narrow(entry.dtype, &scales, &mut row_bytes),
            Part::Biases => narrow(entry.dtype, &biases, &mut row_bytes),
            Part::Codes | Part::Numbers => pack_row(tensor.bits(), &codes, &mut row_bytes),
        }
        out.write_all(&row_bytes)?;
        progress.add(row_bytes.len());
    }
    Ok(())
}

fn write_float_groups(
    tensor: &FloatGroupsTensor<'_>,
    entry: &Planned,
    out: &mut impl Write,
    progress: &mut Progress<'_>,
) -> io::Result<()> {
    let row_bytes = row_bytes(entry, tensor.rows());
    for row in 0..tensor.rows() {
        let (codes, scales) = tensor.stored_row(row);
        let stored = if entry.part == Part::Codes { codes } else { scales };
        debug_assert_eq!(stored.len(), row_bytes);
        out.write_all(stored)?;
        progress.add(row_bytes);
    }
    Ok(())
}

fn row_bytes(entry: &Planned, rows: usize) -> usize {
    entry.bytes as usize / rows
}

/// Narrows numbers that the plan found to be exact in `dtype`.
fn narrow(dtype: DType, numbers: &[f32], out: &mut [u8]) {
    match dtype {
        DType::F16 => put(numbers, out, |number| f16::from_f32(number).to_le_bytes()),
        DType::BF16 => put(numbers, out, |number| bf16::from_f32(number).to_le_bytes()),
        _ => put(numbers, out, f32::to_le_bytes),
    }
}

fn put<const N: usize>(numbers: &[f32], out: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
    for (number, out) in numbers.iter().zip(out.as_chunks_mut::<N>().0) {
        *out = bytes(*number);
    }
}

/// Counts bytes, and tells of them now and then.
struct Progress<'a> {
    done: u64,
    told: u64,
    total: u64,
    tell: &'a mut dyn FnMut(u64, u64),
}

impl Progress<'_> {
    fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
        if self.done - self.told >= PROGRESS_STEP_BYTES || self.done == self.total {
            self.told = self.done;
            (self.tell)(self.done, self.total);
        }
    }
}
