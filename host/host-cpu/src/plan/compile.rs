//! From graph to plan: fuses what belongs together and gives every value a buffer.

use std::collections::HashMap;

use host_core::Numeric;
use host_device::{CompileOptions, DeviceError};
use host_graph::{Activation, BinaryOp, Graph, Mask, Node, Op, RopeSpec, Section, SlotId, SlotKind, UnaryOp, Value, ValueType};
use host_weights::{Catalogue, Encoding};

use super::layout::{mark_barriers, place, step};
use super::{
    Buffer, BufferId, CodesBuffer, CodesId, Instr, KvPlace, Operand, Plan, ProductInput, RopeTable, Rows, Vector,
};
use crate::lanes::LANES;
use crate::matrix::{BLOCK, Matrix};
use crate::memory::ALIGN;

/// The name under which errors speak of this device.
const DEVICE: &str = crate::DEVICE_ID;

/// What has to be read from the checkpoint before the plan can run.
#[derive(Debug, Default)]
pub(crate) struct WeightsPlan {
    /// Matrices to repack, by checkpoint name, and where they go.
    pub(crate) matrices: Vec<(String, Matrix)>,
    pub(crate) matrix_bytes: usize,
    /// Vectors to read as floats.
    pub(crate) vectors: Vec<VectorSource>,
    /// Values to compute once, in order, after the vectors.
    pub(crate) once: Vec<Instr>,
    pub(crate) constant_bytes: usize,
}

/// Floats of one dense tensor, plus a number added to each.
#[derive(Clone, Debug)]
pub(crate) struct VectorSource {
    pub(crate) name: String,
    pub(crate) add: f32,
    pub(crate) len: usize,
    pub(crate) offset: usize,
}

/// Compiles a checked graph.
pub(crate) fn compile(
    graph: &Graph,
    catalogue: &Catalogue,
    options: &CompileOptions,
) -> Result<(Plan, WeightsPlan), DeviceError> {
    let mut compiler = Compiler::new(graph, catalogue, options);
    compiler.place_state()?;
    compiler.find_fusions();
    for index in 0..graph.nodes().len() {
        if !compiler.is_fused[index] {
            compiler.emit(index)?;
        }
    }
    compiler.finish()
}

struct Compiler<'a> {
    graph: &'a Graph,
    catalogue: &'a Catalogue,
    options: &'a CompileOptions,
    plan: Plan,
    weights: WeightsPlan,
    /// The buffer of each node's result, once emitted.
    results: Vec<Option<BufferId>>,
    uses: Vec<usize>,
    /// Nodes that their only user computes along.
    is_fused: Vec<bool>,
    matrices: HashMap<String, Matrix>,
    vectors: HashMap<(String, u32), Vector>,
    codes: HashMap<(BufferId, usize), CodesId>,
    taken: HashMap<BufferId, BufferId>,
    /// The step that wrote a buffer.
    writer: HashMap<BufferId, usize>,
    kv: Vec<Option<KvPlace>>,
    /// Which numbers cached values, with their index in the constants.
    numbers: HashMap<u32, BufferId>,
}

impl<'a> Compiler<'a> {
    fn new(graph: &'a Graph, catalogue: &'a Catalogue, options: &'a CompileOptions) -> Self {
        let n = graph.nodes().len();
        let mut uses = vec![0; n];
        for input in graph.nodes().iter().flat_map(|node| &node.inputs) {
            uses[input.0 as usize] += 1;
        }
        uses[graph.output().0 as usize] += 1;
        let ints = |item| Buffer { rows: Rows::Tokens, item, offset: 0 };
        let plan = Plan {
            steps: Vec::new(),
            buffers: vec![ints(1), ints(1)],
            codes: Vec::new(),
            ropes: Vec::new(),
            tokens: BufferId(0),
            positions: BufferId(1),
            logits: BufferId(usize::MAX),
            n_vocab: graph.n_vocab(),
            arena_bytes: 0,
            state_bytes: 0,
            can_trim: true,
            n_counters: 0,
            signatures: Vec::new(),
            kv_places: Vec::new(),
        };
        Compiler {
            graph,
            catalogue,
            options,
            plan,
            weights: WeightsPlan::default(),
            results: vec![None; n],
            uses,
            is_fused: vec![false; n],
            matrices: HashMap::new(),
            vectors: HashMap::new(),
            codes: HashMap::new(),
            taken: HashMap::new(),
            writer: HashMap::new(),
            kv: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// Gives every slot its room within a sequence's state.
    fn place_state(&mut self) -> Result<(), DeviceError> {
        let capacity = self.options.context_tokens.next_multiple_of(LANES);
        let element = self.options.kv.element_bytes();
        for slot in self.graph.slots() {
            let place = match &slot.kind {
                SlotKind::Kv { heads, dim_k, dim_v, .. } => {
                    let keys = self.plan.state_bytes;
                    let values = keys + (heads * capacity * dim_k * element).next_multiple_of(ALIGN);
                    let end = values + (heads * capacity * dim_v * element).next_multiple_of(ALIGN);
                    self.plan.state_bytes = end;
                    self.plan.signatures.push(self.options.kv.signature().to_owned());
                    let place = KvPlace { heads: *heads, dim_k: *dim_k, dim_v: *dim_v, keys, values };
                    self.plan.kv_places.push(place);
                    Some(place)
                }
                SlotKind::KvShared { with } => {
                    self.plan.signatures.push(format!("kv:shared:{}", with.0));
                    self.kv[with.0 as usize]
                }
                other => return Err(unsupported(format!("state slots like {other:?}"), "kv and kv_shared")),
            };
            self.kv.push(place);
        }
        Ok(())
    }

    /// Marks the nodes that are computed along with their only user.
    fn find_fusions(&mut self) {
        for (index, node) in self.graph.nodes().iter().enumerate() {
            let partner = match &node.op {
                Op::Binary(BinaryOp::Add) => self.residual_of(node).map(|(linear, _)| linear),
                Op::Binary(BinaryOp::Mul) => self.glu_of(node).map(|(activation, _)| activation),
                Op::Scale { .. } => Some(node.inputs[0]).filter(|x| self.is_op(*x, |op| matches!(op, Op::Embedding { .. }))),
                Op::Attention { .. } => {
                    node.inputs.get(1).copied().filter(|k| self.is_op(*k, |op| matches!(op, Op::Rope(_))))
                }
                _ => None,
            };
            if let Some(partner) = partner
                && self.uses[partner.0 as usize] == 1
                && self.rows_of(self.graph.node(partner)) == self.rows_of(&self.graph.nodes()[index])
            {
                self.is_fused[partner.0 as usize] = true;
            }
        }
    }

    fn is_op(&self, value: Value, wanted: impl Fn(&Op) -> bool) -> bool {
        self.uses[value.0 as usize] == 1 && wanted(&self.graph.node(value).op)
    }

    /// For `linear + other` of equal shapes: the linear and the other.
    fn residual_of(&self, add: &Node) -> Option<(Value, Value)> {
        let (a, b) = (add.inputs[0], add.inputs[1]);
        if self.graph.node(a).shape != self.graph.node(b).shape || a == b {
            return None;
        }
        let is_linear = |x| self.is_op(x, |op| matches!(op, Op::Linear { .. }));
        if is_linear(b) {
            Some((b, a))
        } else if is_linear(a) {
            Some((a, b))
        } else {
            None
        }
    }

    /// For `activation(gate) * up` of equal shapes: the activation's node and up.
    fn glu_of(&self, mul: &Node) -> Option<(Value, Value)> {
        let (a, b) = (mul.inputs[0], mul.inputs[1]);
        if self.graph.node(a).shape != self.graph.node(b).shape || a == b {
            return None;
        }
        let is_gate = |x| {
            self.is_op(x, |op| {
                matches!(op, Op::Unary(UnaryOp::Silu) | Op::Unary(UnaryOp::GeluTanh) | Op::Unary(UnaryOp::Gelu))
            })
        };
        if is_gate(a) {
            Some((a, b))
        } else if is_gate(b) {
            Some((b, a))
        } else {
            None
        }
    }

    fn rows_of(&self, node: &Node) -> Rows {
        if node.shape.lead().is_empty() {
            Rows::Once
        } else if node.section == Section::Head {
            Rows::Logits
        } else {
            Rows::Tokens
        }
    }

    fn emit(&mut self, index: usize) -> Result<(), DeviceError> {
        let node = &self.graph.nodes()[index];
        let rows = self.rows_of(node);
        let result = match &node.op {
            Op::Tokens => self.take(self.plan.tokens, rows),
            Op::Positions => self.take(self.plan.positions, rows),
            Op::Constant { value } => self.number(*value),
            Op::Weight { name } => {
                let item = node.shape.item_len();
                let vector = self.vector(name, 0.0, item);
                self.constant_buffer(item, vector)
            }
            Op::Embedding { weight } => self.embed(weight, node.inputs[0], 1.0, rows)?,
            Op::PerLayerEmbedding { weight, .. } => self.embed(weight, node.inputs[0], 1.0, rows)?,
            Op::Scale { factor } if self.is_fused[node.inputs[0].0 as usize] => {
                let embedding = self.graph.node(node.inputs[0]);
                let Op::Embedding { weight } = &embedding.op else { unreachable!("fused with a scale") };
                self.embed(weight, embedding.inputs[0], *factor, rows)?
            }
            Op::Linear { .. } => self.product(node, None, rows)?,
            Op::RmsNorm { weight, eps, offset } => {
                let width = node.shape.last().unwrap_or(1);
                let weight = weight.as_ref().map(|name| self.vector(name, *offset, width));
                self.norm(node, weight, None, *eps, false, rows)?
            }
            Op::LayerNorm { weight, bias, eps } => {
                let width = node.shape.last().unwrap_or(1);
                let weight = weight.as_ref().map(|name| self.vector(name, 0.0, width));
                let bias = bias.as_ref().map(|name| self.vector(name, 0.0, width));
                self.norm(node, weight, bias, *eps, true, rows)?
            }
            Op::Rope(spec) => {
                let x = self.input(node.inputs[0], rows)?;
                let rope = self.rope(spec);
                let out = self.buffer(rows, node.shape.item_len());
                self.push(Instr::Rope { x, out, width: node.shape.last().unwrap_or(1), rope }, out)
            }
            Op::Attention { slot, scale, mask, softcap, sinks } => {
                self.attention(node, *slot, *scale, *mask, softcap.unwrap_or(0.0), sinks.as_deref(), rows)?
            }
            Op::Binary(BinaryOp::Add) if self.fused_input(node).is_some() => {
                let (linear, other) = self.residual_of(node).expect("found when it was fused");
                let residual = self.input(other, rows)?;
                self.product(self.graph.node(linear), Some(residual), rows)?
            }
            Op::Binary(BinaryOp::Mul) if self.fused_input(node).is_some() => self.glu(node, rows)?,
            // Integers are kept as floats, and no features are injected into text.
            Op::Reshape { .. } | Op::Inject { .. } => self.input(node.inputs[0], rows)?,
            Op::Cast { to: ValueType::Float } => self.input(node.inputs[0], rows)?,
            Op::Moe { .. }
            | Op::Conv1dCausal { .. }
            | Op::GatedDelta { .. }
            | Op::SsmScan { .. }
            | Op::SparseSelect { .. }
            | Op::Scan { .. }
            | Op::BodyInput { .. } => {
                return Err(unsupported(format!("the operation {}", node.op.name()), "the operations of dense models"));
            }
            _ => self.general(node, rows)?,
        };
        self.results[index] = Some(result);
        Ok(())
    }

    fn fused_input(&self, node: &Node) -> Option<Value> {
        node.inputs.iter().copied().find(|x| self.is_fused[x.0 as usize])
    }

    fn buffer(&mut self, rows: Rows, item: usize) -> BufferId {
        self.plan.buffers.push(Buffer { rows, item, offset: 0 });
        BufferId(self.plan.buffers.len() - 1)
    }

    fn push(&mut self, instr: Instr, out: BufferId) -> BufferId {
        self.writer.insert(out, self.plan.steps.len());
        self.plan.steps.push(step(instr));
        out
    }

    /// The buffer of a value, as seen by a node with these rows.
    fn input(&mut self, value: Value, rows: Rows) -> Result<BufferId, DeviceError> {
        let buffer = self.results[value.0 as usize].expect("inputs are emitted before their users");
        let from = self.plan.buffers[buffer.0].rows;
        match (from, rows) {
            (Rows::Once, _) => Ok(buffer),
            (a, b) if a == b => Ok(buffer),
            (Rows::Tokens, Rows::Logits) => Ok(self.take(buffer, rows)),
            _ => Err(unsupported(
                format!("a value of the head ({value}) used outside the head"),
                "heads that only lead to the logits",
            )),
        }
    }

    /// A token buffer cut to the rows whose logits are wanted.
    fn take(&mut self, x: BufferId, rows: Rows) -> BufferId {
        if rows != Rows::Logits {
            return x;
        }
        if let Some(taken) = self.taken.get(&x) {
            return *taken;
        }
        let out = self.buffer(rows, self.plan.buffers[x.0].item);
        self.push(Instr::TakeRows { x, out }, out);
        self.taken.insert(x, out);
        out
    }

    fn vector(&mut self, name: &str, add: f32, len: usize) -> Vector {
        let key = (name.to_owned(), add.to_bits());
        if let Some(vector) = self.vectors.get(&key) {
            return *vector;
        }
        let vector = self.constants(len);
        self.weights.vectors.push(VectorSource { name: name.to_owned(), add, len, offset: vector.offset });
        self.vectors.insert(key, vector);
        vector
    }

    /// Room for `len` floats among the constants.
    fn constants(&mut self, len: usize) -> Vector {
        let offset = self.weights.constant_bytes;
        self.weights.constant_bytes = (offset + 4 * len).next_multiple_of(ALIGN);
        Vector { offset }
    }

    fn constant_buffer(&mut self, item: usize, vector: Vector) -> BufferId {
        let id = self.buffer(Rows::Once, item);
        self.plan.buffers[id.0].offset = vector.offset;
        id
    }

    fn number(&mut self, value: f32) -> BufferId {
        if let Some(id) = self.numbers.get(&value.to_bits()) {
            return *id;
        }
        let vector = self.constants(1);
        let id = self.constant_buffer(1, vector);
        self.weights.once.push(Instr::General {
            op: Op::Constant { value },
            lead: 0,
            inputs: Vec::new(),
            out: id,
            out_item: Vec::new(),
        });
        self.numbers.insert(value.to_bits(), id);
        id
    }

    fn matrix(&mut self, name: &str) -> Result<Matrix, DeviceError> {
        if let Some(matrix) = self.matrices.get(name) {
            return Ok(*matrix);
        }
        let info = self.catalogue.get(name).expect("the builder checked the name against the same catalogue");
        let (rows, cols) = (info.shape[0], info.shape[1]);
        let offset = self.weights.matrix_bytes;
        let matrix = Matrix::plan(rows, cols, info.encoding, offset).ok_or_else(|| {
            let found = match info.encoding {
                Encoding::Dense(dtype) => dtype.to_string(),
                other => format!("{other:?}"),
            };
            unsupported(format!("a matrix `{name}` of {found}"), "F32, F16, BF16 and grouped codes")
        })?;
        self.weights.matrix_bytes += matrix.bytes();
        self.weights.matrices.push((name.to_owned(), matrix));
        self.matrices.insert(name.to_owned(), matrix);
        Ok(matrix)
    }

    fn embed(&mut self, weight: &str, ids: Value, scale: f32, rows: Rows) -> Result<BufferId, DeviceError> {
        let table = self.matrix(weight)?;
        let ids = self.input(ids, rows)?;
        let out = self.buffer(rows, table.n_in * self.plan.buffers[ids.0].item);
        Ok(self.push(Instr::Embed { table, ids, out, scale }, out))
    }

    fn norm(
        &mut self,
        node: &Node,
        weight: Option<Vector>,
        bias: Option<Vector>,
        eps: f32,
        is_centred: bool,
        rows: Rows,
    ) -> Result<BufferId, DeviceError> {
        let x = self.input(node.inputs[0], rows)?;
        let out = self.buffer(rows, node.shape.item_len());
        let width = node.shape.last().unwrap_or(1);
        Ok(self.push(Instr::Norm { x, out, width, weight, bias, eps, is_centred, codes: None }, out))
    }

    fn product(&mut self, node: &Node, residual: Option<BufferId>, rows: Rows) -> Result<BufferId, DeviceError> {
        let Op::Linear { weight, bias } = &node.op else { unreachable!("a product comes from a linear") };
        let matrix = self.matrix(weight)?;
        let bias = bias.as_ref().map(|name| self.vector(name, 0.0, matrix.n_out));
        let x = self.input(node.inputs[0], rows)?;
        let input = if self.options.numeric == Numeric::Fast && matrix.takes_quantised() {
            ProductInput::Codes(self.codes_of(x, matrix.n_in))
        } else {
            ProductInput::Floats(x)
        };
        let out = self.buffer(rows, node.shape.item_len());
        Ok(self.push(Instr::Product { input, matrix, bias, residual, out }, out))
    }

    /// The 8-bit codes of a value's rows of `n_in`, made by the instruction that writes it where that can.
    fn codes_of(&mut self, x: BufferId, n_in: usize) -> CodesId {
        if let Some(codes) = self.codes.get(&(x, n_in)) {
            return *codes;
        }
        let buffer = self.plan.buffers[x.0];
        let id = CodesId(self.plan.codes.len());
        let n_rows = buffer.item / n_in;
        let stride = n_in.next_multiple_of(BLOCK);
        self.plan.codes.push(CodesBuffer { rows: buffer.rows, n_rows, n_in, stride: stride * n_rows, codes: 0, metas: 0 });
        self.codes.insert((x, n_in), id);
        let writer = self.writer.get(&x).map(|at| &mut self.plan.steps[*at].instr);
        match writer {
            Some(Instr::Norm { codes: codes @ None, .. } | Instr::Glu { codes: codes @ None, .. }) => {
                *codes = Some(id);
            }
            _ => self.plan.steps.push(step(Instr::Quantise { x, codes: id })),
        }
        id
    }

    fn glu(&mut self, node: &Node, rows: Rows) -> Result<BufferId, DeviceError> {
        let (activation, up) = self.glu_of(node).expect("found when it was fused");
        let gate = self.graph.node(activation);
        let activation = match gate.op {
            Op::Unary(UnaryOp::Gelu) => Activation::Gelu,
            Op::Unary(UnaryOp::GeluTanh) => Activation::GeluTanh,
            _ => Activation::Silu,
        };
        let (gate, up) = (self.input(gate.inputs[0], rows)?, self.input(up, rows)?);
        let out = self.buffer(rows, node.shape.item_len());
        Ok(self.push(Instr::Glu { activation, gate, up, out, codes: None }, out))
    }

    fn rope(&mut self, spec: &RopeSpec) -> usize {
        if let Some(known) = self.plan.ropes.iter().position(|rope| rope.spec == *spec) {
            return known;
        }
        let table = self.buffer(Rows::Tokens, spec.dims);
        let inverse_frequencies = spec.inverse_frequencies();
        self.plan.ropes.push(RopeTable { spec: spec.clone(), inverse_frequencies, table });
        let rope = self.plan.ropes.len() - 1;
        self.push(Instr::RopeTable { rope }, table);
        rope
    }

    #[expect(clippy::too_many_arguments, reason = "the operation's own attributes")]
    fn attention(
        &mut self,
        node: &Node,
        slot: SlotId,
        scale: f32,
        mask: Mask,
        softcap: f32,
        sinks: Option<&str>,
        rows: Rows,
    ) -> Result<BufferId, DeviceError> {
        let place = self.kv[slot.0 as usize].expect("attention slots are kv slots");
        let is_shared = matches!(self.graph.slot(slot).kind, SlotKind::KvShared { .. });
        if rows != Rows::Tokens || node.inputs.len() > if is_shared { 1 } else { 3 } {
            return Err(unsupported("attention in the head or over selected positions".into(), "attention in layers"));
        }
        if mask == Mask::BidirectionalPrefix {
            return Err(unsupported("the bidirectional prefix mask".into(), "causal, window and chunked masks"));
        }
        if !is_shared {
            let (k, rope) = self.rotated_key(node.inputs[1], rows)?;
            let v = self.input(node.inputs[2], rows)?;
            self.plan.steps.push(step(Instr::KvWrite { k, v, place, rope }));
        }
        let q = self.input(node.inputs[0], rows)?;
        let n_heads = node.shape.item()[0];
        let sinks = sinks.map(|name| self.vector(name, 0.0, n_heads));
        let out = self.buffer(rows, node.shape.item_len());
        let counter = self.plan.n_counters;
        self.plan.n_counters += 1;
        Ok(self.push(Instr::Attention { q, out, n_heads, place, scale, softcap, mask, sinks, counter }, out))
    }

    /// The key's buffer, and the rotation still to be done when it is written to the slot.
    fn rotated_key(&mut self, k: Value, rows: Rows) -> Result<(BufferId, Option<usize>), DeviceError> {
        if !self.is_fused[k.0 as usize] {
            return Ok((self.input(k, rows)?, None));
        }
        let node = self.graph.node(k);
        let Op::Rope(spec) = &node.op else { unreachable!("fused with an attention") };
        let rope = self.rope(spec);
        Ok((self.input(node.inputs[0], rows)?, Some(rope)))
    }

    fn general(&mut self, node: &Node, rows: Rows) -> Result<BufferId, DeviceError> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for value in &node.inputs {
            let item = self.graph.node(*value).shape.item();
            inputs.push(Operand { buffer: self.input(*value, rows)?, item });
        }
        let (lead, out_item) = (node.shape.lead().len(), node.shape.item());
        let item = node.shape.item_len();
        if rows == Rows::Once {
            let vector = self.constants(item);
            let out = self.constant_buffer(item, vector);
            self.weights.once.push(Instr::General { op: node.op.clone(), lead, inputs, out, out_item });
            return Ok(out);
        }
        let out = self.buffer(rows, item);
        Ok(self.push(Instr::General { op: node.op.clone(), lead, inputs, out, out_item }, out))
    }

    fn finish(mut self) -> Result<(Plan, WeightsPlan), DeviceError> {
        let output = self.results[self.graph.output().0 as usize].expect("the output is emitted");
        if self.plan.buffers[output.0].rows != Rows::Logits || !self.writer.contains_key(&output) {
            return Err(unsupported("logits that are not made in the head".into(), "an output in the head section"));
        }
        self.plan.logits = output;
        let fixed = [self.plan.tokens, self.plan.positions];
        place(&mut self.plan, self.options.max_step_tokens, &fixed);
        mark_barriers(&mut self.plan, self.options.max_step_tokens);
        Ok((self.plan, self.weights))
    }
}

fn unsupported(what: String, has: &str) -> DeviceError {
    DeviceError::Unsupported { device: DEVICE, what, has: has.to_owned() }
}
