//! What looks at other tokens: rotations, attention, convolutions, recurrences.
//!
//! The list of tokens of a step is cut into parts, one a group of sequences: either one sequence with any
//! number of tokens, or several sequences with one token each. Each part meets its group's state, and the
//! results are joined again in the same order.

use std::collections::HashMap;

use host_graph::{Body, Mask, Node, Op, RopeLayout, RopeSpec, Slot, SlotId, SlotKind, Value};
use kernels::{decode_attention, gated_delta};
use mlx_rs::{Array, Dtype};
use mlx_sys as sys;

use crate::Backend;
use crate::eval::{run_body, softcap};
use crate::fault::Fault;
use crate::demand::{Choice, decode_shape, delta_shape};
use crate::kernel;
use crate::kv::{Kept, Kv};
use crate::ops::{self, AttentionMask, Made, Packed, RopeOffset};
use crate::program::Tables;
use crate::replay::{self, scaled_for_rope};
use crate::state::{Fetched, Place, SlotState};
use crate::weights::Weight;

/// Sequences that step together.
#[derive(Debug)]
pub(crate) struct Group {
    /// Unused columns in front of each row.
    pub(crate) pads: Vec<usize>,
    /// Columns of the frame so far.
    pub(crate) offset: usize,
    /// One a slot of the graph.
    pub(crate) slots: Vec<SlotState>,
    /// Where the next replayed step stands, if the last one told.
    pub(crate) place: Option<replay::Place>,
}

/// A group's tokens in one step.
pub(crate) struct Part<'a> {
    pub(crate) group: &'a mut Group,
    /// The first of its tokens in the list.
    pub(crate) first: usize,
    /// New tokens of each row; more than one only for a group of one row.
    pub(crate) len: usize,
    fetched: HashMap<u32, Fetched>,
    masks: HashMap<(Mask, Place), AttentionMask>,
    /// The position of each row's first new token, int32 `[rows]`, once needed.
    offsets: Option<Array>,
}

impl<'a> Part<'a> {
    pub(crate) fn new(group: &'a mut Group, first: usize, len: usize) -> Self {
        Part { group, first, len, fetched: HashMap::new(), masks: HashMap::new(), offsets: None }
    }

    fn n_rows(&self) -> usize {
        self.group.pads.len()
    }

    fn n_tokens(&self) -> usize {
        self.n_rows() * self.len
    }

    /// The positions of its tokens, in the order of the list.
    pub(crate) fn positions(&self) -> Vec<i32> {
        let of_row = |pad: &usize| {
            let past = self.group.offset - pad;
            (past..past + self.len).map(|position| position as i32)
        };
        self.group.pads.iter().flat_map(of_row).collect()
    }
}

/// One step while it is built.
pub(crate) struct Step<'a> {
    pub(crate) parts: Vec<Part<'a>>,
    pub(crate) slots: &'a [Slot],
    /// What runs the arrays.
    pub(crate) backend: Backend,
    /// Activations.
    pub(crate) dtype: Dtype,
    /// Keys and values.
    pub(crate) kv: Kv,
    /// The kernels that the profile names.
    pub(crate) kernels: &'a Choice,
    /// Ids `[N]`.
    pub(crate) ids: Array,
    /// The tokens whose logits are wanted; `None` for all, in order.
    pub(crate) wanted: Option<Vec<usize>>,
    /// Positions of all tokens as an array, once needed.
    pub(crate) position_array: Option<Array>,
}

impl Step<'_> {
    pub(crate) fn n_tokens(&self) -> usize {
        self.parts.iter().map(Part::n_tokens).sum()
    }

    /// Whether it is one part in which each row has one token.
    pub(crate) fn is_one_token_a_row(&self) -> bool {
        matches!(&self.parts[..], [part] if part.len == 1)
    }

    pub(crate) fn n_logits(&self) -> usize {
        self.wanted.as_ref().map_or(self.n_tokens(), Vec::len)
    }

    /// The rows of a list whose logits are wanted.
    pub(crate) fn logit_tokens_of(&self, list: &Array) -> Made {
        match &self.wanted {
            None => Ok(list.clone()),
            Some(wanted) => {
                if let [only] = wanted[..] {
                    return ops::slice(list, 0, only, only + 1);
                }
                let rows: Vec<i32> = wanted.iter().map(|row| *row as i32).collect();
                ops::take(list, &ops::from_ints(&rows, &[rows.len() as i32]), 0)
            }
        }
    }

    pub(crate) fn tokens(&self, is_head: bool) -> Made {
        if is_head { self.logit_tokens_of(&self.ids) } else { Ok(self.ids.clone()) }
    }

    pub(crate) fn positions(&mut self, is_head: bool) -> Made {
        let all = match &self.position_array {
            Some(all) => all.clone(),
            None => {
                let positions: Vec<i32> = self.parts.iter().flat_map(Part::positions).collect();
                ops::from_ints(&positions, &[positions.len() as i32])
            }
        };
        self.position_array = Some(all.clone());
        if is_head { self.logit_tokens_of(&all) } else { Ok(all) }
    }

    /// Computes a node part by part.
    pub(crate) fn stateful(&mut self, index: usize, node: &Node, inputs: &[Array], tables: &Tables) -> Made {
        let (backend, dtype, kv, kernels) = (self.backend, self.dtype, self.kv, self.kernels);
        let slots = self.slots;
        let is_single = self.parts.len() == 1;
        let heads_apart = self.is_one_token_a_row();
        let mut results = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            let own = inputs.iter().enumerate().map(|(at, array)| {
                // Of all inputs only this one is the same for every token.
                let is_fixed = matches!(node.op, Op::SsmScan { .. }) && at == 2;
                if is_single || is_fixed {
                    return Ok(array.clone());
                }
                ops::slice(array, 0, part.first, part.first + part.n_tokens())
            });
            let own: Vec<Array> = own.collect::<Result<_, _>>()?;
            let settings = Settings { backend, dtype, kv, kernels, slots, heads_apart };
            let result = part.compute(index, node, own, tables, &settings)?;
            results.push(ops::cast(&result, if is_int(&node.op) { Dtype::Int32 } else { dtype })?);
        }
        ops::concat(&results.iter().collect::<Vec<_>>(), 0)
    }
}

fn is_int(op: &Op) -> bool {
    matches!(op, Op::SparseSelect { .. })
}

/// What parts need to know of the whole.
struct Settings<'a> {
    backend: Backend,
    dtype: Dtype,
    kv: Kv,
    kernels: &'a Choice,
    slots: &'a [Slot],
    /// Whether heads stay `[rows, H, 1, D]`.
    heads_apart: bool,
}

impl Part<'_> {
    fn compute(
        &mut self,
        index: usize,
        node: &Node,
        inputs: Vec<Array>,
        tables: &Tables,
        settings: &Settings<'_>,
    ) -> Made {
        match &node.op {
            Op::Rope(spec) => {
                let rotated = self.rope(spec, &inputs[0], &tables.periods[&index])?;
                self.out(rotated, settings)
            }
            Op::Attention { slot, scale, mask, softcap, sinks } => {
                let sinks = sinks.as_ref().map(|name| match &tables.weights[name] {
                    Weight::Dense(sinks) => sinks,
                    Weight::Packed(_) => unreachable!("the builder admits only plain numbers here"),
                });
                let attention = Attention { scale: *scale, mask: *mask, softcap: *softcap, sinks };
                self.attention(*slot, &attention, &inputs, settings)
            }
            Op::Conv1dCausal { slot, weight, bias } => {
                let dense = |name: &String| match &tables.weights[name] {
                    Weight::Dense(array) => array.clone(),
                    Weight::Packed(_) => unreachable!("the builder admits only plain numbers here"),
                };
                self.conv(*slot, &inputs[0], &dense(weight), bias.as_ref().map(dense).as_ref())
            }
            Op::GatedDelta { slot } => self.gated_delta(*slot, &inputs, settings),
            Op::SsmScan { slot } => self.ssm_scan(*slot, &inputs),
            Op::SparseSelect { slot, k } => self.sparse_select(*slot, *k, &inputs),
            Op::Scan { slot, body } => self.scan(*slot, body, &inputs, tables, settings.dtype),
            other => unreachable!("{} looks at one token at a time", other.name()),
        }
    }

    /// Heads of tokens as the graph's other operations take them in this step.
    fn out(&self, x: Array, settings: &Settings<'_>) -> Made {
        if settings.heads_apart { Ok(x) } else { self.tokens_first(&x) }
    }

    /// `[N, H, D]` as `[rows, H, T, D]`.
    fn heads_first(&self, x: &Array) -> Made {
        let [_, heads, width] = *x.shape() else { return Ok(x.clone()) };
        if self.len == 1 {
            return ops::reshape(x, &[self.n_rows() as i32, heads, 1, width]);
        }
        ops::transpose(&ops::reshape(x, &[1, self.len as i32, heads, width])?, &[0, 2, 1, 3])
    }

    /// `[rows, H, T, D]` as `[N, H, D]`.
    fn tokens_first(&self, x: &Array) -> Made {
        let [_, heads, _, width] = *x.shape() else { unreachable!("heads of tokens") };
        let shape = [self.n_tokens() as i32, heads, width];
        if self.len == 1 {
            return ops::reshape(x, &shape);
        }
        ops::reshape(&ops::transpose(x, &[0, 2, 1, 3])?, &shape)
    }

    /// `[rows, H, T, D]`, of heads in either form.
    fn rope(&mut self, spec: &RopeSpec, x: &Array, periods: &Array) -> Made {
        let mut x = self.heads_first(x)?;
        x = scaled_for_rope(&x, spec)?;
        let is_interleaved = spec.layout == RopeLayout::Interleaved;
        let first_pad = self.group.pads[0];
        if self.group.pads.iter().all(|pad| *pad == first_pad) {
            let offset = RopeOffset::One(self.group.offset - first_pad);
            ops::rope(&x, spec.dims, is_interleaved, periods, &offset)
        } else {
            if self.offsets.is_none() {
                self.offsets = Some(ops::from_ints(&self.positions(), &[self.n_rows() as i32]));
            }
            let offset = self.offsets.as_ref().map_or(RopeOffset::One(0), RopeOffset::Rows);
            ops::rope(&x, spec.dims, is_interleaved, periods, &offset)
        }
    }

    fn columns(&mut self, slot: SlotId, new: &[Array]) -> Result<Fetched, Fault> {
        let offset = self.group.offset;
        let SlotState::Columns(columns) = &mut self.group.slots[slot.0 as usize] else {
            unreachable!("the builder has checked the kind of slot")
        };
        let fetched = columns.append(offset, new)?;
        self.fetched.insert(slot.0, fetched.clone());
        Ok(fetched)
    }

    fn moving(&self, slot: SlotId) -> Array {
        match &self.group.slots[slot.0 as usize] {
            SlotState::Moving(state) => state.clone(),
            _ => unreachable!("the builder has checked the kind of slot"),
        }
    }

    fn set_moving(&mut self, slot: SlotId, state: Array) {
        self.group.slots[slot.0 as usize] = SlotState::Moving(state);
    }

    fn attention(
        &mut self,
        slot: SlotId,
        attention: &Attention<'_>,
        inputs: &[Array],
        settings: &Settings<'_>,
    ) -> Made {
        let q = self.heads_first(&inputs[0])?;
        let (fetched, selected) = match settings.slots[slot.0 as usize].kind {
            SlotKind::KvShared { with } => (self.fetched[&with.0].clone(), inputs.get(1)),
            _ => {
                let mut new = settings.kv.kept(&self.heads_first(&inputs[1])?)?;
                new.extend(settings.kv.kept(&self.heads_first(&inputs[2])?)?);
                (self.columns(slot, &new)?, inputs.get(3))
            }
        };
        let is_plain = attention.softcap.is_none() && attention.sinks.is_none() && selected.is_none();
        let by_kernel = is_plain
            && settings.kernels.has(decode_attention::KERNEL.name)
            && self.n_rows() == 1
            && self.sees_all(attention.mask, fetched.place);
        // MLX's CUDA build has no products of many rows with codes of keys and values.
        let has_products = settings.backend != Backend::Cuda;
        let (k, v) = match settings.kv.read(&fetched.arrays)? {
            Kept::Codes(..) if by_kernel => {
                let q = ops::scale(&q, attention.scale)?;
                let out = self.decode_attention(slot, &q, fetched.place, settings)?;
                return self.out(out, settings);
            }
            Kept::Codes(k, v) if is_plain && has_products => {
                let out = self.over_codes(attention, &q, [k, v], fetched.place)?;
                return self.out(out, settings);
            }
            Kept::Codes(k, v) => (ops::dequantise(&k, settings.dtype)?, ops::dequantise(&v, settings.dtype)?),
            Kept::Plain(k, v) => (ops::cast(&k, settings.dtype)?, ops::cast(&v, settings.dtype)?),
        };
        let out = if attention.softcap.is_some() || selected.is_some() {
            let allowed = self.allowed(attention.mask, fetched.place)?;
            let allowed = match selected {
                Some(selected) => {
                    let chosen = self.chosen(selected, fetched.place)?;
                    ops::binary(sys::mlx_logical_and, &allowed, &chosen)?
                }
                None => allowed,
            };
            attention.step_by_step(&q, &k, &v, &allowed)?
        } else {
            let mask = self.mask(attention.mask, fetched.place)?;
            ops::attention(&q, &k, &v, attention.scale, &mask, attention.sinks)?
        };
        self.out(out, settings)
    }

    /// Attention over codes, which two of MLX's products read as they are.
    fn over_codes(
        &mut self,
        attention: &Attention<'_>,
        q: &Array,
        [k, v]: [Packed; 2],
        place: Place,
    ) -> Made {
        let [n_rows, n_heads, len, width] = *q.shape() else { unreachable!("heads of tokens") };
        let q = ops::scale(q, attention.scale)?;
        let n_kv = v.codes.shape()[1];
        let q = ops::reshape(&q, &[n_rows, n_kv, n_heads / n_kv, len, width])?;
        let apart = |packed: Packed| -> Result<Packed, Fault> {
            Ok(Packed {
                codes: column(&packed.codes, 2)?,
                scales: column(&packed.scales, 2)?,
                biases: packed.biases.as_ref().map(|biases| column(biases, 2)).transpose()?,
                ..packed
            })
        };
        let (k, v) = (apart(k)?, apart(v)?);
        let mut scores = ops::quantised_product(&q, &k, true)?;
        if !self.sees_all(attention.mask, place) {
            let allowed = column(&self.allowed(attention.mask, place)?, 2)?;
            scores = ops::choose(&allowed, &scores, &ops::scalar(lowest(scores.dtype()), scores.dtype())?)?;
        }
        let out = ops::quantised_product(&ops::softmax(&scores)?, &v, false)?;
        ops::reshape(&out, &[n_rows, n_heads, len, width])
    }

    /// One query of one sequence over the whole arrays of a slot, of which `place` says how much is used.
    fn decode_attention(&self, slot: SlotId, q: &Array, place: Place, settings: &Settings<'_>) -> Made {
        let own = match settings.slots[slot.0 as usize].kind {
            SlotKind::KvShared { with } => with,
            _ => slot,
        };
        let SlotState::Columns(columns) = &self.group.slots[own.0 as usize] else {
            unreachable!("the builder has checked the kind of slot")
        };
        let [_, n_heads, _, width] = *q.shape() else { unreachable!("heads of tokens") };
        let kept = columns.arrays();
        let [_, n_kv, capacity, _] = *kept[0].shape() else { unreachable!("heads of columns") };
        let sizes = [n_heads, n_kv, width].map(|n| n as usize);
        let Some(shape) = decode_shape(settings.kv, sizes, [place.n_columns, capacity as usize], q.dtype()) else {
            return Err(Fault("plain keys and values have no codes".to_owned()));
        };
        let length = ops::from_ints(&shape.length(), &[3]);
        let launches = shape.launches();
        let [block, merge] = decode_attention::KERNEL.stages else { unreachable!("two stages") };
        let inputs: Vec<&Array> = [q].into_iter().chain(kept).chain([&length]).collect();
        let blocks = kernel::launch(settings.backend, block, &inputs, &launches[0])?;
        let inputs: Vec<&Array> = blocks.iter().chain([&length]).collect();
        let out = kernel::launch(settings.backend, merge, &inputs, &launches[1])?;
        ops::reshape(&out[0], q.shape())
    }

    /// The mask in the cheapest form that says the same.
    fn mask(&mut self, mask: Mask, place: Place) -> Result<AttentionMask, Fault> {
        if let Some(known) = self.masks.get(&(mask, place)) {
            return Ok(known.clone());
        }
        let made = if self.sees_all(mask, place) {
            AttentionMask::None
        } else if self.is_plainly_causal(mask, place) {
            AttentionMask::Causal
        } else {
            AttentionMask::Array(self.allowed(mask, place)?)
        };
        self.masks.insert((mask, place), made.clone());
        Ok(made)
    }

    /// Whether one new token of each row sees every column.
    fn sees_all(&self, mask: Mask, place: Place) -> bool {
        let newest = self.group.offset;
        self.len == 1
            && self.group.pads.iter().all(|pad| {
                place.oldest() >= *pad && place.oldest() - pad >= first_visible(mask, newest - pad)
            })
    }

    fn is_plainly_causal(&self, mask: Mask, place: Place) -> bool {
        let newest = self.group.offset + self.len - 1;
        self.n_rows() == 1
            && place.is_in_order()
            && place.oldest() == 0
            && (0..=newest).rev().take(self.len).all(|position| first_visible(mask, position) == 0)
    }

    /// Which columns each query may see: bool `[rows, 1, T, columns]`.
    fn allowed(&self, mask: Mask, place: Place) -> Made {
        let positions = self.positions();
        let lowest: Vec<i32> =
            positions.iter().map(|position| first_visible(mask, *position as usize) as i32).collect();
        let shape = [self.n_rows() as i32, 1, self.len as i32, 1];
        let keys = self.key_positions(place)?;
        let not_later =
            ops::binary(sys::mlx_less_equal, &keys, &ops::from_ints(&positions, &shape))?;
        let not_earlier =
            ops::binary(sys::mlx_greater_equal, &keys, &ops::from_ints(&lowest, &shape))?;
        ops::binary(sys::mlx_logical_and, &not_later, &not_earlier)
    }

    /// The position of each column in each row, below 0 for a pad: int32 `[rows, 1, 1, columns]`.
    fn key_positions(&self, place: Place) -> Made {
        let of_frame = ops::from_ints(&place.positions(), &[1, 1, 1, place.n_columns as i32]);
        if self.group.pads.iter().all(|pad| *pad == 0) {
            return Ok(of_frame);
        }
        let pads: Vec<i32> = self.group.pads.iter().map(|pad| *pad as i32).collect();
        ops::sub(&of_frame, &ops::from_ints(&pads, &[pads.len() as i32, 1, 1, 1]))
    }

    /// Which columns were selected: bool `[rows, 1, T, columns]`, of ids `[N, k]`.
    fn chosen(&self, selected: &Array, place: Place) -> Made {
        let k = selected.shape()[1];
        let ids = ops::reshape(selected, &[self.n_rows() as i32, self.len as i32, k, 1])?;
        let keys = self.key_positions(place)?;
        let any = ops::reduce(sys::mlx_any_axis, &ops::binary(sys::mlx_equal, &ids, &keys)?, 2, false)?;
        let shape = [self.n_rows() as i32, 1, self.len as i32, place.n_columns as i32];
        ops::reshape(&any, &shape)
    }

    fn conv(&mut self, slot: SlotId, x: &Array, weight: &Array, bias: Option<&Array>) -> Made {
        let channels = x.shape()[1];
        let state = self.moving(slot);
        let kept = state.shape()[1] as usize;
        let x = ops::reshape(x, &[self.n_rows() as i32, self.len as i32, channels])?;
        let all = ops::concat(&[&state, &ops::cast(&x, state.dtype())?], 1)?;
        // [K, C]: one row a tap, whichever of the three stored shapes it has.
        let taps = ops::transpose(&ops::reshape(weight, &[channels, kept as i32 + 1])?, &[1, 0])?;
        let mut sum: Option<Array> = bias.cloned();
        for tap in 0..=kept {
            let w = ops::slice(&taps, 0, tap, tap + 1)?;
            let term = ops::mul(&ops::slice(&all, 1, tap, tap + self.len)?, &w)?;
            sum = Some(match sum {
                Some(sum) => ops::add(&sum, &term)?,
                None => term,
            });
        }
        let n_columns = kept + self.len;
        self.set_moving(slot, ops::slice(&all, 1, n_columns - kept, n_columns)?);
        let sum = sum.unwrap_or(x);
        ops::reshape(&sum, &[self.n_tokens() as i32, channels])
    }

    /// The tokens of each row at time `t`, of `[N, …]`: `[rows, …]`, in float32.
    fn at(&self, x: &Array, t: usize) -> Made {
        let x = if self.len == 1 { x.clone() } else { ops::slice(x, 0, t, t + 1)? };
        ops::cast(&x, Dtype::Float32)
    }

    /// In one launch where the profile names our kernel; else step by step.
    fn gated_delta(&mut self, slot: SlotId, inputs: &[Array], settings: &Settings<'_>) -> Made {
        let [q, k, v, g, beta] = inputs else { unreachable!("five inputs") };
        if settings.kernels.has(gated_delta::KERNEL.name) {
            let size = |axis: usize| [k, v].map(|x| x.shape()[axis] as usize);
            let shape = delta_shape(size(1), size(2), [self.n_rows(), self.len], settings.dtype);
            let state = self.moving(slot);
            let steps = ops::from_ints(&[self.len as i32], &[1]);
            let g = ops::cast(g, Dtype::Float32)?;
            let inputs = [q, k, v, &g, beta, &state, &steps];
            let stage = &gated_delta::KERNEL.stages[0];
            let mut made = kernel::launch(settings.backend, stage, &inputs, &shape.launch())?;
            let (Some(state), Some(y)) = (made.pop(), made.pop()) else { unreachable!("two outputs") };
            self.set_moving(slot, state);
            return ops::reshape(&y, v.shape());
        }
        let (n_v, n_k) = (v.shape()[1], k.shape()[1]);
        let n_shared = (n_v / n_k) as usize;
        let mut state = self.moving(slot);
        let mut outputs = Vec::with_capacity(self.len);
        for t in 0..self.len {
            let key = ops::repeat(&self.at(k, t)?, n_shared, 1)?;
            let query = ops::repeat(&self.at(q, t)?, n_shared, 1)?;
            let (value, gate, beta) = (self.at(v, t)?, self.at(g, t)?, self.at(beta, t)?);
            let (key, query) = (column(&key, 2)?, column(&query, 2)?);
            let decayed = ops::mul(&state, &column(&column(&gate, 2)?, 3)?)?;
            let held = ops::reduce(sys::mlx_sum_axis, &ops::mul(&decayed, &key)?, 3, false)?;
            let delta = ops::mul(&ops::sub(&value, &held)?, &column(&beta, 2)?)?;
            state = ops::add(&decayed, &ops::mul(&column(&delta, 3)?, &key)?)?;
            outputs.push(ops::reduce(sys::mlx_sum_axis, &ops::mul(&state, &query)?, 3, false)?);
        }
        self.set_moving(slot, state);
        ops::concat(&outputs.iter().collect::<Vec<_>>(), 0)
    }

    fn ssm_scan(&mut self, slot: SlotId, inputs: &[Array]) -> Made {
        let [x, dt, a, b, c] = inputs else { unreachable!("five inputs") };
        let n_shared = (x.shape()[1] / b.shape()[1]) as usize;
        let a = ops::cast(a, Dtype::Float32)?;
        let mut state = self.moving(slot);
        let mut outputs = Vec::with_capacity(self.len);
        for t in 0..self.len {
            let (x, dt) = (self.at(x, t)?, self.at(dt, t)?);
            let b = column(&ops::repeat(&self.at(b, t)?, n_shared, 1)?, 2)?;
            let c = column(&ops::repeat(&self.at(c, t)?, n_shared, 1)?, 2)?;
            let decay = ops::unary(sys::mlx_exp, &ops::mul(&dt, &a)?)?;
            let input = ops::mul(&x, &column(&dt, 2)?)?;
            let kept = ops::mul(&state, &column(&column(&decay, 2)?, 3)?)?;
            state = ops::add(&kept, &ops::mul(&column(&input, 3)?, &b)?)?;
            outputs.push(ops::reduce(sys::mlx_sum_axis, &ops::mul(&state, &c)?, 3, false)?);
        }
        self.set_moving(slot, state);
        ops::concat(&outputs.iter().collect::<Vec<_>>(), 0)
    }

    /// Positions of the largest scores: those above the smallest of them in order, then ties in order, then -1.
    fn sparse_select(&mut self, slot: SlotId, k: usize, inputs: &[Array]) -> Made {
        let [q, keys, weights] = inputs else { unreachable!("three inputs") };
        let (n_heads, width) = (q.shape()[1], q.shape()[2]);
        let (n_rows, len) = (self.n_rows() as i32, self.len as i32);
        let new = self.heads_first(&ops::reshape(keys, &[self.n_tokens() as i32, 1, width])?)?;
        let fetched = self.columns(slot, &[ops::cast(&new, Dtype::Float32)?])?;
        let (place, n_columns) = (fetched.place, fetched.place.n_columns as i32);
        let q = ops::cast(&self.heads_first(q)?, Dtype::Float32)?;
        let dots = ops::matmul(&q, &ops::transpose(&fetched.arrays[0], &[0, 1, 3, 2])?)?;
        let dots = ops::scale(&dots, 1.0 / (width as f32).sqrt())?;
        let relu = ops::binary(sys::mlx_maximum, &dots, &Array::from_f32(0.0))?;
        let weights = ops::cast(weights, Dtype::Float32)?;
        let weights = ops::reshape(&weights, &[n_rows, len, n_heads, 1])?;
        let weights = ops::transpose(&weights, &[0, 2, 1, 3])?;
        let sum = ops::reduce(sys::mlx_sum_axis, &ops::mul(&relu, &weights)?, 1, false)?;
        let scores = ops::scale(&sum, 1.0 / (n_heads as f32).sqrt())?;
        let allowed = ops::reshape(&self.allowed(Mask::Causal, place)?, &[n_rows, len, n_columns])?;
        let keys = self.key_positions(place)?;
        let keys = ops::broadcast(&ops::reshape(&keys, &[keys.shape()[0], 1, n_columns])?, &[
            n_rows, len, n_columns,
        ])?;
        let best = best_positions(&scores, &allowed, &keys, k)?;
        ops::reshape(&best, &[self.n_tokens() as i32, k as i32])
    }

    fn scan(
        &mut self,
        slot: SlotId,
        body: &Body,
        inputs: &[Array],
        tables: &Tables,
        dtype: Dtype,
    ) -> Made {
        let results: [Value; 2] = [body.state, body.output];
        let mut state = self.moving(slot);
        let mut outputs = Vec::with_capacity(self.len);
        for t in 0..self.len {
            let mut now = vec![ops::cast(&state, dtype)?];
            for x in inputs {
                now.push(if self.len == 1 { x.clone() } else { ops::slice(x, 0, t, t + 1)? });
            }
            let [new, output] = run_body(&body.nodes, &now, results, tables, dtype)?;
            state = ops::cast(&new, Dtype::Float32)?;
            outputs.push(output);
        }
        self.set_moving(slot, state);
        ops::concat(&outputs.iter().collect::<Vec<_>>(), 0)
    }
}

/// The first position that a query may see.
fn first_visible(mask: Mask, position: usize) -> usize {
    match mask {
        Mask::Window(window) => (position + 1).saturating_sub(window),
        Mask::Chunked(chunk) => position / chunk * chunk,
        // No request declares a prefix yet, and without one the mask is causal.
        Mask::Causal | Mask::BidirectionalPrefix => 0,
    }
}

/// Another axis of length 1.
fn column(x: &Array, axis: usize) -> Made {
    let mut shape = x.shape().to_vec();
    shape.insert(axis, 1);
    ops::reshape(x, &shape)
}

/// See [`Part::sparse_select`]; all three are `[rows, T, columns]`.
fn best_positions(scores: &Array, allowed: &Array, keys: &Array, k: usize) -> Made {
    /// Above every position.
    const TIE: i32 = 1 << 25;
    let nothing = ops::scalar(f32::NEG_INFINITY, Dtype::Float32)?;
    let scores = ops::choose(allowed, scores, &nothing)?;
    let n_columns = scores.shape()[2] as usize;
    let order = ops::argsort(&ops::unary(sys::mlx_negative, &scores)?)?;
    let best = ops::slice(&order, 2, 0, k.min(n_columns))?;
    let values = ops::take_along(&scores, &best)?;
    let positions = ops::take_along(keys, &ops::cast(&best, Dtype::Int32)?)?;
    let mut places = positions;
    if n_columns > k {
        let threshold = ops::slice(&values, 2, k - 1, k)?;
        // Where no more than k are there, none is left out and none is a tie.
        let n_allowed = ops::reduce(sys::mlx_sum_axis, &ops::cast(allowed, Dtype::Int32)?, 2, true)?;
        let is_full = ops::binary(sys::mlx_greater, &n_allowed, &Array::from_int(k as i32))?;
        let is_tie = ops::binary(sys::mlx_equal, &values, &threshold)?;
        let is_tie = ops::binary(sys::mlx_logical_and, &is_tie, &is_full)?;
        places = ops::choose(&is_tie, &ops::add(&places, &Array::from_int(TIE))?, &places)?;
    }
    let is_nothing = ops::binary(sys::mlx_equal, &values, &nothing)?;
    places = ops::choose(&is_nothing, &Array::from_int(2 * TIE), &places)?;
    let sorted = ops::sort(&places)?;
    let is_tie = ops::binary(sys::mlx_greater_equal, &sorted, &Array::from_int(TIE))?;
    let plain = ops::choose(&is_tie, &ops::sub(&sorted, &Array::from_int(TIE))?, &sorted)?;
    let is_nothing = ops::binary(sys::mlx_equal, &sorted, &Array::from_int(2 * TIE))?;
    let best = ops::choose(&is_nothing, &Array::from_int(-1), &plain)?;
    if n_columns >= k {
        return Ok(best);
    }
    let mut shape = best.shape().to_vec();
    shape[2] = (k - n_columns) as i32;
    let missing = ops::broadcast(&Array::from_int(-1), &shape)?;
    ops::concat(&[&best, &missing], 2)
}

/// The lowest finite number: a row that sees nothing gets equal weights, not NaN.
fn lowest(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::Float16 => -65504.0,
        Dtype::Bfloat16 => -3.389_531_4e38,
        _ => f32::MIN,
    }
}

/// The attributes of an attention.
struct Attention<'a> {
    scale: f32,
    mask: Mask,
    softcap: Option<f32>,
    sinks: Option<&'a Array>,
}

impl Attention<'_> {
    /// Attention from its formula, for what the fused one lacks. Rows that see nothing give 0.
    fn step_by_step(&self, q: &Array, k: &Array, v: &Array, allowed: &Array) -> Made {
        let [n_rows, n_heads, len, width] = *q.shape() else { unreachable!("heads of tokens") };
        let [_, n_kv, n_columns, dim_v] = *v.shape() else { unreachable!("heads of tokens") };
        let shared = n_heads / n_kv;
        let q = ops::scale(&ops::reshape(q, &[n_rows, n_kv, shared, len, width])?, self.scale)?;
        let (k, v) = (column(k, 2)?, column(v, 2)?);
        let allowed = column(allowed, 2)?;
        let mut scores = ops::matmul(&q, &ops::transpose(&k, &[0, 1, 2, 4, 3])?)?;
        if let Some(cap) = self.softcap {
            scores = softcap(&scores, cap)?;
        }
        scores = ops::choose(&allowed, &scores, &ops::scalar(lowest(scores.dtype()), scores.dtype())?)?;
        let weights = match self.sinks {
            None => ops::softmax(&scores)?,
            Some(sinks) => {
                let sinks = ops::reshape(sinks, &[1, n_kv, shared, 1, 1])?;
                let sinks = ops::cast(&sinks, scores.dtype())?;
                let sinks = ops::broadcast(&sinks, &[n_rows, n_kv, shared, len, 1])?;
                let all = ops::softmax(&ops::concat(&[&scores, &sinks], 4)?)?;
                ops::slice(&all, 4, 0, n_columns as usize)?
            }
        };
        let sees_any = ops::reduce(sys::mlx_any_axis, &allowed, 4, true)?;
        let out = ops::matmul(&weights, &v)?;
        let out = ops::choose(&sees_any, &out, &ops::scalar(0.0, out.dtype())?)?;
        ops::reshape(&out, &[n_rows, n_heads, len, dim_v])
    }
}
