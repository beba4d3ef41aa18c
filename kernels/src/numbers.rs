//! Rounding to the 16-bit floats, to nearest even.

/// The bits of the nearest bfloat16.
pub fn round_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((u64::from(bits) + 0x7fff + u64::from(bits >> 16 & 1)) >> 16) as u16
}

/// The bits of the nearest IEEE half.
pub fn round_f16(x: f32) -> u16 {
    let sign = ((x.to_bits() >> 16) & 0x8000) as u16;
    let size = x.abs();
    if x.is_nan() {
        return sign | 0x7e00;
    }
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    // The spacing of halves at this size: 2^-24 below 2^-14, else 2^-10 of the leading bit.
    let exponent = (size.to_bits() >> 23) as i32 - 127;
    let exponent = exponent.max(-14);
    let steps = (f64::from(size) * 2.0_f64.powi(10 - exponent)).round_ties_even() as u32;
    // Steps count from 1024 on where the number is normal; a carry moves into the exponent by itself.
    sign | (((exponent + 14) << 10) as u32 + steps) as u16
}

/// The number that bfloat16 bits stand for.
pub(crate) fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The number that half bits stand for.
pub(crate) fn widen_f16(bits: u16) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let size = match exponent {
        0 => mantissa * 2.0_f32.powi(-24),
        31 if mantissa == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + mantissa) * 2.0_f32.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}
