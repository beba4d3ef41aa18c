//! Groups of small floats by MLX's rule: mxfp4, mxfp8 and nvfp4.
//!
//! MLX computes these in the tensor's own dtype, so each result is rounded to it here; the operations themselves
//! run in float32, as MLX's do for the half types.
//!
//! Source: `fp_quantize` of MLX 0.32, CPU form.

use host_core::DType;

use super::round_to;
use crate::catalogue::FloatMode;
use crate::tensor::{E2M1, E4M3};

/// The codes of one group of finite numbers, and its stored scale; `None` where a scale cannot hold them.
pub(super) fn encode_group(mode: FloatMode, dtype: DType, numbers: &[f32], codes: &mut [u8]) -> Option<u8> {
    let round = |number: f32| round_to(dtype, number);
    let largest = numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let largest_value = if mode == FloatMode::Mxfp8 { 448.0 } else { 6.0 };
    let scale = round(largest / largest_value);
    let (stored, divisor) = match mode {
        FloatMode::Nvfp4 => {
            let stored = to_e4m3(scale);
            (stored, E4M3[usize::from(stored)])
        }
        FloatMode::Mxfp4 | FloatMode::Mxfp8 => {
            let exponent = if scale == 0.0 { 0.0 } else { scale.log2().ceil() };
            let stored = u8::try_from(exponent as i32 + 127).ok().filter(|stored| *stored != 0xFF)?;
            (stored, round(exponent.exp2()))
        }
    };
    // A divisor of zero is one that the dtype cannot hold: MLX gives codes of infinities and NaN.
    if divisor == 0.0 && mode != FloatMode::Nvfp4 {
        return None;
    }
    // MLX's product with a float32 factor widens nvfp4's quotients after they are rounded.
    let wide = if mode == FloatMode::Nvfp4 { DType::F32 } else { dtype };
    for (code, number) in codes.iter_mut().zip(numbers) {
        let quotient = round(number / divisor);
        *code = match mode {
            FloatMode::Mxfp8 => to_e4m3(quotient),
            FloatMode::Mxfp4 | FloatMode::Nvfp4 => nearest_e2m1(wide, quotient),
        };
    }
    Some(stored)
}

/// The first E2M1 code whose distance is smallest; 0 for NaN, the quotient of a group whose scale is zero.
fn nearest_e2m1(dtype: DType, number: f32) -> u8 {
    let distance = |code: usize| round_to(dtype, (number - E2M1[code]).abs());
    let mut best = (0, distance(0));
    for code in 1..E2M1.len() {
        let found = distance(code);
        if found < best.1 {
            best = (code, found);
        }
    }
    best.0 as u8
}

/// The nearest E4M3 code, ties to even; numbers beyond 448 become 448.
fn to_e4m3(number: f32) -> u8 {
    /// Where numbers would round to 512.
    const TOO_LARGE: u32 = 543 << 21;
    /// The smallest normal number, 2^-6.
    const SMALLEST_NORMAL: u32 = 121 << 23;
    /// 2^14: adding it leaves subnormal codes in the lowest bits.
    const DENORMAL: u32 = 141 << 23;
    let sign = number.to_bits() & 0x8000_0000;
    let bits = number.to_bits() ^ sign;
    let magnitude = if bits >= TOO_LARGE {
        0x7E
    } else if bits < SMALLEST_NORMAL {
        (f32::from_bits(bits) + f32::from_bits(DENORMAL)).to_bits() - DENORMAL
    } else {
        let odd = (bits >> 20) & 1;
        (bits - (120 << 23) + 0x7_FFFF + odd) >> 20
    };
    (magnitude | (sign >> 24)) as u8
}
