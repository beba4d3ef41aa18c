//! The host's side of one build: the builder's functions and the guest's limits.

use host_graph::{BinaryOp, BuildError, Op, ReduceOp, RopeSpec, Section, SlotId, SlotKind, UnaryOp, Value};
use host_plugins::{Budget, GraphSession};
use wasmtime::ResourceLimiter;

use crate::contract_0_2::graph::tenon::plugin::{graph, types};
use crate::words::{self, wide};

/// Elements of all tables of a guest; each costs the host a pointer or two.
pub(crate) const MAX_TABLE_ELEMENTS: usize = 100_000;

/// Why the host ended a guest.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// More memory than granted.
    #[error("the memory budget is spent")]
    Memory,
    /// More table elements than granted.
    #[error("the guest's tables are too large")]
    Table,
    /// More log text than granted.
    #[error("the log budget is spent")]
    Log,
    /// More calls on a step than granted.
    #[error("the calls of the step are spent")]
    Calls,
}

/// All that belongs to one build.
pub(crate) struct Guest {
    pub(crate) session: GraphSession,
    pub(crate) limits: Memory,
    /// The last log line: a panic's message comes this way.
    pub(crate) last_line: Option<String>,
}

impl Guest {
    pub(crate) fn new(session: GraphSession, budget: &Budget) -> Self {
        Guest { session, limits: Memory::new(budget), last_line: None }
    }

    fn add(&mut self, op: Op, inputs: &[u32]) -> Made {
        let inputs: Vec<_> = inputs.iter().copied().map(Value).collect();
        made(self.session.add(op, &inputs))
    }

    fn slot(&mut self, layer: u32, kind: SlotKind) -> Made {
        self.session.slot(layer, kind).map(|slot| slot.0).map_err(words::build_error)
    }
}

type Made = Result<u32, types::BuildError>;

fn made(result: Result<Value, BuildError>) -> Made {
    result.map(|value| value.0).map_err(words::build_error)
}

/// What is left of a guest's memory, over all its memories and tables.
pub(crate) struct Memory {
    left_bytes: usize,
    left_elements: usize,
}

impl Memory {
    pub(crate) fn new(budget: &Budget) -> Self {
        Memory { left_bytes: budget.memory_bytes, left_elements: MAX_TABLE_ELEMENTS }
    }
}

impl ResourceLimiter for Memory {
    /// A refused growth ends the guest: no guest is written to go on without memory.
    fn memory_growing(&mut self, now: usize, wanted: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let left = self.left_bytes.checked_sub(wanted.saturating_sub(now)).ok_or(Fault::Memory)?;
        self.left_bytes = left;
        Ok(true)
    }

    fn table_growing(&mut self, now: usize, wanted: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let left = self.left_elements.checked_sub(wanted.saturating_sub(now)).ok_or(Fault::Table)?;
        self.left_elements = left;
        Ok(true)
    }

    fn instances(&self) -> usize {
        64
    }

    fn tables(&self) -> usize {
        16
    }

    fn memories(&self) -> usize {
        4
    }
}

impl types::Host for Guest {}

/// Functions of one value.
macro_rules! unary {
    ($($name:ident $op:ident)+) => {
        $(fn $name(&mut self, x: u32) -> Made {
            self.add(Op::Unary(UnaryOp::$op), &[x])
        })+
    };
}

/// Functions of two values.
macro_rules! binary {
    ($($name:ident $op:ident)+) => {
        $(fn $name(&mut self, a: u32, b: u32) -> Made {
            self.add(Op::Binary(BinaryOp::$op), &[a, b])
        })+
    };
}

/// Functions along one axis.
macro_rules! reduce {
    ($($name:ident $op:ident)+) => {
        $(fn $name(&mut self, x: u32, axis: u32) -> Made {
            self.add(Op::Reduce { op: ReduceOp::$op, axis: axis as usize }, &[x])
        })+
    };
}

impl graph::Host for Guest {
    fn begin_section(&mut self, section: graph::Section) {
        self.session.section(match section {
            graph::Section::Embed => Section::Embed,
            graph::Section::Layer(layer) => Section::Layer(layer),
            graph::Section::Head => Section::Head,
        });
    }

    fn tensor(&mut self, name: String) -> Option<graph::TensorFacts> {
        self.session.tensor(&name).map(words::tensor_facts)
    }

    fn ignore(&mut self, name: String) {
        self.session.ignore(&name);
    }

    fn shape(&mut self, x: u32) -> Result<Vec<graph::Dim>, types::BuildError> {
        self.session.shape(Value(x)).map(|shape| words::dims(&shape)).map_err(words::build_error)
    }

    fn log(&mut self, line: String) -> wasmtime::Result<()> {
        if !self.session.log(&line) {
            return Err(Fault::Log.into());
        }
        self.last_line = Some(line);
        Ok(())
    }

    fn kv_slot(&mut self, layer: u32, heads: u32, dim_k: u32, dim_v: u32, window: Option<u32>) -> Made {
        let kind = SlotKind::Kv {
            heads: heads as usize,
            dim_k: dim_k as usize,
            dim_v: dim_v as usize,
            window: window.map(|n| n as usize),
        };
        self.slot(layer, kind)
    }

    fn kv_shared_slot(&mut self, layer: u32, donor: u32) -> Made {
        self.slot(layer, SlotKind::KvShared { with: SlotId(donor) })
    }

    fn conv_slot(&mut self, layer: u32, channels: u32, kernel: u32) -> Made {
        self.slot(layer, SlotKind::Conv { channels: channels as usize, kernel: kernel as usize })
    }

    fn recurrent_slot(&mut self, layer: u32, shape: Vec<u32>) -> Made {
        self.slot(layer, SlotKind::Recurrent { shape: wide(&shape) })
    }

    fn index_keys_slot(&mut self, layer: u32, dim: u32) -> Made {
        self.slot(layer, SlotKind::IndexKeys { dim: dim as usize })
    }

    fn tokens(&mut self) -> Made {
        self.add(Op::Tokens, &[])
    }

    fn positions(&mut self) -> Made {
        self.add(Op::Positions, &[])
    }

    fn constant(&mut self, value: f64) -> Made {
        self.add(Op::Constant { value: value as f32 }, &[])
    }

    fn weight(&mut self, name: String) -> Made {
        self.add(Op::Weight { name }, &[])
    }

    fn embedding(&mut self, ids: u32, weight: String) -> Made {
        self.add(Op::Embedding { weight }, &[ids])
    }

    fn per_layer_embedding(&mut self, ids: u32, weight: String, n_layers: u32) -> Made {
        self.add(Op::PerLayerEmbedding { weight, n_layers: n_layers as usize }, &[ids])
    }

    fn inject(&mut self, x: u32, feature: String) -> Made {
        self.add(Op::Inject { feature }, &[x])
    }

    fn linear(&mut self, x: u32, weight: String, bias: Option<String>) -> Made {
        self.add(Op::Linear { weight, bias }, &[x])
    }

    fn rms_norm(&mut self, x: u32, weight: Option<String>, eps: f64, offset: f64) -> Made {
        self.add(Op::RmsNorm { weight, eps: eps as f32, offset: offset as f32 }, &[x])
    }

    fn layer_norm(&mut self, x: u32, weight: Option<String>, bias: Option<String>, eps: f64) -> Made {
        self.add(Op::LayerNorm { weight, bias, eps: eps as f32 }, &[x])
    }

    fn rope(&mut self, x: u32, spec: graph::RopeSpec) -> Made {
        self.add(Op::Rope(RopeSpec::from(spec)), &[x])
    }

    fn attention(&mut self, inputs: graph::AttentionInputs, spec: graph::AttentionSpec) -> Made {
        let given: Vec<_> =
            [Some(inputs.q), inputs.k, inputs.v, inputs.selected].into_iter().flatten().collect();
        let op = Op::Attention {
            slot: SlotId(spec.slot),
            scale: spec.scale as f32,
            mask: words::mask(spec.mask),
            softcap: spec.softcap.map(|cap| cap as f32),
            sinks: spec.sinks,
        };
        self.add(op, &given)
    }

    fn moe(&mut self, x: u32, indices: u32, weights: u32, experts: graph::Experts) -> Made {
        let activation = words::activation(experts.activation);
        let op = Op::Moe { gate: experts.gate, up: experts.up, down: experts.down, activation };
        self.add(op, &[x, indices, weights])
    }

    fn matmul(&mut self, a: u32, b: u32) -> Made {
        self.add(Op::Matmul, &[a, b])
    }

    fn softmax(&mut self, x: u32) -> Made {
        self.add(Op::Softmax, &[x])
    }

    fn conv1d_causal(&mut self, x: u32, slot: u32, weight: String, bias: Option<String>) -> Made {
        self.add(Op::Conv1dCausal { slot: SlotId(slot), weight, bias }, &[x])
    }

    fn gated_delta(&mut self, q: u32, k: u32, v: u32, g: u32, beta: u32, slot: u32) -> Made {
        self.add(Op::GatedDelta { slot: SlotId(slot) }, &[q, k, v, g, beta])
    }

    fn ssm_scan(&mut self, x: u32, dt: u32, a: u32, b: u32, c: u32, slot: u32) -> Made {
        self.add(Op::SsmScan { slot: SlotId(slot) }, &[x, dt, a, b, c])
    }

    fn sparse_select(&mut self, q: u32, k: u32, weights: u32, slot: u32, count: u32) -> Made {
        self.add(Op::SparseSelect { slot: SlotId(slot), k: count as usize }, &[q, k, weights])
    }

    fn begin_scan(&mut self, slot: u32, inputs: Vec<u32>) -> Result<Vec<u32>, types::BuildError> {
        let inputs: Vec<_> = inputs.into_iter().map(Value).collect();
        let begun = self.session.begin_scan(SlotId(slot), &inputs).map_err(words::build_error)?;
        Ok(begun.into_iter().map(|value| value.0).collect())
    }

    fn end_scan(&mut self, state: u32, output: u32) -> Made {
        made(self.session.end_scan(Value(state), Value(output)))
    }

    fn slice(&mut self, x: u32, axis: u32, start: u32, stop: u32) -> Made {
        let [axis, start, stop] = [axis, start, stop].map(|n| n as usize);
        self.add(Op::Slice { axis, start, stop }, &[x])
    }

    fn split(&mut self, x: u32, sizes: Vec<u32>, axis: u32) -> Result<Vec<u32>, types::BuildError> {
        let parts = self.session.split(Value(x), &wide(&sizes), axis as usize).map_err(words::build_error)?;
        Ok(parts.into_iter().map(|value| value.0).collect())
    }

    fn concat(&mut self, values: Vec<u32>, axis: u32) -> Made {
        self.add(Op::Concat { axis: axis as usize }, &values)
    }

    fn reshape(&mut self, x: u32, dims: Vec<u32>) -> Made {
        made(self.session.reshape(Value(x), &wide(&dims)))
    }

    fn transpose(&mut self, x: u32, axes: Vec<u32>) -> Made {
        self.add(Op::Transpose { axes: wide(&axes) }, &[x])
    }

    fn topk(&mut self, x: u32, k: u32) -> Result<(u32, u32), types::BuildError> {
        let (values, indices) = self.session.topk(Value(x), k as usize).map_err(words::build_error)?;
        Ok((values.0, indices.0))
    }

    fn gather(&mut self, x: u32, indices: u32) -> Made {
        self.add(Op::Gather, &[x, indices])
    }

    fn scatter(&mut self, x: u32, indices: u32, values: u32) -> Made {
        self.add(Op::Scatter, &[x, indices, values])
    }

    fn cast(&mut self, x: u32, to: graph::Element) -> Made {
        self.add(Op::Cast { to: words::element(to) }, &[x])
    }

    fn scale(&mut self, x: u32, factor: f64) -> Made {
        self.add(Op::Scale { factor: factor as f32 }, &[x])
    }

    fn softcap(&mut self, x: u32, cap: f64) -> Made {
        self.add(Op::Softcap { cap: cap as f32 }, &[x])
    }

    fn where_(&mut self, condition: u32, a: u32, b: u32) -> Made {
        self.add(Op::Where, &[condition, a, b])
    }

    fn cumsum(&mut self, x: u32, axis: u32) -> Made {
        self.add(Op::Cumsum { axis: axis as usize }, &[x])
    }

    unary! {
        silu Silu
        gelu Gelu
        gelu_tanh GeluTanh
        relu Relu
        relu2 Relu2
        sigmoid Sigmoid
        tanh Tanh
        softplus Softplus
        exp Exp
        ln Log
        sqrt Sqrt
        rsqrt Rsqrt
        neg Neg
        abs Abs
        sin Sin
        cos Cos
        floor Floor
        logical_not Not
    }

    binary! {
        add Add
        sub Sub
        mul Mul
        div Div
        maximum Max
        minimum Min
        pow Pow
        equal Equal
        less Less
        less_equal LessEqual
        logical_and And
        logical_or Or
    }

    reduce! {
        sum Sum
        mean Mean
        max Max
        min Min
    }
}
