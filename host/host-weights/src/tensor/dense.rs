//! Tensors with one stored number an element.

use std::borrow::Cow;
use std::ops::Range;

use host_core::DType;

use super::affine::widen;
use super::order::RowOrder;
use super::rows_and_cols;
use crate::error::WeightsError;

/// A tensor with one stored number an element, in row-major order.
#[derive(Clone, Debug)]
pub struct DenseTensor<'a> {
    name: &'a str,
    dtype: DType,
    shape: &'a [usize],
    stored: &'a [u8],
    order: RowOrder,
    shift: Shift,
}

/// What the file adds to the published numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// Nothing.
    None,
    /// One: a norm weight `w` that the file stores as `1 + w`. Only F32 tensors have it.
    PlusOne,
}

impl<'a> DenseTensor<'a> {
    /// The length of `stored` follows from dtype and shape; the readers have checked it.
    pub(crate) fn new(
        name: &'a str,
        dtype: DType,
        shape: &'a [usize],
        stored: &'a [u8],
        order: RowOrder,
        shift: Shift,
    ) -> Self {
        DenseTensor { name, dtype, shape, stored, order, shift }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The logical shape.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Rows: the product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        rows_and_cols(self.shape).0
    }

    /// Elements of a row.
    pub fn cols(&self) -> usize {
        rows_and_cols(self.shape).1
    }

    /// The elements as little-endian bytes in row-major order, as the published checkpoint would store them.
    ///
    /// Borrowed from the mapping where the file stores them so; a copy where it stores rows in another order or
    /// norm weights plus one.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match (self.order, self.shift) {
            (RowOrder::Published, Shift::None) => Cow::Borrowed(self.stored),
            (_, Shift::None) => Cow::Owned(self.reordered()),
            (_, Shift::PlusOne) => {
                let mut numbers = vec![0.0; self.elements()];
                self.read(0..numbers.len(), &mut numbers);
                Cow::Owned(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
            }
        }
    }

    /// The bytes of row `row` as the file stores them, wherever the file stores that row.
    ///
    /// # Panics
    /// When `row` does not fit the shape, or for norm weights that the file stores plus one.
    pub fn row_bytes(&self, row: usize) -> &'a [u8] {
        assert!(self.shift == Shift::None, "norm weights are read as numbers");
        let row_bytes = self.cols() * self.dtype.size_bytes();
        &self.stored[self.order.stored(row) * row_bytes..][..row_bytes]
    }

    /// Reads the elements `range`, counted in row-major order, as f32.
    ///
    /// F16 and BF16 widen exactly. A norm weight stored as `1 + w` is given as `w`, one f32 subtraction, which
    /// is exact unless `1 + w` lies below one half.
    ///
    /// # Errors
    /// [`WeightsError::NotNumbers`] when the dtype is none of F32, F16 and BF16.
    ///
    /// # Panics
    /// When `range` leaves the tensor or `out` has not its length.
    pub fn read_f32(&self, range: Range<usize>, out: &mut [f32]) -> Result<(), WeightsError> {
        assert!(range.end <= self.elements(), "elements {range:?} of {}", self.elements());
        assert_eq!(range.len(), out.len(), "length of the range");
        if !matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(WeightsError::NotNumbers { tensor: self.name.to_owned(), found: self.dtype });
        }
        self.read(range, out);
        Ok(())
    }

    /// The numbers of row `row`; as [`DenseTensor::read_f32`] of its range.
    ///
    /// # Errors
    /// As [`DenseTensor::read_f32`].
    ///
    /// # Panics
    /// When `row` or the length of `out` does not fit the shape.
    pub fn dequantise_row(&self, row: usize, out: &mut [f32]) -> Result<(), WeightsError> {
        let cols = self.cols();
        self.read_f32(row * cols..(row + 1) * cols, out)
    }

    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Elements that move together: a row, or one element of a vector.
    fn unit(&self) -> usize {
        if self.shape.len() > 1 { self.cols() } else { 1 }
    }

    fn read(&self, range: Range<usize>, out: &mut [f32]) {
        let size = self.dtype.size_bytes();
        match self.order {
            RowOrder::Published => widen(self.dtype, &self.stored[range.start * size..range.end * size], out),
            order => {
                let unit = self.unit();
                for (element, out) in range.zip(out.iter_mut()) {
                    let stored = order.stored(element / unit) * unit + element % unit;
                    widen(self.dtype, &self.stored[stored * size..][..size], std::slice::from_mut(out));
                }
            }
        }
        if self.shift == Shift::PlusOne {
            out.iter_mut().for_each(|number| *number -= 1.0);
        }
    }

    fn reordered(&self) -> Vec<u8> {
        let unit_bytes = self.unit() * self.dtype.size_bytes();
        let units = self.stored.len() / unit_bytes;
        let mut bytes = Vec::with_capacity(self.stored.len());
        for unit in 0..units {
            bytes.extend_from_slice(&self.stored[self.order.stored(unit) * unit_bytes..][..unit_bytes]);
        }
        bytes
    }
}
