//! Operations that keep a state between steps: convolutions, recurrences, index keys, and scans.
//!
//! Work is cut so that a thread owns whole rows of a state, and each row moves token by token: neither the
//! number of threads nor the cut into steps changes a bit.
#![expect(unsafe_code, reason = "threads write disjoint parts of shared buffers and states")]

use std::ops::Range;

use host_graph::Mask;

use crate::exec::{Frame, RunView};
use crate::kernels::attention::MAX_ROWS;
use crate::kernels::recurrent::{Delta, IndexScores, Ssm, gated_delta, index_scores, ssm_scan};
use crate::lanes::LANES;
use crate::matrix::Number;
use crate::plan::{BufferId, IndexPlace, KvPlace, Plan, Vector};
use crate::pool::Worker;

/// A depthwise causal convolution.
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    pub(crate) x: BufferId,
    pub(crate) out: BufferId,
    pub(crate) channels: usize,
    pub(crate) kernel: usize,
    /// `[channels, kernel]`.
    pub(crate) weight: Vector,
    pub(crate) bias: Option<Vector>,
    /// First byte of the last inputs, oldest first: `[kernel - 1, channels]`.
    pub(crate) state: usize,
}

/// The gated delta rule over heads.
#[derive(Clone, Debug)]
pub(crate) struct GatedDelta {
    pub(crate) q: BufferId,
    pub(crate) k: BufferId,
    pub(crate) v: BufferId,
    pub(crate) g: BufferId,
    pub(crate) beta: BufferId,
    pub(crate) out: BufferId,
    pub(crate) dims: HeadDims,
    /// First byte of `[n_heads, dim_v, dim_k]`.
    pub(crate) state: usize,
}

/// The selective state space over heads.
#[derive(Clone, Debug)]
pub(crate) struct SsmScan {
    pub(crate) x: BufferId,
    pub(crate) dt: BufferId,
    pub(crate) a: BufferId,
    pub(crate) b: BufferId,
    pub(crate) c: BufferId,
    pub(crate) out: BufferId,
    pub(crate) dims: HeadDims,
    /// First byte of `[n_heads, dim_v, dim_k]`.
    pub(crate) state: usize,
}

/// Sizes of a recurrence over heads: a head's state is `[dim_v, dim_k]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadDims {
    pub(crate) n_heads: usize,
    /// Keys (or b and c), each of which several heads share.
    pub(crate) n_groups: usize,
    pub(crate) dim_v: usize,
    pub(crate) dim_k: usize,
}

/// Appends index keys.
#[derive(Clone, Debug)]
pub(crate) struct IndexWrite {
    pub(crate) k: BufferId,
    pub(crate) place: IndexPlace,
}

/// Chooses the positions that a query attends to.
#[derive(Clone, Debug)]
pub(crate) struct SparseSelect {
    pub(crate) q: BufferId,
    pub(crate) weights: BufferId,
    pub(crate) out: BufferId,
    pub(crate) n_heads: usize,
    pub(crate) k: usize,
    pub(crate) place: IndexPlace,
}

/// Attention over chosen positions only.
#[derive(Clone, Debug)]
pub(crate) struct SelectedAttention {
    pub(crate) q: BufferId,
    pub(crate) selected: BufferId,
    pub(crate) out: BufferId,
    pub(crate) n_heads: usize,
    pub(crate) place: KvPlace,
    pub(crate) scale: f32,
    /// 0 for none.
    pub(crate) softcap: f32,
    pub(crate) mask: Mask,
    pub(crate) sinks: Option<Vector>,
}

/// A loop over the tokens of each run.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) inputs: Vec<BufferId>,
    pub(crate) out: BufferId,
    pub(crate) body: Box<ScanBody>,
    /// First byte of the state.
    pub(crate) state: usize,
}

/// The body of a scan: a plan of one token, run in a thread's own scratch.
#[derive(Clone, Debug)]
pub(crate) struct ScanBody {
    pub(crate) plan: Plan,
    /// Where the state goes, then each input at this token.
    pub(crate) inputs: Vec<BufferId>,
    pub(crate) new_state: BufferId,
    pub(crate) output: BufferId,
}

/// Channels or state rows that one task takes.
const ROWS_AT_ONCE: usize = 16;

impl Frame<'_> {
    pub(crate) fn conv(&self, p: &Conv, worker: &Worker<'_>) {
        for channels in blocks(p.channels, worker) {
            for run in self.runs {
                self.conv_run(p, run, channels.clone());
            }
        }
    }

    fn conv_run(&self, p: &Conv, run: &RunView, channels: Range<usize>) {
        let (n, kept) = (channels.len(), p.kernel - 1);
        let weight = |channel: usize, tap: usize| {
            // SAFETY: the weight holds `[channels, kernel]` floats.
            unsafe { *self.vector(p.weight).add(channel * p.kernel + tap) }
        };
        // SAFETY: the state holds `[kernel - 1, channels]` floats; this thread alone has these channels.
        let state = |row: usize| unsafe {
            let start = run.state.add(p.state).cast::<f32>().add(row * p.channels + channels.start);
            std::slice::from_raw_parts_mut(start, n)
        };
        for i in 0..run.len {
            let out = self.slice_mut(p.out, run.first + i, channels.start, n);
            for (j, y) in out.iter_mut().enumerate() {
                // SAFETY: the bias holds `[channels]` floats.
                *y = p.bias.map_or(0.0, |bias| unsafe { *self.vector(bias).add(channels.start + j) });
            }
            for tap in 0..p.kernel {
                // The input of this tap: from the state while the run is not long enough.
                let x = match (i + tap).checked_sub(kept) {
                    Some(token) => self.slice(p.x, run.first + token, channels.start, n),
                    None => &*state(i + tap),
                };
                for (j, (y, x)) in out.iter_mut().zip(x).enumerate() {
                    *y += weight(channels.start + j, tap) * x;
                }
            }
        }
        for row in 0..kept {
            match (run.len + row).checked_sub(kept) {
                Some(token) => {
                    state(row).copy_from_slice(self.slice(p.x, run.first + token, channels.start, n));
                }
                None => {
                    let from = state(row + run.len).to_vec();
                    state(row).copy_from_slice(&from);
                }
            }
        }
    }

    pub(crate) fn gated_delta(&self, p: &GatedDelta, worker: &Worker<'_>) {
        let dims = p.dims;
        self.each_head_block(dims, worker, |run, head, rows| {
            let group = head / (dims.n_heads / dims.n_groups) * dims.dim_k;
            let value = head * dims.dim_v + rows.start;
            // SAFETY: offsets are within the rows and the state that the plan laid out for these sizes.
            unsafe {
                let task = Delta {
                    state: run.state.add(p.state).cast::<f32>().add(value * dims.dim_k),
                    n_rows: rows.len(),
                    width: dims.dim_k,
                    n_tokens: run.len,
                    q: self.row(p.q, run.first).add(group),
                    k: self.row(p.k, run.first).add(group),
                    key_stride: dims.n_groups * dims.dim_k,
                    v: self.row(p.v, run.first).add(value),
                    out: self.row(p.out, run.first).add(value),
                    value_stride: dims.n_heads * dims.dim_v,
                    g: self.row(p.g, run.first).add(head),
                    beta: self.row(p.beta, run.first).add(head),
                    gate_stride: dims.n_heads,
                };
                gated_delta(self.simd, &task);
            }
        });
    }

    pub(crate) fn ssm_scan(&self, p: &SsmScan, worker: &Worker<'_>) {
        let dims = p.dims;
        self.each_head_block(dims, worker, |run, head, rows| {
            let group = head / (dims.n_heads / dims.n_groups) * dims.dim_k;
            let value = head * dims.dim_v + rows.start;
            // SAFETY: offsets are within the rows and the state that the plan laid out for these sizes.
            unsafe {
                let task = Ssm {
                    state: run.state.add(p.state).cast::<f32>().add(value * dims.dim_k),
                    n_rows: rows.len(),
                    width: dims.dim_k,
                    n_tokens: run.len,
                    b: self.row(p.b, run.first).add(group),
                    c: self.row(p.c, run.first).add(group),
                    group_stride: dims.n_groups * dims.dim_k,
                    x: self.row(p.x, run.first).add(value),
                    out: self.row(p.out, run.first).add(value),
                    value_stride: dims.n_heads * dims.dim_v,
                    dt: self.row(p.dt, run.first).add(head),
                    gate_stride: dims.n_heads,
                    a: self.slice(p.a, 0, head, 1)[0],
                };
                ssm_scan(self.simd, &task);
            }
        });
    }

    /// Shares blocks of each head's state rows, of all runs, between the threads.
    fn each_head_block(
        &self,
        dims: HeadDims,
        worker: &Worker<'_>,
        run_block: impl Fn(&RunView, usize, Range<usize>),
    ) {
        let per_head = dims.dim_v.div_ceil(ROWS_AT_ONCE);
        let per_run = dims.n_heads * per_head;
        for task in worker.share(self.runs.len() * per_run) {
            let start = task % per_head * ROWS_AT_ONCE;
            let rows = start..(start + ROWS_AT_ONCE).min(dims.dim_v);
            run_block(&self.runs[task / per_run], task % per_run / per_head, rows);
        }
    }

    pub(crate) fn index_write(&self, p: &IndexWrite, worker: &Worker<'_>) {
        for token in worker.share(self.n_tokens) {
            let (run, position) = self.place_of(token);
            let first = position / LANES * LANES * p.place.dim + position % LANES;
            for (d, x) in self.slice(p.k, token, 0, p.place.dim).iter().enumerate() {
                // SAFETY: the state has room for all positions; this thread alone has this one.
                unsafe { *run.state.add(p.place.keys).cast::<f32>().add(first + d * LANES) = *x };
            }
        }
    }

    pub(crate) fn sparse_select(&self, p: &SparseSelect, worker: &Worker<'_>) {
        for token in worker.share(self.n_tokens) {
            let (run, position) = self.place_of(token);
            let n = position + 1;
            // SAFETY: each thread has its own rows of scores, with room for whole blocks.
            let scores = unsafe {
                let scores = self.scores.add(worker.index * MAX_ROWS * self.capacity);
                let task = IndexScores {
                    q: self.row(p.q, token),
                    weights: self.row(p.weights, token),
                    keys: run.state.add(p.place.keys).cast(),
                    n_heads: p.n_heads,
                    dim: p.place.dim,
                    n_blocks: n.div_ceil(LANES),
                    out: scores,
                };
                index_scores(self.simd, &task);
                std::slice::from_raw_parts_mut(scores, n)
            };
            select(scores, self.slice_mut(p.out, token, 0, p.k));
        }
    }

    pub(crate) fn selected_attention(&self, p: &SelectedAttention, worker: &Worker<'_>) {
        for token in worker.share(self.n_tokens) {
            let (run, position) = self.place_of(token);
            let visible = visible(p.mask, position);
            let selected = self.slice(p.selected, token, 0, self.buffer(p.selected).item);
            let mut positions: Vec<usize> = selected
                .iter()
                .filter(|at| **at >= 0.0)
                .map(|at| *at as usize)
                .filter(|at| visible.contains(at))
                .collect();
            positions.sort_unstable();
            positions.dedup();
            for head in 0..p.n_heads {
                self.attend_to(p, run, token, head, &positions);
            }
        }
    }

    /// One head's attention over the given positions; 0 where there are none.
    fn attend_to(
        &self,
        p: &SelectedAttention,
        run: &RunView,
        token: usize,
        head: usize,
        positions: &[usize],
    ) {
        let KvPlace { heads, dim_k, dim_v, keys, values } = p.place;
        let kv_head = head / (p.n_heads / heads);
        let number = self.kv_number(run);
        // SAFETY: the state has room for `capacity` positions of every head, and these are written.
        let key = |at: usize, d: usize| unsafe {
            let block = (kv_head * self.capacity + at / LANES * LANES) * dim_k;
            read_number(run.state.add(keys), number, block + d * LANES + at % LANES)
        };
        // SAFETY: as for the keys.
        let value = |at: usize, d: usize| unsafe {
            read_number(run.state.add(values), number, (kv_head * self.capacity + at) * dim_v + d)
        };
        let q = self.slice(p.q, token, head * dim_k, dim_k);
        let mut weights: Vec<f32> = positions
            .iter()
            .map(|at| {
                let dot: f32 = q.iter().enumerate().map(|(d, q)| q * key(*at, d)).sum();
                let score = dot * p.scale;
                if p.softcap > 0.0 { (score / p.softcap).tanh() * p.softcap } else { score }
            })
            .collect();
        // SAFETY: there is one sink a head.
        let sink = p.sinks.map_or(f32::NEG_INFINITY, |sinks| unsafe { *self.vector(sinks).add(head) });
        let top = weights.iter().copied().fold(sink, f32::max);
        weights.iter_mut().for_each(|w| *w = (*w - top).exp());
        let sink = if p.sinks.is_some() { (sink - top).exp() } else { 0.0 };
        let total = weights.iter().sum::<f32>() + sink;
        for (d, y) in self.slice_mut(p.out, token, head * dim_v, dim_v).iter_mut().enumerate() {
            let sum: f32 = positions.iter().zip(&weights).map(|(at, w)| w * value(*at, d)).sum();
            *y = if positions.is_empty() { 0.0 } else { sum / total };
        }
    }

    pub(crate) fn scan(&self, p: &Scan, worker: &Worker<'_>) {
        let ScanBody { plan, inputs, new_state, output } = &*p.body;
        let frame = self.body_frame(plan, worker.index);
        let alone = worker.alone();
        let (state_buffer, n_state) = (inputs[0], frame.buffer(inputs[0]).item);
        for run in &self.runs[worker.share(self.runs.len())] {
            // SAFETY: the run's state holds the scan's; this thread alone has this run.
            let state =
                unsafe { std::slice::from_raw_parts_mut(run.state.add(p.state).cast::<f32>(), n_state) };
            for token in run.first..run.first + run.len {
                frame.slice_mut(state_buffer, 0, 0, n_state).copy_from_slice(state);
                for (from, to) in p.inputs.iter().zip(&inputs[1..]) {
                    let n = frame.buffer(*to).item;
                    frame.slice_mut(*to, 0, 0, n).copy_from_slice(self.slice(*from, token, 0, n));
                }
                frame.run(&alone);
                state.copy_from_slice(frame.slice(*new_state, 0, 0, n_state));
                let n = self.buffer(p.out).item;
                self.slice_mut(p.out, token, 0, n).copy_from_slice(frame.slice(*output, 0, 0, n));
            }
        }
    }

    /// The frame in which a thread runs a scan's body: one token, in its own scratch.
    pub(crate) fn body_frame<'a>(&'a self, plan: &'a Plan, thread: usize) -> Frame<'a> {
        // SAFETY: every thread has `scan_bytes` behind the arena's buffers.
        let arena = unsafe { self.arena.add(self.plan.arena_bytes + thread * self.plan.scan_bytes) };
        Frame { plan, arena, n_tokens: 1, logit_tokens: &[], runs: &[], ..*self }
    }

    /// A token's run and its position in the sequence.
    fn place_of(&self, token: usize) -> (&RunView, usize) {
        let run = self.run_of(token);
        (run, run.past + token - run.first)
    }
}

/// This thread's blocks of rows.
fn blocks(n_rows: usize, worker: &Worker<'_>) -> impl Iterator<Item = Range<usize>> {
    let share = worker.share(n_rows.div_ceil(ROWS_AT_ONCE));
    share.map(move |block| block * ROWS_AT_ONCE..((block + 1) * ROWS_AT_ONCE).min(n_rows))
}

/// The number at `index`.
///
/// # Safety
/// `base` is valid for it.
unsafe fn read_number(base: *const u8, number: Number, index: usize) -> f32 {
    unsafe {
        match number {
            Number::F32 => *base.cast::<f32>().add(index),
            Number::F16 => half::f16::from_bits(*base.cast::<u16>().add(index)).to_f32(),
            Number::Bf16 => half::bf16::from_bits(*base.cast::<u16>().add(index)).to_f32(),
        }
    }
}

/// The positions that a query at `position` may see.
pub(crate) fn visible(mask: Mask, position: usize) -> Range<usize> {
    let first = match mask {
        Mask::Window(window) => (position + 1).saturating_sub(window),
        Mask::Chunked(chunk) => position / chunk * chunk,
        // No request declares a prefix yet, and without one the mask is causal.
        Mask::Causal | Mask::BidirectionalPrefix => 0,
    };
    first..position + 1
}

/// Fills `out` with the positions of the largest scores: those above the smallest of them in order, then ties
/// in order, then -1.
fn select(scores: &mut [f32], out: &mut [f32]) {
    out.fill(-1.0);
    let k = out.len();
    // -0 and 0 are one score.
    scores.iter_mut().for_each(|score| *score += 0.0);
    let threshold = if scores.len() <= k {
        f32::NEG_INFINITY
    } else {
        let mut sorted = scores.to_vec();
        *sorted.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
    };
    let above = (0..scores.len()).filter(|at| scores[*at] > threshold);
    let ties = (0..scores.len()).filter(|at| scores[*at] == threshold);
    for (to, at) in out.iter_mut().zip(above.chain(ties)) {
        *to = at as f32;
    }
}
