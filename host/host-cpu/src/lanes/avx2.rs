//! The lanes on AVX2: two registers each, lanes 0-7 in the first.

use std::arch::x86_64::*;

use super::{LANES, Lanes};

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

type F = [__m256; 2];
type I = [__m256i; 2];

/// All ones in the first `n` lanes.
#[inline(always)]
unsafe fn first(n: usize) -> I {
    debug_assert!(n <= LANES, "at most 16 lanes");
    unsafe {
        let n = _mm256_set1_epi32(n as i32);
        let low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
        [_mm256_cmpgt_epi32(n, low), _mm256_cmpgt_epi32(n, high)]
    }
}

/// Sums of four products each; bytes of `u` are below 128, so that no sum of two leaves 16 bits.
#[inline(always)]
unsafe fn fours(u: __m256i, s: __m256i, times: i16) -> __m256i {
    unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(times)) }
}

#[inline(always)]
unsafe fn dot4_wide(acc: __m256i, u: __m256i, s: __m256i) -> __m256i {
    unsafe {
        let low = _mm256_and_si256(u, _mm256_set1_epi8(0x7f));
        let high = _mm256_and_si256(_mm256_srli_epi16::<7>(u), _mm256_set1_epi8(1));
        _mm256_add_epi32(acc, _mm256_add_epi32(fours(low, s, 1), fours(high, s, 128)))
    }
}

impl Lanes for Avx2 {
    type F = F;
    type I = I;
    const TILE_TOKENS: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> F {
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }
    #[inline(always)]
    unsafe fn load_n(from: *const f32, n: usize) -> F {
        unsafe {
            let mask = first(n);
            [_mm256_maskload_ps(from, mask[0]), _mm256_maskload_ps(from.wrapping_add(8), mask[1])]
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> F {
        unsafe {
            let halves = from.cast::<__m128i>();
            [_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves.add(1)))]
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> F {
        unsafe {
            let halves = from.cast::<__m128i>();
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves.add(1)));
            Self::from_bits(Self::shl::<16>([low, high]))
        }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: F) {
        unsafe {
            _mm256_storeu_ps(to, x[0]);
            _mm256_storeu_ps(to.add(8), x[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_n(to: *mut f32, x: F, n: usize) {
        unsafe {
            let mask = first(n);
            _mm256_maskstore_ps(to, mask[0], x[0]);
            _mm256_maskstore_ps(to.wrapping_add(8), mask[1], x[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, x: F) {
        unsafe {
            let halves = to.cast::<__m128i>();
            _mm_storeu_si128(halves, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[0]));
            _mm_storeu_si128(halves.add(1), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[1]));
        }
    }
    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn div(a: F, b: F) -> F {
        unsafe { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    unsafe fn max(a: F, b: F) -> F {
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn min(a: F, b: F) -> F {
        unsafe { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn abs(a: F) -> F {
        unsafe {
            let sign = _mm256_set1_ps(-0.0);
            [_mm256_andnot_ps(sign, a[0]), _mm256_andnot_ps(sign, a[1])]
        }
    }
    #[inline(always)]
    unsafe fn round(a: F) -> F {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        unsafe { [_mm256_round_ps::<NEAREST>(a[0]), _mm256_round_ps::<NEAREST>(a[1])] }
    }
    #[inline(always)]
    unsafe fn reduce_add(a: F) -> f32 {
        unsafe {
            let eight = _mm256_add_ps(a[0], a[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn reduce_max(a: F) -> f32 {
        unsafe {
            let eight = _mm256_max_ps(a[0], a[1]);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn keep(a: F, lo: usize, hi: usize, other: f32) -> F {
        unsafe {
            let (below, within) = (first(lo), first(hi));
            let other = _mm256_set1_ps(other);
            let kept = [_mm256_andnot_si256(below[0], within[0]), _mm256_andnot_si256(below[1], within[1])];
            let kept = Self::from_bits(kept);
            [_mm256_blendv_ps(other, a[0], kept[0]), _mm256_blendv_ps(other, a[1], kept[1])]
        }
    }
    #[inline(always)]
    unsafe fn splat_i32(x: i32) -> I {
        unsafe { [_mm256_set1_epi32(x); 2] }
    }
    #[inline(always)]
    unsafe fn splat_u8(x: u8) -> I {
        unsafe { [_mm256_set1_epi8(x as i8); 2] }
    }
    #[inline(always)]
    unsafe fn load_i(from: *const u8) -> I {
        unsafe {
            let bytes = from.cast::<__m256i>();
            [_mm256_loadu_si256(bytes), _mm256_loadu_si256(bytes.add(1))]
        }
    }
    #[inline(always)]
    unsafe fn load_table(from: *const u8) -> I {
        unsafe { [_mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast())); 2] }
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, x: I) {
        unsafe {
            // Packing works within each half of a register: 64-bit quarters come out as 0, 2, 1, 3.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(x[0], x[1]));
            let low = _mm256_castsi256_si128(words);
            _mm_storeu_si128(to.cast(), _mm_packs_epi16(low, _mm256_extracti128_si256::<1>(words)));
        }
    }
    #[inline(always)]
    unsafe fn add_i32(a: I, b: I) -> I {
        unsafe { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn sub_i32(a: I, b: I) -> I {
        unsafe { [_mm256_sub_epi32(a[0], b[0]), _mm256_sub_epi32(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn reduce_add_i32(a: I) -> i32 {
        unsafe {
            let eight = _mm256_add_epi32(a[0], a[1]);
            let four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b11_10>(four));
            _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<1>(two)))
        }
    }
    #[inline(always)]
    unsafe fn and(a: I, b: I) -> I {
        unsafe { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn or(a: I, b: I) -> I {
        unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn shl<const N: u32>(a: I) -> I {
        unsafe {
            let count = _mm_cvtsi32_si128(N as i32);
            [_mm256_sll_epi32(a[0], count), _mm256_sll_epi32(a[1], count)]
        }
    }
    #[inline(always)]
    unsafe fn shr<const N: u32>(a: I) -> I {
        unsafe {
            let count = _mm_cvtsi32_si128(N as i32);
            [_mm256_srl_epi32(a[0], count), _mm256_srl_epi32(a[1], count)]
        }
    }
    #[inline(always)]
    unsafe fn lookup(table: I, index: I) -> I {
        unsafe {
            let index = Self::and(index, Self::splat_u8(15));
            [_mm256_shuffle_epi8(table[0], index[0]), _mm256_shuffle_epi8(table[1], index[1])]
        }
    }
    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(acc: I, u: I, s: I) -> I {
        unsafe {
            if WIDE {
                [dot4_wide(acc[0], u[0], s[0]), dot4_wide(acc[1], u[1], s[1])]
            } else {
                Self::add_i32(acc, [fours(u[0], s[0], 1), fours(u[1], s[1], 1)])
            }
        }
    }
    /// 16-bit sums of two products.
    type Products = I;
    // A byte minus 128 is signed; its size times the other factor with its sign stays within 16 bits for two.
    const WIDE_CENTRE: i32 = 128;
    #[inline(always)]
    unsafe fn products_at_once<const MAX: u8>() -> usize {
        match MAX {
            0..=15 => 8,
            16..=31 => 4,
            32..=63 => 2,
            _ => 1,
        }
    }
    #[inline(always)]
    unsafe fn no_products() -> I {
        unsafe { [_mm256_setzero_si256(); 2] }
    }
    #[inline(always)]
    unsafe fn multiply_add<const MAX: u8>(sum: I, u: I, s: I) -> I {
        unsafe {
            if MAX < 128 {
                return [
                    _mm256_add_epi16(sum[0], _mm256_maddubs_epi16(u[0], s[0])),
                    _mm256_add_epi16(sum[1], _mm256_maddubs_epi16(u[1], s[1])),
                ];
            }
            let flip = _mm256_set1_epi8(-128);
            let (low, high) = (_mm256_xor_si256(u[0], flip), _mm256_xor_si256(u[1], flip));
            let two_low = _mm256_maddubs_epi16(_mm256_abs_epi8(low), _mm256_sign_epi8(s[0], low));
            let two_high = _mm256_maddubs_epi16(_mm256_abs_epi8(high), _mm256_sign_epi8(s[1], high));
            [_mm256_add_epi16(sum[0], two_low), _mm256_add_epi16(sum[1], two_high)]
        }
    }
    #[inline(always)]
    unsafe fn collect(acc: I, products: I) -> I {
        unsafe {
            let ones = _mm256_set1_epi16(1);
            [
                _mm256_add_epi32(acc[0], _mm256_madd_epi16(products[0], ones)),
                _mm256_add_epi32(acc[1], _mm256_madd_epi16(products[1], ones)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn from_i32(a: I) -> F {
        unsafe { [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])] }
    }
    #[inline(always)]
    unsafe fn to_i32(a: F) -> I {
        unsafe { [_mm256_cvtps_epi32(a[0]), _mm256_cvtps_epi32(a[1])] }
    }
    #[inline(always)]
    unsafe fn from_bits(a: I) -> F {
        unsafe { [_mm256_castsi256_ps(a[0]), _mm256_castsi256_ps(a[1])] }
    }
}
