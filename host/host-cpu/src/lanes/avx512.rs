//! The lanes on AVX-512: one register each.

use std::arch::x86_64::*;

use super::{LANES, Lanes};

/// AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

#[inline(always)]
fn first(n: usize) -> __mmask16 {
    debug_assert!(n <= LANES, "at most 16 lanes");
    ((1_u32 << n) - 1) as __mmask16
}

impl Lanes for Avx512 {
    type F = __m512;
    type I = __m512i;
    const TILE_TOKENS: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_n(from: *const f32, n: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(first(n), from) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m512) {
        unsafe { _mm512_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn store_n(to: *mut f32, x: __m512, n: usize) {
        unsafe { _mm512_mask_storeu_ps(to, first(n), x) }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, x: __m512) {
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn abs(a: __m512) -> __m512 {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn reduce_add(a: __m512) -> f32 {
        unsafe {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn reduce_max(a: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(a) }
    }
    #[inline(always)]
    unsafe fn keep(a: __m512, lo: usize, hi: usize, other: f32) -> __m512 {
        unsafe { _mm512_mask_blend_ps(first(hi) & !first(lo), _mm512_set1_ps(other), a) }
    }
    #[inline(always)]
    unsafe fn splat_i32(x: i32) -> __m512i {
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn splat_u8(x: u8) -> __m512i {
        unsafe { _mm512_set1_epi8(x as i8) }
    }
    #[inline(always)]
    unsafe fn load_i(from: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_table(from: *const u8) -> __m512i {
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, x: __m512i) {
        unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(x)) }
    }
    #[inline(always)]
    unsafe fn add_i32(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn sub_i32(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn reduce_add_i32(a: __m512i) -> i32 {
        unsafe { _mm512_reduce_add_epi32(a) }
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn shl<const N: u32>(a: __m512i) -> __m512i {
        unsafe { _mm512_slli_epi32::<N>(a) }
    }
    #[inline(always)]
    unsafe fn shr<const N: u32>(a: __m512i) -> __m512i {
        unsafe { _mm512_srli_epi32::<N>(a) }
    }
    #[inline(always)]
    unsafe fn lookup(table: __m512i, index: __m512i) -> __m512i {
        unsafe { _mm512_shuffle_epi8(table, _mm512_and_si512(index, _mm512_set1_epi8(15))) }
    }
    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(acc: __m512i, u: __m512i, s: __m512i) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(acc, u, s) }
    }
    type Products = __m512i;
    #[inline(always)]
    unsafe fn products_at_once<const MAX: u8>() -> usize {
        usize::MAX
    }
    #[inline(always)]
    unsafe fn no_products() -> __m512i {
        unsafe { Self::splat_i32(0) }
    }
    #[inline(always)]
    unsafe fn multiply_add<const MAX: u8>(sum: __m512i, u: __m512i, s: __m512i) -> __m512i {
        unsafe { if MAX < 128 { Self::dot4::<false>(sum, u, s) } else { Self::dot4::<true>(sum, u, s) } }
    }
    #[inline(always)]
    unsafe fn collect(acc: __m512i, products: __m512i) -> __m512i {
        unsafe { Self::add_i32(acc, products) }
    }
    #[inline(always)]
    unsafe fn from_i32(a: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    unsafe fn to_i32(a: __m512) -> __m512i {
        unsafe { _mm512_cvtps_epi32(a) }
    }
    #[inline(always)]
    unsafe fn from_bits(a: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(a) }
    }
}
