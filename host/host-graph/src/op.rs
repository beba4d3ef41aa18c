//! The operations of a graph, named as papers and checkpoints name them.

use crate::graph::SlotId;
use crate::rope::RopeSpec;
use crate::shape::{Shape, ValueType};

/// An elementwise function of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each name is its definition; see `UnaryOp::ALL`")]
pub enum UnaryOp {
    Silu,
    Gelu,
    GeluTanh,
    Relu,
    Relu2,
    Sigmoid,
    Tanh,
    Softplus,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Neg,
    Abs,
    Sin,
    Cos,
    Floor,
    Not,
}

impl UnaryOp {
    /// Every function with its name in plugins and in the text form.
    pub const ALL: [(UnaryOp, &'static str); 18] = [
        (UnaryOp::Silu, "silu"),
        (UnaryOp::Gelu, "gelu"),
        (UnaryOp::GeluTanh, "gelu_tanh"),
        (UnaryOp::Relu, "relu"),
        (UnaryOp::Relu2, "relu2"),
        (UnaryOp::Sigmoid, "sigmoid"),
        (UnaryOp::Tanh, "tanh"),
        (UnaryOp::Softplus, "softplus"),
        (UnaryOp::Exp, "exp"),
        (UnaryOp::Log, "ln"),
        (UnaryOp::Sqrt, "sqrt"),
        (UnaryOp::Rsqrt, "rsqrt"),
        (UnaryOp::Neg, "neg"),
        (UnaryOp::Abs, "abs"),
        (UnaryOp::Sin, "sin"),
        (UnaryOp::Cos, "cos"),
        (UnaryOp::Floor, "floor"),
        (UnaryOp::Not, "logical_not"),
    ];

    /// The name in plugins and in the text form.
    pub fn name(self) -> &'static str {
        name_in(&Self::ALL, self)
    }
}

/// An elementwise function of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each name is its definition; see `BinaryOp::ALL`")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Pow,
    Equal,
    Less,
    LessEqual,
    And,
    Or,
}

impl BinaryOp {
    /// Every function with its name in plugins and in the text form.
    pub const ALL: [(BinaryOp, &'static str); 12] = [
        (BinaryOp::Add, "add"),
        (BinaryOp::Sub, "sub"),
        (BinaryOp::Mul, "mul"),
        (BinaryOp::Div, "div"),
        (BinaryOp::Max, "maximum"),
        (BinaryOp::Min, "minimum"),
        (BinaryOp::Pow, "pow"),
        (BinaryOp::Equal, "equal"),
        (BinaryOp::Less, "less"),
        (BinaryOp::LessEqual, "less_equal"),
        (BinaryOp::And, "logical_and"),
        (BinaryOp::Or, "logical_or"),
    ];

    /// The name in plugins and in the text form.
    pub fn name(self) -> &'static str {
        name_in(&Self::ALL, self)
    }

    /// Whether the result is a truth value.
    pub fn is_comparison(self) -> bool {
        matches!(self, BinaryOp::Equal | BinaryOp::Less | BinaryOp::LessEqual)
    }
}

/// A reduction over one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each name is its definition; see `ReduceOp::ALL`")]
pub enum ReduceOp {
    Sum,
    Mean,
    Max,
    Min,
}

impl ReduceOp {
    /// Every reduction with its name in plugins and in the text form.
    pub const ALL: [(ReduceOp, &'static str); 4] =
        [(ReduceOp::Sum, "sum"), (ReduceOp::Mean, "mean"), (ReduceOp::Max, "max"), (ReduceOp::Min, "min")];

    /// The name in plugins and in the text form.
    pub fn name(self) -> &'static str {
        name_in(&Self::ALL, self)
    }
}

/// The gate's activation in a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each name is its definition")]
pub enum Activation {
    Silu,
    Gelu,
    GeluTanh,
}

impl Activation {
    /// Every activation with its name in plugins and in the text form.
    pub const ALL: [(Activation, &'static str); 3] =
        [(Activation::Silu, "silu"), (Activation::Gelu, "gelu"), (Activation::GeluTanh, "gelu_tanh")];

    /// The name in plugins and in the text form.
    pub fn name(self) -> &'static str {
        name_in(&Self::ALL, self)
    }
}

fn name_in<T: Copy + PartialEq>(all: &[(T, &'static str)], wanted: T) -> &'static str {
    all.iter().find(|(op, _)| *op == wanted).map_or("?", |(_, name)| name)
}

/// Which keys a query may see. Query and key positions are absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// Keys at or before the query.
    Causal,
    /// Causal, and fewer than this many positions back.
    Window(usize),
    /// Causal, and in the same chunk of this many positions.
    Chunked(usize),
    /// Every key of the first `prefix` positions that the request declares bidirectional, then causal.
    BidirectionalPrefix,
}

/// One operation. Inputs are the node's `inputs`, in the order told here.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// The new tokens' ids: int `[B,T]`.
    Tokens,
    /// The new tokens' absolute positions: int `[B,T]`.
    Positions,
    /// A number: float `[]`.
    Constant {
        /// Its value.
        value: f32,
    },
    /// A dense checkpoint tensor as a value, with its own shape.
    Weight {
        /// Checkpoint name.
        name: String,
    },
    /// Inside a scan's body: the carried state (index 0) or the inputs at this step (from 1 on).
    BodyInput {
        /// Which of them.
        index: usize,
    },
    /// Rows of a table by id: int `[…]` to float `[…, E]`; the table is `[V, E]`.
    Embedding {
        /// Checkpoint name.
        weight: String,
    },
    /// One row of a table a layer: int `[B,T]` to float `[B,T,n_layers,width]`; the table is
    /// `[V, n_layers*width]`. A device may keep the table out of memory.
    PerLayerEmbedding {
        /// Checkpoint name.
        weight: String,
        /// Layers that receive a part.
        n_layers: usize,
    },
    /// `x W^T + b`: `[…, in]` to `[…, out]`; the weight is `[out, in]`, the bias `[out]`.
    Linear {
        /// Checkpoint name.
        weight: String,
        /// Checkpoint name of the bias, if there is one.
        bias: Option<String>,
    },
    /// `x / sqrt(mean(x²) + eps) * (weight + offset)`, over the last dimension, in float32 inside.
    RmsNorm {
        /// Checkpoint name; without one the weight is 1.
        weight: Option<String>,
        /// Added to the mean square, before the root.
        eps: f32,
        /// Added to the weight: 1 for Gemma 1 to 3, else 0.
        offset: f32,
    },
    /// `(x - mean) / sqrt(var + eps) * weight + bias`, over the last dimension.
    LayerNorm {
        /// Checkpoint name; without one the weight is 1.
        weight: Option<String>,
        /// Checkpoint name; without one the bias is 0.
        bias: Option<String>,
        /// Added to the variance, before the root.
        eps: f32,
    },
    /// Rotates the first `dims` of each head by the token's position: `[B,T,H,D]` to the same.
    Rope(RopeSpec),
    /// Attention over the slot's keys and values and those given: q `[B,T,H,D]`, k `[B,T,K,D]`,
    /// v `[B,T,K,Dv]` to `[B,T,H,Dv]`. With a shared slot only q is given. An optional last int input
    /// `[B,T,k]` from `sparse_select` restricts the keys.
    Attention {
        /// Where keys and values are kept.
        slot: SlotId,
        /// Multiplies `q·k`.
        scale: f32,
        /// Which keys a query may see.
        mask: Mask,
        /// `tanh(s/c)*c` on the scores before the mask.
        softcap: Option<f32>,
        /// Checkpoint name of `[H]` sink logits that join each softmax's denominator.
        sinks: Option<String>,
    },
    /// An elementwise function.
    Unary(UnaryOp),
    /// An elementwise function of two values, shapes broadcast.
    Binary(BinaryOp),
    /// `x * factor`.
    Scale {
        /// The factor.
        factor: f32,
    },
    /// `tanh(x / cap) * cap`.
    Softcap {
        /// The bound.
        cap: f32,
    },
    /// Elements `start..stop` of one axis.
    Slice {
        /// Axis among all dimensions.
        axis: usize,
        /// First element.
        start: usize,
        /// One past the last element.
        stop: usize,
    },
    /// Joins two or more values along one axis.
    Concat {
        /// Axis among all dimensions.
        axis: usize,
    },
    /// The same elements in another shape; leading symbols stay.
    Reshape {
        /// The new shape.
        shape: Shape,
    },
    /// Another order of axes; leading symbols stay in front.
    Transpose {
        /// `axes[i]` is the input axis that becomes axis i.
        axes: Vec<usize>,
    },
    /// Converts the element type.
    Cast {
        /// The new type.
        to: ValueType,
    },
    /// Softmax over the last dimension, float32 inside.
    Softmax,
    /// Indices of the k largest of the last dimension, largest first, lower index first on ties.
    TopK {
        /// How many.
        k: usize,
    },
    /// x `[…, N]`, indices int `[…, k]` to `[…, k]`: elements of the last dimension.
    Gather,
    /// x `[…, N]`, indices int `[…, k]`, values `[…, k]` to `[…, N]`: x with those elements replaced.
    Scatter,
    /// Experts: x `[B,T,E]`, indices int `[B,T,k]`, weights `[B,T,k]` to `[B,T,E]`:
    /// `sum_k weight_k * down(activation(gate x) * up x)`.
    Moe {
        /// Checkpoint name of the stacked `[n_experts, F, E]` gate projections.
        gate: String,
        /// Checkpoint name of the stacked `[n_experts, F, E]` up projections.
        up: String,
        /// Checkpoint name of the stacked `[n_experts, E, F]` down projections.
        down: String,
        /// The gate's activation.
        activation: Activation,
    },
    /// Depthwise causal convolution over T: `[B,T,C]` to the same; the weight is `[C, K]` or `[C, 1, K]`
    /// or `[C, K, 1]`; the last K-1 inputs are kept in the slot.
    Conv1dCausal {
        /// Where the last inputs are kept.
        slot: SlotId,
        /// Checkpoint name.
        weight: String,
        /// Checkpoint name of the `[C]` bias, if there is one.
        bias: Option<String>,
    },
    /// Gated delta rule: q, k `[B,T,Hk,Dk]`, v `[B,T,Hv,Dv]`, g, beta `[B,T,Hv]` to `[B,T,Hv,Dv]`.
    /// A step: `S *= g; d = (v - S k) * beta; S += d k^T; y = S q`, state float32 `[Hv,Dv,Dk]`.
    GatedDelta {
        /// Where the state is kept.
        slot: SlotId,
    },
    /// Selective state space (Mamba 2): x `[B,T,H,P]`, dt `[B,T,H]`, a `[H]`, b, c `[B,T,G,N]` to
    /// `[B,T,H,P]`. A step: `S = S*exp(dt*a) + dt * x b^T; y = S c`, state float32 `[H,P,N]`.
    SsmScan {
        /// Where the state is kept.
        slot: SlotId,
    },
    /// The positions a query attends to: q `[B,T,Hi,Di]`, k `[B,T,Di]`, weights `[B,T,Hi]` to int
    /// `[B,T,k]`: the k best of `Hi^-0.5 * sum_h w_h relu(q_h·k * Di^-0.5)` among the positions up to its
    /// own, strictly above the threshold in position order, then ties in position order; -1 where fewer exist.
    SparseSelect {
        /// Where the index keys are kept.
        slot: SlotId,
        /// How many positions.
        k: usize,
    },
    /// Replaces the rows of x `[B,T,E]` at the request's marked positions by its features of that name.
    Inject {
        /// `image`, `audio`, …
        feature: String,
    },
    /// `a b` over the last two dimensions, leading ones broadcast.
    Matmul,
    /// condition bool, a, b: a where true, else b; shapes broadcast.
    Where,
    /// A reduction over one axis, which stays with length 1.
    Reduce {
        /// The reduction.
        op: ReduceOp,
        /// Axis among all dimensions, not B or T.
        axis: usize,
    },
    /// Running sum along one axis, not B or T.
    Cumsum {
        /// Axis among all dimensions.
        axis: usize,
    },
    /// A loop over T: the body maps (state, inputs at t) to (new state, output at t).
    Scan {
        /// Where the state is kept.
        slot: SlotId,
        /// The body.
        body: Box<crate::body::Body>,
    },
}

impl Op {
    /// The name in plugins, errors and the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Tokens => "tokens",
            Op::Positions => "positions",
            Op::Constant { .. } => "constant",
            Op::Weight { .. } => "weight",
            Op::BodyInput { .. } => "body_input",
            Op::Embedding { .. } => "embedding",
            Op::PerLayerEmbedding { .. } => "per_layer_embedding",
            Op::Linear { .. } => "linear",
            Op::RmsNorm { .. } => "rms_norm",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Rope(_) => "rope",
            Op::Attention { .. } => "attention",
            Op::Unary(op) => op.name(),
            Op::Binary(op) => op.name(),
            Op::Scale { .. } => "scale",
            Op::Softcap { .. } => "softcap",
            Op::Slice { .. } => "slice",
            Op::Concat { .. } => "concat",
            Op::Reshape { .. } => "reshape",
            Op::Transpose { .. } => "transpose",
            Op::Cast { .. } => "cast",
            Op::Softmax => "softmax",
            Op::TopK { .. } => "topk",
            Op::Gather => "gather",
            Op::Scatter => "scatter",
            Op::Moe { .. } => "moe",
            Op::Conv1dCausal { .. } => "conv1d_causal",
            Op::GatedDelta { .. } => "gated_delta",
            Op::SsmScan { .. } => "ssm_scan",
            Op::SparseSelect { .. } => "sparse_select",
            Op::Inject { .. } => "inject",
            Op::Matmul => "matmul",
            Op::Where => "where",
            Op::Reduce { op, .. } => op.name(),
            Op::Cumsum { .. } => "cumsum",
            Op::Scan { .. } => "scan",
        }
    }

    /// The checkpoint tensors it names, in a fixed order.
    pub fn tensors(&self) -> Vec<&str> {
        match self {
            Op::Weight { name } => vec![name],
            Op::Embedding { weight } | Op::PerLayerEmbedding { weight, .. } => vec![weight],
            Op::Linear { weight, bias } | Op::Conv1dCausal { weight, bias, .. } => {
                std::iter::once(weight.as_str()).chain(bias.as_deref()).collect()
            }
            Op::RmsNorm { weight, .. } => weight.as_deref().into_iter().collect(),
            Op::LayerNorm { weight, bias, .. } => {
                weight.as_deref().into_iter().chain(bias.as_deref()).collect()
            }
            Op::Attention { sinks, .. } => sinks.as_deref().into_iter().collect(),
            Op::Moe { gate, up, down, .. } => vec![gate, up, down],
            Op::Scan { body, .. } => body.nodes.iter().flat_map(|node| node.op.tensors()).collect(),
            _ => Vec::new(),
        }
    }

    /// The state slot it reads and writes.
    pub fn slot(&self) -> Option<SlotId> {
        match self {
            Op::Attention { slot, .. }
            | Op::Conv1dCausal { slot, .. }
            | Op::GatedDelta { slot }
            | Op::SsmScan { slot }
            | Op::SparseSelect { slot, .. }
            | Op::Scan { slot, .. } => Some(*slot),
            _ => None,
        }
    }
}
