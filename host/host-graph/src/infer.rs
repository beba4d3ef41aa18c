//! Shape and type inference: what each operation accepts and gives.
//!
//! One function an operation; each reads like the operation's description in [`Op`].

use crate::error::BuildErrorKind;
use crate::graph::{Catalogue, Node, Slot, SlotId, SlotKind};
use crate::op::{BinaryOp, Mask, Op, UnaryOp};
use crate::rope::{RopeFrequencies, RopeSpec};
use crate::shape::{Dim, Shape, ValueType};

type Inferred = Result<(Shape, ValueType), BuildErrorKind>;

/// What inference may look at besides the inputs.
pub(crate) struct Context<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) slots: &'a [Slot],
}

/// The result's shape and type, or why the call is refused.
pub(crate) fn infer(op: &Op, inputs: &[&Node], context: &Context<'_>) -> Inferred {
    let args = Args { inputs };
    match op {
        Op::Tokens | Op::Positions => {
            args.count(0)?;
            Ok((Shape::per_token(&[]), ValueType::Int))
        }
        Op::Constant { value } => {
            args.count(0)?;
            finite("value", *value)?;
            Ok((Shape::default(), ValueType::Float))
        }
        Op::Weight { name } => {
            args.count(0)?;
            Ok((Shape::fixed(context.dense(name)?), ValueType::Float))
        }
        Op::BodyInput { .. } | Op::Scan { .. } => Err(BuildErrorKind::Order {
            expected: "begin_scan and end_scan",
            found: "a scan given as a plain operation",
        }),
        Op::Embedding { weight } => embedding(weight, &args, context),
        Op::PerLayerEmbedding { weight, n_layers } => {
            args.count(1)?;
            let table = context.matrix(weight)?;
            let ids = args.of(0, "ids", ValueType::Int)?;
            if *n_layers == 0 || table[1] % n_layers != 0 {
                return Err(attribute("n_layers", format!("a divisor of {}", table[1]), n_layers));
            }
            Ok((join(ids, &[*n_layers, table[1] / n_layers]), ValueType::Float))
        }
        Op::Linear { weight, bias } => linear(weight, bias.as_deref(), &args, context),
        Op::RmsNorm { weight, eps, offset } => {
            args.count(1)?;
            positive("eps", *eps)?;
            finite("offset", *offset)?;
            let x = args.of(0, "x", ValueType::Float)?;
            context.vector_like(weight.as_deref(), last(x, "x")?)?;
            Ok((x.clone(), ValueType::Float))
        }
        Op::LayerNorm { weight, bias, eps } => {
            args.count(1)?;
            positive("eps", *eps)?;
            let x = args.of(0, "x", ValueType::Float)?;
            context.vector_like(weight.as_deref(), last(x, "x")?)?;
            context.vector_like(bias.as_deref(), last(x, "x")?)?;
            Ok((x.clone(), ValueType::Float))
        }
        Op::Rope(spec) => rope(spec, &args),
        Op::Attention { slot, scale, mask, softcap, sinks } => {
            finite("scale", *scale)?;
            if let Some(cap) = softcap {
                positive("softcap", *cap)?;
            }
            attention(*slot, *mask, sinks.as_deref(), &args, context)
        }
        Op::Unary(UnaryOp::Not) => {
            args.count(1)?;
            Ok((args.of(0, "x", ValueType::Bool)?.clone(), ValueType::Bool))
        }
        Op::Unary(_) | Op::Scale { .. } | Op::Softcap { .. } => {
            args.count(1)?;
            match op {
                Op::Scale { factor } => finite("factor", *factor)?,
                Op::Softcap { cap } => positive("cap", *cap)?,
                _ => {}
            }
            Ok((args.of(0, "x", ValueType::Float)?.clone(), ValueType::Float))
        }
        Op::Binary(binary_op) => binary(*binary_op, &args),
        Op::Slice { axis, start, stop } => {
            args.count(1)?;
            let (x, value_type) = args.any(0);
            let n = fixed_axis(x, *axis)?;
            if start >= stop || *stop > n {
                return Err(attribute(
                    "start..stop",
                    format!("a part of 0..{n}"),
                    format!("{start}..{stop}"),
                ));
            }
            Ok((with_axis(x, *axis, stop - start), value_type))
        }
        Op::Concat { axis } => concat(*axis, &args),
        Op::Reshape { shape } => {
            args.count(1)?;
            let (x, value_type) = args.any(0);
            if x.lead() != shape.lead() || x.item_len() != shape.item_len() || misplaced(shape) {
                return Err(shape_error("x", format!("as many elements as {shape}"), x));
            }
            Ok((shape.clone(), value_type))
        }
        Op::Transpose { axes } => transpose(axes, &args),
        Op::Cast { to } => {
            args.count(1)?;
            Ok((args.any(0).0.clone(), *to))
        }
        Op::Softmax => {
            args.count(1)?;
            let x = args.of(0, "x", ValueType::Float)?;
            last(x, "x")?;
            Ok((x.clone(), ValueType::Float))
        }
        Op::TopK { k } => {
            args.count(1)?;
            let x = args.of(0, "x", ValueType::Float)?;
            let n = last(x, "x")?;
            if *k == 0 || *k > n {
                return Err(attribute("k", format!("from 1 to {n}"), k));
            }
            Ok((with_axis(x, x.rank() - 1, *k), ValueType::Int))
        }
        Op::Gather => {
            args.count(2)?;
            let (x, value_type) = args.any(0);
            let indices = args.of(1, "indices", ValueType::Int)?;
            same_but_last(x, indices, "indices")?;
            Ok((indices.clone(), value_type))
        }
        Op::Scatter => {
            args.count(3)?;
            let (x, value_type) = args.any(0);
            let indices = args.of(1, "indices", ValueType::Int)?;
            same_but_last(x, indices, "indices")?;
            let values = args.of(2, "values", value_type)?;
            if values != indices {
                return Err(shape_error("values", indices.to_string(), values));
            }
            Ok((x.clone(), value_type))
        }
        Op::Moe { gate, up, down, .. } => moe([gate, up, down], &args, context),
        Op::Conv1dCausal { slot, weight, bias } => conv(*slot, weight, bias.as_deref(), &args, context),
        Op::GatedDelta { slot } => gated_delta(*slot, &args, context),
        Op::SsmScan { slot } => ssm_scan(*slot, &args, context),
        Op::SparseSelect { slot, k } => sparse_select(*slot, *k, &args, context),
        Op::Inject { feature } => {
            args.count(1)?;
            if feature.is_empty() {
                return Err(attribute("feature", "a name".into(), "nothing"));
            }
            Ok((args.per_token(0, "x", 1)?.clone(), ValueType::Float))
        }
        Op::Matmul => matmul(&args),
        Op::Where => {
            args.count(3)?;
            let condition = args.of(0, "condition", ValueType::Bool)?;
            let (a, value_type) = args.any(1);
            let b = args.of(2, "b", value_type)?;
            let both = a.broadcast(b).ok_or_else(|| shape_error("b", format!("fits {a}"), b))?;
            let all = condition.broadcast(&both);
            let all = all.ok_or_else(|| shape_error("condition", format!("fits {both}"), condition))?;
            Ok((all, value_type))
        }
        Op::Reduce { axis, .. } => {
            args.count(1)?;
            let x = args.of(0, "x", ValueType::Float)?;
            fixed_axis(x, *axis)?;
            Ok((with_axis(x, *axis, 1), ValueType::Float))
        }
        Op::Cumsum { axis } => {
            args.count(1)?;
            let x = args.of(0, "x", ValueType::Float)?;
            fixed_axis(x, *axis)?;
            Ok((x.clone(), ValueType::Float))
        }
    }
}

fn embedding(weight: &str, args: &Args<'_>, context: &Context<'_>) -> Inferred {
    args.count(1)?;
    let table = context.matrix(weight)?;
    Ok((join(args.of(0, "ids", ValueType::Int)?, &[table[1]]), ValueType::Float))
}

fn linear(weight: &str, bias: Option<&str>, args: &Args<'_>, context: &Context<'_>) -> Inferred {
    args.count(1)?;
    let matrix = context.matrix(weight)?;
    let (n_out, n_in) = (matrix[0], matrix[1]);
    let x = args.of(0, "x", ValueType::Float)?;
    if last(x, "x")? != n_in {
        return Err(shape_error("x", format!("[…,{n_in}] for `{weight}` [{n_out},{n_in}]"), x));
    }
    context.vector_like(bias, n_out)?;
    Ok((with_axis(x, x.rank() - 1, n_out), ValueType::Float))
}

fn rope(spec: &RopeSpec, args: &Args<'_>) -> Inferred {
    args.count(1)?;
    let x = args.per_token(0, "x", 2)?;
    let width = last(x, "x")?;
    if spec.dims == 0 || !spec.dims.is_multiple_of(2) || spec.dims > width {
        return Err(attribute("dims", format!("even, from 2 to {width}"), spec.dims));
    }
    positive("theta", spec.theta)?;
    positive("attention_factor", spec.attention_factor)?;
    let pairs = spec.dims / 2;
    rope_frequencies(spec, pairs)?;
    let sections = spec.mrope_section.iter().fold(0, |sum: usize, n| sum.saturating_add(*n));
    if !spec.mrope_section.is_empty() && (sections != pairs || spec.mrope_section.len() != 3) {
        let expected = format!("three numbers that sum to {pairs}");
        return Err(attribute("mrope_section", expected, format!("{:?}", spec.mrope_section)));
    }
    Ok((x.clone(), ValueType::Float))
}

fn rope_frequencies(spec: &RopeSpec, pairs: usize) -> Result<(), BuildErrorKind> {
    match &spec.frequencies {
        RopeFrequencies::Default => Ok(()),
        RopeFrequencies::Linear { factor } => positive("factor", *factor),
        RopeFrequencies::Llama3 {
            factor,
            low_freq_factor: low,
            high_freq_factor: high,
            original_max_position_embeddings,
        } => {
            positive("factor", *factor)?;
            positive("low_freq_factor", *low)?;
            positive("original_max_position_embeddings", *original_max_position_embeddings)?;
            if high.is_finite() && high > low {
                return Ok(());
            }
            Err(attribute("high_freq_factor", format!("a finite number above {low}"), high))
        }
        RopeFrequencies::Yarn {
            factor,
            beta_fast,
            beta_slow,
            original_max_position_embeddings,
            truncate: _,
        } => {
            positive("factor", *factor)?;
            positive("beta_fast", *beta_fast)?;
            positive("beta_slow", *beta_slow)?;
            positive("original_max_position_embeddings", *original_max_position_embeddings)?;
            if spec.theta > 1.0 {
                return Ok(());
            }
            Err(attribute("theta", "above 1 for yarn".into(), spec.theta))
        }
        RopeFrequencies::LongRope { factors } => {
            let is_good = |factor: &f32| factor.is_finite() && *factor > 0.0;
            if factors.len() == pairs && factors.iter().all(is_good) {
                return Ok(());
            }
            Err(attribute("factors", format!("{pairs} positive numbers"), format!("{factors:?}")))
        }
        RopeFrequencies::Proportional { factor, full_dims } => {
            positive("factor", *factor)?;
            if *full_dims >= spec.dims {
                return Ok(());
            }
            Err(attribute("full_dims", format!("at least dims, {}", spec.dims), full_dims))
        }
    }
}

fn attention(
    slot: SlotId,
    mask: Mask,
    sinks: Option<&str>,
    args: &Args<'_>,
    context: &Context<'_>,
) -> Inferred {
    if let Mask::Window(n) | Mask::Chunked(n) = mask
        && n == 0
    {
        return Err(attribute("mask", "at least 1 position".into(), n));
    }
    let q = args.per_token(0, "q", 2)?;
    let (n_heads, width) = (q.item()[0], q.item()[1]);
    let kind = &context.slot(slot)?.kind;
    let is_shared = matches!(kind, SlotKind::KvShared { .. });
    let donor = if let SlotKind::KvShared { with } = kind { &context.slot(*with)?.kind } else { kind };
    let SlotKind::Kv { heads, dim_k, dim_v, window } = donor else {
        return Err(slot_error(slot, "kv or kv_shared", kind));
    };
    if let Some(kept) = window {
        let needed = if let Mask::Window(n) | Mask::Chunked(n) = mask { n } else { usize::MAX };
        if needed > *kept {
            return Err(attribute("mask", format!("at most the slot's window, {kept}"), format!("{mask:?}")));
        }
    }
    let n_plain = if is_shared { 1 } else { 3 };
    if args.inputs.len() != n_plain && args.inputs.len() != n_plain + 1 {
        return Err(attribute("inputs", format!("{n_plain} or {} values", n_plain + 1), args.inputs.len()));
    }
    if width != *dim_k || n_heads % heads != 0 {
        return Err(shape_error("q", format!("[B,T,H,{dim_k}] with H a multiple of {heads}"), q));
    }
    if !is_shared {
        args.exactly(1, "k", &[*heads, *dim_k])?;
        args.exactly(2, "v", &[*heads, *dim_v])?;
    }
    if args.inputs.len() > n_plain {
        args.of(n_plain, "selected", ValueType::Int)?;
        args.lead_per_token(n_plain, "selected", 1)?;
    }
    context.vector_like(sinks, n_heads)?;
    Ok((Shape::per_token(&[n_heads, *dim_v]), ValueType::Float))
}

fn binary(op: BinaryOp, args: &Args<'_>) -> Inferred {
    args.count(2)?;
    let (a, a_type) = args.any(0);
    let b = args.of(1, "b", a_type)?;
    let expected = match op {
        BinaryOp::And | BinaryOp::Or => Some(ValueType::Bool),
        BinaryOp::Equal | BinaryOp::Less | BinaryOp::LessEqual => None,
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min => {
            (a_type == ValueType::Bool).then_some(ValueType::Float)
        }
        BinaryOp::Div | BinaryOp::Pow => Some(ValueType::Float),
    };
    if let Some(expected) = expected {
        args.of(0, "a", expected)?;
    }
    let shape = a.broadcast(b).ok_or_else(|| shape_error("b", format!("fits {a}"), b))?;
    Ok((shape, if op.is_comparison() { ValueType::Bool } else { a_type }))
}

fn concat(axis: usize, args: &Args<'_>) -> Inferred {
    if args.inputs.is_empty() {
        return Err(attribute("inputs", "at least 1 value".into(), 0));
    }
    let (first, value_type) = args.any(0);
    let mut total: usize = 0;
    for i in 0..args.inputs.len() {
        let x = args.of(i, "x", value_type)?;
        total = total.saturating_add(fixed_axis(x, axis)?);
        if with_axis(x, axis, 1) != with_axis(first, axis, 1) {
            return Err(shape_error("x", format!("{first} but for axis {axis}"), x));
        }
    }
    Ok((with_axis(first, axis, total), value_type))
}

fn transpose(axes: &[usize], args: &Args<'_>) -> Inferred {
    args.count(1)?;
    let (x, value_type) = args.any(0);
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    let is_permutation = sorted.iter().copied().eq(0..x.rank());
    let keeps_lead = axes.iter().take(x.lead().len()).copied().eq(0..x.lead().len());
    if !is_permutation || !keeps_lead {
        let expected = format!("an order of 0..{} that keeps {} leading axes", x.rank(), x.lead().len());
        return Err(attribute("axes", expected, format!("{axes:?}")));
    }
    Ok((Shape(axes.iter().map(|i| x.0[*i]).collect()), value_type))
}

fn moe(names: [&String; 3], args: &Args<'_>, context: &Context<'_>) -> Inferred {
    args.count(3)?;
    let x = args.per_token(0, "x", 1)?;
    let width = x.item()[0];
    let gate = context.tensor(names[0])?;
    let [n_experts, inner, _] = gate[..] else {
        return Err(tensor_error(names[0], format!("[n_experts,F,{width}]"), gate));
    };
    let shapes = [[n_experts, inner, width], [n_experts, inner, width], [n_experts, width, inner]];
    for (name, shape) in names.into_iter().zip(shapes) {
        let found = context.tensor(name)?;
        if found != shape {
            return Err(tensor_error(name, Shape::fixed(&shape).to_string(), found));
        }
    }
    let indices = args.of(1, "indices", ValueType::Int)?;
    args.lead_per_token(1, "indices", 1)?;
    args.exactly(2, "weights", &indices.item())?;
    Ok((x.clone(), ValueType::Float))
}

fn conv(slot: SlotId, weight: &str, bias: Option<&str>, args: &Args<'_>, context: &Context<'_>) -> Inferred {
    args.count(1)?;
    let kind = &context.slot(slot)?.kind;
    let SlotKind::Conv { channels, kernel } = kind else {
        return Err(slot_error(slot, "conv", kind));
    };
    let x = args.exactly(0, "x", &[*channels])?;
    let found = context.dense(weight)?;
    let known = [vec![*channels, *kernel], vec![*channels, 1, *kernel], vec![*channels, *kernel, 1]];
    if !known.iter().any(|shape| shape == found) {
        return Err(tensor_error(weight, format!("[{channels},{kernel}]"), found));
    }
    context.vector_like(bias, *channels)?;
    Ok((x.clone(), ValueType::Float))
}

fn gated_delta(slot: SlotId, args: &Args<'_>, context: &Context<'_>) -> Inferred {
    args.count(5)?;
    let q = args.per_token(0, "q", 2)?.item();
    args.exactly(1, "k", &q)?;
    let v = args.per_token(2, "v", 2)?;
    let (n_v, dim_v) = (v.item()[0], v.item()[1]);
    if n_v % q[0] != 0 {
        return Err(shape_error("v", format!("[B,T,Hv,Dv] with Hv a multiple of {}", q[0]), v));
    }
    args.exactly(3, "g", &[n_v])?;
    args.exactly(4, "beta", &[n_v])?;
    context.recurrent(slot, &[n_v, dim_v, q[1]])?;
    Ok((v.clone(), ValueType::Float))
}

fn ssm_scan(slot: SlotId, args: &Args<'_>, context: &Context<'_>) -> Inferred {
    args.count(5)?;
    let x = args.per_token(0, "x", 2)?;
    let (n_heads, width) = (x.item()[0], x.item()[1]);
    args.exactly(1, "dt", &[n_heads])?;
    let a = args.of(2, "a", ValueType::Float)?;
    if *a != Shape::fixed(&[n_heads]) {
        return Err(shape_error("a", format!("[{n_heads}]"), a));
    }
    let b = args.per_token(3, "b", 2)?;
    if n_heads % b.item()[0] != 0 {
        return Err(shape_error("b", format!("[B,T,G,N] with G a divisor of {n_heads}"), b));
    }
    args.exactly(4, "c", &b.item())?;
    context.recurrent(slot, &[n_heads, width, b.item()[1]])?;
    Ok((x.clone(), ValueType::Float))
}

fn sparse_select(slot: SlotId, k: usize, args: &Args<'_>, context: &Context<'_>) -> Inferred {
    args.count(3)?;
    let kind = &context.slot(slot)?.kind;
    let SlotKind::IndexKeys { dim } = kind else {
        return Err(slot_error(slot, "index_keys", kind));
    };
    let q = args.per_token(0, "q", 2)?;
    if q.item()[1] != *dim {
        return Err(shape_error("q", format!("[B,T,Hi,{dim}]"), q));
    }
    args.exactly(1, "k", &[*dim])?;
    args.exactly(2, "weights", &[q.item()[0]])?;
    if k == 0 {
        return Err(attribute("k", "at least 1".into(), k));
    }
    Ok((Shape::per_token(&[k]), ValueType::Int))
}

fn matmul(args: &Args<'_>) -> Inferred {
    args.count(2)?;
    let a = args.of(0, "a", ValueType::Float)?;
    let b = args.of(1, "b", ValueType::Float)?;
    let (rank_a, rank_b) = (a.rank(), b.rank());
    if a.item().len() < 2 || b.item().len() < 2 {
        return Err(shape_error("a", "two fixed dimensions at the end".into(), a));
    }
    if a.0[rank_a - 1] != b.0[rank_b - 2] {
        return Err(shape_error("b", format!("[…,{},n]", a.0[rank_a - 1]), b));
    }
    let lead_a = Shape(a.0[..rank_a - 2].to_vec());
    let lead_b = Shape(b.0[..rank_b - 2].to_vec());
    let mut lead =
        lead_a.broadcast(&lead_b).ok_or_else(|| shape_error("b", format!("leads like {lead_a}"), b))?;
    lead.0.extend([a.0[rank_a - 2], b.0[rank_b - 1]]);
    Ok((lead, ValueType::Float))
}

/// The inputs of a call, with the checks that operations share.
struct Args<'a> {
    inputs: &'a [&'a Node],
}

impl<'a> Args<'a> {
    fn count(&self, n: usize) -> Result<(), BuildErrorKind> {
        if self.inputs.len() == n {
            return Ok(());
        }
        Err(attribute("inputs", format!("{n} values"), self.inputs.len()))
    }

    fn any(&self, i: usize) -> (&'a Shape, ValueType) {
        (&self.inputs[i].shape, self.inputs[i].value_type)
    }

    fn of(&self, i: usize, input: &'static str, wanted: ValueType) -> Result<&'a Shape, BuildErrorKind> {
        let Some(node) = self.inputs.get(i) else {
            return Err(attribute("inputs", format!("at least {} values", i + 1), self.inputs.len()));
        };
        if node.value_type == wanted {
            return Ok(&node.shape);
        }
        Err(BuildErrorKind::Type { input, expected: wanted.to_string(), found: node.value_type.to_string() })
    }

    /// A float `[B,T,…]` with `rank` fixed dimensions.
    fn per_token(&self, i: usize, input: &'static str, rank: usize) -> Result<&'a Shape, BuildErrorKind> {
        self.of(i, input, ValueType::Float)?;
        self.lead_per_token(i, input, rank)
    }

    fn lead_per_token(
        &self,
        i: usize,
        input: &'static str,
        rank: usize,
    ) -> Result<&'a Shape, BuildErrorKind> {
        let shape = &self.inputs[i].shape;
        if shape.lead() == [Dim::B, Dim::T] && shape.rank() == 2 + rank {
            return Ok(shape);
        }
        let names = ["[B,T]", "[B,T,n]", "[B,T,n,m]", "[B,T,n,m,l]"];
        Err(shape_error(input, names[rank.min(3)].to_owned(), shape))
    }

    fn exactly(&self, i: usize, input: &'static str, item: &[usize]) -> Result<&'a Shape, BuildErrorKind> {
        let found = self.of(i, input, ValueType::Float)?;
        let expected = Shape::per_token(item);
        if *found == expected { Ok(found) } else { Err(shape_error(input, expected.to_string(), found)) }
    }
}

impl Context<'_> {
    fn tensor(&self, name: &str) -> Result<&[usize], BuildErrorKind> {
        match self.catalogue.get(name) {
            Some(facts) => Ok(&facts.shape),
            None => Err(BuildErrorKind::MissingTensor {
                name: name.to_owned(),
                nearest: nearest(name, self.catalogue.keys()),
            }),
        }
    }

    fn dense(&self, name: &str) -> Result<&[usize], BuildErrorKind> {
        let shape = self.tensor(name)?;
        if self.catalogue[name].is_dense {
            return Ok(shape);
        }
        Err(BuildErrorKind::Quantised { name: name.to_owned() })
    }

    fn matrix(&self, name: &str) -> Result<&[usize], BuildErrorKind> {
        let shape = self.tensor(name)?;
        if shape.len() == 2 { Ok(shape) } else { Err(tensor_error(name, "[out,in]".into(), shape)) }
    }

    fn vector_like(&self, name: Option<&str>, n: usize) -> Result<(), BuildErrorKind> {
        let Some(name) = name else { return Ok(()) };
        let found = self.dense(name)?;
        if found == [n] { Ok(()) } else { Err(tensor_error(name, format!("[{n}]"), found)) }
    }

    fn slot(&self, id: SlotId) -> Result<&Slot, BuildErrorKind> {
        self.slots.get(id.0 as usize).ok_or_else(|| BuildErrorKind::Slot {
            slot: id.0,
            expected: "a declared slot".into(),
            found: "no slot of that number".into(),
        })
    }

    fn recurrent(&self, id: SlotId, wanted: &[usize]) -> Result<(), BuildErrorKind> {
        let kind = &self.slot(id)?.kind;
        match kind {
            SlotKind::Recurrent { shape } if shape == wanted => Ok(()),
            _ => Err(slot_error(id, &format!("recurrent {}", Shape::fixed(wanted)), kind)),
        }
    }
}

/// Up to three names that differ least from `wanted`, by shared prefix and suffix.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let shared = |name: &String| {
        let prefix = name.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count();
        let suffix = name.bytes().rev().zip(wanted.bytes().rev()).take_while(|(a, b)| a == b).count();
        prefix + suffix
    };
    let mut scored: Vec<_> = names.map(|name| (shared(name), name)).collect();
    scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).filter(|(n, _)| *n * 2 > wanted.len()).map(|(_, name)| name.clone()).collect()
}

fn join(lead: &Shape, dims: &[usize]) -> Shape {
    Shape(lead.0.iter().copied().chain(dims.iter().map(|n| Dim::Fixed(*n))).collect())
}

fn with_axis(shape: &Shape, axis: usize, n: usize) -> Shape {
    let mut dims = shape.0.clone();
    dims[axis] = Dim::Fixed(n);
    Shape(dims)
}

fn fixed_axis(shape: &Shape, axis: usize) -> Result<usize, BuildErrorKind> {
    match shape.0.get(axis) {
        Some(Dim::Fixed(n)) => Ok(*n),
        _ => Err(attribute("axis", format!("a fixed dimension of {shape}"), axis)),
    }
}

fn same_but_last(x: &Shape, y: &Shape, input: &'static str) -> Result<(), BuildErrorKind> {
    last(x, "x")?;
    last(y, input)?;
    if x.rank() == y.rank() && x.0[..x.rank() - 1] == y.0[..y.rank() - 1] {
        return Ok(());
    }
    Err(shape_error(input, format!("{x} but for the last dimension"), y))
}

fn last(shape: &Shape, input: &'static str) -> Result<usize, BuildErrorKind> {
    shape.last().ok_or_else(|| shape_error(input, "a fixed last dimension".into(), shape))
}

fn misplaced(shape: &Shape) -> bool {
    shape.0[shape.lead().len()..].iter().any(|dim| !matches!(dim, Dim::Fixed(n) if *n > 0))
}

fn finite(name: &'static str, value: f32) -> Result<(), BuildErrorKind> {
    if value.is_finite() { Ok(()) } else { Err(attribute(name, "a finite number".into(), value)) }
}

fn positive(name: &'static str, value: f32) -> Result<(), BuildErrorKind> {
    let holds = value.is_finite() && value > 0.0;
    if holds { Ok(()) } else { Err(attribute(name, "a finite number above 0".into(), value)) }
}

fn attribute(name: &'static str, expected: String, found: impl ToString) -> BuildErrorKind {
    BuildErrorKind::Attribute { name, expected, found: found.to_string() }
}

fn shape_error(input: &'static str, expected: String, found: &Shape) -> BuildErrorKind {
    BuildErrorKind::Shape { input, expected, found: found.to_string() }
}

fn tensor_error(name: &str, expected: String, found: &[usize]) -> BuildErrorKind {
    BuildErrorKind::TensorShape { name: name.to_owned(), expected, found: Shape::fixed(found).to_string() }
}

fn slot_error(slot: SlotId, expected: &str, found: &SlotKind) -> BuildErrorKind {
    BuildErrorKind::Slot { slot: slot.0, expected: expected.to_owned(), found: format!("{found:?}") }
}
