//! The 256-element super-blocks of GGUF (`Q2_K` to `Q6_K`): small integer scales under one or two f16.
//!
//! A group's scale is the f32 product `d * sc`, its bias `-(dmin * m)` or `-zero_point * scale`; an f16 times an
//! integer of at most 8 bits needs at most 19 bits, so the products are exact.

use super::numbers::{f16_at, part};

/// `u8 scales[16], qs[64]; f16 d, dmin`: groups of 16; a scale byte holds `sc` low and `m` high.
#[inline(always)]
pub(super) fn q2_k(block: &[u8; 84], codes: &mut [u8; 256], scales: &mut [f32; 16], biases: &mut [f32; 16]) {
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    for group in 0..16 {
        scales[group] = d * f32::from(block[group] & 0xF);
        biases[group] = -(dmin * f32::from(block[group] >> 4));
    }
    let quarters: [u8; 64] = part(block, 16);
    two_bits(&quarters, codes);
}

/// `u8 hmask[32], qs[64], scales[12]; f16 d`: groups of 16; `w = d * (sc - 32) * (code - 4)`.
#[inline(always)]
pub(super) fn q3_k(block: &[u8; 110], codes: &mut [u8; 256], scales: &mut [f32; 16], biases: &mut [f32; 16]) {
    let d = f16_at(block, 108);
    let packed: [u8; 12] = part(block, 96);
    for group in 0..16 {
        let low = packed[group % 8] >> (4 * (group / 8)) & 0xF;
        let high = packed[8 + group % 4] >> (2 * (group / 4)) & 0x3;
        scales[group] = d * f32::from((low | high << 4) as i8 - 32);
        biases[group] = -4.0 * scales[group];
    }
    let (high, quarters): ([u8; 32], [u8; 64]) = (part(block, 0), part(block, 32));
    two_bits(&quarters, codes);
    for (plane, thirty_two) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, high) in thirty_two.iter_mut().zip(high) {
            *code |= (high >> plane & 1) << 2;
        }
    }
}

/// `f16 d, dmin; u8 scales[12], qs[128]`: groups of 32; each 32 bytes hold two groups, low nibbles first.
#[inline(always)]
pub(super) fn q4_k(block: &[u8; 144], codes: &mut [u8; 256], scales: &mut [f32; 8], biases: &mut [f32; 8]) {
    scales_and_mins(f16_at(block, 0), f16_at(block, 2), &part(block, 4), scales, biases);
    let nibbles: [u8; 128] = part(block, 16);
    nibble_pairs(&nibbles, codes);
}

/// `f16 d, dmin; u8 scales[12], qh[32], qs[128]`: as `Q4_K`, with bit `g` of `qh` the fifth bit in group `g`.
#[inline(always)]
pub(super) fn q5_k(block: &[u8; 176], codes: &mut [u8; 256], scales: &mut [f32; 8], biases: &mut [f32; 8]) {
    scales_and_mins(f16_at(block, 0), f16_at(block, 2), &part(block, 4), scales, biases);
    let (high, nibbles): ([u8; 32], [u8; 128]) = (part(block, 16), part(block, 48));
    nibble_pairs(&nibbles, codes);
    for (group, thirty_two) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, high) in thirty_two.iter_mut().zip(high) {
            *code |= (high >> group & 1) << 4;
        }
    }
}

/// `u8 ql[128], qh[64]; i8 scales[16]; f16 d`: groups of 16; `w = d * sc * (code - 32)`.
#[inline(always)]
pub(super) fn q6_k(block: &[u8; 210], codes: &mut [u8; 256], scales: &mut [f32; 16], biases: &mut [f32; 16]) {
    let d = f16_at(block, 208);
    for group in 0..16 {
        scales[group] = d * f32::from(block[192 + group] as i8);
        biases[group] = -32.0 * scales[group];
    }
    let (low, high): ([u8; 128], [u8; 64]) = (part(block, 0), part(block, 128));
    for (half, codes) in codes.as_chunks_mut::<128>().0.iter_mut().enumerate() {
        for i in 0..32 {
            let (first, second, high) = (low[half * 64 + i], low[half * 64 + 32 + i], high[half * 32 + i]);
            codes[i] = first & 0xF | (high & 3) << 4;
            codes[i + 32] = second & 0xF | (high >> 2 & 3) << 4;
            codes[i + 64] = first >> 4 | (high >> 4 & 3) << 4;
            codes[i + 96] = second >> 4 | (high >> 6) << 4;
        }
    }
}

/// Two halves of 32 bytes; the codes of each are its four bit pairs, lowest first, one plane after the other.
#[inline(always)]
fn two_bits(bytes: &[u8; 64], codes: &mut [u8; 256]) {
    for (half, codes) in codes.as_chunks_mut::<128>().0.iter_mut().enumerate() {
        for i in 0..32 {
            let byte = bytes[half * 32 + i];
            codes[i] = byte & 3;
            codes[i + 32] = byte >> 2 & 3;
            codes[i + 64] = byte >> 4 & 3;
            codes[i + 96] = byte >> 6;
        }
    }
}

/// Four runs of 32 bytes; the codes of each are its low nibbles, then its high nibbles.
#[inline(always)]
fn nibble_pairs(bytes: &[u8; 128], codes: &mut [u8; 256]) {
    for (codes, bytes) in codes.as_chunks_mut::<64>().0.iter_mut().zip(bytes.as_chunks::<32>().0) {
        for i in 0..32 {
            codes[i] = bytes[i] & 0xF;
            codes[i + 32] = bytes[i] >> 4;
        }
    }
}

/// Eight 6-bit scales and eight 6-bit minima in 12 bytes: the first four of each lie in the low six bits of
/// bytes 0 to 7, the others have their low nibbles in bytes 8 to 11 and their high bits above the first ones.
#[inline(always)]
fn scales_and_mins(d: f32, dmin: f32, packed: &[u8; 12], scales: &mut [f32; 8], biases: &mut [f32; 8]) {
    for i in 0..4 {
        let (scale, min, rest) = (packed[i], packed[i + 4], packed[i + 8]);
        scales[i] = d * f32::from(scale & 63);
        biases[i] = -(dmin * f32::from(min & 63));
        scales[i + 4] = d * f32::from(rest & 0xF | (scale >> 6) << 4);
        biases[i + 4] = -(dmin * f32::from(rest >> 4 | (min >> 6) << 4));
    }
}
