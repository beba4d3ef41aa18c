//! Runs a plan's instructions on one thread of many.
#![expect(
    unsafe_code,
    reason = "threads write disjoint parts of shared buffers, as the plan's splits and barriers tell"
)]

use std::sync::atomic::{AtomicUsize, Ordering};

use host_graph::{Mask, Op};

use crate::features::Simd;
use crate::general::{Arg, evaluate};
use crate::kernels::attention::{MAX_ROWS, Tile, attend};
use crate::kernels::product::{Input, Product, multiply};
use crate::kernels::quantise::{BlockMeta, quantise_row};
use crate::kernels::rows::{Norm, glu, narrow, norm_rows, unary};
use crate::lanes::LANES;
use crate::matrix::{BLOCK, Matrix, Number};
use crate::plan::{
    Buffer, BufferId, CodesId, Instr, KvPlace, Operand, Plan, ProductInput, RopeTable, Rows, Vector,
};
use crate::pool::Worker;
use crate::stateful::visible;

/// One run of the step: where its sequence's state lies and where its tokens are.
pub(crate) struct RunView {
    pub(crate) state: *mut u8,
    /// How its keys and values are stored.
    pub(crate) number: Number,
    /// Tokens the sequence held before.
    pub(crate) past: usize,
    /// The run's first token among the step's.
    pub(crate) first: usize,
    pub(crate) len: usize,
}

/// How the keys and values of a step's sequences are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KvNumbers {
    /// All as the plan was made for.
    AsPlanned(Number),
    /// Each run in its own way.
    PerRun,
}

/// Everything a step's instructions read and write.
pub(crate) struct Frame<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) simd: Simd,
    pub(crate) weights: *const u8,
    pub(crate) constants: *mut u8,
    pub(crate) arena: *mut u8,
    pub(crate) logits: *mut u8,
    /// Room for scores: `MAX_ROWS` rows a thread.
    pub(crate) scores: *mut f32,
    /// Positions a row of scores has room for.
    pub(crate) capacity: usize,
    pub(crate) kv: KvNumbers,
    pub(crate) n_tokens: usize,
    /// The token of each wanted row of logits.
    pub(crate) logit_tokens: &'a [usize],
    pub(crate) runs: &'a [RunView],
    /// Tasks taken so far, one counter an attention.
    pub(crate) counters: &'a [AtomicUsize],
}

// SAFETY: the pointers are to buffers that outlive the frame; the plan's splits and barriers keep two threads
// from touching the same bytes at once unless both only read.
unsafe impl Sync for Frame<'_> {}

impl Frame<'_> {
    /// Runs every step of the plan; every thread of the pool calls it with the same frame.
    pub(crate) fn run(&self, worker: &Worker<'_>) {
        for step in &self.plan.steps {
            if step.barrier_before {
                worker.barrier();
            }
            self.execute(&step.instr, worker);
        }
    }

    /// Computes the values that no token changes; a single thread calls it, before the first step.
    pub(crate) fn run_once(&self, alone: &Worker<'_>) {
        for instr in &self.plan.once {
            self.execute(instr, alone);
        }
        for step in &self.plan.steps {
            if let Instr::Scan(scan) = &step.instr {
                self.body_frame(&scan.body.plan, alone.index).run_once(alone);
            }
        }
    }

    fn execute(&self, instr: &Instr, worker: &Worker<'_>) {
        match instr {
            Instr::RopeTable { rope } => self.rope_table(&self.plan.ropes[*rope], worker),
            Instr::Embed { table, ids, out, scale } => self.embed(table, *ids, *out, *scale, worker),
            Instr::Norm { x, out, width, weight, bias, eps, is_centred, codes } => {
                let vector = |v: &Option<Vector>| v.map_or(std::ptr::null(), |v| self.vector(v));
                let item = self.buffer(*out).item;
                for row in worker.share(self.n_rows(self.buffer(*out).rows)) {
                    let p = Norm {
                        x: self.row(*x, row),
                        out: self.row(*out, row),
                        n_rows: item / width,
                        width: *width,
                        weight: vector(weight),
                        bias: vector(bias),
                        eps: *eps,
                        is_centred: *is_centred,
                    };
                    // SAFETY: rows of both buffers hold `item` floats; this thread alone has them.
                    unsafe { norm_rows(self.simd, &p) };
                    if let Some(codes) = codes {
                        self.quantise(*out, *codes, row);
                    }
                }
            }
            Instr::Quantise { x, codes } => {
                for row in worker.share(self.n_rows(self.buffer(*x).rows)) {
                    self.quantise(*x, *codes, row);
                }
            }
            Instr::Product { input, matrix, bias, residual, out } => {
                self.product(*input, matrix, *bias, *residual, *out, worker);
            }
            Instr::Glu { activation, gate, up, out, codes } => {
                let n = self.buffer(*out).item;
                for row in worker.share(self.n_rows(self.buffer(*out).rows)) {
                    let (gate, up, to) = (self.row(*gate, row), self.row(*up, row), self.row(*out, row));
                    // SAFETY: rows hold `n` floats; this thread alone writes this one.
                    unsafe { glu(self.simd, *activation, gate, up, to, n) };
                    if let Some(codes) = codes {
                        self.quantise(*out, *codes, row);
                    }
                }
            }
            Instr::Rope { x, out, width, rope } => {
                let rope = &self.plan.ropes[*rope];
                let n_heads = self.buffer(*out).item / width;
                for token in worker.share(self.n_tokens) {
                    for head in 0..n_heads {
                        let from = self.slice(*x, token, head * width, *width);
                        let to = self.slice_mut(*out, token, head * width, *width);
                        self.rotate(rope, token, from, to);
                    }
                }
            }
            Instr::KvWrite { k, v, place, rope } => self.kv_write(*k, *v, place, *rope, worker),
            Instr::Attention { q, out, n_heads, place, scale, softcap, mask, sinks, counter } => {
                let sinks = sinks.map(|v| self.vector(v));
                let task = Attention {
                    q: *q,
                    out: *out,
                    n_heads: *n_heads,
                    place,
                    scale: *scale,
                    softcap: *softcap,
                    mask: *mask,
                    sinks,
                };
                self.attention(&task, &self.counters[*counter], worker);
            }
            Instr::TakeRows { x, out } => {
                let item = self.buffer(*out).item;
                for row in worker.share(self.logit_tokens.len()) {
                    let from = self.slice(*x, self.logit_tokens[row], 0, item);
                    self.slice_mut(*out, row, 0, item).copy_from_slice(from);
                }
            }
            Instr::Route(p) => self.route(p, worker),
            Instr::Spread(p) => self.spread(p, worker),
            Instr::ExpertProduct(p) => self.expert_product(p, worker),
            Instr::Combine(p) => self.combine(p, worker),
            Instr::Conv(p) => self.conv(p, worker),
            Instr::GatedDelta(p) => self.gated_delta(p, worker),
            Instr::SsmScan(p) => self.ssm_scan(p, worker),
            Instr::IndexWrite(p) => self.index_write(p, worker),
            Instr::SparseSelect(p) => self.sparse_select(p, worker),
            Instr::SelectedAttention(p) => self.selected_attention(p, worker),
            Instr::Scan(p) => self.scan(p, worker),
            Instr::General { op, lead, inputs, out, out_item } => {
                let rows = worker.share(self.n_rows(self.buffer(*out).rows));
                self.general(op, *lead, inputs, *out, out_item, rows);
            }
        }
    }

    pub(crate) fn buffer(&self, id: BufferId) -> &Buffer {
        &self.plan.buffers[id.0]
    }

    pub(crate) fn n_rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.n_tokens,
            Rows::Logits => self.logit_tokens.len(),
            Rows::Once => 1,
        }
    }

    /// The first float of a buffer's row.
    pub(crate) fn row(&self, id: BufferId, row: usize) -> *mut f32 {
        let buffer = self.buffer(id);
        let (base, row) = match buffer.rows {
            Rows::Once => (self.constants, 0),
            _ if id == self.plan.logits => (self.logits, row),
            _ => (self.arena, row),
        };
        // SAFETY: the layout gave every buffer room for all rows of a step.
        unsafe { base.add(buffer.offset).cast::<f32>().add(row * buffer.item) }
    }

    pub(crate) fn slice(&self, id: BufferId, row: usize, from: usize, len: usize) -> &[f32] {
        // SAFETY: callers stay within a row, and nobody writes it until the next barrier.
        unsafe { std::slice::from_raw_parts(self.row(id, row).add(from), len) }
    }

    #[expect(
        clippy::mut_from_ref,
        reason = "each part of a buffer is written by one thread between barriers"
    )]
    pub(crate) fn slice_mut(&self, id: BufferId, row: usize, from: usize, len: usize) -> &mut [f32] {
        // SAFETY: callers stay within a row, and no other thread touches this part until the next barrier.
        unsafe { std::slice::from_raw_parts_mut(self.row(id, row).add(from), len) }
    }

    pub(crate) fn vector(&self, vector: Vector) -> *const f32 {
        // SAFETY: vectors lie within the constants.
        unsafe { self.constants.add(vector.offset).cast() }
    }

    fn rope_table(&self, rope: &RopeTable, worker: &Worker<'_>) {
        let pairs = rope.spec.dims / 2;
        for token in worker.share(self.n_tokens) {
            let position = self.slice(self.plan.positions, token, 0, 1)[0];
            let (cosines, sines) = self.slice_mut(rope.table, token, 0, 2 * pairs).split_at_mut(pairs);
            for (i, f) in rope.inverse_frequencies.iter().enumerate() {
                let (sine, cosine) = (position * f).sin_cos();
                cosines[i] = cosine * rope.spec.attention_factor;
                sines[i] = sine * rope.spec.attention_factor;
            }
        }
    }

    fn rotate(&self, rope: &RopeTable, token: usize, x: &[f32], out: &mut [f32]) {
        let dims = rope.spec.dims;
        let (cosines, sines) = self.slice(rope.table, token, 0, dims).split_at(dims / 2);
        out[dims..].copy_from_slice(&x[dims..]);
        match rope.spec.layout {
            host_graph::RopeLayout::SplitHalves => {
                let (x1, x2) = x[..dims].split_at(dims / 2);
                let (y1, y2) = out[..dims].split_at_mut(dims / 2);
                for i in 0..dims / 2 {
                    let (a, b, c, s) = (x1[i], x2[i], cosines[i], sines[i]);
                    y1[i] = a * c - b * s;
                    y2[i] = b * c + a * s;
                }
            }
            host_graph::RopeLayout::Interleaved => {
                for i in 0..dims / 2 {
                    let (a, b, c, s) = (x[2 * i], x[2 * i + 1], cosines[i], sines[i]);
                    out[2 * i] = a * c - b * s;
                    out[2 * i + 1] = b * c + a * s;
                }
            }
        }
    }

    fn embed(&self, table: &Matrix, ids: BufferId, out: BufferId, scale: f32, worker: &Worker<'_>) {
        for row in worker.share(self.n_rows(self.buffer(out).rows)) {
            let n_ids = self.buffer(ids).item;
            for (i, id) in self.slice(ids, row, 0, n_ids).iter().enumerate() {
                let to = self.slice_mut(out, row, i * table.n_in, table.n_in);
                // SAFETY: the table lies within the weights; ids were checked against the vocabulary.
                unsafe { table.read_row(self.weights, (*id as usize).min(table.n_out - 1), to) };
                if scale != 1.0 {
                    to.iter_mut().for_each(|x| *x *= scale);
                }
            }
        }
    }

    fn codes_at(&self, id: CodesId, row: usize) -> (*mut i8, *mut BlockMeta) {
        let codes = &self.plan.codes[id.0];
        // SAFETY: the layout gave codes and metas room for all rows of a step.
        unsafe {
            let metas = self.arena.add(codes.metas).cast::<BlockMeta>();
            (self.arena.add(codes.codes + row * codes.stride).cast(), metas.add(row * (codes.stride / BLOCK)))
        }
    }

    fn quantise(&self, x: BufferId, id: CodesId, row: usize) {
        let codes = &self.plan.codes[id.0];
        let stride = codes.stride / codes.n_rows;
        let (to, metas) = self.codes_at(id, row);
        for i in 0..codes.n_rows {
            // SAFETY: product rows lie side by side in both buffers; this thread alone has them.
            unsafe {
                let from = self.row(x, row).add(i * codes.n_in);
                let metas = metas.add(i * (stride / BLOCK));
                quantise_row(self.simd, from, codes.n_in, to.add(i * stride), metas);
            }
        }
    }

    fn product(
        &self,
        input: ProductInput,
        matrix: &Matrix,
        bias: Option<Vector>,
        residual: Option<BufferId>,
        out: BufferId,
        worker: &Worker<'_>,
    ) {
        // A row of the buffer may hold several product rows: heads.
        let per_row = self.buffer(out).item / matrix.n_out;
        let input = self.product_input(input, matrix, 0);
        let product = Product {
            matrix,
            weights: self.weights,
            panels: worker.share(matrix.n_panels()),
            input,
            n_tokens: self.n_rows(self.buffer(out).rows) * per_row,
            out: self.row(out, 0),
            out_stride: matrix.n_out,
            bias: bias.map(|v| self.vector(v)),
            residual: residual.map(|x| (self.row(x, 0).cast_const(), matrix.n_out)),
        };
        // SAFETY: the plan gave every buffer its rows; threads have disjoint panels.
        unsafe { multiply(self.simd, &product) };
    }

    /// What a product reads, from product row `first` on.
    pub(crate) fn product_input(&self, input: ProductInput, matrix: &Matrix, first: usize) -> Input {
        // SAFETY: the layout gave floats, codes and metas room for all product rows.
        unsafe {
            match input {
                ProductInput::Floats(x) => {
                    Input::Float { x: self.row(x, 0).add(first * matrix.n_in), stride: matrix.n_in }
                }
                ProductInput::Codes(id) => {
                    let (codes, meta) = self.codes_at(id, 0);
                    let stride = matrix.n_in_padded();
                    let meta = meta.add(first * (stride / BLOCK));
                    Input::Quantised { codes: codes.add(first * stride), meta, stride }
                }
            }
        }
    }

    fn kv_write(&self, k: BufferId, v: BufferId, place: &KvPlace, rope: Option<usize>, worker: &Worker<'_>) {
        let mut rotated = vec![0.0; place.dim_k];
        for token in worker.share(self.n_tokens) {
            let run = self.run_of(token);
            let position = run.past + token - run.first;
            for head in 0..place.heads {
                let key = self.slice(k, token, head * place.dim_k, place.dim_k);
                let key = match rope {
                    Some(rope) => {
                        self.rotate(&self.plan.ropes[rope], token, key, &mut rotated);
                        &rotated[..]
                    }
                    None => key,
                };
                let value = self.slice(v, token, head * place.dim_v, place.dim_v);
                // SAFETY: the run's state has room for `capacity` positions; this thread alone has this one.
                unsafe {
                    let keys = run.state.add(place.keys);
                    let first =
                        (head * self.capacity + position / LANES * LANES) * place.dim_k + position % LANES;
                    write_numbers(self.simd, keys, self.kv_number(run), first, LANES, key);
                    let values = run.state.add(place.values);
                    write_numbers(
                        self.simd,
                        values,
                        self.kv_number(run),
                        (head * self.capacity + position) * place.dim_v,
                        1,
                        value,
                    );
                }
            }
        }
    }

    /// How the keys and values of a run are stored.
    pub(crate) fn kv_number(&self, run: &RunView) -> Number {
        match self.kv {
            KvNumbers::AsPlanned(number) => number,
            KvNumbers::PerRun => run.number,
        }
    }

    pub(crate) fn run_of(&self, token: usize) -> &RunView {
        &self.runs[self.runs.partition_point(|run| run.first <= token) - 1]
    }

    fn attention(&self, a: &Attention<'_>, counter: &AtomicUsize, worker: &Worker<'_>) {
        let per_group = a.n_heads / a.place.heads;
        let all_rows = self.n_tokens * a.n_heads;
        let tile_rows = (all_rows / (2 * worker.count)).clamp(1, MAX_ROWS);
        let tiles_of = |run: &RunView| (run.len * per_group).div_ceil(tile_rows);
        loop {
            // Later tiles see more positions; they are taken first so that the last task is short.
            let mut task = counter.fetch_add(1, Ordering::Relaxed);
            let mut found = None;
            for run in self.runs {
                let tiles = tiles_of(run);
                if task < tiles * a.place.heads {
                    found = Some((run, task % a.place.heads, tiles - 1 - task / a.place.heads));
                    break;
                }
                task -= tiles * a.place.heads;
            }
            let Some((run, kv_head, tile)) = found else { return };
            let rows = tile * tile_rows..((tile + 1) * tile_rows).min(run.len * per_group);
            self.attention_tile(a, run, kv_head, rows, worker.index);
        }
    }

    /// Rows are numbered token by token, within a token head by head of the group.
    fn attention_tile(
        &self,
        a: &Attention<'_>,
        run: &RunView,
        kv_head: usize,
        rows: std::ops::Range<usize>,
        thread: usize,
    ) {
        let per_group = a.n_heads / a.place.heads;
        let n = rows.len();
        let mut queries = [std::ptr::null::<f32>(); MAX_ROWS];
        let mut outs = [std::ptr::null_mut::<f32>(); MAX_ROWS];
        let mut seen = [const { 0..0 }; MAX_ROWS];
        let mut sinks = [f32::NEG_INFINITY; MAX_ROWS];
        for (i, row) in rows.enumerate() {
            let token = run.first + row / per_group;
            let head = kv_head * per_group + row % per_group;
            // SAFETY: a row of q holds `[n_heads, dim_k]`, one of out `[n_heads, dim_v]`.
            unsafe {
                queries[i] = self.row(a.q, token).add(head * a.place.dim_k);
                outs[i] = self.row(a.out, token).add(head * a.place.dim_v);
                if let Some(all) = a.sinks {
                    sinks[i] = *all.add(head);
                }
            }
            let position = run.past + row / per_group;
            seen[i] = visible(a.mask, position);
        }
        let number = self.kv_number(run);
        let element = number.bytes();
        // SAFETY: the run's state holds both caches; each thread has its own rows of scores.
        unsafe {
            let tile = Tile {
                queries: &queries[..n],
                outs: &outs[..n],
                visible: &seen[..n],
                sinks: &sinks[..n],
                keys: run.state.add(a.place.keys + kv_head * self.capacity * a.place.dim_k * element),
                values: run.state.add(a.place.values + kv_head * self.capacity * a.place.dim_v * element),
                number,
                dim_k: a.place.dim_k,
                dim_v: a.place.dim_v,
                scale: a.scale,
                softcap: a.softcap,
                scores: self.scores.add(thread * MAX_ROWS * self.capacity),
                scores_stride: self.capacity,
            };
            attend(self.simd, &tile);
        }
    }

    fn general(
        &self,
        op: &Op,
        lead: usize,
        inputs: &[Operand],
        out: BufferId,
        out_item: &[usize],
        rows: std::ops::Range<usize>,
    ) {
        let item = self.buffer(out).item;
        for row in rows {
            if let Op::Unary(op) = op {
                // SAFETY: rows of both hold `item` floats; this thread alone writes this one.
                unsafe { unary(self.simd, *op, self.row(inputs[0].buffer, row), self.row(out, row), item) };
                continue;
            }
            let arg = |x: &Operand| {
                let n = x.item.iter().product();
                (self.slice(x.buffer, row, 0, n), x.item.clone())
            };
            let owned: Vec<_> = inputs.iter().map(arg).collect();
            let args: Vec<_> = owned.iter().map(|(data, item)| Arg { data, item }).collect();
            evaluate(op, lead, &args, self.slice_mut(out, row, 0, item), out_item);
        }
    }
}

/// One attention of the plan.
struct Attention<'a> {
    q: BufferId,
    out: BufferId,
    n_heads: usize,
    place: &'a KvPlace,
    scale: f32,
    softcap: f32,
    mask: Mask,
    sinks: Option<*const f32>,
}

/// Writes numbers `step` elements apart, from element `first` on.
///
/// # Safety
/// `base` is valid for all of them.
unsafe fn write_numbers(
    simd: Simd,
    base: *mut u8,
    number: Number,
    first: usize,
    step: usize,
    values: &[f32],
) {
    if number == Number::F16 && step == 1 {
        // SAFETY: as the caller promises.
        unsafe { narrow(simd, values.as_ptr(), base.cast::<u16>().add(first), values.len()) };
        return;
    }
    for (i, value) in values.iter().enumerate() {
        let at = first + i * step;
        unsafe {
            match number {
                Number::F32 => *base.cast::<f32>().add(at) = *value,
                Number::F16 => *base.cast::<u16>().add(at) = half::f16::from_f32(*value).to_bits(),
                Number::Bf16 => *base.cast::<u16>().add(at) = half::bf16::from_f32(*value).to_bits(),
            }
        }
    }
}
