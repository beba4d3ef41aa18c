//! Operations in their plain form: one row at a time, any shape. They are right first; what matters for speed
//! has an instruction of its own.

use host_graph::{BinaryOp, Op, ReduceOp, ValueType};

use crate::kernels::rows::binary;

/// One input of an operation: the numbers of a row and its shape.
pub(crate) struct Arg<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) item: &'a [usize],
}

/// Computes one row of `op`. `lead` is how many symbolic dimensions stand before the row's shape.
///
/// Unary functions have a kernel and do not come here.
pub(crate) fn evaluate(op: &Op, lead: usize, args: &[Arg<'_>], out: &mut [f32], out_item: &[usize]) {
    match op {
        Op::Constant { value } => out.fill(*value),
        Op::Binary(op) => elementwise(*op, &args[0], &args[1], out, out_item),
        Op::Scale { factor } => map(args, out, |x| x * factor),
        Op::Softcap { cap } => map(args, out, |x| (x / cap).tanh() * cap),
        Op::Cast { to } => map(args, out, |x| match to {
            ValueType::Float => x,
            ValueType::Int => x.trunc(),
            ValueType::Bool => f32::from(u8::from(x != 0.0)),
        }),
        Op::Slice { axis, start, .. } => slice(axis - lead, *start, &args[0], out, out_item),
        Op::Concat { axis } => concat(axis - lead, args, out, out_item),
        Op::Transpose { axes } => transpose(axes, lead, &args[0], out, out_item),
        Op::Softmax => {
            for (x, y) in rows_of(&args[0], out) {
                let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - top).exp());
                let sum: f32 = y.iter().sum();
                y.iter_mut().for_each(|y| *y /= sum);
            }
        }
        Op::TopK { k } => {
            let n = width(args[0].item);
            for (x, y) in args[0].data.chunks_exact(n).zip(out.chunks_exact_mut(*k)) {
                // -0 and 0 are a tie.
                let x: Vec<f32> = x.iter().map(|x| x + 0.0).collect();
                for (y, (id, _)) in y.iter_mut().zip(host_device::top(&x, *k)) {
                    *y = id as f32;
                }
            }
        }
        Op::Gather => {
            let (n, k) = (width(args[0].item), width(args[1].item));
            let rows = args[0].data.chunks_exact(n).zip(args[1].data.chunks_exact(k));
            for ((x, ids), y) in rows.zip(out.chunks_exact_mut(k)) {
                y.iter_mut().zip(ids).for_each(|(y, id)| *y = x[(*id as usize).min(n - 1)]);
            }
        }
        Op::Scatter => {
            out.copy_from_slice(args[0].data);
            let (n, k) = (width(args[0].item), width(args[1].item));
            let rows = args[1].data.chunks_exact(k).zip(args[2].data.chunks_exact(k));
            for ((ids, values), y) in rows.zip(out.chunks_exact_mut(n)) {
                ids.iter().zip(values).for_each(|(id, value)| y[(*id as usize).min(n - 1)] = *value);
            }
        }
        Op::Matmul => matmul(&args[0], &args[1], out, out_item),
        Op::Where => {
            for (i, y) in out.iter_mut().enumerate() {
                let chosen = if at(&args[0], i, out_item) != 0.0 { &args[1] } else { &args[2] };
                *y = at(chosen, i, out_item);
            }
        }
        Op::Reduce { op, axis } => reduce(*op, axis - lead, &args[0], out),
        Op::Cumsum { axis } => cumsum(axis - lead, &args[0], out),
        other => unreachable!("{} has an instruction of its own", other.name()),
    }
}

fn map(args: &[Arg<'_>], out: &mut [f32], f: impl Fn(f32) -> f32) {
    out.iter_mut().zip(args[0].data).for_each(|(y, x)| *y = f(*x));
}

fn width(item: &[usize]) -> usize {
    item.last().copied().unwrap_or(1)
}

fn rows_of<'a>(x: &'a Arg<'_>, out: &'a mut [f32]) -> impl Iterator<Item = (&'a [f32], &'a mut [f32])> {
    let n = width(x.item);
    x.data.chunks_exact(n).zip(out.chunks_exact_mut(n))
}

fn elementwise(op: BinaryOp, a: &Arg<'_>, b: &Arg<'_>, out: &mut [f32], out_item: &[usize]) {
    if a.item == out_item && b.item == out_item {
        out.iter_mut().zip(a.data.iter().zip(b.data)).for_each(|(y, (a, b))| *y = binary(op, *a, *b));
        return;
    }
    for (i, y) in out.iter_mut().enumerate() {
        *y = binary(op, at(a, i, out_item), at(b, i, out_item));
    }
}

/// The element of a broadcast input that stands at index `i` of the result.
fn at(x: &Arg<'_>, i: usize, out_item: &[usize]) -> f32 {
    let skip = out_item.len() - x.item.len();
    let (mut rest, mut stride, mut index) = (i, 1, 0);
    for (axis, n) in out_item.iter().enumerate().rev() {
        let place = rest % n;
        rest /= n;
        if axis >= skip {
            let own = x.item[axis - skip];
            index += if own == 1 { 0 } else { place * stride };
            stride *= own;
        }
    }
    x.data[index]
}

/// (elements before the axis, its length, elements behind it).
fn around(item: &[usize], axis: usize) -> (usize, usize, usize) {
    (item[..axis].iter().product(), item[axis], item[axis + 1..].iter().product())
}

fn slice(axis: usize, start: usize, x: &Arg<'_>, out: &mut [f32], out_item: &[usize]) {
    let (_, n, inner) = around(x.item, axis);
    let part = out_item[axis] * inner;
    for (y, x) in out.chunks_exact_mut(part).zip(x.data.chunks_exact(n * inner)) {
        y.copy_from_slice(&x[start * inner..start * inner + part]);
    }
}

fn concat(axis: usize, args: &[Arg<'_>], out: &mut [f32], out_item: &[usize]) {
    let (_, n, inner) = around(out_item, axis);
    for (i, y) in out.chunks_exact_mut(n * inner).enumerate() {
        let mut from = 0;
        for x in args {
            let part = x.item[axis] * inner;
            y[from..from + part].copy_from_slice(&x.data[i * part..(i + 1) * part]);
            from += part;
        }
    }
}

fn transpose(axes: &[usize], lead: usize, x: &Arg<'_>, out: &mut [f32], out_item: &[usize]) {
    let axes: Vec<usize> = axes[lead..].iter().map(|axis| axis - lead).collect();
    let strides: Vec<usize> = (0..x.item.len()).map(|axis| x.item[axis + 1..].iter().product()).collect();
    for (i, y) in out.iter_mut().enumerate() {
        let mut rest = i;
        let mut index = 0;
        for (axis, n) in out_item.iter().enumerate().rev() {
            index += rest % n * strides[axes[axis]];
            rest /= n;
        }
        *y = x.data[index];
    }
}

fn matmul(a: &Arg<'_>, b: &Arg<'_>, out: &mut [f32], out_item: &[usize]) {
    let rank = out_item.len();
    let (m, n) = (out_item[rank - 2], out_item[rank - 1]);
    let inner = width(a.item);
    let lead = &out_item[..rank - 2];
    // The matrix of a broadcast input that stands at index `i` of the leading dimensions.
    let start = |x: &Arg<'_>, i: usize| {
        let x_lead = &x.item[..x.item.len() - 2];
        let size: usize = x.item[x_lead.len()..].iter().product();
        let (mut rest, mut stride, mut index) = (i, 1, 0);
        for (axis, n) in lead.iter().enumerate().rev() {
            if let Some(own) = (axis + x_lead.len()).checked_sub(lead.len()).map(|axis| x_lead[axis]) {
                index += if own == 1 { 0 } else { rest % n * stride };
                stride *= own;
            }
            rest /= n;
        }
        index * size
    };
    for (i, y) in out.chunks_exact_mut(m * n).enumerate() {
        let (a, b) = (&a.data[start(a, i)..], &b.data[start(b, i)..]);
        for row in 0..m {
            for col in 0..n {
                y[row * n + col] =
                    (0..inner).fold(0.0, |sum, k| a[row * inner + k].mul_add(b[k * n + col], sum));
            }
        }
    }
}

fn reduce(op: ReduceOp, axis: usize, x: &Arg<'_>, out: &mut [f32]) {
    let (_, n, inner) = around(x.item, axis);
    for (i, y) in out.iter_mut().enumerate() {
        let first = i / inner * n * inner + i % inner;
        let values = (0..n).map(|j| x.data[first + j * inner]);
        *y = match op {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Mean => values.sum::<f32>() / n as f32,
            ReduceOp::Max => values.fold(f32::NEG_INFINITY, f32::max),
            ReduceOp::Min => values.fold(f32::INFINITY, f32::min),
        };
    }
}

fn cumsum(axis: usize, x: &Arg<'_>, out: &mut [f32]) {
    let (_, n, inner) = around(x.item, axis);
    out.copy_from_slice(x.data);
    for y in out.chunks_exact_mut(n * inner) {
        for i in inner..n * inner {
            y[i] += y[i - inner];
        }
    }
}
