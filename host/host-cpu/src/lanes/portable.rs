//! The lanes in plain Rust: the definition of what the other forms compute.
#![expect(clippy::needless_range_loop, reason = "lanes are named by their number")]

use half::{bf16, f16};

use super::{LANES, Lanes};

/// Plain Rust lanes.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

type F = [f32; LANES];
type I = [i32; LANES];

fn each(op: impl Fn(usize) -> f32) -> F {
    std::array::from_fn(op)
}

fn each_i(op: impl Fn(usize) -> i32) -> I {
    std::array::from_fn(op)
}

fn bytes(x: I, op: impl Fn(u8) -> u8) -> I {
    x.map(|lane| i32::from_le_bytes(lane.to_le_bytes().map(&op)))
}

impl Lanes for Portable {
    type F = F;
    type I = I;
    const TILE_TOKENS: usize = 1;

    #[inline]
    unsafe fn splat(x: f32) -> F {
        [x; LANES]
    }
    #[inline]
    unsafe fn load(from: *const f32) -> F {
        unsafe { from.cast::<F>().read_unaligned() }
    }
    #[inline]
    unsafe fn load_n(from: *const f32, n: usize) -> F {
        each(|i| if i < n { unsafe { from.add(i).read_unaligned() } } else { 0.0 })
    }
    #[inline]
    unsafe fn load_f16(from: *const u16) -> F {
        each(|i| f16::from_bits(unsafe { from.add(i).read_unaligned() }).to_f32())
    }
    #[inline]
    unsafe fn load_bf16(from: *const u16) -> F {
        each(|i| bf16::from_bits(unsafe { from.add(i).read_unaligned() }).to_f32())
    }
    #[inline]
    unsafe fn store(to: *mut f32, x: F) {
        unsafe { to.cast::<F>().write_unaligned(x) }
    }
    #[inline]
    unsafe fn store_n(to: *mut f32, x: F, n: usize) {
        for i in 0..n {
            unsafe { to.add(i).write_unaligned(x[i]) }
        }
    }
    #[inline]
    unsafe fn store_f16(to: *mut u16, x: F) {
        for i in 0..LANES {
            unsafe { to.add(i).write_unaligned(f16::from_f32(x[i]).to_bits()) }
        }
    }
    #[inline]
    unsafe fn add(a: F, b: F) -> F {
        each(|i| a[i] + b[i])
    }
    #[inline]
    unsafe fn sub(a: F, b: F) -> F {
        each(|i| a[i] - b[i])
    }
    #[inline]
    unsafe fn mul(a: F, b: F) -> F {
        each(|i| a[i] * b[i])
    }
    #[inline]
    unsafe fn div(a: F, b: F) -> F {
        each(|i| a[i] / b[i])
    }
    #[inline]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        each(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline]
    unsafe fn max(a: F, b: F) -> F {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline]
    unsafe fn min(a: F, b: F) -> F {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline]
    unsafe fn abs(a: F) -> F {
        a.map(f32::abs)
    }
    #[inline]
    unsafe fn round(a: F) -> F {
        a.map(f32::round_ties_even)
    }
    #[inline]
    unsafe fn reduce_add(mut a: F) -> f32 {
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                a[i] += a[i + half];
            }
        }
        a[0]
    }
    #[inline]
    unsafe fn reduce_max(a: F) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, |x, y| if y > x { y } else { x })
    }
    #[inline]
    unsafe fn keep(a: F, lo: usize, hi: usize, other: f32) -> F {
        each(|i| if (lo..hi).contains(&i) { a[i] } else { other })
    }
    #[inline]
    unsafe fn splat_i32(x: i32) -> I {
        [x; LANES]
    }
    #[inline]
    unsafe fn splat_u8(x: u8) -> I {
        [i32::from_le_bytes([x; 4]); LANES]
    }
    #[inline]
    unsafe fn load_i(from: *const u8) -> I {
        unsafe { from.cast::<I>().read_unaligned() }
    }
    #[inline]
    unsafe fn load_table(from: *const u8) -> I {
        each_i(|i| unsafe { from.cast::<i32>().add(i % 4).read_unaligned() })
    }
    #[inline]
    unsafe fn store_i8(to: *mut i8, x: I) {
        for i in 0..LANES {
            unsafe { to.add(i).write(x[i] as i8) }
        }
    }
    #[inline]
    unsafe fn add_i32(a: I, b: I) -> I {
        each_i(|i| a[i].wrapping_add(b[i]))
    }
    #[inline]
    unsafe fn sub_i32(a: I, b: I) -> I {
        each_i(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline]
    unsafe fn reduce_add_i32(a: I) -> i32 {
        a.into_iter().fold(0, i32::wrapping_add)
    }
    #[inline]
    unsafe fn and(a: I, b: I) -> I {
        each_i(|i| a[i] & b[i])
    }
    #[inline]
    unsafe fn or(a: I, b: I) -> I {
        each_i(|i| a[i] | b[i])
    }
    #[inline]
    unsafe fn shl<const N: u32>(a: I) -> I {
        a.map(|lane| lane << N)
    }
    #[inline]
    unsafe fn shr<const N: u32>(a: I) -> I {
        a.map(|lane| (lane as u32 >> N) as i32)
    }
    #[inline]
    unsafe fn lookup(table: I, index: I) -> I {
        let mut entries = [0; 16];
        for i in 0..4 {
            entries[4 * i..4 * i + 4].copy_from_slice(&table[i].to_le_bytes());
        }
        bytes(index, |byte| entries[usize::from(byte & 15)])
    }
    #[inline]
    unsafe fn dot4<const WIDE: bool>(acc: I, u: I, s: I) -> I {
        each_i(|i| {
            let pairs = u[i].to_le_bytes().into_iter().zip(s[i].to_le_bytes());
            pairs.fold(acc[i], |sum, (u, s)| sum + i32::from(u) * i32::from(s as i8))
        })
    }
    type Products = I;
    #[inline]
    unsafe fn products_at_once<const MAX: u8>() -> usize {
        usize::MAX
    }
    #[inline]
    unsafe fn no_products() -> I {
        unsafe { Self::splat_i32(0) }
    }
    #[inline]
    unsafe fn multiply_add<const MAX: u8>(sum: I, u: I, s: I) -> I {
        unsafe { if MAX < 128 { Self::dot4::<false>(sum, u, s) } else { Self::dot4::<true>(sum, u, s) } }
    }
    #[inline]
    unsafe fn collect(acc: I, products: I) -> I {
        unsafe { Self::add_i32(acc, products) }
    }
    #[inline]
    unsafe fn from_i32(a: I) -> F {
        a.map(|lane| lane as f32)
    }
    #[inline]
    unsafe fn to_i32(a: F) -> I {
        a.map(|lane| lane as i32)
    }
    #[inline]
    unsafe fn from_bits(a: I) -> F {
        a.map(|lane| f32::from_bits(lane as u32))
    }
}
