//! The lanes on Arm NEON: four registers each, lanes 0-3 in the first.

use std::arch::aarch64::*;
use std::arch::asm;

use super::{LANES, Lanes};

/// NEON with dot products and half precision conversions.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];

/// Written out, so that nothing is left to unroll.
#[inline(always)]
fn each<T>(op: impl Fn(usize) -> T) -> [T; 4] {
    [op(0), op(1), op(2), op(3)]
}

/// The first `n` of four floats, 0 elsewhere; nothing else is read.
#[inline(always)]
unsafe fn load_part(from: *const f32, n: usize) -> float32x4_t {
    unsafe {
        let zero = vdupq_n_f32(0.0);
        match n {
            0 => zero,
            1 => vld1q_lane_f32::<0>(from, zero),
            2 => vcombine_f32(vld1_f32(from), vdup_n_f32(0.0)),
            3 => vld1q_lane_f32::<2>(from.add(2), vcombine_f32(vld1_f32(from), vdup_n_f32(0.0))),
            _ => vld1q_f32(from),
        }
    }
}

/// Writes the first `n` of four floats.
#[inline(always)]
unsafe fn store_part(to: *mut f32, x: float32x4_t, n: usize) {
    unsafe {
        match n {
            0 => (),
            1 => vst1q_lane_f32::<0>(to, x),
            2 => vst1_f32(to, vget_low_f32(x)),
            3 => {
                vst1_f32(to, vget_low_f32(x));
                vst1q_lane_f32::<2>(to.add(2), x);
            }
            _ => vst1q_f32(to, x),
        }
    }
}

/// All ones in the lanes of register `i` that are among the first `n` of 16.
#[inline(always)]
unsafe fn first(n: usize, i: usize) -> uint32x4_t {
    debug_assert!(n <= LANES, "at most 16 lanes");
    const NUMBERS: [u32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    unsafe { vcltq_u32(vld1q_u32(NUMBERS.as_ptr().add(4 * i)), vdupq_n_u32(n as u32)) }
}

/// `acc` + sums of four products of signed bytes.
#[inline(always)]
unsafe fn sdot(acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sum = acc;
    // `vdotq_s32` is not in stable Rust yet.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

#[inline(always)]
unsafe fn dot4_wide(acc: int32x4_t, u: int32x4_t, s: int8x16_t) -> int32x4_t {
    unsafe {
        // u - 128 is a signed byte, and 128 = 64 + 64.
        let below = vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_s32(u), vdupq_n_u8(128)));
        let rest = vdupq_n_s8(64);
        sdot(sdot(sdot(acc, below, s), rest, s), rest, s)
    }
}

impl Lanes for Neon {
    type F = F;
    type I = I;
    const TILE_TOKENS: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        unsafe { [vdupq_n_f32(x); 4] }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> F {
        unsafe { each(|i| vld1q_f32(from.add(4 * i))) }
    }
    #[inline(always)]
    unsafe fn load_n(from: *const f32, n: usize) -> F {
        unsafe { each(|i| load_part(from.wrapping_add(4 * i), n.saturating_sub(4 * i))) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> F {
        unsafe { each(|i| vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from.add(4 * i))))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> F {
        unsafe { each(|i| vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.add(4 * i))))) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: F) {
        unsafe { each(|i| vst1q_f32(to.add(4 * i), x[i])) };
    }
    #[inline(always)]
    unsafe fn store_n(to: *mut f32, x: F, n: usize) {
        unsafe { each(|i| store_part(to.wrapping_add(4 * i), x[i], n.saturating_sub(4 * i))) };
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, x: F) {
        unsafe { each(|i| vst1_u16(to.add(4 * i), vreinterpret_u16_f16(vcvt_f16_f32(x[i])))) };
    }
    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        unsafe { each(|i| vaddq_f32(a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        unsafe { each(|i| vsubq_f32(a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        unsafe { each(|i| vmulq_f32(a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn div(a: F, b: F) -> F {
        unsafe { each(|i| vdivq_f32(a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        unsafe { each(|i| vfmaq_f32(c[i], a[i], b[i])) }
    }
    // Compared and selected: `vmaxq_f32` would order -0 below +0, which x86 does not.
    #[inline(always)]
    unsafe fn max(a: F, b: F) -> F {
        unsafe { each(|i| vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn min(a: F, b: F) -> F {
        unsafe { each(|i| vbslq_f32(vcltq_f32(a[i], b[i]), a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn abs(a: F) -> F {
        unsafe { each(|i| vabsq_f32(a[i])) }
    }
    #[inline(always)]
    unsafe fn round(a: F) -> F {
        unsafe { each(|i| vrndnq_f32(a[i])) }
    }
    #[inline(always)]
    unsafe fn reduce_add(a: F) -> f32 {
        unsafe {
            let four = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
            vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
        }
    }
    #[inline(always)]
    unsafe fn reduce_max(a: F) -> f32 {
        unsafe { vmaxvq_f32(vmaxq_f32(vmaxq_f32(a[0], a[2]), vmaxq_f32(a[1], a[3]))) }
    }
    #[inline(always)]
    unsafe fn keep(a: F, lo: usize, hi: usize, other: f32) -> F {
        unsafe { each(|i| vbslq_f32(vbicq_u32(first(hi, i), first(lo, i)), a[i], vdupq_n_f32(other))) }
    }
    #[inline(always)]
    unsafe fn splat_i32(x: i32) -> I {
        unsafe { [vdupq_n_s32(x); 4] }
    }
    #[inline(always)]
    unsafe fn splat_u8(x: u8) -> I {
        unsafe { [vreinterpretq_s32_u8(vdupq_n_u8(x)); 4] }
    }
    #[inline(always)]
    unsafe fn load_i(from: *const u8) -> I {
        unsafe { each(|i| vreinterpretq_s32_u8(vld1q_u8(from.add(16 * i)))) }
    }
    #[inline(always)]
    unsafe fn load_table(from: *const u8) -> I {
        unsafe { [vreinterpretq_s32_u8(vld1q_u8(from)); 4] }
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, x: I) {
        unsafe {
            let low = vcombine_s16(vmovn_s32(x[0]), vmovn_s32(x[1]));
            let high = vcombine_s16(vmovn_s32(x[2]), vmovn_s32(x[3]));
            vst1q_s8(to, vcombine_s8(vmovn_s16(low), vmovn_s16(high)))
        }
    }
    #[inline(always)]
    unsafe fn add_i32(a: I, b: I) -> I {
        unsafe { each(|i| vaddq_s32(a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn sub_i32(a: I, b: I) -> I {
        unsafe { each(|i| vsubq_s32(a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn reduce_add_i32(a: I) -> i32 {
        unsafe { vaddvq_s32(vaddq_s32(vaddq_s32(a[0], a[2]), vaddq_s32(a[1], a[3]))) }
    }
    #[inline(always)]
    unsafe fn and(a: I, b: I) -> I {
        unsafe { each(|i| vandq_s32(a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn or(a: I, b: I) -> I {
        unsafe { each(|i| vorrq_s32(a[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn shl<const N: u32>(a: I) -> I {
        unsafe { each(|i| vshlq_s32(a[i], vdupq_n_s32(N as i32))) }
    }
    #[inline(always)]
    unsafe fn shr<const N: u32>(a: I) -> I {
        unsafe {
            // A shift to the left by a negative count goes to the right.
            each(|i| vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a[i]), vdupq_n_s32(-(N as i32)))))
        }
    }
    #[inline(always)]
    unsafe fn lookup(table: I, index: I) -> I {
        unsafe {
            each(|i| {
                let index = vandq_u8(vreinterpretq_u8_s32(index[i]), vdupq_n_u8(15));
                vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table[i]), index))
            })
        }
    }
    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(acc: I, u: I, s: I) -> I {
        unsafe {
            each(|i| {
                let s = vreinterpretq_s8_s32(s[i]);
                if WIDE { dot4_wide(acc[i], u[i], s) } else { sdot(acc[i], vreinterpretq_s8_s32(u[i]), s) }
            })
        }
    }
    type Products = I;
    #[inline(always)]
    unsafe fn products_at_once<const MAX: u8>() -> usize {
        usize::MAX
    }
    #[inline(always)]
    unsafe fn no_products() -> I {
        unsafe { Self::splat_i32(0) }
    }
    #[inline(always)]
    unsafe fn multiply_add<const MAX: u8>(sum: I, u: I, s: I) -> I {
        unsafe { if MAX < 128 { Self::dot4::<false>(sum, u, s) } else { Self::dot4::<true>(sum, u, s) } }
    }
    #[inline(always)]
    unsafe fn collect(acc: I, products: I) -> I {
        unsafe { Self::add_i32(acc, products) }
    }
    #[inline(always)]
    unsafe fn from_i32(a: I) -> F {
        unsafe { each(|i| vcvtq_f32_s32(a[i])) }
    }
    #[inline(always)]
    unsafe fn to_i32(a: F) -> I {
        unsafe { each(|i| vcvtnq_s32_f32(a[i])) }
    }
    #[inline(always)]
    unsafe fn from_bits(a: I) -> F {
        unsafe { each(|i| vreinterpretq_f32_s32(a[i])) }
    }
}
