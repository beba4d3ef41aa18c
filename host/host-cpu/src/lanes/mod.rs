//! Sixteen lanes: the vector type that every kernel is written in.
//!
//! Each instruction set implements the same few operations with the same rounding, so all forms of a kernel
//! give the same bits. A kernel is a generic function that is always inlined into one entry a form, which
//! switches the instructions on.
#![expect(unsafe_code, reason = "vector instructions exist only where the processor has them")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

/// How many lanes.
pub(crate) const LANES: usize = 16;

/// The operations of one instruction set on 16 floats ([`Lanes::F`]), 16 integers or 64 bytes ([`Lanes::I`]).
///
/// # Safety
/// Every method may be called only where the instruction set is there; pointers must be valid for what the
/// method reads or writes, without alignment.
pub(crate) trait Lanes: Copy {
    /// 16 × f32.
    type F: Copy;
    /// 16 × i32, or 64 × u8.
    type I: Copy;
    /// Tokens that one tile of a product takes: as many as there are registers for.
    const TILE_TOKENS: usize;

    /// The same number in every lane.
    unsafe fn splat(x: f32) -> Self::F;
    /// Reads 16 floats.
    unsafe fn load(from: *const f32) -> Self::F;
    /// Reads the first `n` ≤ 16 floats, 0 elsewhere.
    unsafe fn load_n(from: *const f32, n: usize) -> Self::F;
    /// Reads 16 IEEE halves.
    unsafe fn load_f16(from: *const u16) -> Self::F;
    /// Reads 16 bfloat16.
    unsafe fn load_bf16(from: *const u16) -> Self::F;
    /// Writes 16 floats.
    unsafe fn store(to: *mut f32, x: Self::F);
    /// Writes the first `n` ≤ 16 floats.
    unsafe fn store_n(to: *mut f32, x: Self::F, n: usize);
    /// Writes 16 IEEE halves, rounded to nearest even.
    unsafe fn store_f16(to: *mut u16, x: Self::F);
    /// Sum.
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// Difference.
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    /// Product.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// Quotient.
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger; for numbers only.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller; for numbers only.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// Absolute value.
    unsafe fn abs(a: Self::F) -> Self::F;
    /// The nearest integer as a float, ties to even.
    unsafe fn round(a: Self::F) -> Self::F;
    /// The sum of all lanes: halves are added until one is left.
    unsafe fn reduce_add(a: Self::F) -> f32;
    /// The largest lane.
    unsafe fn reduce_max(a: Self::F) -> f32;
    /// Lane i is `a` where `lo <= i < hi`, else `other`.
    unsafe fn keep(a: Self::F, lo: usize, hi: usize, other: f32) -> Self::F;

    /// The same integer in every lane.
    unsafe fn splat_i32(x: i32) -> Self::I;
    /// The same byte 64 times.
    unsafe fn splat_u8(x: u8) -> Self::I;
    /// Reads 64 bytes.
    unsafe fn load_i(from: *const u8) -> Self::I;
    /// Reads 16 bytes and repeats them four times.
    unsafe fn load_table(from: *const u8) -> Self::I;
    /// Writes the low byte of each lane: 16 bytes, for lanes from -128 to 127.
    unsafe fn store_i8(to: *mut i8, x: Self::I);
    /// Lane sums.
    unsafe fn add_i32(a: Self::I, b: Self::I) -> Self::I;
    /// Lane differences.
    unsafe fn sub_i32(a: Self::I, b: Self::I) -> Self::I;
    /// The sum of all lanes.
    unsafe fn reduce_add_i32(a: Self::I) -> i32;
    /// Bitwise and.
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// Shifts each 32-bit lane left.
    unsafe fn shl<const N: u32>(a: Self::I) -> Self::I;
    /// Shifts each 32-bit lane right, zeros from the left.
    unsafe fn shr<const N: u32>(a: Self::I) -> Self::I;
    /// For each byte, the entry of the 16-byte table (repeated four times) that its low four bits name.
    unsafe fn lookup(table: Self::I, index: Self::I) -> Self::I;
    /// Lane i: `acc + sum of unsigned bytes 4i..4i+4 of u times signed bytes of s`. With `WIDE` false all bytes
    /// of `u` are below 128.
    unsafe fn dot4<const WIDE: bool>(acc: Self::I, u: Self::I, s: Self::I) -> Self::I;
    /// Asks for the cache line at `from`, which need not be valid.
    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        #[cfg(target_arch = "x86_64")]
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(from.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = from;
    }
    /// Sums of products on their way into lanes of 32 bits.
    type Products: Copy;
    /// What each byte of `u` counts less than it is in [`Lanes::multiply_add`] when it may be 128 or more.
    const WIDE_CENTRE: i32 = 0;
    /// How many times [`Lanes::multiply_add`] may add up before the products must be collected.
    unsafe fn products_at_once<const MAX: u8>() -> usize;
    /// No products.
    unsafe fn no_products() -> Self::Products;
    /// Adds the products of unsigned bytes of `u`, none above `MAX`, and signed bytes of `s`.
    unsafe fn multiply_add<const MAX: u8>(sum: Self::Products, u: Self::I, s: Self::I) -> Self::Products;
    /// Lane i: `acc` plus the products of bytes `4i..4i+4`.
    unsafe fn collect(acc: Self::I, products: Self::Products) -> Self::I;
    /// Integers to floats.
    unsafe fn from_i32(a: Self::I) -> Self::F;
    /// Floats that hold small integers to integers.
    unsafe fn to_i32(a: Self::F) -> Self::I;
    /// The same bits as a float.
    unsafe fn from_bits(a: Self::I) -> Self::F;
}

/// `e^x`, within 2 units in the last place; 0 below -87.3, and the largest finite power above 88.3.
///
/// # Safety
/// As for every operation of [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn exp<V: Lanes>(x: V::F) -> V::F {
    // Cody and Waite: x = n ln 2 + r, |r| <= ln 2 / 2; a Taylor polynomial for e^r; 2^n by its exponent bits.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    unsafe {
        let is_zero_below = V::splat(-87.3);
        // The number to try stands second: what is no number passes through.
        let clamped = V::min(V::splat(88.3), V::max(is_zero_below, x));
        let n = V::round(V::mul(clamped, V::splat(std::f32::consts::LOG2_E)));
        let r = V::fma(n, V::splat(-LN2_HIGH), clamped);
        let r = V::fma(n, V::splat(-LN2_LOW), r);
        let mut p = V::splat(1.0 / 5040.0);
        for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = V::fma(p, r, V::splat(coefficient));
        }
        let exponent = V::shl::<23>(V::add_i32(V::to_i32(n), V::splat_i32(127)));
        let y = V::mul(p, V::from_bits(exponent));
        // Below the range the clamped result is replaced by 0, so that masked scores weigh nothing at all.
        let step = V::max(V::splat(0.0), V::sub(x, is_zero_below));
        let step = V::min(V::splat(f32::MIN_POSITIVE), step);
        V::mul(y, V::mul(step, V::splat(1.0 / f32::MIN_POSITIVE)))
    }
}

/// `x / (1 + e^-x)`.
///
/// # Safety
/// As for every operation of [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn silu<V: Lanes>(x: V::F) -> V::F {
    unsafe {
        let one = V::splat(1.0);
        // Further down the exponential grows no more, so x must not either.
        let numerator = V::max(V::splat(-88.3), x);
        V::div(numerator, V::add(one, exp::<V>(V::sub(V::splat(0.0), x))))
    }
}

/// `tanh x`, from `e^2|x|`.
///
/// # Safety
/// As for every operation of [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn tanh<V: Lanes>(x: V::F) -> V::F {
    unsafe {
        // (e^2a - 1) / (e^2a + 1) loses digits for small a, where x - x^3/3 + 2x^5/15 - 17x^7/315 takes over.
        let (one, bound) = (V::splat(1.0), V::splat(15.0));
        let x = V::max(V::splat(-15.0), V::min(bound, x));
        let a = V::abs(x);
        let e = exp::<V>(V::add(a, a));
        let large = V::div(V::sub(e, one), V::add(e, one));
        let square = V::mul(a, a);
        let mut p = V::splat(62.0 / 2835.0);
        for coefficient in [-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0] {
            p = V::fma(p, square, V::splat(coefficient));
        }
        let small = V::mul(a, p);
        // 1 where a > 0.25, else 0, by saturating arithmetic; so one of the two products below is 0.
        let above = V::max(V::sub(a, V::splat(0.25)), V::splat(0.0));
        let is_large = V::min(V::mul(above, V::splat(1e30)), one);
        let magnitude = V::fma(large, is_large, V::mul(small, V::sub(one, is_large)));
        copy_sign::<V>(magnitude, x)
    }
}

#[inline(always)]
unsafe fn copy_sign<V: Lanes>(magnitude: V::F, sign: V::F) -> V::F {
    unsafe {
        // +1 or -1 without a compare: x / |x|, with 0 kept away from the division.
        let tiny = V::splat(f32::MIN_POSITIVE);
        let direction = V::div(sign, V::max(V::abs(sign), tiny));
        // |direction| is 1 for every normal x; smaller ones end as 0 or nearly so.
        V::mul(magnitude, direction)
    }
}
