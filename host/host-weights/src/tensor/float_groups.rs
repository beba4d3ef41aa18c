//! Tensors of floating-point codes in scaled groups: mxfp4, mxfp8 and nvfp4 as MLX writes them.

use super::bytes::Bytes;
use super::numbers::{E2M1, E4M3, e8m0_to_f32};
use super::{packed, rows_and_cols};
use crate::catalogue::FloatMode;

/// A tensor of small floating-point codes with one scale for each group of a row: `w = scale * value(code)`.
#[derive(Clone, Debug)]
pub struct FloatGroupsTensor<'a> {
    shape: &'a [usize],
    mode: FloatMode,
    codes: Bytes<'a>,
    scales: Bytes<'a>,
}

impl<'a> FloatGroupsTensor<'a> {
    /// The lengths of `codes` and `scales` follow from the shape; the readers have checked them.
    pub(crate) fn new(shape: &'a [usize], mode: FloatMode, codes: Bytes<'a>, scales: Bytes<'a>) -> Self {
        FloatGroupsTensor { shape, mode, codes, scales }
    }

    /// The logical shape.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Rows: the product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        rows_and_cols(self.shape).0
    }

    /// Elements of a row; a multiple of the group size.
    pub fn cols(&self) -> usize {
        rows_and_cols(self.shape).1
    }

    /// The code and scale formats.
    pub fn mode(&self) -> FloatMode {
        self.mode
    }

    /// Consecutive elements of a row that share a scale.
    pub fn group_size(&self) -> usize {
        self.mode.group_size()
    }

    /// Groups of a row.
    pub fn groups(&self) -> usize {
        self.cols() / self.group_size()
    }

    /// The packed codes (little-endian 32-bit words) and the stored scales, of all rows.
    pub fn packed(&self) -> [&[u8]; 2] {
        [&self.codes, &self.scales]
    }

    /// The number that each code stands for, before the scale: 16 of them ([`E2M1`]) or 256 ([`E4M3`]).
    pub fn values(&self) -> &'static [f32] {
        match self.mode {
            FloatMode::Mxfp4 | FloatMode::Nvfp4 => &E2M1,
            FloatMode::Mxfp8 => &E4M3,
        }
    }

    /// Unpacks one row: a code an element (4 bits, or 8 for mxfp8) and a scale a group, widened exactly.
    ///
    /// # Panics
    /// When `row` is not below [`FloatGroupsTensor::rows`], `codes` has not [`FloatGroupsTensor::cols`]
    /// elements, or `scales` has not [`FloatGroupsTensor::groups`].
    pub fn unpack_row(&self, row: usize, codes: &mut [u8], scales: &mut [f32]) {
        let (rows, cols) = rows_and_cols(self.shape);
        let groups = cols / self.group_size();
        assert!(row < rows, "row {row} of a tensor with {rows} rows");
        assert_eq!((codes.len(), scales.len()), (cols, groups), "lengths of the row");
        let (stored_codes, stored_scales) = self.stored_row(row);
        packed::unpack_row(self.mode.bits(), stored_codes, codes);
        for (scale, stored) in scales.iter_mut().zip(stored_scales) {
            *scale = match self.mode {
                FloatMode::Mxfp4 | FloatMode::Mxfp8 => e8m0_to_f32(*stored),
                FloatMode::Nvfp4 => E4M3[usize::from(*stored)],
            };
        }
    }

    /// The packed codes and the stored scales of one row.
    pub(crate) fn stored_row(&self, row: usize) -> (&[u8], &[u8]) {
        let code_bytes = self.cols() * usize::from(self.mode.bits()) / 8;
        (&self.codes[row * code_bytes..][..code_bytes], &self.scales[row * self.groups()..][..self.groups()])
    }

    /// The numbers that row `row` stands for: `scale * value(code)`, one f32 operation.
    ///
    /// # Panics
    /// When `row` or the length of `out` does not fit the shape.
    pub fn dequantise_row(&self, row: usize, out: &mut [f32]) {
        let (mut codes, mut scales) = (vec![0; self.cols()], vec![0.0; self.groups()]);
        assert_eq!(out.len(), codes.len(), "length of the row");
        self.unpack_row(row, &mut codes, &mut scales);
        let values = self.values();
        for (i, (out, code)) in out.iter_mut().zip(codes).enumerate() {
            *out = scales[i / self.group_size()] * values[usize::from(code)];
        }
    }
}
