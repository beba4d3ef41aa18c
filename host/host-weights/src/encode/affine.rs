//! Affine groups by MLX's rule.
//!
//! The end of the group's range that lies farther from zero is the bias, so that it is exact; the scale points
//! from there to the other end, and is then stretched until zero falls on a code.
//!
//! Source: `quantize` of MLX 0.32, CPU backend. All arithmetic is in float32; codes are made with the scale as it
//! is before it is rounded to the tensor's dtype.

/// The scale of a group whose numbers are all alike.
const SMALLEST_SCALE: f32 = 1e-7;
/// Added to a number from 0 to 255, it leaves the nearest whole number, ties to even, in the lowest bits.
const ROUNDING: f32 = 8_388_608.0;

/// The codes of one group of finite numbers, with its scale and bias.
pub(super) fn encode_group(numbers: &[f32], bits: u8, codes: &mut [u8]) -> (f32, f32) {
    let largest_code = ((1_u32 << bits) - 1) as f32;
    let (min, max) = numbers
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), number| (min.min(*number), max.max(*number)));
    let (scale, bias) = scale_and_bias(min, max, largest_code);
    for (code, number) in codes.iter_mut().zip(numbers) {
        // The bounds are whole, so bounding first gives what rounding first does.
        let steps = ((number - bias) / scale).clamp(0.0, largest_code);
        *code = (steps + ROUNDING).to_bits() as u8;
    }
    (scale, bias)
}

fn scale_and_bias(min: f32, max: f32, largest_code: f32) -> (f32, f32) {
    let from_below = min.abs() > max.abs();
    let width = ((max - min) / largest_code).max(SMALLEST_SCALE);
    let (edge, scale) = if from_below { (min, width) } else { (max, -width) };
    let steps = (edge / scale).round_ties_even();
    if steps == 0.0 { (scale, 0.0) } else { (edge / steps, edge) }
}
