//! Quantises a stored tensor: numbers in, the packed codes, scales and biases that MLX's own `quantize` gives out.
//!
//! Bands of rows are encoded by several threads; a row's codes depend on nothing but the row, so the result is
//! the same whatever their number.

mod affine;
mod float_groups;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use half::{bf16, f16};
use host_core::DType;
use host_core::quant::Scheme;

use crate::catalogue::{Encoding, FloatMode, Offset, TensorInfo};
use crate::error::WeightsError;
use crate::tensor::{Tensor, pack_row, rows_and_cols};

/// Rows that a thread takes at once hold about this many elements.
const BAND_ELEMENTS: usize = 1 << 20;

/// A tensor as a scheme encodes it, in the layout of MLX's packed triples.
#[derive(Debug)]
pub(crate) struct Coded {
    pub(crate) codes: Arc<Vec<u8>>,
    pub(crate) scales: Arc<Vec<u8>>,
    /// Empty for the floating-point forms.
    pub(crate) biases: Arc<Vec<u8>>,
}

/// How the tensor is stored once it is encoded; `None` where it is kept.
pub(crate) fn encoding_of(scheme: Scheme, dtype: DType) -> Option<Encoding> {
    let float = |mode: FloatMode| Some(Encoding::FloatGroups { mode, group_size: mode.group_size() });
    match scheme {
        Scheme::Keep => None,
        Scheme::Affine { bits, group_size } => {
            Some(Encoding::Affine { bits, group_size, scale_dtype: dtype, offset: Offset::Biases })
        }
        Scheme::Mxfp4 => float(FloatMode::Mxfp4),
        Scheme::Mxfp8 => float(FloatMode::Mxfp8),
        Scheme::Nvfp4 => float(FloatMode::Nvfp4),
    }
}

/// Bytes of codes, scales and biases of one row of `cols` elements.
fn row_bytes(encoding: Encoding, cols: usize) -> (usize, usize, usize) {
    match encoding {
        Encoding::Affine { bits, group_size, scale_dtype, .. } => {
            let values = cols / group_size * scale_dtype.size_bytes();
            (cols * usize::from(bits) / 8, values, values)
        }
        Encoding::FloatGroups { mode, group_size } => {
            (cols * usize::from(mode.bits()) / 8, cols / group_size, 0)
        }
        Encoding::Dense(dtype) => (cols * dtype.size_bytes(), 0, 0),
    }
}

/// Bytes of a tensor of that shape and encoding.
pub(crate) fn coded_bytes(encoding: Encoding, shape: &[usize]) -> u64 {
    let (rows, cols) = rows_and_cols(shape);
    let (codes, scales, biases) = row_bytes(encoding, cols);
    (rows * (codes + scales + biases)) as u64
}

/// Encodes `tensor` as `info` says, which has the same shape; `dtype` is what MLX would hold its numbers in.
///
/// `finished` hears of each range of rows that is not needed any more.
///
/// # Errors
/// [`WeightsError::NotFinite`] for infinities, NaN and numbers beyond what a scale can hold.
pub(crate) fn encode(
    tensor: &Tensor<'_>,
    info: &TensorInfo,
    dtype: DType,
    finished: &(dyn Fn(std::ops::Range<usize>) + Sync),
) -> Result<Coded, WeightsError> {
    let (rows, cols) = rows_and_cols(&info.shape);
    let (code_bytes, scale_bytes, bias_bytes) = row_bytes(info.encoding, cols);
    let mut codes = vec![0; rows * code_bytes];
    let mut scales = vec![0; rows * scale_bytes];
    let mut biases = vec![0; rows * bias_bytes];
    let band = (BAND_ELEMENTS / cols).max(1);
    let mut bands: Vec<_> = (codes.chunks_mut(band * code_bytes))
        .zip(scales.chunks_mut(band * scale_bytes))
        .map(|(codes, scales)| (codes, scales, Default::default()))
        .collect();
    if bias_bytes > 0 {
        let parts = biases.chunks_mut(band * bias_bytes);
        bands.iter_mut().zip(parts).for_each(|(band, part)| band.2 = part);
    }
    let n_threads = thread::available_parallelism().map_or(1, usize::from).min(bands.len());
    let bands = Mutex::new(bands.into_iter().enumerate());
    let next = || bands.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut row_encoder = RowEncoder::new(info.encoding, dtype, cols);
        while let Some((index, (codes, scales, biases))) = next() {
            let first: usize = index * band;
            let n_rows = codes.len() / code_bytes;
            for i in 0..n_rows {
                let biases: &mut [u8] = biases;
                row_encoder.encode(
                    tensor,
                    first + i,
                    &info.name,
                    Row {
                        codes: &mut codes[i * code_bytes..][..code_bytes],
                        scales: &mut scales[i * scale_bytes..][..scale_bytes],
                        biases: &mut biases[i * bias_bytes..][..bias_bytes],
                    },
                )?;
            }
            finished(first..first + n_rows);
        }
        Ok::<_, WeightsError>(())
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..n_threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        others.into_iter().fold(own, |result, other| {
            result.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })?;
    Ok(Coded { codes: Arc::new(codes), scales: Arc::new(scales), biases: Arc::new(biases) })
}

/// Where one row is written to.
struct Row<'a> {
    codes: &'a mut [u8],
    scales: &'a mut [u8],
    biases: &'a mut [u8],
}

/// Encodes rows of one tensor, with room for one of them.
struct RowEncoder {
    encoding: Encoding,
    dtype: DType,
    numbers: Vec<f32>,
    codes: Vec<u8>,
}

impl RowEncoder {
    fn new(encoding: Encoding, dtype: DType, cols: usize) -> Self {
        RowEncoder { encoding, dtype, numbers: vec![0.0; cols], codes: vec![0; cols] }
    }

    fn encode(
        &mut self,
        tensor: &Tensor<'_>,
        row: usize,
        name: &str,
        out: Row<'_>,
    ) -> Result<(), WeightsError> {
        tensor.dequantise_row(row, &mut self.numbers)?;
        let not_finite = || WeightsError::NotFinite { tensor: name.to_owned(), row };
        if !matches!(tensor, Tensor::Dense(_)) {
            // What MLX's own `dequantize` would hold them in.
            self.numbers.iter_mut().for_each(|number| *number = round_to(self.dtype, *number));
        }
        if !self.numbers.iter().all(|number| number.is_finite()) {
            return Err(not_finite());
        }
        match self.encoding {
            Encoding::Affine { bits, group_size, .. } => {
                let size = self.dtype.size_bytes();
                let groups =
                    self.numbers.chunks_exact(group_size).zip(self.codes.chunks_exact_mut(group_size));
                let values = out.scales.chunks_exact_mut(size).zip(out.biases.chunks_exact_mut(size));
                for ((numbers, codes), (scale_out, bias_out)) in groups.zip(values) {
                    let (scale, bias) = affine::encode_group(numbers, bits, codes);
                    if !round_to(self.dtype, scale).is_finite() {
                        return Err(not_finite());
                    }
                    put(self.dtype, scale, scale_out);
                    put(self.dtype, bias, bias_out);
                }
                pack_row(bits, &self.codes, out.codes);
            }
            Encoding::FloatGroups { mode, group_size } => {
                let groups =
                    self.numbers.chunks_exact(group_size).zip(self.codes.chunks_exact_mut(group_size));
                for ((numbers, codes), scale) in groups.zip(out.scales) {
                    *scale = float_groups::encode_group(mode, self.dtype, numbers, codes)
                        .ok_or_else(not_finite)?;
                }
                match mode {
                    FloatMode::Mxfp8 => out.codes.copy_from_slice(&self.codes),
                    FloatMode::Mxfp4 | FloatMode::Nvfp4 => pack_row(4, &self.codes, out.codes),
                }
            }
            Encoding::Dense(_) => unreachable!("a scheme never encodes to plain numbers"),
        }
        Ok(())
    }
}

/// The nearest number of a float dtype, ties to even.
fn round_to(dtype: DType, number: f32) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(number).to_f32(),
        DType::BF16 => bf16::from_f32(number).to_f32(),
        _ => number,
    }
}

fn put(dtype: DType, number: f32, out: &mut [u8]) {
    match dtype {
        DType::F16 => out.copy_from_slice(&f16::from_f32(number).to_le_bytes()),
        DType::BF16 => out.copy_from_slice(&bf16::from_f32(number).to_le_bytes()),
        _ => out.copy_from_slice(&number.to_le_bytes()),
    }
}
