//! Tensors of integer codes in affine groups: MLX's packed triples and GGUF's blocks behind one view.

use host_core::DType;

use super::blocks::AffineBlock;
use super::bytes::Bytes;
use super::numbers::{bf16_to_f32, f16_to_f32, words_f32, words_u16};
use super::order::RowOrder;
use super::{packed, rows_and_cols};
use crate::catalogue::Offset;

/// A tensor of codes with one scale and one bias for each group of a row: `w = scale * code + bias`.
#[derive(Clone, Debug)]
pub struct AffineTensor<'a> {
    shape: &'a [usize],
    source: Source<'a>,
    order: RowOrder,
}

/// Where codes and scales lie. The lengths of all slices follow from the shape; the readers have checked them.
#[derive(Clone, Debug)]
enum Source<'a> {
    Triple(Triple<'a>),
    Blocks { kind: AffineBlock, bytes: &'a [u8] },
}

/// MLX's packed codes with their scales and biases.
#[derive(Clone, Debug)]
pub(crate) struct Triple<'a> {
    pub(crate) bits: u8,
    pub(crate) group_size: usize,
    pub(crate) scale_dtype: DType,
    pub(crate) codes: Bytes<'a>,
    pub(crate) scales: Bytes<'a>,
    pub(crate) biases: Bytes<'a>,
}

impl<'a> AffineTensor<'a> {
    pub(crate) fn from_triple(shape: &'a [usize], triple: Triple<'a>) -> Self {
        AffineTensor { shape, source: Source::Triple(triple), order: RowOrder::Published }
    }

    pub(crate) fn from_blocks(
        shape: &'a [usize],
        kind: AffineBlock,
        bytes: &'a [u8],
        order: RowOrder,
    ) -> Self {
        AffineTensor { shape, source: Source::Blocks { kind, bytes }, order }
    }

    /// The logical shape.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Rows: the product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        rows_and_cols(self.shape).0
    }

    /// Elements of a row; a multiple of [`AffineTensor::group_size`].
    pub fn cols(&self) -> usize {
        rows_and_cols(self.shape).1
    }

    /// Groups of a row.
    pub fn groups(&self) -> usize {
        self.cols() / self.group_size()
    }

    /// Bits of a code: 2 to 6, or 8.
    pub fn bits(&self) -> u8 {
        match &self.source {
            Source::Triple(triple) => triple.bits,
            Source::Blocks { kind, .. } => kind.bits(),
        }
    }

    /// Consecutive elements of a row that share a scale.
    pub fn group_size(&self) -> usize {
        match &self.source {
            Source::Triple(triple) => triple.group_size,
            Source::Blocks { kind, .. } => kind.group_size(),
        }
    }

    /// The dtype that holds every scale exactly.
    pub fn scale_dtype(&self) -> DType {
        match &self.source {
            Source::Triple(triple) => triple.scale_dtype,
            Source::Blocks { kind, .. } => kind.scale_dtype(),
        }
    }

    /// Where the bias of a group comes from.
    pub fn offset(&self) -> Offset {
        match &self.source {
            Source::Triple(_) => Offset::Biases,
            Source::Blocks { kind, .. } => kind.offset(),
        }
    }

    /// Codes, scales and biases as MLX packs them, where the file stores them so; scales and biases have the
    /// dtype [`AffineTensor::scale_dtype`], codes are little-endian 32-bit words.
    pub fn packed(&self) -> Option<[&[u8]; 3]> {
        match &self.source {
            Source::Triple(triple) => Some([&triple.codes, &triple.scales, &triple.biases]),
            Source::Blocks { .. } => None,
        }
    }

    /// Unpacks one row: a code an element, and a scale and a bias a group, all exact.
    ///
    /// `biases` is filled whatever [`AffineTensor::offset`] says: zero points are powers of two, so that
    /// `-zero_point * scale` is exact.
    ///
    /// # Panics
    /// When `row` is not below [`AffineTensor::rows`], `codes` has not [`AffineTensor::cols`] elements, or
    /// `scales` and `biases` have not [`AffineTensor::groups`].
    pub fn unpack_row(&self, row: usize, codes: &mut [u8], scales: &mut [f32], biases: &mut [f32]) {
        let (rows, cols) = rows_and_cols(self.shape);
        let groups = cols / self.group_size();
        assert!(row < rows, "row {row} of a tensor with {rows} rows");
        assert_eq!((codes.len(), scales.len(), biases.len()), (cols, groups, groups), "lengths of the row");
        let row = self.order.stored(row);
        match &self.source {
            Source::Triple(triple) => triple.unpack_row(row, cols, codes, scales, biases),
            Source::Blocks { kind, bytes } => {
                let row_bytes = cols / kind.elements() * kind.bytes();
                kind.unpack_row(&bytes[row * row_bytes..][..row_bytes], codes, scales, biases);
            }
        }
    }

    /// The numbers that row `row` stands for.
    ///
    /// With a zero point a number is `scale * (code - zero_point)`, one f32 operation; otherwise
    /// `scale * code + bias`, two, each rounded.
    ///
    /// # Panics
    /// When `row` or the length of `out` does not fit the shape.
    pub fn dequantise_row(&self, row: usize, out: &mut [f32]) {
        let (group_size, groups) = (self.group_size(), self.groups());
        let mut codes = vec![0; self.cols()];
        let (mut scales, mut biases) = (vec![0.0; groups], vec![0.0; groups]);
        assert_eq!(out.len(), codes.len(), "length of the row");
        self.unpack_row(row, &mut codes, &mut scales, &mut biases);
        let offset = self.offset();
        for (group, (out, codes)) in
            out.chunks_exact_mut(group_size).zip(codes.chunks_exact(group_size)).enumerate()
        {
            let (scale, bias) = (scales[group], biases[group]);
            for (out, code) in out.iter_mut().zip(codes) {
                *out = match offset {
                    Offset::ZeroPoint(zero) => scale * (f32::from(*code) - f32::from(zero)),
                    Offset::Biases => scale * f32::from(*code) + bias,
                };
            }
        }
    }
}

impl Triple<'_> {
    fn unpack_row(&self, row: usize, cols: usize, codes: &mut [u8], scales: &mut [f32], biases: &mut [f32]) {
        let code_bytes = cols * usize::from(self.bits) / 8;
        packed::unpack_row(self.bits, &self.codes[row * code_bytes..][..code_bytes], codes);
        let scale_bytes = scales.len() * self.scale_dtype.size_bytes();
        let range = row * scale_bytes..(row + 1) * scale_bytes;
        widen(self.scale_dtype, &self.scales[range.clone()], scales);
        widen(self.scale_dtype, &self.biases[range], biases);
    }
}

/// Widens stored F16, BF16 or F32 numbers; the readers admit no other dtype here.
pub(crate) fn widen(dtype: DType, stored: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F16 => words_u16(stored).zip(out).for_each(|(word, out)| *out = f16_to_f32(word)),
        DType::BF16 => words_u16(stored).zip(out).for_each(|(word, out)| *out = bf16_to_f32(word)),
        DType::F32 => words_f32(stored).zip(out).for_each(|(number, out)| *out = number),
        other => unreachable!("the readers admit F16, BF16 and F32, not {other}"),
    }
}
