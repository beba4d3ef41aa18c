//! The attributes of each operation and slot, in the order in which they are written.

use super::NodeLine;
use super::line::Line;
use crate::graph::{SlotId, SlotKind};
use crate::op::{Activation, BinaryOp, Mask, Op, ReduceOp, UnaryOp};
use crate::rope::{RopeFrequencies, RopeLayout, RopeSpec};
use crate::shape::{Dim, Shape, ValueType};
use crate::text_error::TextError;

type Read<T> = Result<T, TextError>;

const NUMBER: &str = "a number";
const WHOLE: &str = "a whole number";

/// The operation of a line; `slot_of` gives the builder's handle of a slot.
pub(super) fn op(node: &NodeLine<'_>, slot_of: impl Fn(SlotId) -> SlotId) -> Read<Op> {
    let mut line = node.attributes.clone();
    let op = read(node, &mut line, slot_of)?;
    line.end()?;
    Ok(op)
}

fn read(node: &NodeLine<'_>, line: &mut Line<'_>, slot_of: impl Fn(SlotId) -> SlotId) -> Read<Op> {
    Ok(match node.name {
        "tokens" => Op::Tokens,
        "positions" => Op::Positions,
        "constant" => Op::Constant { value: float(line, "value")? },
        "weight" => Op::Weight { name: name(line, "name")? },
        "embedding" => Op::Embedding { weight: name(line, "weight")? },
        "per_layer_embedding" => {
            Op::PerLayerEmbedding { weight: name(line, "weight")?, n_layers: whole(line, "n_layers")? }
        }
        "linear" => Op::Linear { weight: name(line, "weight")?, bias: optional(line, "bias")? },
        "rms_norm" => Op::RmsNorm {
            weight: optional(line, "weight")?,
            eps: float(line, "eps")?,
            offset: float(line, "offset")?,
        },
        "layer_norm" => Op::LayerNorm {
            weight: optional(line, "weight")?,
            bias: optional(line, "bias")?,
            eps: float(line, "eps")?,
        },
        "rope" => Op::Rope(rope(line)?),
        "attention" => Op::Attention {
            slot: slot_of(slot(line)?),
            scale: float(line, "scale")?,
            mask: mask(line)?,
            softcap: if line.has_key("softcap") { Some(line.number_of(NUMBER)?) } else { None },
            sinks: optional(line, "sinks")?,
        },
        "scale" => Op::Scale { factor: float(line, "factor")? },
        "softcap" => Op::Softcap { cap: float(line, "cap")? },
        "slice" => {
            Op::Slice { axis: whole(line, "axis")?, start: whole(line, "start")?, stop: whole(line, "stop")? }
        }
        "concat" => Op::Concat { axis: whole(line, "axis")? },
        "reshape" => Op::Reshape { shape: node.shape.clone() },
        "transpose" => {
            line.key("axes")?;
            Op::Transpose { axes: line.list(WHOLE)? }
        }
        "cast" => Op::Cast { to: node.value_type },
        "softmax" => Op::Softmax,
        "topk" => Op::TopK { k: whole(line, "k")? },
        "gather" => Op::Gather,
        "scatter" => Op::Scatter,
        "moe" => Op::Moe {
            gate: name(line, "gate")?,
            up: name(line, "up")?,
            down: name(line, "down")?,
            activation: activation(line)?,
        },
        "conv1d_causal" => Op::Conv1dCausal {
            slot: slot_of(slot(line)?),
            weight: name(line, "weight")?,
            bias: optional(line, "bias")?,
        },
        "gated_delta" => Op::GatedDelta { slot: slot_of(slot(line)?) },
        "ssm_scan" => Op::SsmScan { slot: slot_of(slot(line)?) },
        "sparse_select" => Op::SparseSelect { slot: slot_of(slot(line)?), k: whole(line, "k")? },
        "inject" => Op::Inject { feature: name(line, "feature")? },
        "matmul" => Op::Matmul,
        "where" => Op::Where,
        "cumsum" => Op::Cumsum { axis: whole(line, "axis")? },
        other => return elementwise(other, line),
    })
}

/// Functions that share one form; their names are listed once, beside the operations.
fn elementwise(name: &str, line: &mut Line<'_>) -> Read<Op> {
    if let Some(op) = named(&UnaryOp::ALL, name) {
        return Ok(Op::Unary(op));
    }
    if let Some(op) = named(&BinaryOp::ALL, name) {
        return Ok(Op::Binary(op));
    }
    match named(&ReduceOp::ALL, name) {
        Some(op) => Ok(Op::Reduce { op, axis: whole(line, "axis")? }),
        None => Err(TextError::Operation { line: line.number(), found: name.to_owned() }),
    }
}

fn named<T: Copy>(all: &[(T, &'static str)], wanted: &str) -> Option<T> {
    all.iter().find(|(_, name)| *name == wanted).map(|(op, _)| *op)
}

/// Inside a loop: that the line is the input of that number.
pub(super) fn body_input(node: &NodeLine<'_>, index: usize) -> Read<()> {
    let mut line = node.attributes.clone();
    if node.name != "body_input" || !node.inputs.is_empty() {
        return Err(TextError::Operation { line: line.number(), found: node.name.to_owned() });
    }
    line.key("index")?;
    line.keyword(&index.to_string())?;
    line.end()
}

/// What stands behind a slot's layer.
pub(super) fn slot_kind(line: &mut Line<'_>) -> Read<SlotKind> {
    line.keyword(" ")?;
    let start = line.clone();
    match line.word("a kind of slot")? {
        "kv" => Ok(SlotKind::Kv {
            heads: whole(line, "heads")?,
            dim_k: whole(line, "dim_k")?,
            dim_v: whole(line, "dim_v")?,
            window: if line.has_key("window") { Some(line.number_of(WHOLE)?) } else { None },
        }),
        "kv_shared" => {
            line.key("with")?;
            Ok(SlotKind::KvShared { with: SlotId(line.number_of("a slot")?) })
        }
        "conv" => Ok(SlotKind::Conv { channels: whole(line, "channels")?, kernel: whole(line, "kernel")? }),
        "recurrent" => {
            line.key("shape")?;
            Ok(SlotKind::Recurrent { shape: line.list(WHOLE)? })
        }
        "index_keys" => Ok(SlotKind::IndexKeys { dim: whole(line, "dim")? }),
        _ => Err(start.unexpected("`kv`, `kv_shared`, `conv`, `recurrent` or `index_keys`")),
    }
}

pub(super) fn slot(line: &mut Line<'_>) -> Read<SlotId> {
    line.key("slot")?;
    Ok(SlotId(line.number_of("a slot")?))
}

pub(super) fn value_type(line: &mut Line<'_>) -> Read<ValueType> {
    let start = line.clone();
    match line.word("a type")? {
        "float" => Ok(ValueType::Float),
        "int" => Ok(ValueType::Int),
        "bool" => Ok(ValueType::Bool),
        _ => Err(start.unexpected("`float`, `int` or `bool`")),
    }
}

/// `[B,T,8]`.
pub(super) fn shape(line: &mut Line<'_>) -> Read<Shape> {
    line.keyword("[")?;
    let mut dims = Vec::new();
    while !line.eat("]") {
        if !dims.is_empty() {
            line.keyword(",")?;
        }
        dims.push(if line.eat("B") {
            Dim::B
        } else if line.eat("T") {
            Dim::T
        } else {
            Dim::Fixed(line.number_of("`B`, `T` or a whole number")?)
        });
    }
    Ok(Shape(dims))
}

fn mask(line: &mut Line<'_>) -> Read<Mask> {
    line.key("mask")?;
    let start = line.clone();
    let word = line.word("a mask")?;
    let mut positions = || {
        line.keyword("(")?;
        let n = line.number_of(WHOLE)?;
        line.keyword(")")?;
        Ok(n)
    };
    match word {
        "causal" => Ok(Mask::Causal),
        "window" => Ok(Mask::Window(positions()?)),
        "chunked" => Ok(Mask::Chunked(positions()?)),
        "bidirectional_prefix" => Ok(Mask::BidirectionalPrefix),
        _ => Err(start.unexpected("`causal`, `window(N)`, `chunked(N)` or `bidirectional_prefix`")),
    }
}

fn activation(line: &mut Line<'_>) -> Read<Activation> {
    line.key("activation")?;
    let start = line.clone();
    let word = line.word("an activation")?;
    named(&Activation::ALL, word).ok_or_else(|| start.unexpected("`silu`, `gelu` or `gelu_tanh`"))
}

fn rope(line: &mut Line<'_>) -> Read<RopeSpec> {
    let (dims, theta) = (whole(line, "dims")?, float(line, "theta")?);
    line.key("layout")?;
    let start = line.clone();
    let layout = match line.word("a layout")? {
        "split_halves" => RopeLayout::SplitHalves,
        "interleaved" => RopeLayout::Interleaved,
        _ => return Err(start.unexpected("`split_halves` or `interleaved`")),
    };
    let frequencies = if line.has_key("type") { frequencies(line)? } else { RopeFrequencies::Default };
    let attention_factor = if line.has_key("attention_factor") { line.number_of(NUMBER)? } else { 1.0 };
    let mrope_section = if line.has_key("mrope_section") { line.list(WHOLE)? } else { Vec::new() };
    Ok(RopeSpec { dims, theta, layout, frequencies, attention_factor, mrope_section })
}

fn frequencies(line: &mut Line<'_>) -> Read<RopeFrequencies> {
    let start = line.clone();
    Ok(match line.word("a type of rotation")? {
        "linear" => RopeFrequencies::Linear { factor: float(line, "factor")? },
        "llama3" => RopeFrequencies::Llama3 {
            factor: float(line, "factor")?,
            low_freq_factor: float(line, "low_freq_factor")?,
            high_freq_factor: float(line, "high_freq_factor")?,
            original_max_position_embeddings: float(line, "original")?,
        },
        "yarn" => RopeFrequencies::Yarn {
            factor: float(line, "factor")?,
            beta_fast: float(line, "beta_fast")?,
            beta_slow: float(line, "beta_slow")?,
            original_max_position_embeddings: float(line, "original")?,
            truncate: truth(line, "truncate")?,
        },
        "longrope" => {
            line.key("factors")?;
            RopeFrequencies::LongRope { factors: line.list(NUMBER)? }
        }
        "proportional" => RopeFrequencies::Proportional {
            factor: float(line, "factor")?,
            full_dims: whole(line, "full_dims")?,
        },
        _ => return Err(start.unexpected("`linear`, `llama3`, `yarn`, `longrope` or `proportional`")),
    })
}

fn float(line: &mut Line<'_>, key: &str) -> Read<f32> {
    line.key(key)?;
    line.number_of(NUMBER)
}

fn whole(line: &mut Line<'_>, key: &str) -> Read<usize> {
    line.key(key)?;
    line.number_of(WHOLE)
}

fn truth(line: &mut Line<'_>, key: &str) -> Read<bool> {
    line.key(key)?;
    let start = line.clone();
    match line.word("`true` or `false`")? {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(start.unexpected("`true` or `false`")),
    }
}

fn name(line: &mut Line<'_>, key: &str) -> Read<String> {
    line.key(key)?;
    line.name()
}

fn optional(line: &mut Line<'_>, key: &str) -> Read<Option<String>> {
    if line.has_key(key) { line.name().map(Some) } else { Ok(None) }
}
