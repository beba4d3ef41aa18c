//! Products of token rows with a repacked matrix: `out[t, o] = sum_k x[t, k] * w[o, k]`.
//!
//! A tile is a few tokens times a few panels. Every output sums its blocks in order with the same operations
//! whatever the tile, so the tile's size never changes a bit.
#![expect(unsafe_code, reason = "kernels work on raw parts of shared buffers")]
#![expect(
    clippy::needless_range_loop,
    reason = "tokens of a tile are named by their number, and loops over arrays must unroll"
)]

use std::ops::Range;

use crate::features::Simd;
use crate::kernels::entry;
use crate::kernels::quantise::BlockMeta;
use crate::lanes::{LANES, Lanes};
use crate::matrix::{BLOCK, Codes, E2M1_TABLE, Format, Matrix, Number};

/// The token rows of a product.
#[derive(Clone, Copy)]
pub(crate) enum Input {
    /// Floats, `stride` apart.
    Float { x: *const f32, stride: usize },
    /// 8-bit codes `stride` apart (whole blocks), with `stride / 32` metas a row.
    Quantised { codes: *const i8, meta: *const BlockMeta, stride: usize },
}

/// One product, or a thread's panels of it.
pub(crate) struct Product<'a> {
    pub(crate) matrix: &'a Matrix,
    /// The region that the matrix lies in.
    pub(crate) weights: *const u8,
    pub(crate) panels: Range<usize>,
    pub(crate) input: Input,
    pub(crate) n_tokens: usize,
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
    /// Added to each output: `[n_out]`.
    pub(crate) bias: Option<*const f32>,
    /// Added to each output: rows like `out`.
    pub(crate) residual: Option<(*const f32, usize)>,
}

/// Computes the product.
///
/// # Safety
/// Pointers are valid for the shapes told, panels are within the matrix, and no other thread writes the same
/// outputs.
pub(crate) unsafe fn multiply(simd: Simd, p: &Product<'_>) {
    let entry = match (p.matrix.format, p.input) {
        (Format::Dense(number), Input::Float { .. }) => match number {
            Number::F32 => dense_f32,
            Number::F16 => dense_f16,
            Number::Bf16 => dense_bf16,
        },
        (Format::Grouped { codes, .. }, Input::Float { .. }) => match codes {
            Codes::U2 => float_u2,
            Codes::U3 => float_u3,
            Codes::U4 => float_u4,
            Codes::U5 => float_u5,
            Codes::U6 => float_u6,
            Codes::U8 => float_u8,
            Codes::E2m1 => float_e2m1,
            Codes::E4m3 => float_e4m3,
        },
        (Format::Grouped { codes, has_bias, group, .. }, Input::Quantised { .. }) => {
            match (codes, has_bias, group < BLOCK) {
                (Codes::U2, true, false) => int_u2_bias,
                (Codes::U2, false, false) => int_u2,
                (Codes::U3, true, false) => int_u3_bias,
                (Codes::U3, false, false) => int_u3,
                (Codes::U4, true, false) => int_u4_bias,
                (Codes::U4, false, false) => int_u4,
                (Codes::U5, true, false) => int_u5_bias,
                (Codes::U5, false, false) => int_u5,
                (Codes::U6, true, false) => int_u6_bias,
                (Codes::U6, false, false) => int_u6,
                (Codes::U8, true, false) => int_u8_bias,
                (Codes::U8, false, false) => int_u8,
                (Codes::U2, false, true) => int_u2_16,
                (Codes::U2, true, true) => int_u2_bias_16,
                (Codes::U3, false, true) => int_u3_16,
                (Codes::U3, true, true) => int_u3_bias_16,
                (Codes::U4, false, true) => int_u4_16,
                (Codes::U4, true, true) => int_u4_bias_16,
                (Codes::U5, false, true) => int_u5_16,
                (Codes::U5, true, true) => int_u5_bias_16,
                (Codes::U6, false, true) => int_u6_16,
                (Codes::U6, true, true) => int_u6_bias_16,
                (Codes::U8, false, true) => int_u8_16,
                (Codes::U8, true, true) => int_u8_bias_16,
                (Codes::E2m1, _, false) => int_e2m1,
                (Codes::E2m1, _, true) => int_e2m1_16,
                (Codes::E4m3, ..) => unreachable!("E4M3 products take floats"),
            }
        }
        (Format::Dense(_), Input::Quantised { .. }) => unreachable!("dense products take floats"),
    };
    // SAFETY: as the caller promises.
    unsafe { entry(simd, p) }
}

/// One entry a kind of tile, so that each is compiled on its own.
macro_rules! entries {
    ($($name:ident: $tile:ty,)*) => {
        $(entry! { $name = tiles[$tile](p: &Product<'_>) })*
    };
}

entries! {
    dense_f32: DenseF32,
    dense_f16: DenseF16,
    dense_bf16: DenseBf16,
    float_u2: FloatTile<2>,
    float_u3: FloatTile<3>,
    float_u4: FloatTile<4>,
    float_u5: FloatTile<5>,
    float_u6: FloatTile<6>,
    float_u8: FloatTile<8>,
    float_e2m1: FloatTile<E2M1>,
    float_e4m3: FloatTile<E4M3>,
    int_u2: IntTile<2, false, false>,
    int_u2_bias: IntTile<2, true, false>,
    int_u3: IntTile<3, false, false>,
    int_u3_bias: IntTile<3, true, false>,
    int_u4: IntTile<4, false, false>,
    int_u4_bias: IntTile<4, true, false>,
    int_u5: IntTile<5, false, false>,
    int_u5_bias: IntTile<5, true, false>,
    int_u6: IntTile<6, false, false>,
    int_u6_bias: IntTile<6, true, false>,
    int_u8: IntTile<8, false, false>,
    int_u8_bias: IntTile<8, true, false>,
    int_u2_16: IntTile<2, false, true>,
    int_u2_bias_16: IntTile<2, true, true>,
    int_u3_16: IntTile<3, false, true>,
    int_u3_bias_16: IntTile<3, true, true>,
    int_u4_16: IntTile<4, false, true>,
    int_u4_bias_16: IntTile<4, true, true>,
    int_u5_16: IntTile<5, false, true>,
    int_u5_bias_16: IntTile<5, true, true>,
    int_u6_16: IntTile<6, false, true>,
    int_u6_bias_16: IntTile<6, true, true>,
    int_u8_16: IntTile<8, false, true>,
    int_u8_bias_16: IntTile<8, true, true>,
    int_e2m1: IntTile<E2M1, false, false>,
    int_e2m1_16: IntTile<E2M1, false, true>,
}

const E2M1: u8 = 14;
const E4M3: u8 = 18;

/// How the sums of one tile are made.
trait Tile {
    /// The sums of `T` tokens from `token` on for the 16 outputs of a panel.
    unsafe fn sums<V: Lanes, const T: usize>(p: &Product<'_>, panel: *const u8, token: usize) -> [V::F; T];
}

#[inline(always)]
unsafe fn tiles<V: Lanes, K: Tile>(p: &Product<'_>) {
    unsafe {
        for panel in p.panels.clone() {
            let mut token = 0;
            if V::TILE_TOKENS >= 8 {
                while token + 8 <= p.n_tokens {
                    tile::<V, K, 8>(p, panel, token);
                    token += 8;
                }
            }
            if V::TILE_TOKENS >= 4 {
                while token + 4 <= p.n_tokens {
                    tile::<V, K, 4>(p, panel, token);
                    token += 4;
                }
            }
            while token < p.n_tokens {
                tile::<V, K, 1>(p, panel, token);
                token += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn tile<V: Lanes, K: Tile, const T: usize>(p: &Product<'_>, panel: usize, token: usize) {
    unsafe {
        let start = p.weights.add(p.matrix.offset + panel * p.matrix.panel_bytes());
        let sums = K::sums::<V, T>(p, start, token);
        for t in 0..T {
            finish::<V>(p, sums[t], panel * LANES, token + t);
        }
    }
}

/// Adds bias and residual and writes up to 16 outputs.
#[inline(always)]
unsafe fn finish<V: Lanes>(p: &Product<'_>, mut sum: V::F, first: usize, token: usize) {
    unsafe {
        let n = (p.matrix.n_out - first).min(LANES);
        let load = |from| if n == LANES { V::load(from) } else { V::load_n(from, n) };
        if let Some(bias) = p.bias {
            sum = V::add(sum, load(bias.add(first)));
        }
        if let Some((residual, stride)) = p.residual {
            sum = V::add(sum, load(residual.add(token * stride + first)));
        }
        let out = p.out.add(token * p.out_stride + first);
        if n == LANES { V::store(out, sum) } else { V::store_n(out, sum, n) }
    }
}

#[inline(always)]
fn grouped(matrix: &Matrix) -> (usize, Number, i32) {
    match matrix.format {
        Format::Grouped { group, scale, zero_point, .. } => (group, scale, zero_point),
        Format::Dense(_) => unreachable!("a tile of codes over a dense matrix"),
    }
}

/// The 16 values of group `group` from a list of scales or biases.
#[inline(always)]
unsafe fn group_values<V: Lanes>(start: *const u8, number: Number, group: usize) -> V::F {
    unsafe {
        let at = start.add(group * LANES * number.bytes());
        match number {
            Number::F16 => V::load_f16(at.cast()),
            Number::Bf16 => V::load_bf16(at.cast()),
            Number::F32 => V::load(at.cast()),
        }
    }
}

/// Quad `Q` of a block as bytes, one code each.
#[inline(always)]
unsafe fn quad<V: Lanes, const CODE: u8, const Q: usize>(block: *const u8) -> V::I {
    unsafe {
        let at = |i: usize| V::load_i(block.add(64 * i));
        match CODE {
            8 | E4M3 => at(Q),
            2 => pair::<V, Q>(at(Q / 4)),
            3 => V::or(pair::<V, Q>(at(Q / 4)), V::shl::<2>(bit::<V, Q>(at(2)))),
            _ => {
                let bytes = at(Q % 4);
                let nibble = V::and(if Q < 4 { bytes } else { V::shr::<4>(bytes) }, V::splat_u8(15));
                match CODE {
                    5 => V::or(nibble, V::shl::<4>(bit::<V, Q>(at(4)))),
                    6 => V::or(nibble, V::shl::<4>(pair::<V, Q>(at(4 + Q / 4)))),
                    E2M1 => V::lookup(V::load_table(E2M1_TABLE.as_ptr()), nibble),
                    _ => nibble,
                }
            }
        }
    }
}

/// Bit `Q` of each byte.
#[inline(always)]
unsafe fn bit<V: Lanes, const Q: usize>(plane: V::I) -> V::I {
    unsafe {
        let shifted = match Q {
            0 => plane,
            1 => V::shr::<1>(plane),
            2 => V::shr::<2>(plane),
            3 => V::shr::<3>(plane),
            4 => V::shr::<4>(plane),
            5 => V::shr::<5>(plane),
            6 => V::shr::<6>(plane),
            _ => V::shr::<7>(plane),
        };
        V::and(shifted, V::splat_u8(1))
    }
}

/// Bits `2 (Q mod 4)` and the next of each byte.
#[inline(always)]
unsafe fn pair<V: Lanes, const Q: usize>(plane: V::I) -> V::I {
    unsafe {
        let shifted = match Q % 4 {
            0 => plane,
            1 => V::shr::<2>(plane),
            2 => V::shr::<4>(plane),
            _ => V::shr::<6>(plane),
        };
        V::and(shifted, V::splat_u8(3))
    }
}

/// The largest integer that a code can be.
const fn max_code<const CODE: u8>() -> u8 {
    match CODE {
        2 => 3,
        3 => 7,
        4 => 15,
        5 => 31,
        6 => 63,
        E2M1 => 24,
        _ => 255,
    }
}

/// How far before their use weights are asked for: some hundred cycles of products.
const AHEAD_BYTES: usize = 3072;

/// Codes times 8-bit activations: exact integer sums within a block, float32 between blocks.
struct IntTile<const CODE: u8, const BIAS: bool, const SIXTEENS: bool>;

impl<const CODE: u8, const BIAS: bool, const SIXTEENS: bool> Tile for IntTile<CODE, BIAS, SIXTEENS> {
    #[inline(always)]
    unsafe fn sums<V: Lanes, const T: usize>(p: &Product<'_>, panel: *const u8, token: usize) -> [V::F; T] {
        unsafe {
            let Input::Quantised { codes, meta, stride } = p.input else { unreachable!("an integer tile") };
            let (group, number, zero_point) = grouped(p.matrix);
            let biases = panel.add(p.matrix.biases_offset());
            let body = panel.add(p.matrix.header_bytes());
            // What the sum of a token's codes is multiplied with, to count each weight from its zero point.
            let zero = if BIAS { 0 } else { zero_point };
            let centre = if max_code::<CODE>() < 128 { -zero } else { V::WIDE_CENTRE - zero };
            let per_group = group / BLOCK;
            let mut x = [codes; T];
            let mut metas = [meta; T];
            for t in 0..T {
                x[t] = codes.add((token + t) * stride);
                metas[t] = meta.add((token + t) * (stride / BLOCK));
            }
            let mut sums = [V::splat(0.0); T];
            for block in 0..p.matrix.n_blocks() {
                let at = body.add(block * block_bytes::<CODE>());
                if T == 1 {
                    // A single token is bound by memory: the weights of some blocks ahead are asked for.
                    for line in 0..block_bytes::<CODE>() / 64 {
                        V::prefetch(at.wrapping_add(AHEAD_BYTES + 64 * line));
                    }
                }
                let mut from = x;
                for t in 0..T {
                    from[t] = x[t].add(block * BLOCK);
                }
                let mut dots = [V::splat_i32(0); T];
                if SIXTEENS {
                    // Groups of 16: each half of the block has its own scale.
                    for half in 0..2 {
                        for t in 0..T {
                            dots[t] = V::splat_i32(centre * (*metas[t].add(block)).halves[half]);
                        }
                        dots = if half == 0 {
                            half_block::<V, CODE, T, 0>(dots, at, from)
                        } else {
                            half_block::<V, CODE, T, 4>(dots, at, from)
                        };
                        let d = group_values::<V>(panel, number, 2 * block + half);
                        for t in 0..T {
                            let m = &*metas[t].add(block);
                            sums[t] = V::fma(V::mul(V::from_i32(dots[t]), V::splat(m.scale)), d, sums[t]);
                            if BIAS {
                                let b = group_values::<V>(biases, number, 2 * block + half);
                                let sum = m.scale * m.halves[half] as f32;
                                sums[t] = V::fma(b, V::splat(sum), sums[t]);
                            }
                        }
                    }
                    continue;
                }
                if !BIAS {
                    for t in 0..T {
                        let m = &*metas[t].add(block);
                        dots[t] = V::splat_i32(centre * (m.halves[0] + m.halves[1]));
                    }
                } else if max_code::<CODE>() >= 128 && V::WIDE_CENTRE != 0 {
                    for t in 0..T {
                        let m = &*metas[t].add(block);
                        dots[t] = V::splat_i32(V::WIDE_CENTRE * (m.halves[0] + m.halves[1]));
                    }
                }
                dots = half_block::<V, CODE, T, 0>(dots, at, from);
                dots = half_block::<V, CODE, T, 4>(dots, at, from);
                let group = if per_group == 1 { block } else { block / per_group };
                let d = group_values::<V>(panel, number, group);
                let b = if BIAS { group_values::<V>(biases, number, group) } else { d };
                for t in 0..T {
                    let m = &*metas[t].add(block);
                    sums[t] = V::fma(V::mul(V::from_i32(dots[t]), V::splat(m.scale)), d, sums[t]);
                    if BIAS {
                        sums[t] = V::fma(b, V::splat(m.sum), sums[t]);
                    }
                }
            }
            sums
        }
    }
}

/// Adds the products of quads `FIRST..FIRST + 4` to each token's sum.
#[inline(always)]
unsafe fn half_block<V: Lanes, const CODE: u8, const T: usize, const FIRST: usize>(
    mut dots: [V::I; T],
    block: *const u8,
    x: [*const i8; T],
) -> [V::I; T] {
    unsafe {
        let mut products = [V::no_products(); T];
        let mut n = 0;
        macro_rules! quads {
            ($($q:literal)*) => {$(
                let u = if FIRST == 0 { quad::<V, CODE, $q>(block) } else { quad::<V, CODE, { $q + 4 }>(block) };
                for t in 0..T {
                    let four = V::splat_i32(x[t].add(4 * (FIRST + $q)).cast::<i32>().read_unaligned());
                    products[t] = multiply_add::<V, CODE>(products[t], u, four);
                }
                n += 1;
                if n == at_once::<V, CODE>() || $q == 3 {
                    for t in 0..T {
                        dots[t] = V::collect(dots[t], products[t]);
                        products[t] = V::no_products();
                    }
                    n = 0;
                }
            )*};
        }
        quads!(0 1 2 3);
        let _ = n;
        dots
    }
}

#[inline(always)]
unsafe fn multiply_add<V: Lanes, const CODE: u8>(sum: V::Products, u: V::I, s: V::I) -> V::Products {
    unsafe {
        match max_code::<CODE>() {
            0..=15 => V::multiply_add::<15>(sum, u, s),
            16..=31 => V::multiply_add::<31>(sum, u, s),
            32..=63 => V::multiply_add::<63>(sum, u, s),
            _ => V::multiply_add::<255>(sum, u, s),
        }
    }
}

#[inline(always)]
unsafe fn at_once<V: Lanes, const CODE: u8>() -> usize {
    unsafe {
        match max_code::<CODE>() {
            0..=15 => V::products_at_once::<15>(),
            16..=31 => V::products_at_once::<31>(),
            32..=63 => V::products_at_once::<63>(),
            _ => V::products_at_once::<255>(),
        }
    }
}

const fn block_bytes<const CODE: u8>() -> usize {
    match CODE {
        2 => Codes::U2.block_bytes(),
        3 => Codes::U3.block_bytes(),
        5 => Codes::U5.block_bytes(),
        6 => Codes::U6.block_bytes(),
        8 | E4M3 => Codes::U8.block_bytes(),
        _ => Codes::U4.block_bytes(),
    }
}

/// Codes times float32 activations: each weight is made in a register.
struct FloatTile<const CODE: u8>;

impl<const CODE: u8> Tile for FloatTile<CODE> {
    #[inline(always)]
    unsafe fn sums<V: Lanes, const T: usize>(p: &Product<'_>, panel: *const u8, token: usize) -> [V::F; T] {
        unsafe {
            let Input::Float { x, stride } = p.input else { unreachable!("a float tile") };
            let (group, number, zero_point) = grouped(p.matrix);
            let has_bias = matches!(p.matrix.format, Format::Grouped { has_bias: true, .. });
            let biases = panel.add(p.matrix.biases_offset());
            let body = panel.add(p.matrix.header_bytes());
            let zero = V::splat_i32(zero_point);
            let mut rows = [x; T];
            for t in 0..T {
                rows[t] = x.add((token + t) * stride);
            }
            let mut sums = [V::splat(0.0); T];
            for block in 0..p.matrix.n_blocks() {
                let at = body.add(block * block_bytes::<CODE>());
                // The padding of the last block has no activations to read.
                let n = (p.matrix.n_in - block * BLOCK).min(BLOCK);
                macro_rules! quads {
                    ($($q:literal)*) => {$(
                        if 4 * $q < n {
                            let g = (block * BLOCK + 4 * $q) / group;
                            let d = group_values::<V>(panel, number, g);
                            let b = if has_bias { group_values::<V>(biases, number, g) } else { V::splat(0.0) };
                            let codes = quad::<V, CODE, $q>(at);
                            let bytes = [codes, V::shr::<8>(codes), V::shr::<16>(codes), V::shr::<24>(codes)];
                            for k in 0..4 {
                                if 4 * $q + k < n {
                                    let code = V::and(bytes[k], V::splat_i32(255));
                                    let w = if CODE == E4M3 {
                                        V::mul(e4m3::<V>(code), d)
                                    } else {
                                        // Without a bias b is 0 and the product is rounded once all the same.
                                        V::fma(V::from_i32(V::sub_i32(code, zero)), d, b)
                                    };
                                    for t in 0..T {
                                        let xk = V::splat(*rows[t].add(block * BLOCK + 4 * $q + k));
                                        sums[t] = V::fma(w, xk, sums[t]);
                                    }
                                }
                            }
                        }
                    )*};
                }
                quads!(0 1 2 3 4 5 6 7);
            }
            sums
        }
    }
}

/// E4M3 codes, one a lane, to floats: sign, exponent and mantissa moved to their places in a float32, whose
/// exponent is 120 too small.
#[inline(always)]
unsafe fn e4m3<V: Lanes>(code: V::I) -> V::F {
    unsafe {
        let sign = V::shl::<24>(V::and(code, V::splat_i32(0x80)));
        let rest = V::shl::<20>(V::and(code, V::splat_i32(0x7f)));
        V::mul(V::from_bits(V::or(sign, rest)), V::splat(f32::from_bits((127 + 120) << 23)))
    }
}

macro_rules! dense_tile {
    ($name:ident, $number:ty, $load:ident) => {
        /// Dense weights times float32 activations, input by input.
        struct $name;

        impl Tile for $name {
            #[inline(always)]
            unsafe fn sums<V: Lanes, const T: usize>(
                p: &Product<'_>,
                panel: *const u8,
                token: usize,
            ) -> [V::F; T] {
                unsafe {
                    let Input::Float { x, stride } = p.input else { unreachable!("a dense tile") };
                    let mut rows = [x; T];
                    for t in 0..T {
                        rows[t] = x.add((token + t) * stride);
                    }
                    let mut sums = [V::splat(0.0); T];
                    for k in 0..p.matrix.n_in {
                        let w = V::$load(panel.cast::<$number>().add(k * LANES));
                        for t in 0..T {
                            sums[t] = V::fma(w, V::splat(*rows[t].add(k)), sums[t]);
                        }
                    }
                    sums
                }
            }
        }
    };
}

dense_tile!(DenseF32, f32, load);
dense_tile!(DenseF16, u16, load_f16);
dense_tile!(DenseBf16, u16, load_bf16);
