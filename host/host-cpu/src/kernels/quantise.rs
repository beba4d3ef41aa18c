//! Activations to 8 bits: one scale for each block of 32, and the sums that zero points and biases need.
#![expect(unsafe_code, reason = "kernels work on raw parts of shared buffers")]

use crate::kernels::entry;
use crate::lanes::{LANES, Lanes};
use crate::matrix::BLOCK;

/// What a product needs of one block besides its codes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockMeta {
    /// A code's value.
    pub(crate) scale: f32,
    /// The scale times the sum of all 32 codes.
    pub(crate) sum: f32,
    /// The sums of the first and the second 16 codes.
    pub(crate) halves: [i32; 2],
}

entry! {
    /// Quantises one row of `n` floats to `codes` and one [`BlockMeta`] a block; the tail of the last block is 0.
    ///
    /// # Safety
    /// `x` has `n` floats, `codes` room for whole blocks, `meta` one entry a block.
    quantise_row = row(x: *const f32, n: usize, codes: *mut i8, meta: *mut BlockMeta)
}

#[inline(always)]
unsafe fn row<V: Lanes>(x: *const f32, n: usize, codes: *mut i8, meta: *mut BlockMeta) {
    unsafe {
        for block in 0..n.div_ceil(BLOCK) {
            let start = block * BLOCK;
            let left = n - start;
            let halves = if left >= BLOCK {
                [V::load(x.add(start)), V::load(x.add(start + LANES))]
            } else {
                let first = left.min(LANES);
                [V::load_n(x.add(start), first), V::load_n(x.add(start + first), left - first)]
            };
            let largest = V::reduce_max(V::max(V::abs(halves[0]), V::abs(halves[1])));
            let (scale, inverse) =
                if largest > 0.0 { (largest / 127.0, 127.0 / largest) } else { (0.0, 0.0) };
            // A row so small that the inverse overflows is worth 0.
            let (scale, inverse) = if inverse.is_finite() { (scale, inverse) } else { (0.0, 0.0) };
            let mut sums = [0; 2];
            for i in 0..2 {
                let rounded = V::to_i32(V::round(V::mul(halves[i], V::splat(inverse))));
                sums[i] = V::reduce_add_i32(rounded);
                V::store_i8(codes.add(start + LANES * i), rounded);
            }
            *meta.add(block) = BlockMeta { scale, sum: scale * (sums[0] + sums[1]) as f32, halves: sums };
        }
    }
}
