//! Attention of a few query rows over one key-value head.
//!
//! Keys lie in blocks of 16 positions, `[dim][16]`, so that a lane is a position and a score is summed over
//! the dimension in order. Values lie position by position. Both walks start at a multiple of 16 positions and
//! go forward, so a query's result depends on its own position only, not on the step that it came in.
#![expect(unsafe_code, reason = "kernels work on raw parts of shared buffers")]
#![expect(
    clippy::needless_range_loop,
    reason = "rows of a tile are named by their number, and loops over arrays must unroll"
)]

use std::ops::Range;

use crate::kernels::entry;
use crate::lanes::{LANES, Lanes, exp, tanh};
use crate::matrix::Number;

/// Query rows of one tile.
pub(crate) const MAX_ROWS: usize = 8;

/// A tile of query rows that share a key-value head.
pub(crate) struct Tile<'a> {
    /// Query rows `[dim_k]`, rotated, not scaled.
    pub(crate) queries: &'a [*const f32],
    /// Where each row's result goes: `[dim_v]`.
    pub(crate) outs: &'a [*mut f32],
    /// Which positions each row sees.
    pub(crate) visible: &'a [Range<usize>],
    /// A logit that joins each row's softmax, or minus infinity.
    pub(crate) sinks: &'a [f32],
    pub(crate) keys: *const u8,
    pub(crate) values: *const u8,
    pub(crate) number: Number,
    pub(crate) dim_k: usize,
    pub(crate) dim_v: usize,
    pub(crate) scale: f32,
    /// 0 for none.
    pub(crate) softcap: f32,
    /// Room for `MAX_ROWS` rows of scores.
    pub(crate) scores: *mut f32,
    /// Floats from one row of scores to the next.
    pub(crate) scores_stride: usize,
}

entry! {
    /// Computes the tile.
    ///
    /// # Safety
    /// Pointers are valid for the shapes told; every row sees at least one position; scores have room for all
    /// positions up to the last visible one, rounded up to 16.
    attend = tile(p: &Tile<'_>)
}

#[inline(always)]
unsafe fn tile<V: Lanes>(p: &Tile<'_>) {
    unsafe {
        match p.number {
            Number::F32 => rows::<V, 4>(p),
            Number::F16 => rows::<V, 2>(p),
            Number::Bf16 => rows::<V, 3>(p),
        }
    }
}

/// `KIND` is 4 for float32, 2 for halves, 3 for bfloat16.
#[inline(always)]
unsafe fn rows<V: Lanes, const KIND: u8>(p: &Tile<'_>) {
    unsafe {
        let mut row = 0;
        let n = p.queries.len();
        while row + 4 <= n {
            run::<V, KIND, 4>(p, row);
            row += 4;
        }
        match n - row {
            3 => run::<V, KIND, 3>(p, row),
            2 => run::<V, KIND, 2>(p, row),
            1 => run::<V, KIND, 1>(p, row),
            _ => {}
        }
    }
}

#[inline(always)]
unsafe fn load<V: Lanes, const KIND: u8>(base: *const u8, index: usize) -> V::F {
    unsafe {
        match KIND {
            4 => V::load(base.cast::<f32>().add(index)),
            2 => V::load_f16(base.cast::<u16>().add(index)),
            _ => V::load_bf16(base.cast::<u16>().add(index)),
        }
    }
}

#[inline(always)]
unsafe fn run<V: Lanes, const KIND: u8, const R: usize>(p: &Tile<'_>, row: usize) {
    unsafe {
        let visible: [Range<usize>; R] = std::array::from_fn(|r| p.visible[row + r].clone());
        let start = visible.iter().map(|v| v.start).min().unwrap_or(0) / LANES * LANES;
        let end = visible.iter().map(|v| v.end).max().unwrap_or(0).next_multiple_of(LANES);
        let mut largest = [f32::NEG_INFINITY; R];
        score::<V, KIND, R>(p, row, &visible, start..end, &mut largest);
        let mut inverse = [0.0; R];
        for r in 0..R {
            let sink = p.sinks[row + r];
            let top = largest[r].max(sink);
            let scores = p.scores.add((row + r) * p.scores_stride);
            let mut total = V::splat(0.0);
            let mut at = start;
            while at < end {
                let e = exp::<V>(V::sub(V::load(scores.add(at)), V::splat(top)));
                V::store(scores.add(at), e);
                total = V::add(total, e);
                at += LANES;
            }
            let sink = if sink == f32::NEG_INFINITY { 0.0 } else { (sink - top).exp() };
            inverse[r] = 1.0 / (V::reduce_add(total) + sink);
        }
        let last = visible.iter().map(|v| v.end).max().unwrap_or(0);
        let mut dim = 0;
        while dim < p.dim_v {
            let left = p.dim_v - dim;
            if left >= 4 * LANES {
                mix::<V, KIND, R, 4>(p, row, start..last, dim, &inverse);
                dim += 4 * LANES;
            } else if left >= LANES {
                mix::<V, KIND, R, 1>(p, row, start..last, dim, &inverse);
                dim += LANES;
            } else {
                mix_tail::<V, KIND, R>(p, row, start..last, dim, &inverse);
                dim = p.dim_v;
            }
        }
    }
}

/// Scores of all positions in `span`, masked, and the largest of each row.
#[inline(always)]
unsafe fn score<V: Lanes, const KIND: u8, const R: usize>(
    p: &Tile<'_>,
    row: usize,
    visible: &[Range<usize>; R],
    span: Range<usize>,
    largest: &mut [f32; R],
) {
    unsafe {
        let queries: [*const f32; R] = std::array::from_fn(|r| p.queries[row + r]);
        let mut tops = [V::splat(f32::NEG_INFINITY); R];
        let mut at = span.start;
        while at < span.end {
            let two = at + 2 * LANES <= span.end;
            let mut sums = [[V::splat(0.0); 2]; R];
            if two {
                for d in 0..p.dim_k {
                    let a = load::<V, KIND>(p.keys, at * p.dim_k + d * LANES);
                    let b = load::<V, KIND>(p.keys, (at + LANES) * p.dim_k + d * LANES);
                    for r in 0..R {
                        let q = V::splat(*queries[r].add(d));
                        sums[r][0] = V::fma(a, q, sums[r][0]);
                        sums[r][1] = V::fma(b, q, sums[r][1]);
                    }
                }
            } else {
                for d in 0..p.dim_k {
                    let a = load::<V, KIND>(p.keys, at * p.dim_k + d * LANES);
                    for r in 0..R {
                        sums[r][0] = V::fma(a, V::splat(*queries[r].add(d)), sums[r][0]);
                    }
                }
            }
            for half in 0..if two { 2 } else { 1 } {
                let first = at + half * LANES;
                for r in 0..R {
                    let mut s = V::mul(sums[r][half], V::splat(p.scale));
                    if p.softcap > 0.0 {
                        s = V::mul(tanh::<V>(V::mul(s, V::splat(1.0 / p.softcap))), V::splat(p.softcap));
                    }
                    let (lo, hi) = (visible[r].start, visible[r].end);
                    if first < lo || first + LANES > hi {
                        let from = lo.saturating_sub(first).min(LANES);
                        let to = hi.saturating_sub(first).min(LANES);
                        s = V::keep(s, from, to.max(from), f32::NEG_INFINITY);
                    }
                    V::store(p.scores.add((row + r) * p.scores_stride + first), s);
                    tops[r] = V::max(tops[r], s);
                }
            }
            at += if two { 2 * LANES } else { LANES };
        }
        for r in 0..R {
            largest[r] = V::reduce_max(tops[r]);
        }
    }
}

/// `N` vectors of the result from dimension `dim` on.
#[inline(always)]
unsafe fn mix<V: Lanes, const KIND: u8, const R: usize, const N: usize>(
    p: &Tile<'_>,
    row: usize,
    span: Range<usize>,
    dim: usize,
    inverse: &[f32; R],
) {
    unsafe {
        let mut sums = [[V::splat(0.0); N]; R];
        for at in span {
            let mut v = [V::splat(0.0); N];
            for (i, v) in v.iter_mut().enumerate() {
                *v = load::<V, KIND>(p.values, at * p.dim_v + dim + i * LANES);
            }
            for r in 0..R {
                let weight = V::splat(*p.scores.add((row + r) * p.scores_stride + at));
                for i in 0..N {
                    sums[r][i] = V::fma(v[i], weight, sums[r][i]);
                }
            }
        }
        for r in 0..R {
            for i in 0..N {
                let out = p.outs[row + r].add(dim + i * LANES);
                V::store(out, V::mul(sums[r][i], V::splat(inverse[r])));
            }
        }
    }
}

/// The last dimensions, fewer than 16, one number at a time.
#[inline(always)]
unsafe fn mix_tail<V: Lanes, const KIND: u8, const R: usize>(
    p: &Tile<'_>,
    row: usize,
    span: Range<usize>,
    dim: usize,
    inverse: &[f32; R],
) {
    unsafe {
        for d in dim..p.dim_v {
            for r in 0..R {
                let mut sum = 0.0_f32;
                for at in span.clone() {
                    let index = at * p.dim_v + d;
                    let v = match KIND {
                        4 => *p.values.cast::<f32>().add(index),
                        2 => half::f16::from_bits(*p.values.cast::<u16>().add(index)).to_f32(),
                        _ => half::bf16::from_bits(*p.values.cast::<u16>().add(index)).to_f32(),
                    };
                    sum = v.mul_add(*p.scores.add((row + r) * p.scores_stride + at), sum);
                }
                *p.outs[row + r].add(d) = sum * inverse[r];
            }
        }
    }
}
