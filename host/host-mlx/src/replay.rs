//! A step of one token a sequence, traced once for a number of rows and a capacity, and replayed from then on.
//!
//! MLX keeps the traced graph, so that a step costs neither its making nor the making of its kernels' sources. All
//! that changes from step to step comes in as arrays: ids, where the columns stand, and what the slots hold. New
//! keys and values go into a small page behind the cache, which each step gives anew; the cache itself is written
//! once a page ([`crate::state`]).

use std::collections::HashMap;
use std::rc::Rc;

use host_graph::{Node, Op, RopeLayout, RopeSpec, UnaryOp, Value};
use kernels::row_linear::{self, Form};
use kernels::{page_attention, rope_page};
use mlx_rs::{Array, Dtype};
use mlx_sys as sys;

use crate::Backend;
use crate::eval::{self, dense, norm_weight, product, unary};
use crate::fault::Fault;
use crate::demand::{Choice, attention_shape, rope_shape, row_shape};
use crate::kernel;
use crate::model::Logits;
use crate::ops::{self, AttentionMask, Compiled, Made, RopeOffset};
use crate::plan::{Heads, Part, Plan};
use crate::program::{Program, Tables};
use crate::state::{PAGE, Paged};
use crate::weights::Matrix;

/// What a step of one token a sequence works on.
pub(crate) struct Model {
    pub(crate) program: Program,
    pub(crate) tables: Tables,
    /// The kernels that the profile names.
    pub(crate) kernels: Choice,
}

/// The traced step.
pub(crate) struct Replay {
    step: Compiled,
}

impl Replay {
    /// Nothing is traced yet. `once` are the values that no token changes.
    pub(crate) fn new(model: Rc<Model>, once: HashMap<usize, Array>) -> Result<Self, Fault> {
        let trace = move |inputs: &[Array]| Tracer::new(&model, &once, inputs)?.run();
        Ok(Replay { step: Compiled::new(Box::new(trace), false)? })
    }

    /// Begins one step: uint32 ids `[B]`, the place of its columns, which moves on, what each slot holds. Gives logits
    /// and, in the slots' order, the next pages.
    pub(crate) fn step(
        &self,
        ids: &Array,
        place: &mut Place,
        slots: &[&Paged],
    ) -> Result<(Logits, Vec<[Array; 2]>), Fault> {
        let held = slots.iter().flat_map(|slot| slot.cache.iter().chain(&slot.page));
        let inputs: Vec<&Array> = [ids, &place.numbers, &place.advance].into_iter().chain(held).collect();
        let mut outputs = self.step.call(&inputs)?.into_iter();
        let missing = || Fault("the traced step gave too few arrays".to_owned());
        let logits =
            Logits { rows: outputs.next().ok_or_else(missing)?, largest: outputs.next().ok_or_else(missing)? };
        let numbers = outputs.next().ok_or_else(missing)?;
        let mut pages = Vec::with_capacity(slots.len());
        while let (Some(k), Some(v)) = (outputs.next(), outputs.next()) {
            pages.push([k, v]);
        }
        if pages.len() != slots.len() {
            return Err(missing());
        }
        ops::async_eval([&logits.rows, &logits.largest, &numbers].into_iter().chain(pages.iter().flatten()))?;
        place.advanced(numbers);
        Ok((logits, pages))
    }
}

/// Where the columns of a group's next step stand: a step gives these numbers for the one behind it, so that the host
/// makes them once a page.
#[derive(Debug)]
pub(crate) struct Place {
    /// Columns in the cache, columns in the page before the step, capacity.
    at: [usize; 3],
    /// The same, then each row's position, then each row's pad, int32 `[n]`.
    numbers: Array,
    /// What a step adds to them.
    advance: Array,
}

impl Place {
    pub(crate) fn new(backend: Backend, at: [usize; 3], pads: &[usize]) -> Result<Self, Fault> {
        let [cached, filled, capacity] = at.map(|n| n as i32);
        let positions = pads.iter().map(|pad| cached + filled - *pad as i32);
        let pads_of_rows = pads.iter().map(|pad| *pad as i32);
        let numbers: Vec<i32> = [cached, filled, capacity].into_iter().chain(positions).chain(pads_of_rows).collect();
        let advance: Vec<i32> = (0..numbers.len()).map(|i| i32::from(i == 1 || (3..3 + pads.len()).contains(&i))).collect();
        let array = |numbers: &[i32]| on_device(backend, &ops::from_ints(numbers, &[numbers.len() as i32]));
        Ok(Place { at, numbers: array(&numbers)?, advance: array(&advance)? })
    }

    pub(crate) fn is_at(&self, at: [usize; 3]) -> bool {
        self.at == at
    }

    /// The numbers of the next step, once this one has given them.
    fn advanced(&mut self, numbers: Array) {
        self.at[1] += 1;
        self.numbers = numbers;
    }
}

/// On CUDA the same numbers, many times over, in memory of the GPU. What the host makes lies in memory that both reach:
/// pages of it go to and fro, and every kernel that reads there waits. MLX gives freed memory to new arrays of about its
/// size, so the copy has a size that the host's small arrays do not have.
fn on_device(backend: Backend, numbers: &Array) -> Made {
    const BYTES: usize = 48 * 1024;
    if backend != Backend::Cuda {
        return Ok(numbers.clone());
    }
    let n = numbers.shape()[0];
    let times = (BYTES / numbers.nbytes()).max(1) as i32;
    let copies = ops::contiguous(&ops::broadcast(numbers, &[times, n])?)?;
    ops::reshape(&copies, &[times * n])
}

/// One tracing of the step.
struct Tracer<'a> {
    program: &'a Program,
    tables: &'a Tables,
    kernels: &'a Choice,
    plan: &'a Plan,
    ids: &'a Array,
    place: &'a Array,
    advance: &'a Array,
    slots: &'a [Array],
    n_rows: usize,
    values: Vec<Option<Array>>,
    pages: Vec<Option<[Array; 2]>>,
}

impl<'a> Tracer<'a> {
    fn new(model: &'a Model, once: &HashMap<usize, Array>, inputs: &'a [Array]) -> Result<Self, Fault> {
        let [ids, place, advance, slots @ ..] = inputs else {
            return Err(Fault("a step needs ids, their place and what it adds to it".to_owned()));
        };
        let plan = model.program.plan.as_ref().map_err(|why| Fault((*why).to_owned()))?;
        let mut values = vec![None; model.program.nodes.len()];
        for (index, array) in once {
            values[*index] = Some(array.clone());
        }
        Ok(Tracer {
            program: &model.program,
            tables: &model.tables,
            kernels: &model.kernels,
            plan,
            ids,
            place,
            advance,
            slots,
            n_rows: ids.shape()[0] as usize,
            values,
            pages: vec![None; slots.len() / 4],
        })
    }

    fn run(mut self) -> Result<Vec<Array>, Fault> {
        for part in &self.plan.parts {
            self.part(part)?;
        }
        let pages = self.pages.into_iter().flatten().flatten();
        let logits = self.values[self.program.output.0 as usize].take();
        let logits = Logits::of(logits.ok_or_else(|| Fault("the step gave no logits".to_owned()))?)?;
        let place = ops::add(self.place, self.advance)?;
        Ok([logits.rows, logits.largest, place].into_iter().chain(pages).collect())
    }

    fn value(&self, value: Value) -> Array {
        self.values[value.0 as usize].clone().expect("parts stand behind what they use")
    }

    fn node(&self, index: usize) -> &'a Node {
        &self.program.nodes[index]
    }

    fn backend(&self) -> Backend {
        self.tables.backend
    }

    fn part(&mut self, part: &Part) -> Result<(), Fault> {
        match part {
            Part::Node(index) => {
                let made = self.plain(*index)?;
                self.values[*index] = Some(made);
            }
            Part::Products { x, norm, first } => self.products(*x, *norm, *first)?,
            Part::LinearAdd { x, residual, linear, out } => {
                let made = self.linear_add(*x, *residual, *linear)?;
                self.values[*out] = Some(made);
            }
            Part::NormSwiglu { x, norm, first, out } => {
                let made = self.norm_swiglu(*x, *norm, *first)?;
                self.values[*out] = Some(made);
            }
            Part::Heads(heads) => {
                let made = self.heads(heads)?;
                self.values[heads.out] = Some(made);
            }
        }
        Ok(())
    }

    fn plain(&self, index: usize) -> Made {
        let node = self.node(index);
        match node.op {
            Op::Tokens => ops::cast(self.ids, Dtype::Int32),
            Op::Positions => self.positions(),
            _ => {
                let inputs: Vec<Array> = node.inputs.iter().map(|value| self.value(*value)).collect();
                eval::plain(node, &inputs, self.tables, self.program.dtype, self.n_rows)
            }
        }
    }

    fn positions(&self) -> Made {
        ops::slice(self.place, 0, 3, 3 + self.n_rows)
    }

    /// A kernel's launch where the profile names it; only a single row has kernels for products.
    fn row_kernel(&self, form: Form, x: &Array, matrix: &Matrix, columns: usize) -> Option<row_linear::Shape> {
        let shape = row_shape(form, x.shape()[1] as usize, columns, matrix.kind(), self.program.dtype);
        (self.n_rows == 1 && self.kernels.has(shape.kernel().name)).then_some(shape)
    }

    fn normed(&self, norm: usize, x: &Array) -> Made {
        let (weight, eps) = self.norm(norm);
        ops::rms_norm(x, Some(&weight), eps)
    }

    fn norm(&self, norm: usize) -> (Array, f32) {
        match &self.node(norm).op {
            Op::RmsNorm { weight: Some(name), eps, offset } => (norm_weight(self.tables, name, *offset), *eps),
            _ => unreachable!("the plan takes norms with weights only"),
        }
    }

    fn launch(&self, shape: &row_linear::Shape, eps: f32, before: &[&Array], matrix: &Matrix) -> Made {
        let of_matrix: Vec<&Array> = match matrix {
            Matrix::Dense(w) => vec![&w.stored],
            Matrix::Packed(w) => [Some(&w.codes), Some(&w.scales), w.biases.as_ref()].into_iter().flatten().collect(),
        };
        let inputs: Vec<&Array> = before.iter().copied().chain(of_matrix).collect();
        let stage = &shape.kernel().stages[0];
        let mut made = kernel::launch(self.backend(), stage, &inputs, &shape.launch(eps))?;
        made.pop().ok_or_else(|| Fault("a kernel gave no array".to_owned()))
    }

    fn products(&mut self, x: Value, norm: Option<usize>, first: usize) -> Result<(), Fault> {
        let x = self.value(x);
        let (program, tables) = (self.program, self.tables);
        let Some(fused) = program.fused.get(&first) else {
            let Op::Linear { weight, bias } = &self.node(first).op else { unreachable!("a product") };
            let bias = bias.as_ref().map(|name| dense(tables, name));
            let columns = self.node(first).shape.last().unwrap_or(1);
            let made = self.product(&x, norm, &tables.matrices[weight], bias.as_ref(), columns)?;
            self.values[first] = Some(made);
            return Ok(());
        };
        let columns = fused.members.iter().map(|(_, width)| width).sum();
        let all = self.product(&x, norm, &fused.matrix, fused.bias.as_ref(), columns)?;
        let is_of_heads = |part: &Part| matches!(part, Part::Heads(heads) if heads.qkv == first);
        if self.plan.parts.iter().any(is_of_heads) {
            self.values[first] = Some(all);
            return Ok(());
        }
        let mut start = 0;
        for (member, width) in &fused.members {
            self.values[*member] = Some(ops::slice(&all, 1, start, start + width)?);
            start += width;
        }
        Ok(())
    }

    fn product(
        &self,
        x: &Array,
        norm: Option<usize>,
        matrix: &Matrix,
        bias: Option<&Array>,
        columns: usize,
    ) -> Made {
        let Some(norm) = norm else { return product(self.backend(), x, matrix, bias) };
        let (weight, eps) = self.norm(norm);
        match self.row_kernel(Form::NormLinear, x, matrix, columns) {
            Some(shape) if bias.is_none() => self.launch(&shape, eps, &[x, &weight], matrix),
            _ => product(self.backend(), &ops::rms_norm(x, Some(&weight), eps)?, matrix, bias),
        }
    }

    fn linear_add(&self, x: Value, residual: Value, linear: usize) -> Made {
        let (x, residual) = (self.value(x), self.value(residual));
        let Op::Linear { weight, .. } = &self.node(linear).op else { unreachable!("a product") };
        let matrix = &self.tables.matrices[weight];
        match self.row_kernel(Form::LinearAdd, &x, matrix, residual.shape()[1] as usize) {
            Some(shape) => self.launch(&shape, 0.0, &[&x, &residual], matrix),
            None => ops::add(&residual, &product(self.backend(), &x, matrix, None)?),
        }
    }

    fn norm_swiglu(&self, x: Value, norm: usize, first: usize) -> Made {
        let x = self.value(x);
        let fused = &self.program.fused[&first];
        let width = fused.members[0].1;
        if let Some(shape) = self.row_kernel(Form::NormSwiglu, &x, &fused.matrix, width) {
            let (weight, eps) = self.norm(norm);
            return self.launch(&shape, eps, &[&x, &weight], &fused.matrix);
        }
        let all = product(self.backend(), &self.normed(norm, &x)?, &fused.matrix, None)?;
        let (gate, up) = (ops::slice(&all, 1, 0, width)?, ops::slice(&all, 1, width, 2 * width)?);
        ops::mul(&unary(UnaryOp::Silu, &gate)?, &up)
    }

    fn heads(&mut self, heads: &Heads) -> Made {
        let qkv = self.values[heads.qkv].take().expect("parts stand behind what they use");
        let [k_cache, v_cache, k_page, v_page] = &self.slots[4 * heads.slot..][..4] else {
            return Err(Fault("a slot holds two caches and two pages".to_owned()));
        };
        let spec = match &self.node(heads.rope).op {
            Op::Rope(spec) => spec,
            _ => unreachable!("the plan names a rotation"),
        };
        let turned = if self.kernels.has(rope_page::KERNEL.name) {
            self.rope_page(heads, spec, &qkv, [k_page, v_page])?
        } else {
            self.rope_page_plain(heads, spec, &qkv, [k_page, v_page])?
        };
        let [q, k_next, v_next] = &turned[..] else {
            return Err(Fault("q and the pages are three arrays".to_owned()));
        };
        self.pages[heads.slot] = Some([k_next.clone(), v_next.clone()]);
        let held = [k_cache, v_cache, k_next, v_next];
        if self.kernels.has(page_attention::KERNEL.name) {
            let stage = &page_attention::KERNEL.stages[0];
            let inputs = [q, k_cache, v_cache, k_next, v_next, self.place];
            let launch = attention_shape(heads, self.n_rows, self.program.dtype).launch(heads.scale);
            let mut made = kernel::launch(self.backend(), stage, &inputs, &launch)?;
            return made.pop().ok_or_else(|| Fault("a kernel gave no array".to_owned()));
        }
        self.attention_plain(heads, q, held)
    }

    fn rope_page(
        &self,
        heads: &Heads,
        spec: &RopeSpec,
        qkv: &Array,
        [k_page, v_page]: [&Array; 2],
    ) -> Result<Vec<Array>, Fault> {
        let periods = &self.tables.periods[&heads.rope];
        let (q_norm, k_norm) = match heads.norms {
            Some([q, k]) => (self.norm(q), self.norm(k)),
            // Not read.
            None => ((periods.clone(), 0.0), (periods.clone(), 0.0)),
        };
        let inputs = [qkv, k_page, v_page, periods, &q_norm.0, &k_norm.0, self.place];
        let shape = rope_shape(heads, spec, self.n_rows, self.program.dtype);
        let launch = shape.launch([q_norm.1, k_norm.1], spec.attention_factor);
        kernel::launch(self.backend(), &rope_page::KERNEL.stages[0], &inputs, &launch)
    }

    /// The same in MLX's operations.
    fn rope_page_plain(
        &self,
        heads: &Heads,
        spec: &RopeSpec,
        qkv: &Array,
        pages: [&Array; 2],
    ) -> Result<Vec<Array>, Fault> {
        let (n_rows, width) = (self.n_rows as i32, heads.dim);
        let part = |first: usize, n: usize| {
            let part = ops::slice(qkv, 1, first * width, (first + n) * width)?;
            ops::reshape(&part, &[n_rows, n as i32, 1, width as i32])
        };
        let positions = self.positions()?;
        let turned = |x: Array, norm: Option<usize>| {
            let x = norm.map_or(Ok(x.clone()), |norm| self.normed(norm, &x))?;
            let x = scaled_for_rope(&x, spec)?;
            let is_interleaved = spec.layout == RopeLayout::Interleaved;
            let periods = &self.tables.periods[&heads.rope];
            ops::rope(&x, spec.dims, is_interleaved, periods, &RopeOffset::Rows(&positions))
        };
        let q = turned(part(0, heads.heads)?, heads.norms.map(|norms| norms[0]))?;
        let k = turned(part(heads.heads, heads.kv_heads)?, heads.norms.map(|norms| norms[1]))?;
        let v = part(heads.heads + heads.kv_heads, heads.kv_heads)?;
        let rows: Vec<i32> = (0..PAGE as i32).collect();
        let rows = ops::from_ints(&rows, &[1, 1, PAGE as i32, 1]);
        let is_new = ops::binary(sys::mlx_equal, &rows, &ops::slice(self.place, 0, 1, 2)?)?;
        let next = |new: &Array, page: &Array| {
            ops::choose(&is_new, &ops::cast(new, page.dtype())?, page)
        };
        Ok(vec![q, next(&k, pages[0])?, next(&v, pages[1])?])
    }

    /// The same in MLX's operations: over the whole capacity, behind a mask.
    fn attention_plain(&self, heads: &Heads, q: &Array, held: [&Array; 4]) -> Made {
        let [k_cache, v_cache, k_page, v_page] = held;
        let dtype = self.program.dtype;
        let k = ops::cast(&ops::concat(&[k_cache, k_page], 2)?, dtype)?;
        let v = ops::cast(&ops::concat(&[v_cache, v_page], 2)?, dtype)?;
        let capacity = k_cache.shape()[2];
        let one = |at: usize| ops::slice(self.place, 0, at, at + 1);
        let (cached, filled) = (one(0)?, one(1)?);
        // The position in the frame of each column; those that hold nothing come behind every other.
        let nowhere = Array::from_int(i32::MAX);
        let columns = |n: i32| ops::from_ints(&(0..n).collect::<Vec<_>>(), &[n]);
        let (in_cache, in_page) = (columns(capacity), columns(PAGE as i32));
        let is_cached = ops::binary(sys::mlx_less, &in_cache, &cached)?;
        let is_filled = ops::binary(sys::mlx_less_equal, &in_page, &filled)?;
        let frame = ops::concat(
            &[
                &ops::choose(&is_cached, &in_cache, &nowhere)?,
                &ops::choose(&is_filled, &ops::add(&in_page, &cached)?, &nowhere)?,
            ],
            0,
        )?;
        let pads = ops::slice(self.place, 0, 3 + self.n_rows, 3 + 2 * self.n_rows)?;
        let pads = ops::reshape(&pads, &[self.n_rows as i32, 1, 1, 1])?;
        let is_behind = ops::binary(sys::mlx_greater_equal, &frame, &pads)?;
        let is_there = ops::binary(sys::mlx_less, &frame, &nowhere)?;
        let mask = ops::binary(sys::mlx_logical_and, &is_behind, &is_there)?;
        ops::attention(q, &k, &v, heads.scale, &AttentionMask::Array(mask), None)
    }
}

/// Scales what a rotation turns: only the rotated dimensions.
pub(crate) fn scaled_for_rope(x: &Array, spec: &RopeSpec) -> Made {
    if spec.attention_factor == 1.0 {
        return Ok(x.clone());
    }
    let width = x.shape()[3] as usize;
    let rotated = ops::scale(&ops::slice(x, 3, 0, spec.dims)?, spec.attention_factor)?;
    if spec.dims == width {
        return Ok(rotated);
    }
    ops::concat(&[&rotated, &ops::slice(x, 3, spec.dims, width)?], 3)
}
