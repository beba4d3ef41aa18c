//! From graph to plan: fuses what belongs together and gives every value a buffer.

mod experts;
mod stateful;

use std::collections::HashMap;

use host_core::Numeric;
use host_device::{CompileOptions, DeviceError};
use host_graph::{
    Activation, BinaryOp, Graph, Mask, Node, Op, RopeSpec, Section, Slot, SlotId, SlotKind, UnaryOp, Value,
    ValueType,
};
use host_weights::{Catalogue, Encoding, TensorInfo, WeightsError};

use super::layout::{mark_barriers, place, step};
use super::{
    Buffer, BufferId, CodesBuffer, CodesId, Instr, Operand, Plan, ProductInput, RopeTable, Rows, StatePlace,
    Vector,
};
use crate::executable::number_of;
use crate::matrix::{BLOCK, Matrix, Number};
use crate::memory::ALIGN;
use crate::moe::Stack;
use crate::stateful::SelectedAttention;

/// The name under which errors speak of this device.
const DEVICE: &str = crate::DEVICE_ID;

/// What has to be read from the checkpoint before the plan can run.
#[derive(Debug, Default)]
pub(crate) struct WeightsPlan {
    /// Matrices to repack, by checkpoint name, and where they go.
    pub(crate) matrices: Vec<(String, Stack)>,
    pub(crate) matrix_bytes: usize,
    /// Vectors to read as floats.
    pub(crate) vectors: Vec<VectorSource>,
    /// Bytes of vectors and of the values that are computed once.
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

/// Integers above are no floats any more.
const MAX_INTEGER: usize = 1 << 24;

/// Compiles a checked graph.
pub(crate) fn compile(
    graph: &Graph,
    catalogue: &Catalogue,
    options: &CompileOptions,
) -> Result<(Plan, WeightsPlan), DeviceError> {
    if options.context_tokens > MAX_INTEGER || graph.n_vocab() > MAX_INTEGER {
        let what = format!("{} positions and {} token ids", options.context_tokens, graph.n_vocab());
        return Err(unsupported(what, "whole numbers up to 16777216"));
    }
    number_of(options.kv)?;
    let mut compiler = Compiler::new(graph.nodes(), graph.slots(), &[graph.output()], catalogue, options);
    compiler.plan.n_vocab = graph.n_vocab();
    compiler.place_state();
    compiler.emit_all()?;
    compiler.finish(graph.output())
}

struct Compiler<'a> {
    nodes: &'a [Node],
    slots: &'a [Slot],
    catalogue: &'a Catalogue,
    options: &'a CompileOptions,
    plan: Plan,
    store: Store,
    /// The buffer of each node's result, once emitted.
    results: Vec<Option<BufferId>>,
    uses: Vec<usize>,
    /// Nodes that their only user computes along.
    is_fused: Vec<bool>,
    codes: HashMap<(BufferId, usize), CodesId>,
    taken: HashMap<BufferId, BufferId>,
    /// The step that wrote a buffer.
    writer: HashMap<BufferId, usize>,
    /// Where each slot's state lies; a shared slot's is its donor's.
    places: Vec<Option<StatePlace>>,
    /// Whether the nodes are the body of a scan, where sections mean nothing.
    is_body: bool,
    /// The buffers of numbers, by their bits.
    numbers: HashMap<u32, BufferId>,
}

/// What is read from the checkpoint so far; the body of a scan shares it with the graph around it.
#[derive(Default)]
struct Store {
    weights: WeightsPlan,
    matrices: HashMap<String, Stack>,
    vectors: HashMap<(String, u32), Vector>,
}

impl<'a> Compiler<'a> {
    fn new(
        nodes: &'a [Node],
        slots: &'a [Slot],
        results: &[Value],
        catalogue: &'a Catalogue,
        options: &'a CompileOptions,
    ) -> Self {
        let mut uses = vec![0; nodes.len()];
        for value in nodes.iter().flat_map(|node| &node.inputs).chain(results) {
            uses[value.0 as usize] += 1;
        }
        let ints = |item| Buffer { rows: Rows::Tokens, item, offset: 0 };
        let plan = Plan {
            steps: Vec::new(),
            once: Vec::new(),
            buffers: vec![ints(1), ints(1)],
            codes: Vec::new(),
            ropes: Vec::new(),
            tokens: BufferId(0),
            positions: BufferId(1),
            logits: BufferId(usize::MAX),
            n_vocab: 0,
            arena_bytes: 0,
            scan_bytes: 0,
            state_bytes: 0,
            can_trim: true,
            n_counters: 0,
            signatures: Vec::new(),
            places: Vec::new(),
        };
        Compiler {
            nodes,
            slots,
            catalogue,
            options,
            plan,
            store: Store::default(),
            results: vec![None; nodes.len()],
            uses,
            is_fused: vec![false; nodes.len()],
            codes: HashMap::new(),
            taken: HashMap::new(),
            writer: HashMap::new(),
            places: Vec::new(),
            is_body: false,
            numbers: HashMap::new(),
        }
    }

    /// Emits every node that no other one computes along.
    fn emit_all(&mut self) -> Result<(), DeviceError> {
        self.find_fusions();
        // First of all, so that no later step waits for them.
        for node in self.nodes {
            if let Op::Rope(spec) = &node.op {
                self.rope(spec);
            }
        }
        for index in self.order()? {
            if !self.is_fused[index] {
                self.emit(index)?;
            }
        }
        Ok(())
    }

    fn node(&self, value: Value) -> &'a Node {
        &self.nodes[value.0 as usize]
    }

    /// Marks the nodes that are computed along with their only user.
    fn find_fusions(&mut self) {
        let nodes = self.nodes;
        for node in nodes {
            let is_rope = |x: &Value| self.is_op(*x, |op| matches!(op, Op::Rope(_)));
            let partners = match &node.op {
                Op::Binary(BinaryOp::Add) => {
                    self.residual_of(node).map(|(linear, _)| linear).into_iter().collect()
                }
                Op::Binary(BinaryOp::Mul) => self.glu_of(node).map(|(gate, _)| gate).into_iter().collect(),
                Op::Scale { .. } => {
                    let embedding = |x: &Value| self.is_op(*x, |op| matches!(op, Op::Embedding { .. }));
                    node.inputs.iter().copied().filter(embedding).collect()
                }
                // Query and key: the products of both, and of the value, then stand side by side.
                Op::Attention { .. } => node.inputs.iter().take(2).copied().filter(is_rope).collect(),
                _ => Vec::new(),
            };
            for partner in partners {
                if self.uses[partner.0 as usize] == 1
                    && self.rows_of(self.node(partner)) == self.rows_of(node)
                {
                    self.is_fused[partner.0 as usize] = true;
                }
            }
        }
    }

    fn is_op(&self, value: Value, wanted: impl Fn(&Op) -> bool) -> bool {
        self.uses[value.0 as usize] == 1 && wanted(&self.node(value).op)
    }

    /// For `linear + other` of equal shapes: the linear and the other.
    fn residual_of(&self, add: &Node) -> Option<(Value, Value)> {
        let (a, b) = (add.inputs[0], add.inputs[1]);
        if self.node(a).shape != self.node(b).shape || a == b {
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
        if self.node(a).shape != self.node(b).shape || a == b {
            return None;
        }
        let is_gate = |x| {
            self.is_op(x, |op| {
                matches!(
                    op,
                    Op::Unary(UnaryOp::Silu) | Op::Unary(UnaryOp::GeluTanh) | Op::Unary(UnaryOp::Gelu)
                )
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

    fn emit(&mut self, index: usize) -> Result<(), DeviceError> {
        let nodes = self.nodes;
        let node = &nodes[index];
        let rows = self.rows_of(node);
        let result = match &node.op {
            Op::Tokens => self.take(self.plan.tokens, rows),
            Op::Positions => self.take(self.plan.positions, rows),
            Op::Constant { value } => self.number(*value),
            Op::Weight { name } => {
                let item = node.shape.item_len();
                let vector = self.vector(name, 0.0, item)?;
                self.constant_buffer(item, vector)
            }
            Op::BodyInput { .. } => self.buffer(rows, node.shape.item_len()),
            Op::Embedding { weight } => self.embed(weight, node.inputs[0], 1.0, rows)?,
            Op::PerLayerEmbedding { weight, .. } => self.embed(weight, node.inputs[0], 1.0, rows)?,
            Op::Scale { factor } if self.is_fused[node.inputs[0].0 as usize] => {
                let embedding = self.node(node.inputs[0]);
                let Op::Embedding { weight } = &embedding.op else { unreachable!("fused with a scale") };
                self.embed(weight, embedding.inputs[0], *factor, rows)?
            }
            Op::Linear { .. } => self.product(node, None, rows)?,
            Op::RmsNorm { weight, eps, offset } => {
                let width = node.shape.last().unwrap_or(1);
                let weight = weight.as_ref().map(|name| self.vector(name, *offset, width)).transpose()?;
                self.norm(node, weight, None, *eps, false, rows)?
            }
            Op::LayerNorm { weight, bias, eps } => {
                let width = node.shape.last().unwrap_or(1);
                let weight = weight.as_ref().map(|name| self.vector(name, 0.0, width)).transpose()?;
                let bias = bias.as_ref().map(|name| self.vector(name, 0.0, width)).transpose()?;
                self.norm(node, weight, bias, *eps, true, rows)?
            }
            Op::Rope(spec) => self.rotated(node, spec, rows)?,
            Op::Attention { slot, scale, mask, softcap, sinks } => {
                self.attention(node, *slot, *scale, *mask, softcap.unwrap_or(0.0), sinks.as_deref(), rows)?
            }
            Op::Binary(BinaryOp::Add) if self.fused_input(node).is_some() => {
                let (linear, other) = self.residual_of(node).expect("found when it was fused");
                let residual = self.input(other, rows)?;
                self.product(self.node(linear), Some(residual), rows)?
            }
            Op::Binary(BinaryOp::Mul) if self.fused_input(node).is_some() => self.glu(node, rows)?,
            // Integers are kept as floats, and no features are injected into text.
            Op::Reshape { .. } | Op::Inject { .. } => self.input(node.inputs[0], rows)?,
            Op::Cast { to: ValueType::Float } => self.input(node.inputs[0], rows)?,
            Op::Moe { gate, up, down, activation } => self.moe(node, [gate, up, down], *activation, rows)?,
            Op::Conv1dCausal { slot, weight, bias } => {
                self.conv(node, *slot, weight, bias.as_deref(), rows)?
            }
            Op::GatedDelta { slot } => self.gated_delta(node, *slot, rows)?,
            Op::SsmScan { slot } => self.ssm_scan(node, *slot, rows)?,
            Op::SparseSelect { slot, k } => self.sparse_select(node, *slot, *k, rows)?,
            Op::Scan { slot, body } => self.scan(node, *slot, body, rows)?,
            _ => self.general(node, rows)?,
        };
        self.results[index] = Some(result);
        Ok(())
    }

    fn fused_input(&self, node: &Node) -> Option<Value> {
        node.inputs.iter().copied().find(|x| self.is_fused[x.0 as usize])
    }

    /// A new buffer. One that no token changes has its place among the constants already, the others get theirs
    /// in the arena in the end.
    fn buffer(&mut self, rows: Rows, item: usize) -> BufferId {
        let offset = if rows == Rows::Once { self.constants(item).offset } else { 0 };
        self.plan.buffers.push(Buffer { rows, item, offset });
        BufferId(self.plan.buffers.len() - 1)
    }

    fn push(&mut self, instr: Instr, out: BufferId) -> BufferId {
        if self.plan.buffers[out.0].rows == Rows::Once {
            self.plan.once.push(instr);
        } else {
            self.writer.insert(out, self.plan.steps.len());
            self.plan.steps.push(step(instr));
        }
        out
    }

    /// The buffer of a value, as seen by a node with these rows.
    fn input(&mut self, value: Value, rows: Rows) -> Result<BufferId, DeviceError> {
        let buffer = self.result(value);
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

    fn info(&self, name: &str) -> Result<&'a TensorInfo, DeviceError> {
        let catalogue = self.catalogue;
        let absent = || WeightsError::NoTensor { name: name.to_owned(), nearest: catalogue.nearest(name) };
        Ok(catalogue.get(name).ok_or_else(absent)?)
    }

    /// The floats of a dense tensor, with a number added to each.
    fn vector(&mut self, name: &str, add: f32, len: usize) -> Result<Vector, DeviceError> {
        let key = (name.to_owned(), add.to_bits());
        if let Some(vector) = self.store.vectors.get(&key) {
            return Ok(*vector);
        }
        let info = self.info(name)?;
        let is_floats = matches!(info.encoding, Encoding::Dense(dtype) if Number::of(dtype).is_some());
        if !is_floats || info.elements() != len {
            let found = format!("a vector `{name}` of {} {:?}", info.encoding, info.shape);
            return Err(unsupported(found, &format!("F32, F16 and BF16, here {len} of them")));
        }
        let vector = self.constants(len);
        let source = VectorSource { name: name.to_owned(), add, len, offset: vector.offset };
        self.store.weights.vectors.push(source);
        self.store.vectors.insert(key, vector);
        Ok(vector)
    }

    /// Room for `len` floats among the constants.
    fn constants(&mut self, len: usize) -> Vector {
        let constant_bytes = &mut self.store.weights.constant_bytes;
        let offset = *constant_bytes;
        *constant_bytes = (offset + 4 * len).next_multiple_of(ALIGN);
        Vector { offset }
    }

    /// A vector as a value.
    fn constant_buffer(&mut self, item: usize, vector: Vector) -> BufferId {
        self.plan.buffers.push(Buffer { rows: Rows::Once, item, offset: vector.offset });
        BufferId(self.plan.buffers.len() - 1)
    }

    fn number(&mut self, value: f32) -> BufferId {
        if let Some(id) = self.numbers.get(&value.to_bits()) {
            return *id;
        }
        let out = self.buffer(Rows::Once, 1);
        let (op, inputs, out_item) = (Op::Constant { value }, Vec::new(), Vec::new());
        self.push(Instr::General { op, lead: 0, inputs, out, out_item }, out);
        self.numbers.insert(value.to_bits(), out);
        out
    }

    fn matrix(&mut self, name: &str) -> Result<Matrix, DeviceError> {
        Ok(self.stack(name, 1)?.matrix)
    }

    /// `count` equal matrices that a tensor `[…, out, in]` holds.
    fn stack(&mut self, name: &str, count: usize) -> Result<Stack, DeviceError> {
        if let Some(stack) = self.store.matrices.get(name) {
            return Ok(*stack);
        }
        let info = self.info(name)?;
        let offset = self.store.weights.matrix_bytes;
        let matrix = match info.shape[..] {
            [rows, cols] if count == 1 => Matrix::plan(rows, cols, info.encoding, offset),
            [n, rows, cols] if count == n => Matrix::plan(rows, cols, info.encoding, offset),
            _ => None,
        };
        let matrix = matrix.ok_or_else(|| {
            let found = format!("a matrix `{name}` of {} {:?}", info.encoding, info.shape);
            unsupported(found, "F32, F16, BF16 and grouped codes in matrices and stacks of them")
        })?;
        let stack = Stack { matrix, count };
        self.store.weights.matrix_bytes += stack.bytes();
        self.store.weights.matrices.push((name.to_owned(), stack));
        self.store.matrices.insert(name.to_owned(), stack);
        Ok(stack)
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

    fn product(
        &mut self,
        node: &Node,
        residual: Option<BufferId>,
        rows: Rows,
    ) -> Result<BufferId, DeviceError> {
        let Op::Linear { weight, bias } = &node.op else { unreachable!("a product comes from a linear") };
        let matrix = self.matrix(weight)?;
        let bias = bias.as_ref().map(|name| self.vector(name, 0.0, matrix.n_out)).transpose()?;
        let x = self.input(node.inputs[0], rows)?;
        let input = self.product_input(x, &matrix);
        let out = self.buffer(rows, node.shape.item_len());
        Ok(self.push(Instr::Product { input, matrix, bias, residual, out }, out))
    }

    /// A value as a product with the matrix reads it.
    fn product_input(&mut self, x: BufferId, matrix: &Matrix) -> ProductInput {
        let is_once = self.plan.buffers[x.0].rows == Rows::Once;
        if self.options.numeric == Numeric::Fast && matrix.takes_quantised() && !is_once {
            ProductInput::Codes(self.codes_of(x, matrix.n_in))
        } else {
            ProductInput::Floats(x)
        }
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
        self.plan.codes.push(CodesBuffer { n_rows, n_in, stride: stride * n_rows, codes: 0, metas: 0 });
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
        let gate = self.node(activation);
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
        let StatePlace::Kv(place) = self.place(node, slot, rows)? else {
            unreachable!("the builder gives attention a kv slot")
        };
        let is_shared = matches!(self.slots[slot.0 as usize].kind, SlotKind::KvShared { .. });
        let q = node.inputs[0];
        let q = match &self.node(q).op {
            Op::Rope(spec) if self.is_fused[q.0 as usize] => self.rotated(self.node(q), spec, rows)?,
            _ => self.input(q, rows)?,
        };
        if !is_shared {
            let (k, rope) = self.rotated_key(node.inputs[1], rows)?;
            let v = self.input(node.inputs[2], rows)?;
            self.plan.steps.push(step(Instr::KvWrite { k, v, place, rope }));
        }
        let n_heads = node.shape.item()[0];
        let sinks = sinks.map(|name| self.vector(name, 0.0, n_heads)).transpose()?;
        let out = self.buffer(rows, node.shape.item_len());
        if let Some(selected) = node.inputs.get(if is_shared { 1 } else { 3 }) {
            let selected = self.input(*selected, rows)?;
            let task = SelectedAttention { q, selected, out, n_heads, place, scale, softcap, mask, sinks };
            return Ok(self.push(Instr::SelectedAttention(task), out));
        }
        let counter = self.plan.n_counters;
        self.plan.n_counters += 1;
        Ok(self.push(Instr::Attention { q, out, n_heads, place, scale, softcap, mask, sinks, counter }, out))
    }

    /// The rotation of a value.
    fn rotated(&mut self, node: &Node, spec: &RopeSpec, rows: Rows) -> Result<BufferId, DeviceError> {
        let x = self.input(node.inputs[0], rows)?;
        let rope = self.rope(spec);
        let out = self.buffer(rows, node.shape.item_len());
        Ok(self.push(Instr::Rope { x, out, width: node.shape.last().unwrap_or(1), rope }, out))
    }

    /// The key's buffer, and the rotation still to be done when it is written to the slot.
    fn rotated_key(&mut self, k: Value, rows: Rows) -> Result<(BufferId, Option<usize>), DeviceError> {
        if !self.is_fused[k.0 as usize] {
            return Ok((self.input(k, rows)?, None));
        }
        let node = self.node(k);
        let Op::Rope(spec) = &node.op else { unreachable!("fused with an attention") };
        let rope = self.rope(spec);
        Ok((self.input(node.inputs[0], rows)?, Some(rope)))
    }

    fn general(&mut self, node: &Node, rows: Rows) -> Result<BufferId, DeviceError> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for value in &node.inputs {
            let item = self.node(*value).shape.item();
            inputs.push(Operand { buffer: self.input(*value, rows)?, item });
        }
        let (lead, out_item) = (node.shape.lead().len(), node.shape.item());
        let out = self.buffer(rows, node.shape.item_len());
        Ok(self.push(Instr::General { op: node.op.clone(), lead, inputs, out, out_item }, out))
    }

    fn finish(mut self, output: Value) -> Result<(Plan, WeightsPlan), DeviceError> {
        let output = self.result(output);
        let rows = self.plan.buffers[output.0].rows;
        // Logits made outside the head are made for every token.
        let output = if rows == Rows::Tokens { self.take(output, Rows::Logits) } else { output };
        self.plan.logits = output;
        let fixed = [self.plan.tokens, self.plan.positions];
        place(&mut self.plan, self.options.max_step_tokens, &fixed);
        mark_barriers(&mut self.plan, self.options.max_step_tokens);
        Ok((self.plan, self.store.weights))
    }

    /// The buffer of a value that is emitted.
    fn result(&self, value: Value) -> BufferId {
        self.results[value.0 as usize].expect("inputs are emitted before their users")
    }

    fn rows_of(&self, node: &Node) -> Rows {
        if node.shape.lead().is_empty() {
            Rows::Once
        } else if node.section == Section::Head && !self.is_body {
            Rows::Logits
        } else {
            Rows::Tokens
        }
    }
}

fn unsupported(what: String, has: &str) -> DeviceError {
    DeviceError::Unsupported { device: DEVICE, what, has: has.to_owned() }
}
