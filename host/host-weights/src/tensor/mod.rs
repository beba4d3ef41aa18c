//! A tensor as it is stored: views over mapped bytes that hand out codes, scales and numbers row by row.
//!
//! A row is what the last dimension runs along; a stack of experts `[E, out, in]` has `E * out` rows. Views are
//! `Sync` and copy nothing, so that many threads may unpack rows of one tensor at once.

mod affine;
mod blocks;
mod bytes;
mod dense;
mod float_groups;
mod k_blocks;
mod numbers;
mod order;
mod packed;

use crate::error::WeightsError;

pub use affine::AffineTensor;
pub use blocks::AffineBlock;
pub use dense::DenseTensor;
pub use float_groups::FloatGroupsTensor;
pub use numbers::{E2M1, E4M3, e8m0_to_f32, f16_to_f32};

pub(crate) use affine::Triple;
pub(crate) use bytes::Bytes;
pub(crate) use dense::Shift;
pub(crate) use order::RowOrder;
pub use packed::pack_row;

/// A tensor of a checkpoint, by its encoding.
#[derive(Clone, Debug)]
pub enum Tensor<'a> {
    /// One number an element.
    Dense(DenseTensor<'a>),
    /// Integer codes in affine groups.
    Affine(AffineTensor<'a>),
    /// Floating-point codes in scaled groups.
    FloatGroups(FloatGroupsTensor<'a>),
}

impl Tensor<'_> {
    /// The logical shape.
    pub fn shape(&self) -> &[usize] {
        match self {
            Tensor::Dense(tensor) => tensor.shape(),
            Tensor::Affine(tensor) => tensor.shape(),
            Tensor::FloatGroups(tensor) => tensor.shape(),
        }
    }

    /// Rows: the product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        rows_and_cols(self.shape()).0
    }

    /// Elements of a row: the last dimension, 1 for a scalar.
    pub fn cols(&self) -> usize {
        rows_and_cols(self.shape()).1
    }

    /// The numbers that row `row` stands for; `out` has [`Tensor::cols`] elements.
    ///
    /// # Errors
    /// [`WeightsError::NotNumbers`] for a dense tensor whose dtype is none of F32, F16 and BF16.
    ///
    /// # Panics
    /// When `row` or the length of `out` does not fit the shape.
    pub fn dequantise_row(&self, row: usize, out: &mut [f32]) -> Result<(), WeightsError> {
        match self {
            Tensor::Dense(tensor) => tensor.dequantise_row(row, out)?,
            Tensor::Affine(tensor) => tensor.dequantise_row(row, out),
            Tensor::FloatGroups(tensor) => tensor.dequantise_row(row, out),
        }
        Ok(())
    }
}

/// Rows and columns of a shape. The readers have checked that the product fits.
pub(crate) fn rows_and_cols(shape: &[usize]) -> (usize, usize) {
    match shape.split_last() {
        Some((cols, leading)) => (leading.iter().product(), *cols),
        None => (1, 1),
    }
}

#[cfg(test)]
mod tests;
