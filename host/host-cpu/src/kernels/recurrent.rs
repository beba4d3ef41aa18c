//! Steps of recurrent states, and the scores of sparse selection.
//!
//! A state row is updated token by token, whatever the run it came in, so a sequence cut into chunks gets the
//! bits of the whole one.
#![expect(unsafe_code, reason = "kernels work on raw parts of shared buffers")]

use crate::kernels::entry;
use crate::lanes::{LANES, Lanes};

/// Some rows of one head's gated delta state over the tokens of one run.
#[derive(Clone, Copy)]
pub(crate) struct Delta {
    /// `[n_rows, width]`.
    pub(crate) state: *mut f32,
    pub(crate) n_rows: usize,
    /// Width of a key.
    pub(crate) width: usize,
    pub(crate) n_tokens: usize,
    /// The first token's query and key: `[width]`.
    pub(crate) q: *const f32,
    pub(crate) k: *const f32,
    /// Floats from one token's query and key to the next one's.
    pub(crate) key_stride: usize,
    /// The first token's values for these rows: `[n_rows]`.
    pub(crate) v: *const f32,
    /// Where the first token's outputs go: `[n_rows]`.
    pub(crate) out: *mut f32,
    /// Floats from one token's values and outputs to the next one's.
    pub(crate) value_stride: usize,
    /// The first token's decay and rate.
    pub(crate) g: *const f32,
    pub(crate) beta: *const f32,
    /// Floats from one token's decay and rate to the next one's.
    pub(crate) gate_stride: usize,
}

entry! {
    /// `S *= g; d = (v - S k) * beta; S += d k^T; y = S q`, token by token.
    ///
    /// # Safety
    /// Pointers are valid for the shapes told; no other thread touches these rows or outputs.
    gated_delta = delta(p: &Delta)
}

#[inline(always)]
unsafe fn delta<V: Lanes>(p: &Delta) {
    unsafe {
        for token in 0..p.n_tokens {
            let (q, k) = (p.q.add(token * p.key_stride), p.k.add(token * p.key_stride));
            let decay = V::splat(*p.g.add(token * p.gate_stride));
            let rate = *p.beta.add(token * p.gate_stride);
            for row in 0..p.n_rows {
                let state = p.state.add(row * p.width);
                let mut held = V::splat(0.0);
                for (at, n) in chunks(p.width) {
                    let s = V::mul(V::load_n(state.add(at), n), decay);
                    V::store_n(state.add(at), s, n);
                    held = V::fma(s, V::load_n(k.add(at), n), held);
                }
                let at_token = token * p.value_stride + row;
                let difference = V::splat((*p.v.add(at_token) - V::reduce_add(held)) * rate);
                let mut y = V::splat(0.0);
                for (at, n) in chunks(p.width) {
                    let s = V::fma(difference, V::load_n(k.add(at), n), V::load_n(state.add(at), n));
                    V::store_n(state.add(at), s, n);
                    y = V::fma(s, V::load_n(q.add(at), n), y);
                }
                *p.out.add(at_token) = V::reduce_add(y);
            }
        }
    }
}

/// Some rows of one head's selective state over the tokens of one run.
#[derive(Clone, Copy)]
pub(crate) struct Ssm {
    /// `[n_rows, width]`.
    pub(crate) state: *mut f32,
    pub(crate) n_rows: usize,
    /// Width of b and c.
    pub(crate) width: usize,
    pub(crate) n_tokens: usize,
    /// The first token's b and c: `[width]`.
    pub(crate) b: *const f32,
    pub(crate) c: *const f32,
    /// Floats from one token's b and c to the next one's.
    pub(crate) group_stride: usize,
    /// The first token's inputs for these rows: `[n_rows]`.
    pub(crate) x: *const f32,
    /// Where the first token's outputs go: `[n_rows]`.
    pub(crate) out: *mut f32,
    /// Floats from one token's inputs and outputs to the next one's.
    pub(crate) value_stride: usize,
    /// The first token's step.
    pub(crate) dt: *const f32,
    /// Floats from one token's step to the next one's.
    pub(crate) gate_stride: usize,
    /// The head's a.
    pub(crate) a: f32,
}

entry! {
    /// `S = S * exp(dt * a) + dt * x b^T; y = S c`, token by token.
    ///
    /// # Safety
    /// Pointers are valid for the shapes told; no other thread touches these rows or outputs.
    ssm_scan = ssm(p: &Ssm)
}

#[inline(always)]
unsafe fn ssm<V: Lanes>(p: &Ssm) {
    unsafe {
        for token in 0..p.n_tokens {
            let (b, c) = (p.b.add(token * p.group_stride), p.c.add(token * p.group_stride));
            let dt = *p.dt.add(token * p.gate_stride);
            let decay = V::splat((dt * p.a).exp());
            for row in 0..p.n_rows {
                let state = p.state.add(row * p.width);
                let at_token = token * p.value_stride + row;
                let input = V::splat(dt * *p.x.add(at_token));
                let mut y = V::splat(0.0);
                for (at, n) in chunks(p.width) {
                    let added = V::mul(input, V::load_n(b.add(at), n));
                    let s = V::fma(V::load_n(state.add(at), n), decay, added);
                    V::store_n(state.add(at), s, n);
                    y = V::fma(s, V::load_n(c.add(at), n), y);
                }
                *p.out.add(at_token) = V::reduce_add(y);
            }
        }
    }
}

/// One query's scores of index keys.
#[derive(Clone, Copy)]
pub(crate) struct IndexScores {
    /// `[n_heads, dim]`.
    pub(crate) q: *const f32,
    /// `[n_heads]`.
    pub(crate) weights: *const f32,
    /// `[n_blocks][dim][16]`.
    pub(crate) keys: *const f32,
    pub(crate) n_heads: usize,
    pub(crate) dim: usize,
    /// Blocks of 16 positions.
    pub(crate) n_blocks: usize,
    /// Room for `16 * n_blocks` scores.
    pub(crate) out: *mut f32,
}

entry! {
    /// `n_heads^-0.5 * sum_h w_h relu(q_h · k * dim^-0.5)` of every position.
    ///
    /// # Safety
    /// Pointers are valid for the shapes told.
    index_scores = scores(p: &IndexScores)
}

#[inline(always)]
unsafe fn scores<V: Lanes>(p: &IndexScores) {
    unsafe {
        let by_dim = V::splat((p.dim as f32).sqrt().recip());
        let by_heads = V::splat((p.n_heads as f32).sqrt().recip());
        for block in 0..p.n_blocks {
            let keys = p.keys.add(block * p.dim * LANES);
            let mut total = V::splat(0.0);
            for head in 0..p.n_heads {
                let q = p.q.add(head * p.dim);
                let mut sum = V::splat(0.0);
                for d in 0..p.dim {
                    sum = V::fma(V::load(keys.add(d * LANES)), V::splat(*q.add(d)), sum);
                }
                let positive = V::max(V::splat(0.0), V::mul(sum, by_dim));
                total = V::fma(V::splat(*p.weights.add(head)), positive, total);
            }
            V::store(p.out.add(block * LANES), V::mul(total, by_heads));
        }
    }
}

/// (first, how many) of each run of up to 16 elements.
#[inline(always)]
fn chunks(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).step_by(LANES).map(move |at| (at, (n - at).min(LANES)))
}
