//! Mixtures of experts: tokens are put in the order of their experts, every expert multiplies its rows, and the
//! results are summed in the order in which the token named its experts.
//!
//! A routed row is one token at one of its experts. A product gives a row the same bits whatever rows stand
//! beside it, so the order of the routed rows changes nothing.
#![expect(unsafe_code, reason = "hands parts of shared buffers to products")]

use crate::exec::Frame;
use crate::kernels::product::{Product, multiply};
use crate::matrix::Matrix;
use crate::plan::{BufferId, ProductInput};
use crate::pool::Worker;

/// Equal matrices that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// The first one.
    pub(crate) matrix: Matrix,
    pub(crate) count: usize,
}

impl Stack {
    /// One matrix of the stack.
    pub(crate) fn get(&self, index: usize) -> Matrix {
        Matrix { offset: self.matrix.offset + index * self.matrix.bytes(), ..self.matrix }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.count * self.matrix.bytes()
    }
}

/// Puts (token, choice) pairs in the order of their experts.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The experts of each token: `[k]`.
    pub(crate) indices: BufferId,
    pub(crate) n_experts: usize,
    /// `[k]` a token, as one list: which pair a routed row is.
    pub(crate) pairs: BufferId,
    /// `[k]`: which routed row a pair is.
    pub(crate) places: BufferId,
}

/// Copies each token's row to its routed rows.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    pub(crate) x: BufferId,
    pub(crate) pairs: BufferId,
    /// `[k, width]` a token, as one list of routed rows.
    pub(crate) out: BufferId,
}

/// Products of routed rows with the matrices of their experts.
#[derive(Clone, Debug)]
pub(crate) struct ExpertProduct {
    pub(crate) input: ProductInput,
    pub(crate) experts: Stack,
    pub(crate) indices: BufferId,
    pub(crate) pairs: BufferId,
    pub(crate) out: BufferId,
}

/// Sums a token's routed rows by its weights.
#[derive(Clone, Debug)]
pub(crate) struct Combine {
    pub(crate) routed: BufferId,
    pub(crate) weights: BufferId,
    pub(crate) places: BufferId,
    pub(crate) out: BufferId,
}

impl Frame<'_> {
    /// A stable counting sort; short enough for one thread.
    pub(crate) fn route(&self, p: &Route, worker: &Worker<'_>) {
        if worker.index != 0 {
            return;
        }
        let k = self.buffer(p.indices).item;
        let n_pairs = self.n_rows(self.buffer(p.indices).rows) * k;
        let experts = self.slice(p.indices, 0, 0, n_pairs);
        let mut next = vec![0; p.n_experts + 1];
        for expert in experts {
            next[expert_of(*expert, p.n_experts) + 1] += 1;
        }
        for expert in 0..p.n_experts {
            next[expert + 1] += next[expert];
        }
        let (pairs, places) =
            (self.slice_mut(p.pairs, 0, 0, n_pairs), self.slice_mut(p.places, 0, 0, n_pairs));
        for (pair, expert) in experts.iter().enumerate() {
            let row = &mut next[expert_of(*expert, p.n_experts)];
            pairs[*row] = pair as f32;
            places[pair] = *row as f32;
            *row += 1;
        }
    }

    pub(crate) fn spread(&self, p: &Spread, worker: &Worker<'_>) {
        let k = self.buffer(p.pairs).item;
        let width = self.buffer(p.x).item;
        let n_pairs = self.n_rows(self.buffer(p.x).rows) * k;
        let pairs = self.slice(p.pairs, 0, 0, n_pairs);
        for row in worker.share(n_pairs) {
            let from = self.slice(p.x, pairs[row] as usize / k, 0, width);
            self.slice_mut(p.out, 0, row * width, width).copy_from_slice(from);
        }
    }

    pub(crate) fn expert_product(&self, p: &ExpertProduct, worker: &Worker<'_>) {
        let n_pairs = self.n_rows(self.buffer(p.indices).rows) * self.buffer(p.indices).item;
        let (pairs, indices) = (self.slice(p.pairs, 0, 0, n_pairs), self.slice(p.indices, 0, 0, n_pairs));
        let expert = |row: usize| expert_of(indices[pairs[row] as usize], p.experts.count);
        let mut first = 0;
        while first < n_pairs {
            let chosen = expert(first);
            let end = (first..n_pairs).find(|row| expert(*row) != chosen).unwrap_or(n_pairs);
            let matrix = p.experts.get(chosen);
            let product = Product {
                matrix: &matrix,
                weights: self.weights,
                panels: worker.share(matrix.n_panels()),
                input: self.product_input(p.input, &matrix, first),
                n_tokens: end - first,
                // SAFETY: the buffer has room for all routed rows.
                out: unsafe { self.row(p.out, 0).add(first * matrix.n_out) },
                out_stride: matrix.n_out,
                bias: None,
                residual: None,
            };
            // SAFETY: the plan gave every buffer its rows; threads have disjoint panels.
            unsafe { multiply(self.simd, &product) };
            first = end;
        }
    }

    pub(crate) fn combine(&self, p: &Combine, worker: &Worker<'_>) {
        let width = self.buffer(p.out).item;
        let k = self.buffer(p.weights).item;
        for row in worker.share(self.n_rows(self.buffer(p.out).rows)) {
            let out = self.slice_mut(p.out, row, 0, width);
            out.fill(0.0);
            let choices = self.slice(p.weights, row, 0, k).iter().zip(self.slice(p.places, row, 0, k));
            for (weight, place) in choices {
                let routed = self.slice(p.routed, 0, *place as usize * width, width);
                out.iter_mut().zip(routed).for_each(|(y, x)| *y += weight * x);
            }
        }
    }
}

/// The expert that an index names; one beyond the last counts as the last, as in every look-up.
fn expert_of(index: f32, n_experts: usize) -> usize {
    (index as usize).min(n_experts - 1)
}
