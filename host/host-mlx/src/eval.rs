//! Builds MLX's lazy graph of one step, node by node.
//!
//! Every value that depends on tokens is a list of tokens `[N, item…]`, whatever rows they belong to; only
//! what looks at other tokens takes the list apart ([`crate::stateful`]).

use std::collections::HashMap;

use host_graph::{Activation, BinaryOp, Node, Op, ReduceOp, Shape, UnaryOp, Value, ValueType};
use mlx_rs::{Array, Dtype};
use mlx_sys as sys;

use crate::Backend;
use crate::fault::Fault;
use crate::ops::{self, Made, Packed};
use crate::program::{Program, Tables};
use crate::stateful::Step;
use crate::weights::{Matrix, Weight, shape_of};

/// The values of a step that are there so far.
pub(crate) struct Values {
    arrays: Vec<Option<Array>>,
    left: Vec<usize>,
    /// Values of all tokens cut to those whose logits are wanted.
    cut: HashMap<usize, Array>,
}

impl Values {
    pub(crate) fn new(program: &Program) -> Self {
        let arrays = vec![None; program.nodes.len()];
        Values { arrays, left: program.n_uses.clone(), cut: HashMap::new() }
    }

    pub(crate) fn set(&mut self, index: usize, array: Array) {
        self.arrays[index] = Some(array);
    }

    fn has(&self, index: usize) -> bool {
        self.arrays[index].is_some()
    }

    /// Takes a value for one of its uses; the last use takes it away, so that MLX may reuse its memory.
    fn take(&mut self, value: Value) -> Array {
        let index = value.0 as usize;
        self.left[index] = self.left[index].saturating_sub(1);
        let array = if self.left[index] == 0 { self.arrays[index].take() } else { self.arrays[index].clone() };
        array.expect("inputs are computed before their users")
    }
}

/// Computes all nodes of a program and gives its output.
pub(crate) fn run(
    program: &Program,
    tables: &Tables,
    once: &HashMap<usize, Array>,
    step: &mut Step<'_>,
) -> Made {
    let mut values = Values::new(program);
    for (index, array) in once {
        values.set(*index, array.clone());
    }
    for index in &program.order {
        if !values.has(*index) {
            compute(program, tables, *index, &mut values, step)?;
        }
    }
    let output = values.take(program.output);
    if program.is_head[program.output.0 as usize] { Ok(output) } else { step.logit_tokens_of(&output) }
}

/// The values that no token changes.
pub(crate) fn run_once(program: &Program, tables: &Tables) -> Result<HashMap<usize, Array>, Fault> {
    let mut once: HashMap<usize, Array> = HashMap::new();
    for index in &program.order {
        let node = &program.nodes[*index];
        if !node.shape.lead().is_empty() {
            continue;
        }
        let inputs: Vec<Array> = node.inputs.iter().map(|value| once[&(value.0 as usize)].clone()).collect();
        let array = plain(node, &inputs, tables, program.dtype, 0)?;
        ops::eval([&array])?;
        once.insert(*index, array);
    }
    Ok(once)
}

fn compute(
    program: &Program,
    tables: &Tables,
    index: usize,
    values: &mut Values,
    step: &mut Step<'_>,
) -> Result<(), Fault> {
    let node = &program.nodes[index];
    let heads_apart = step.is_one_token_a_row();
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for value in &node.inputs {
        let at = value.0 as usize;
        let is_cut = program.is_head[index]
            && !program.is_head[at]
            && !program.nodes[at].shape.lead().is_empty();
        let mut array = values.take(*value);
        if heads_apart && !keeps_heads(&node.op) {
            let input = &program.nodes[at];
            let n_rows = if program.is_head[at] { step.n_logits() } else { step.n_tokens() };
            array = ops::reshape(&array, &list_shape(&input.shape, n_rows))?;
        }
        if !is_cut {
            inputs.push(array);
            continue;
        }
        let cut = match values.cut.get(&at) {
            Some(cut) => cut.clone(),
            None => step.logit_tokens_of(&array)?,
        };
        values.cut.insert(at, cut.clone());
        inputs.push(cut);
    }
    if let Some(fused) = program.fused.get(&index) {
        let all = product(tables.backend, &inputs[0], &fused.matrix, fused.bias.as_ref())?;
        let axis = all.shape().len() - 1;
        let mut start = 0;
        for (member, width) in &fused.members {
            values.set(*member, ops::slice(&all, axis, start, start + width)?);
            start += width;
        }
        // The other members' uses of the input are spent as well.
        for _ in 1..fused.members.len() {
            let left = &mut values.left[node.inputs[0].0 as usize];
            *left = left.saturating_sub(1);
        }
        return Ok(());
    }
    if program.gates.contains_key(&index) {
        // Its product takes the input as it is.
        values.set(index, inputs.swap_remove(0));
        return Ok(());
    }
    let n_rows = if program.is_head[index] { step.n_logits() } else { step.n_tokens() };
    let array = match &node.op {
        Op::Reshape { .. } if heads_apart && !program.is_head[index] && node.shape.item().len() == 2 => {
            let [heads, width] = [0, 1].map(|axis| node.shape.item()[axis] as i32);
            ops::reshape(&inputs[0], &[n_rows as i32, heads, 1, width])?
        }
        Op::Tokens => step.tokens(program.is_head[index])?,
        Op::Positions => step.positions(program.is_head[index])?,
        Op::Binary(BinaryOp::Mul) if program.gates.get(&(node.inputs[0].0 as usize)) == Some(&index) => {
            match program.nodes[node.inputs[0].0 as usize].op {
                Op::Unary(op) => ops::compiled(gated(op), &[&inputs[0], &inputs[1]])?,
                _ => unreachable!("a gate is an activation"),
            }
        }
        op if op.slot().is_some() || matches!(op, Op::Rope(_)) => step.stateful(index, node, &inputs, tables)?,
        _ => plain(node, &inputs, tables, program.dtype, n_rows)?,
    };
    values.set(index, array);
    Ok(())
}

/// Whether an operation takes heads as `[rows, H, 1, D]` too.
///
/// In a step of one token a row the heads of a token are kept as attention takes them, not as `[N, H, D]`: the
/// same elements in the same order, so that a value is not turned between every two operations.
fn keeps_heads(op: &Op) -> bool {
    matches!(op, Op::Reshape { .. } | Op::RmsNorm { .. } | Op::Rope(_) | Op::Attention { .. })
}

/// One pass through the body of a scan over some rows; gives the new state and the output.
pub(crate) fn run_body(
    nodes: &[Node],
    inputs: &[Array],
    results: [Value; 2],
    tables: &Tables,
    dtype: Dtype,
) -> Result<[Array; 2], Fault> {
    let n_rows = inputs[0].shape()[0] as usize;
    let mut arrays: Vec<Array> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let array = match node.op {
            Op::BodyInput { index } => inputs[index].clone(),
            _ => {
                let own: Vec<Array> =
                    node.inputs.iter().map(|value| arrays[value.0 as usize].clone()).collect();
                plain(node, &own, tables, dtype, n_rows)?
            }
        };
        arrays.push(array);
    }
    let [state, output] = results.map(|value| arrays[value.0 as usize].clone());
    // A value that no row changes is the same for each.
    let of_rows = |value: Value, array: Array| {
        if nodes[value.0 as usize].shape.lead().is_empty() {
            let shape: Vec<i32> = [n_rows as i32].into_iter().chain(array.shape().iter().copied()).collect();
            return ops::broadcast(&array, &shape);
        }
        Ok(array)
    };
    Ok([of_rows(results[0], state)?, of_rows(results[1], output)?])
}

/// The dtype in which values of a type are kept.
fn dtype_of(value_type: ValueType, float: Dtype) -> Dtype {
    match value_type {
        ValueType::Float => float,
        ValueType::Int => Dtype::Int32,
        ValueType::Bool => Dtype::Bool,
    }
}

/// The shape of a list of `n_rows` tokens.
pub(crate) fn list_shape(shape: &Shape, n_rows: usize) -> Vec<i32> {
    let lead = (!shape.lead().is_empty()).then_some(n_rows as i32);
    lead.into_iter().chain(shape_of(&shape.item())).collect()
}

/// The axis of a list that an axis of the graph's value is.
fn list_axis(node_lead: usize, axis: usize) -> usize {
    if node_lead == 2 { axis - 1 } else { axis }
}

/// Operations that look at one token at a time.
pub(crate) fn plain(node: &Node, inputs: &[Array], tables: &Tables, dtype: Dtype, n_rows: usize) -> Made {
    let shape = list_shape(&node.shape, n_rows);
    let lead = node.shape.lead().len();
    let last = shape.len().saturating_sub(1);
    match &node.op {
        Op::Constant { value } => ops::scalar(*value, dtype),
        Op::Weight { name } => Ok(dense(tables, name)),
        Op::Embedding { weight } | Op::PerLayerEmbedding { weight, .. } => {
            ops::reshape(&embedding(&inputs[0], &tables.weights[weight], dtype)?, &shape)
        }
        Op::Linear { weight, bias } => {
            let bias = bias.as_ref().map(|name| dense(tables, name));
            product(tables.backend, &inputs[0], &tables.matrices[weight], bias.as_ref())
        }
        Op::RmsNorm { weight, eps, offset } => {
            let weight = weight.as_ref().map(|name| norm_weight(tables, name, *offset));
            match weight {
                // Without a weight the offset stands beside an implied 1.
                None if *offset != 0.0 => ops::scale(&ops::rms_norm(&inputs[0], None, *eps)?, 1.0 + offset),
                weight => ops::rms_norm(&inputs[0], weight.as_ref(), *eps),
            }
        }
        Op::LayerNorm { weight, bias, eps } => {
            let [weight, bias] = [weight, bias].map(|name| name.as_ref().map(|name| dense(tables, name)));
            ops::layer_norm(&inputs[0], weight.as_ref(), bias.as_ref(), *eps)
        }
        Op::Unary(op) => unary(*op, &inputs[0]),
        Op::Binary(op) => ops::reshape(&binary(*op, &inputs[0], &inputs[1])?, &shape),
        Op::Scale { factor } => ops::scale(&inputs[0], *factor),
        Op::Softcap { cap } => softcap(&inputs[0], *cap),
        Op::Slice { axis, start, stop } => ops::slice(&inputs[0], list_axis(lead, *axis), *start, *stop),
        Op::Concat { axis } => {
            ops::concat(&inputs.iter().collect::<Vec<_>>(), list_axis(lead, *axis))
        }
        Op::Reshape { .. } => ops::reshape(&inputs[0], &shape),
        Op::Transpose { axes } => {
            let skip = lead.saturating_sub(1);
            let axes: Vec<i32> = axes[skip..].iter().map(|axis| (axis - skip.min(*axis)) as i32).collect();
            ops::transpose(&inputs[0], &axes)
        }
        Op::Cast { to } => ops::cast(&inputs[0], dtype_of(*to, dtype)),
        Op::Softmax => ops::softmax(&inputs[0]),
        Op::TopK { k } => {
            let order = ops::argsort(&ops::unary(sys::mlx_negative, &inputs[0])?)?;
            ops::cast(&ops::slice(&order, last, 0, *k)?, Dtype::Int32)
        }
        Op::Gather => ops::take_along(&inputs[0], &within(&inputs[1], inputs[0].shape()[last])?),
        Op::Scatter => {
            ops::put_along(&inputs[0], &within(&inputs[1], inputs[0].shape()[last])?, &inputs[2])
        }
        Op::Moe { gate, up, down, activation } => {
            let [gate, up, down] = [gate, up, down].map(|name| &tables.weights[name]);
            experts(inputs, [gate, up, down], *activation, n_rows)
        }
        // No request declares features yet, so there is nothing to put in.
        Op::Inject { .. } => Ok(inputs[0].clone()),
        Op::Matmul => ops::reshape(&ops::matmul(&inputs[0], &inputs[1])?, &shape),
        Op::Where => ops::reshape(&ops::choose(&inputs[0], &inputs[1], &inputs[2])?, &shape),
        Op::Reduce { op, axis } => {
            let f: ops::Reduce = match op {
                ReduceOp::Sum => sys::mlx_sum_axis,
                ReduceOp::Mean => sys::mlx_mean_axis,
                ReduceOp::Max => sys::mlx_max_axis,
                ReduceOp::Min => sys::mlx_min_axis,
            };
            ops::reduce(f, &inputs[0], list_axis(lead, *axis), true)
        }
        Op::Cumsum { axis } => ops::cumsum(&inputs[0], list_axis(lead, *axis)),
        Op::Tokens
        | Op::Positions
        | Op::BodyInput { .. }
        | Op::Rope(_)
        | Op::Attention { .. }
        | Op::Conv1dCausal { .. }
        | Op::GatedDelta { .. }
        | Op::SsmScan { .. }
        | Op::SparseSelect { .. }
        | Op::Scan { .. } => unreachable!("{} does not come here", node.op.name()),
    }
}

/// A norm's weight with its offset.
pub(crate) fn norm_weight(tables: &Tables, name: &str, offset: f32) -> Array {
    let shifted = tables.shifted.get(&(name.to_owned(), offset.to_bits()));
    shifted.cloned().unwrap_or_else(|| dense(tables, name))
}

pub(crate) fn dense(tables: &Tables, name: &str) -> Array {
    match &tables.weights[name] {
        Weight::Dense(array) => array.clone(),
        Weight::Packed(_) => unreachable!("the builder admits only plain numbers here"),
    }
}

/// `x w^T + b`.
pub(crate) fn product(backend: Backend, x: &Array, matrix: &Matrix, bias: Option<&Array>) -> Made {
    match (matrix, bias) {
        (Matrix::Dense(w), None) => ops::matmul(x, &w.turned),
        (Matrix::Dense(w), Some(bias)) => ops::matmul_add(x, &w.turned, bias),
        (Matrix::Packed(w), None) => packed_product(backend, x, w),
        (Matrix::Packed(w), Some(bias)) => ops::add(&packed_product(backend, x, w)?, bias),
    }
}

/// `x w^T` over codes, in the form that MLX runs fastest.
///
/// On CUDA its kernel for few rows reads the matrix once a row, while the one for eight reads it once: two to
/// seven rows get rows of zeros beside them. From a few hundred rows on, widening the matrix once and a dense
/// product cost less than its quantised one. The limits come from the figures in the README.
fn packed_product(backend: Backend, x: &Array, w: &Packed) -> Made {
    const ONE_PASS_ROWS: i32 = 8;
    const DENSE_ROWS: i32 = 256;
    let [rows, width] = *x.shape() else { return ops::quantised_matmul(x, w) };
    if backend != Backend::Cuda {
        return ops::quantised_matmul(x, w);
    }
    if rows >= DENSE_ROWS {
        return ops::matmul(x, &ops::transpose(&ops::dequantise(w, x.dtype())?, &[1, 0])?);
    }
    if (2..ONE_PASS_ROWS).contains(&rows) {
        let zeros = ops::zeros(&[ONE_PASS_ROWS - rows, width], x.dtype())?;
        let product = ops::quantised_matmul(&ops::concat(&[x, &zeros], 0)?, w)?;
        return ops::slice(&product, 0, 0, rows as usize);
    }
    ops::quantised_matmul(x, w)
}

/// Indices below `n`; one beyond counts as the nearest, as in every look-up.
fn within(indices: &Array, n: i32) -> Made {
    let low = ops::binary(sys::mlx_maximum, indices, &Array::from_int(0))?;
    ops::binary(sys::mlx_minimum, &low, &Array::from_int(n - 1))
}

fn embedding(ids: &Array, table: &Weight, dtype: Dtype) -> Made {
    match table {
        Weight::Dense(table) => ops::take(table, &within(ids, table.shape()[0])?, 0),
        Weight::Packed(table) => {
            let ids = within(ids, table.codes.shape()[0])?;
            let rows = Packed {
                codes: ops::take(&table.codes, &ids, 0)?,
                scales: ops::take(&table.scales, &ids, 0)?,
                biases: table.biases.as_ref().map(|biases| ops::take(biases, &ids, 0)).transpose()?,
                ..table.clone()
            };
            ops::dequantise(&rows, dtype)
        }
    }
}

pub(crate) fn unary(op: UnaryOp, x: &Array) -> Made {
    let one = |f: ops::Unary| ops::unary(f, x);
    match op {
        UnaryOp::Silu => ops::mul(x, &one(sys::mlx_sigmoid)?),
        UnaryOp::Gelu => {
            let erf = ops::unary(sys::mlx_erf, &ops::scale(x, std::f32::consts::FRAC_1_SQRT_2)?)?;
            let one_and = ops::add(&erf, &ops::scalar(1.0, x.dtype())?)?;
            ops::scale(&ops::mul(x, &one_and)?, 0.5)
        }
        UnaryOp::GeluTanh => {
            let cube = ops::mul(&ops::mul(x, x)?, x)?;
            let inner = ops::add(x, &ops::scale(&cube, 0.044715)?)?;
            let tanh = ops::unary(sys::mlx_tanh, &ops::scale(&inner, 0.797_884_6)?)?;
            let one_and = ops::add(&tanh, &ops::scalar(1.0, x.dtype())?)?;
            ops::mul(&ops::scale(x, 0.5)?, &one_and)
        }
        UnaryOp::Relu => ops::binary(sys::mlx_maximum, x, &ops::scalar(0.0, x.dtype())?),
        UnaryOp::Relu2 => {
            let relu = unary(UnaryOp::Relu, x)?;
            ops::mul(&relu, &relu)
        }
        UnaryOp::Sigmoid => one(sys::mlx_sigmoid),
        UnaryOp::Tanh => one(sys::mlx_tanh),
        UnaryOp::Softplus => ops::binary(sys::mlx_logaddexp, x, &ops::scalar(0.0, x.dtype())?),
        UnaryOp::Exp => one(sys::mlx_exp),
        UnaryOp::Log => one(sys::mlx_log),
        UnaryOp::Sqrt => one(sys::mlx_sqrt),
        UnaryOp::Rsqrt => one(sys::mlx_rsqrt),
        UnaryOp::Neg => one(sys::mlx_negative),
        UnaryOp::Abs => one(sys::mlx_abs),
        UnaryOp::Sin => one(sys::mlx_sin),
        UnaryOp::Cos => one(sys::mlx_cos),
        UnaryOp::Floor => one(sys::mlx_floor),
        UnaryOp::Not => one(sys::mlx_logical_not),
    }
}

/// `act(a) * b`.
fn gated(op: UnaryOp) -> ops::Formula {
    match op {
        UnaryOp::Gelu => |x| ops::mul(&unary(UnaryOp::Gelu, &x[0])?, &x[1]),
        UnaryOp::GeluTanh => |x| ops::mul(&unary(UnaryOp::GeluTanh, &x[0])?, &x[1]),
        _ => |x| ops::mul(&unary(UnaryOp::Silu, &x[0])?, &x[1]),
    }
}

fn binary(op: BinaryOp, a: &Array, b: &Array) -> Made {
    let f: ops::Binary = match op {
        BinaryOp::Add => sys::mlx_add,
        BinaryOp::Sub => sys::mlx_subtract,
        BinaryOp::Mul => sys::mlx_multiply,
        BinaryOp::Div => sys::mlx_divide,
        BinaryOp::Max => sys::mlx_maximum,
        BinaryOp::Min => sys::mlx_minimum,
        BinaryOp::Pow => sys::mlx_power,
        BinaryOp::Equal => sys::mlx_equal,
        BinaryOp::Less => sys::mlx_less,
        BinaryOp::LessEqual => sys::mlx_less_equal,
        BinaryOp::And => sys::mlx_logical_and,
        BinaryOp::Or => sys::mlx_logical_or,
    };
    ops::binary(f, a, b)
}

/// `tanh(x / cap) * cap`.
pub(crate) fn softcap(x: &Array, cap: f32) -> Made {
    let divided = ops::binary(sys::mlx_divide, x, &ops::scalar(cap, x.dtype())?)?;
    ops::scale(&ops::unary(sys::mlx_tanh, &divided)?, cap)
}

/// A mixture of experts over x `[N, E]`, indices `[N, k]`, weights `[N, k]`.
fn experts(inputs: &[Array], [gate, up, down]: [&Weight; 3], activation: Activation, n: usize) -> Made {
    let (n_choices, width) = (inputs[1].shape()[1], inputs[0].shape()[1]);
    let n_experts = match gate {
        Weight::Dense(gate) => gate.shape()[0],
        Weight::Packed(gate) => gate.codes.shape()[0],
    };
    let chosen = ops::cast(&within(&inputs[1], n_experts)?, Dtype::Uint32)?;
    let x = ops::reshape(&inputs[0], &[n as i32, 1, 1, width])?;
    let gated = unary(
        match activation {
            Activation::Silu => UnaryOp::Silu,
            Activation::Gelu => UnaryOp::Gelu,
            Activation::GeluTanh => UnaryOp::GeluTanh,
        },
        &of_experts(&x, gate, &chosen)?,
    )?;
    let inner = ops::mul(&gated, &of_experts(&x, up, &chosen)?)?;
    let each = ops::reshape(&of_experts(&inner, down, &chosen)?, &[n as i32, n_choices, width])?;
    let weights = ops::reshape(&inputs[2], &[n as i32, n_choices, 1])?;
    ops::reduce(sys::mlx_sum_axis, &ops::mul(&each, &weights)?, 1, false)
}

fn of_experts(x: &Array, weight: &Weight, chosen: &Array) -> Made {
    match weight {
        Weight::Dense(w) => ops::gather_matmul(x, &ops::transpose(w, &[0, 2, 1])?, chosen),
        Weight::Packed(w) => ops::gather_quantised_matmul(x, w, chosen),
    }
}
