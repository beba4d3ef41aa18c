//! Small floating-point formats, widened to f32. Every value of each is exact in f32.

use std::array;

/// The 16 values of an E2M1 code (4 bits: sign, 2 exponent bits, 1 mantissa bit).
///
/// Source: OCP Microscaling Formats 1.0, section 5.3.3.
pub const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// The 256 values of an E4M3 code (8 bits: sign, 4 exponent bits of bias 7, 3 mantissa bits; codes 0x7F and 0xFF
/// are NaN and there is no infinity).
///
/// Source: OCP 8-bit Floating Point Specification 1.0, `E4M3`.
pub const E4M3: [f32; 256] = e4m3_table();

const fn e4m3_table() -> [f32; 256] {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = e4m3_to_f32(code as u32);
        code += 1;
    }
    table
}

const fn e4m3_to_f32(code: u32) -> f32 {
    let (sign, exponent, mantissa) = ((code & 0x80) << 24, (code >> 3) & 0xF, code & 0x7);
    if exponent == 0xF && mantissa == 0x7 {
        return f32::NAN;
    }
    if exponent == 0 {
        // Subnormal: mantissa * 2^-9.
        let magnitude = mantissa as f32 / 512.0;
        return if sign == 0 { magnitude } else { -magnitude };
    }
    f32::from_bits(sign | ((exponent + 127 - 7) << 23) | (mantissa << 20))
}

/// The power of two that an E8M0 scale stands for: `2^(code - 127)`; 0xFF is NaN.
///
/// Source: OCP Microscaling Formats 1.0, section 5.4.1.
pub const fn e8m0_to_f32(code: u8) -> f32 {
    match code {
        // 2^-127 is subnormal in f32.
        0 => f32::from_bits(0x0040_0000),
        0xFF => f32::NAN,
        _ => f32::from_bits((code as u32) << 23),
    }
}

/// Widens an IEEE binary16 given by its bits.
///
/// Inlined and without a branch that depends on data, so that loops over scales stay in vector registers.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    const SMALLEST_NORMAL: u32 = 113 << 23;
    let sign = u32::from(bits & 0x8000) << 16;
    let shifted = u32::from(bits & 0x7FFF) << 13;
    let rebased = shifted + (112 << 23);
    let magnitude = if shifted < 0x0080_0000 {
        // Subnormal or zero: put the mantissa under an implicit one, then take the one away.
        (f32::from_bits(shifted + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL)).to_bits()
    } else if shifted >= 0x0F80_0000 {
        rebased + (112 << 23)
    } else {
        rebased
    };
    f32::from_bits(sign | magnitude)
}

/// Widens a bfloat16 given by its bits.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Reads little-endian 16-bit words.
#[inline(always)]
pub(crate) fn words_u16(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word))
}

/// Reads little-endian f32.
#[inline(always)]
pub(crate) fn words_f32(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word))
}

/// Reads an f16 at a fixed place of a block.
#[inline(always)]
pub(crate) fn f16_at<const N: usize>(block: &[u8; N], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// A fixed part of a block.
#[inline(always)]
pub(crate) fn part<const M: usize, const N: usize>(block: &[u8; N], at: usize) -> [u8; M] {
    array::from_fn(|i| block[at + i])
}
