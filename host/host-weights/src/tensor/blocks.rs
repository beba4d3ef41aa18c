//! GGUF blocks that are affine in groups: codes, scales and biases straight from the block, exactly.
//!
//! `w = scale * code + bias` holds for each of these types with the scale as an f32 product of at most two
//! stored numbers, so nothing is rounded and no dequantised copy is made.
//!
//! Source: the block structures of ggml (`ggml-common.h`) and their dequantisers.

use host_core::DType;

use super::k_blocks::{q2_k, q3_k, q4_k, q5_k, q6_k};
use super::numbers::{f16_at, part};
use crate::catalogue::Offset;

/// The GGUF block types that are affine in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are ggml's own")]
#[expect(non_camel_case_types, reason = "the names are ggml's own")]
pub enum AffineBlock {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl AffineBlock {
    /// Elements of a block.
    pub const fn elements(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2_K => 84,
            Self::Q3_K => 110,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// Bits of a code.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Q2_K => 2,
            Self::Q3_K => 3,
            Self::Q4_0 | Self::Q4_1 | Self::Q4_K => 4,
            Self::Q5_0 | Self::Q5_1 | Self::Q5_K => 5,
            Self::Q6_K => 6,
            Self::Q8_0 => 8,
        }
    }

    /// Elements that share a scale.
    pub const fn group_size(self) -> usize {
        match self {
            Self::Q2_K | Self::Q3_K | Self::Q6_K => 16,
            _ => 32,
        }
    }

    /// A dtype that holds every scale exactly: F32 where a scale is the product of two stored numbers.
    pub const fn scale_dtype(self) -> DType {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => DType::F16,
            Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K => DType::F32,
        }
    }

    /// Where the bias of a group comes from.
    pub const fn offset(self) -> Offset {
        match self {
            Self::Q3_K => Offset::ZeroPoint(4),
            Self::Q4_0 => Offset::ZeroPoint(8),
            Self::Q5_0 => Offset::ZeroPoint(16),
            Self::Q6_K => Offset::ZeroPoint(32),
            Self::Q8_0 => Offset::ZeroPoint(128),
            Self::Q4_1 | Self::Q5_1 | Self::Q2_K | Self::Q4_K | Self::Q5_K => Offset::Biases,
        }
    }

    /// Unpacks the whole blocks of a row. The lengths fit: `codes` one, `scales` and `biases` one a group.
    pub(crate) fn unpack_row(self, row: &[u8], codes: &mut [u8], scales: &mut [f32], biases: &mut [f32]) {
        match self {
            Self::Q4_0 => each_block(q4_0, row, codes, scales, biases),
            Self::Q4_1 => each_block(q4_1, row, codes, scales, biases),
            Self::Q5_0 => each_block(q5_0, row, codes, scales, biases),
            Self::Q5_1 => each_block(q5_1, row, codes, scales, biases),
            Self::Q8_0 => each_block(q8_0, row, codes, scales, biases),
            Self::Q2_K => each_block(q2_k, row, codes, scales, biases),
            Self::Q3_K => each_block(q3_k, row, codes, scales, biases),
            Self::Q4_K => each_block(q4_k, row, codes, scales, biases),
            Self::Q5_K => each_block(q5_k, row, codes, scales, biases),
            Self::Q6_K => each_block(q6_k, row, codes, scales, biases),
        }
    }
}

/// Runs `unpack` over the blocks of a row; monomorphised for each block type.
#[inline(always)]
fn each_block<const BYTES: usize, const CODES: usize, const GROUPS: usize>(
    unpack: impl Fn(&[u8; BYTES], &mut [u8; CODES], &mut [f32; GROUPS], &mut [f32; GROUPS]),
    row: &[u8],
    codes: &mut [u8],
    scales: &mut [f32],
    biases: &mut [f32],
) {
    let blocks = row.as_chunks::<BYTES>().0;
    let codes = codes.as_chunks_mut::<CODES>().0;
    let scales = scales.as_chunks_mut::<GROUPS>().0;
    let biases = biases.as_chunks_mut::<GROUPS>().0;
    for (((block, codes), scales), biases) in blocks.iter().zip(codes).zip(scales).zip(biases) {
        unpack(block, codes, scales, biases);
    }
}

/// `f16 d; u8 qs[16]`: `w = d * (code - 8)`; low nibbles first, then high nibbles.
#[inline(always)]
fn q4_0(block: &[u8; 18], codes: &mut [u8; 32], scales: &mut [f32; 1], biases: &mut [f32; 1]) {
    let d = f16_at(block, 0);
    nibbles(&part(block, 2), codes);
    scales[0] = d;
    biases[0] = -8.0 * d;
}

/// `f16 d, m; u8 qs[16]`: `w = d * code + m`.
#[inline(always)]
fn q4_1(block: &[u8; 20], codes: &mut [u8; 32], scales: &mut [f32; 1], biases: &mut [f32; 1]) {
    nibbles(&part(block, 4), codes);
    scales[0] = f16_at(block, 0);
    biases[0] = f16_at(block, 2);
}

/// `f16 d; u8 qh[4], qs[16]`: `w = d * (code - 16)`; bit `i` of `qh` is the fifth bit of code `i`.
#[inline(always)]
fn q5_0(block: &[u8; 22], codes: &mut [u8; 32], scales: &mut [f32; 1], biases: &mut [f32; 1]) {
    let d = f16_at(block, 0);
    nibbles(&part(block, 6), codes);
    fifth_bits(u32::from_le_bytes(part(block, 2)), codes);
    scales[0] = d;
    biases[0] = -16.0 * d;
}

/// `f16 d, m; u8 qh[4], qs[16]`: `w = d * code + m`.
#[inline(always)]
fn q5_1(block: &[u8; 24], codes: &mut [u8; 32], scales: &mut [f32; 1], biases: &mut [f32; 1]) {
    nibbles(&part(block, 8), codes);
    fifth_bits(u32::from_le_bytes(part(block, 4)), codes);
    scales[0] = f16_at(block, 0);
    biases[0] = f16_at(block, 2);
}

/// `f16 d; i8 qs[32]`: `w = d * q`; the code is `q + 128`.
#[inline(always)]
fn q8_0(block: &[u8; 34], codes: &mut [u8; 32], scales: &mut [f32; 1], biases: &mut [f32; 1]) {
    let d = f16_at(block, 0);
    let signed: [u8; 32] = part(block, 2);
    for (code, q) in codes.iter_mut().zip(signed) {
        *code = q ^ 0x80;
    }
    scales[0] = d;
    biases[0] = -128.0 * d;
}

#[inline(always)]
fn nibbles(bytes: &[u8; 16], codes: &mut [u8; 32]) {
    for i in 0..16 {
        codes[i] = bytes[i] & 0xF;
        codes[i + 16] = bytes[i] >> 4;
    }
}

/// Adds bit `i` of `high` as bit 4 of code `i`, eight codes at a time.
#[inline(always)]
fn fifth_bits(high: u32, codes: &mut [u8; 32]) {
    for (eight, byte) in codes.as_chunks_mut::<8>().0.iter_mut().zip(high.to_le_bytes()) {
        // Copy the byte to eight lanes, keep bit i in lane i, and turn what is left into 0x10 or 0.
        let lanes = (u64::from(byte) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
        let ones = ((lanes + 0x7F7F_7F7F_7F7F_7F7F) >> 3) & 0x1010_1010_1010_1010;
        *eight = (u64::from_le_bytes(*eight) | ones).to_le_bytes();
    }
}
