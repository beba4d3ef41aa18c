//! Products of token rows with a repacked matrix: `out[t, o] = sum_k x[t, k] * w[o, k]`.
//!
//! A tile is a few tokens times a few panels. Every output sums its blocks in order with the same operations
//! whatever the tile, so the tile's size never changes a bit.
#![expect(unsafe_code, reason = "kernels work on raw parts of shared buffers")]

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
        (Format::Grouped { codes, has_bias, .. }, Input::Quantised { .. }) => match (codes, has_bias) {
            (Codes::U2, true) => int_u2_bias,
            (Codes::U3, true) => int_u3_bias,
            (Codes::U4, true) => int_u4_bias,
            (Codes::U5, true) => int_u5_bias,
            (Codes::U6, true) => int_u6_bias,
            (Codes::U8, true) => int_u8_bias,
            (Codes::U2, false) => int_u2,
            (Codes::U3, false) => int_u3,
            (Codes::U4, false) => int_u4,
            (Codes::U5, false) => int_u5,
            (Codes::U6, false) => int_u6,
            (Codes::U8, false) => int_u8,
            (Codes::E2m1, _) => int_e2m1,
            (Codes::E4m3, _) => unreachable!("E4M3 products take floats"),
        },
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
    int_u2: IntTile<2, false>,
    int_u3: IntTile<3, false>,
    int_u4: IntTile<4, false>,
    int_u5: IntTile<5, false>,
    int_u6: IntTile<6, false>,
    int_u8: IntTile<8, false>,
    int_e2m1: IntTile<E2M1, false>,
    int_u2_bias: IntTile<2, true>,
    int_u3_bias: IntTile<3, true>,
    int_u4_bias: IntTile<4, true>,
    int_u5_bias: IntTile<5, true>,
    int_u6_bias: IntTile<6, true>,
    int_u8_bias: IntTile<8, true>,
}

const E2M1: u8 = 14;
const E4M3: u8 = 18;


/// How the sums of one tile are made.
trait Tile {
    /// The sums of `MT` tokens from `token` on and `NP` panels from `panel` on.
    unsafe fn sums<V: Lanes, const MT: usize, const NP: usize>(
        p: &Product<'_>,
        panel: usize,
        token: usize,
    ) -> [[V::F; NP]; MT];
}

#[inline(always)]
unsafe fn tiles<V: Lanes, K: Tile>(p: &Product<'_>) {
    unsafe {
        if V::HAS_WIDE_TILES && p.n_tokens == 1 {
            let mut panel = p.panels.start;
            while panel + 4 <= p.panels.end {
                tile::<V, K, 1, 4>(p, panel, 0);
                panel += 4;
            }
            while panel < p.panels.end {
                tile::<V, K, 1, 1>(p, panel, 0);
                panel += 1;
            }
            return;
        }
        for panel in p.panels.clone() {
            let mut token = 0;
            if V::HAS_WIDE_TILES {
                while token + 8 <= p.n_tokens {
                    tile::<V, K, 8, 1>(p, panel, token);
                    token += 8;
                }
                if token + 4 <= p.n_tokens {
                    tile::<V, K, 4, 1>(p, panel, token);
                    token += 4;
                }
            }
            while token < p.n_tokens {
                tile::<V, K, 1, 1>(p, panel, token);
                token += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn tile<V: Lanes, K: Tile, const MT: usize, const NP: usize>(
    p: &Product<'_>,
    panel: usize,
    token: usize,
) {
    unsafe {
        let sums = K::sums::<V, MT, NP>(p, panel, token);
        for (t, row) in sums.into_iter().enumerate() {
            for (i, sum) in row.into_iter().enumerate() {
                finish::<V>(p, sum, (panel + i) * LANES, token + t);
            }
        }
    }
}

/// Adds bias and residual and writes up to 16 outputs.
#[inline(always)]
unsafe fn finish<V: Lanes>(p: &Product<'_>, mut sum: V::F, first: usize, token: usize) {
    unsafe {
        let n = (p.matrix.n_out - first).min(LANES);
        if let Some(bias) = p.bias {
            sum = V::add(sum, V::load_n(bias.add(first), n));
        }
        if let Some((residual, stride)) = p.residual {
            sum = V::add(sum, V::load_n(residual.add(token * stride + first), n));
        }
        V::store_n(p.out.add(token * p.out_stride + first), sum, n);
    }
}

#[inline(always)]
unsafe fn panel_start(p: &Product<'_>, panel: usize) -> *const u8 {
    unsafe { p.weights.add(p.matrix.offset + panel * p.matrix.panel_bytes()) }
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

/// The 8 quads of a block as bytes, one code each.
#[inline(always)]
unsafe fn unpack<V: Lanes, const CODE: u8>(block: *const u8) -> [V::I; 8] {
    unsafe {
        let at = |i: usize| V::load_i(block.add(64 * i));
        let (m1, m3, m15) = (V::splat_u8(1), V::splat_u8(3), V::splat_u8(15));
        match CODE {
            8 | E4M3 => [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)],
            2 | 3 => {
                let (p, q) = (at(0), at(1));
                let low = [
                    V::and(p, m3),
                    V::and(V::shr::<2>(p), m3),
                    V::and(V::shr::<4>(p), m3),
                    V::and(V::shr::<6>(p), m3),
                    V::and(q, m3),
                    V::and(V::shr::<2>(q), m3),
                    V::and(V::shr::<4>(q), m3),
                    V::and(V::shr::<6>(q), m3),
                ];
                if CODE == 2 { low } else { add_bit::<V, 2>(low, at(2), m1) }
            }
            _ => {
                let v = [at(0), at(1), at(2), at(3)];
                let nibbles = [
                    V::and(v[0], m15),
                    V::and(v[1], m15),
                    V::and(v[2], m15),
                    V::and(v[3], m15),
                    V::and(V::shr::<4>(v[0]), m15),
                    V::and(V::shr::<4>(v[1]), m15),
                    V::and(V::shr::<4>(v[2]), m15),
                    V::and(V::shr::<4>(v[3]), m15),
                ];
                match CODE {
                    5 => add_bit::<V, 4>(nibbles, at(4), m1),
                    6 => {
                        let (p, q) = (at(4), at(5));
                        let n = nibbles;
                        [
                            V::or(n[0], V::shl::<4>(V::and(p, m3))),
                            V::or(n[1], V::shl::<4>(V::and(V::shr::<2>(p), m3))),
                            V::or(n[2], V::shl::<4>(V::and(V::shr::<4>(p), m3))),
                            V::or(n[3], V::shl::<4>(V::and(V::shr::<6>(p), m3))),
                            V::or(n[4], V::shl::<4>(V::and(q, m3))),
                            V::or(n[5], V::shl::<4>(V::and(V::shr::<2>(q), m3))),
                            V::or(n[6], V::shl::<4>(V::and(V::shr::<4>(q), m3))),
                            V::or(n[7], V::shl::<4>(V::and(V::shr::<6>(q), m3))),
                        ]
                    }
                    E2M1 => {
                        let table = V::load_table(E2M1_TABLE.as_ptr());
                        nibbles.map(|index| V::lookup(table, index))
                    }
                    _ => nibbles,
                }
            }
        }
    }
}

/// Sets bit `AT` of quad i's codes from bit i of the plane.
#[inline(always)]
unsafe fn add_bit<V: Lanes, const AT: u32>(low: [V::I; 8], plane: V::I, m1: V::I) -> [V::I; 8] {
    unsafe {
        [
            V::or(low[0], V::shl::<AT>(V::and(plane, m1))),
            V::or(low[1], V::shl::<AT>(V::and(V::shr::<1>(plane), m1))),
            V::or(low[2], V::shl::<AT>(V::and(V::shr::<2>(plane), m1))),
            V::or(low[3], V::shl::<AT>(V::and(V::shr::<3>(plane), m1))),
            V::or(low[4], V::shl::<AT>(V::and(V::shr::<4>(plane), m1))),
            V::or(low[5], V::shl::<AT>(V::and(V::shr::<5>(plane), m1))),
            V::or(low[6], V::shl::<AT>(V::and(V::shr::<6>(plane), m1))),
            V::or(low[7], V::shl::<AT>(V::and(V::shr::<7>(plane), m1))),
        ]
    }
}

/// Codes times 8-bit activations: exact integer sums within a block, float32 between blocks.
struct IntTile<const CODE: u8, const BIAS: bool>;

impl<const CODE: u8, const BIAS: bool> Tile for IntTile<CODE, BIAS> {
    #[inline(always)]
    unsafe fn sums<V: Lanes, const MT: usize, const NP: usize>(
        p: &Product<'_>,
        panel: usize,
        token: usize,
    ) -> [[V::F; NP]; MT] {
        unsafe {
            let Input::Quantised { codes, meta, stride } = p.input else { unreachable!("an integer tile") };
            let (group, number, zero_point) = grouped(p.matrix);
            let (n_blocks, header, biases) =
                (p.matrix.n_blocks(), p.matrix.header_bytes(), p.matrix.biases_offset());
            let block_bytes = block_bytes::<CODE>();
            let starts: [*const u8; NP] = std::array::from_fn(|i| panel_start(p, panel + i));
            let x: [*const i8; MT] = std::array::from_fn(|t| codes.add((token + t) * stride));
            let metas: [*const BlockMeta; MT] =
                std::array::from_fn(|t| meta.add((token + t) * (stride / BLOCK)));
            let mut sums = [[V::splat(0.0); NP]; MT];
            if group == BLOCK / 2 {
                for block in 0..n_blocks {
                    for i in 0..NP {
                        let quads = unpack::<V, CODE>(starts[i].add(header + block * block_bytes));
                        for half in 0..2 {
                            let d = group_values::<V>(starts[i], number, 2 * block + half);
                            for t in 0..MT {
                                let m = &*metas[t].add(block);
                                let four = [quads[4 * half], quads[4 * half + 1], quads[4 * half + 2], quads[4 * half + 3]];
                                let init = if BIAS { 0 } else { -zero_point * m.halves[half] };
                                let from = x[t].add(block * BLOCK + 16 * half);
                                let dot = dot_quads::<V, CODE>(V::splat_i32(init), four, from);
                                let scaled = V::mul(V::from_i32(dot), V::splat(m.scale));
                                sums[t][i] = V::fma(scaled, d, sums[t][i]);
                                if BIAS {
                                    let b = group_values::<V>(starts[i].add(biases), number, 2 * block + half);
                                    let sum = m.scale * m.halves[half] as f32;
                                    sums[t][i] = V::fma(b, V::splat(sum), sums[t][i]);
                                }
                            }
                        }
                    }
                }
                return sums;
            }
            let per_group = group / BLOCK;
            let mut block = 0;
            let mut g = 0;
            while block < n_blocks {
                let d: [V::F; NP] = std::array::from_fn(|i| group_values::<V>(starts[i], number, g));
                let b: [V::F; NP] = std::array::from_fn(|i| {
                    if BIAS { group_values::<V>(starts[i].add(biases), number, g) } else { V::splat(0.0) }
                });
                let end = (block + per_group).min(n_blocks);
                while block < end {
                    for i in 0..NP {
                        let quads = unpack::<V, CODE>(starts[i].add(header + block * block_bytes));
                        let low = [quads[0], quads[1], quads[2], quads[3]];
                        let high = [quads[4], quads[5], quads[6], quads[7]];
                        for t in 0..MT {
                            let m = &*metas[t].add(block);
                            let init = if BIAS { 0 } else { -zero_point * (m.halves[0] + m.halves[1]) };
                            let from = x[t].add(block * BLOCK);
                            let first = dot_quads::<V, CODE>(V::splat_i32(init), low, from);
                            let dot = if NP > 1 {
                                let second = dot_quads::<V, CODE>(V::splat_i32(0), high, from.add(16));
                                V::add_i32(first, second)
                            } else {
                                dot_quads::<V, CODE>(first, high, from.add(16))
                            };
                            let scaled = V::mul(V::from_i32(dot), V::splat(m.scale));
                            sums[t][i] = V::fma(scaled, d[i], sums[t][i]);
                            if BIAS {
                                sums[t][i] = V::fma(b[i], V::splat(m.sum), sums[t][i]);
                            }
                        }
                    }
                    block += 1;
                }
                g += 1;
            }
            sums
        }
    }
}

#[inline(always)]
unsafe fn dot_quads<V: Lanes, const CODE: u8>(mut acc: V::I, quads: [V::I; 4], x: *const i8) -> V::I {
    unsafe {
        for (i, quad) in quads.into_iter().enumerate() {
            let four = V::splat_i32(x.add(4 * i).cast::<i32>().read_unaligned());
            acc = if CODE == 8 { V::dot4::<true>(acc, quad, four) } else { V::dot4::<false>(acc, quad, four) };
        }
        acc
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
    unsafe fn sums<V: Lanes, const MT: usize, const NP: usize>(
        p: &Product<'_>,
        panel: usize,
        token: usize,
    ) -> [[V::F; NP]; MT] {
        unsafe {
            let Input::Float { x, stride } = p.input else { unreachable!("a float tile") };
            let (group, number, zero_point) = grouped(p.matrix);
            let has_bias = matches!(p.matrix.format, Format::Grouped { has_bias: true, .. });
            let (header, biases) = (p.matrix.header_bytes(), p.matrix.biases_offset());
            let starts: [*const u8; NP] = std::array::from_fn(|i| panel_start(p, panel + i));
            let rows: [*const f32; MT] = std::array::from_fn(|t| x.add((token + t) * stride));
            let zero = V::splat_i32(zero_point);
            let mut sums = [[V::splat(0.0); NP]; MT];
            for block in 0..p.matrix.n_blocks() {
                // The padding of the last block has no activations to read.
                let n = (p.matrix.n_in - block * BLOCK).min(BLOCK);
                for i in 0..NP {
                    let quads = unpack::<V, CODE>(starts[i].add(header + block * block_bytes::<CODE>()));
                    for (j, quad) in quads.into_iter().enumerate().take(n.div_ceil(4)) {
                        let g = (block * BLOCK + 4 * j) / group;
                        let d = group_values::<V>(starts[i], number, g);
                        let b = if has_bias { group_values::<V>(starts[i].add(biases), number, g) } else { V::splat(0.0) };
                        let bytes = [
                            quad,
                            V::shr::<8>(quad),
                            V::shr::<16>(quad),
                            V::shr::<24>(quad),
                        ];
                        for (k, byte) in bytes.into_iter().enumerate().take(n - 4 * j) {
                            let code = V::and(byte, V::splat_i32(255));
                            let w = if CODE == E4M3 {
                                V::mul(e4m3::<V>(code), d)
                            } else {
                                // Without a bias b is 0 and the product is rounded once all the same.
                                V::fma(V::from_i32(V::sub_i32(code, zero)), d, b)
                            };
                            for t in 0..MT {
                                let xk = V::splat(*rows[t].add(block * BLOCK + 4 * j + k));
                                sums[t][i] = V::fma(w, xk, sums[t][i]);
                            }
                        }
                    }
                }
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

/// Dense weights times float32 activations, input by input.
#[inline(always)]
unsafe fn dense_sums<V: Lanes, const MT: usize, const NP: usize>(
    p: &Product<'_>,
    panel: usize,
    token: usize,
    bytes: usize,
    load: impl Fn(*const u8) -> V::F,
) -> [[V::F; NP]; MT] {
    unsafe {
        let Input::Float { x, stride } = p.input else { unreachable!("a dense tile") };
        let starts: [*const u8; NP] = std::array::from_fn(|i| panel_start(p, panel + i));
        let rows: [*const f32; MT] = std::array::from_fn(|t| x.add((token + t) * stride));
        let mut sums = [[V::splat(0.0); NP]; MT];
        for k in 0..p.matrix.n_in {
            let xk: [V::F; MT] = std::array::from_fn(|t| V::splat(*rows[t].add(k)));
            for i in 0..NP {
                let w = load(starts[i].add(k * LANES * bytes));
                for t in 0..MT {
                    sums[t][i] = V::fma(w, xk[t], sums[t][i]);
                }
            }
        }
        sums
    }
}

macro_rules! dense_tile {
    ($name:ident, $bytes:literal, $load:ident) => {
        struct $name;

        impl Tile for $name {
            #[inline(always)]
            unsafe fn sums<V: Lanes, const MT: usize, const NP: usize>(
                p: &Product<'_>,
                panel: usize,
                token: usize,
            ) -> [[V::F; NP]; MT] {
                unsafe { dense_sums::<V, MT, NP>(p, panel, token, $bytes, |at| V::$load(at.cast())) }
            }
        }
    };
}

dense_tile!(DenseF32, 4, load);
dense_tile!(DenseF16, 2, load_f16);
dense_tile!(DenseBf16, 2, load_bf16);
