//! The builder: the only way to make a graph.
//!
//! Every call is checked at once against the shapes so far and the checkpoint's catalogue. A builder that
//! refused a call stays as it was before it.

use std::collections::{BTreeSet, HashSet};
use std::mem::take;

use crate::body::Body;
use crate::canonical;
use crate::error::{BuildError, BuildErrorKind};
use crate::graph::{Catalogue, Graph, Node, Section, Slot, SlotId, SlotKind, TensorFacts, Value};
use crate::infer::{Context, infer};
use crate::op::Op;
use crate::shape::{Dim, Shape, ValueType};

/// Bounds on what a plugin may build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes, those inside scans included.
    pub max_nodes: usize,
    /// State slots.
    pub max_slots: usize,
    /// Bytes of one tensor or feature name.
    pub max_name_bytes: usize,
    /// Dimensions of a value or a slot.
    pub max_rank: usize,
    /// Inputs of one operation.
    pub max_inputs: usize,
    /// Elements of one token's item, or of a slot; keeps every product of dimensions far from overflow.
    pub max_elements: usize,
}

impl Default for Limits {
    /// Room for a thousand layers of a hundred operations.
    fn default() -> Self {
        Limits {
            max_nodes: 100_000,
            max_slots: 10_000,
            max_name_bytes: 512,
            max_rank: 8,
            max_inputs: 1_024,
            max_elements: 1 << 40,
        }
    }
}

/// Builds a graph call by call.
#[derive(Debug)]
pub struct GraphBuilder {
    catalogue: Catalogue,
    limits: Limits,
    nodes: Vec<Node>,
    slots: Vec<Slot>,
    used_slots: HashSet<SlotId>,
    ignored: BTreeSet<String>,
    section: Section,
    scan: Option<OpenScan>,
    /// Nodes in the bodies of ended scans.
    n_inner_nodes: usize,
    ordinal: usize,
}

/// A scan between its begin and its end: nodes from `first` on are the body.
#[derive(Debug)]
struct OpenScan {
    slot: SlotId,
    inputs: Vec<Value>,
    first: usize,
}

impl GraphBuilder {
    /// An empty graph over the tensors of a checkpoint.
    pub fn new(catalogue: Catalogue, limits: Limits) -> Self {
        GraphBuilder {
            catalogue,
            limits,
            nodes: Vec::new(),
            slots: Vec::new(),
            used_slots: HashSet::new(),
            ignored: BTreeSet::new(),
            section: Section::Embed,
            scan: None,
            n_inner_nodes: 0,
            ordinal: 0,
        }
    }

    /// Sets the section of the nodes that follow.
    pub fn section(&mut self, section: Section) {
        self.section = section;
    }

    /// A checkpoint tensor's facts, or `None` when there is no such tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorFacts> {
        self.catalogue.get(name)
    }

    /// Declares that a checkpoint tensor is not needed. A name that does not exist is accepted.
    pub fn ignore(&mut self, name: &str) {
        if self.catalogue.contains_key(name) {
            self.ignored.insert(name.to_owned());
        }
    }

    /// The shape of a value.
    ///
    /// # Errors
    /// [`BuildErrorKind::UnknownValue`].
    pub fn shape(&self, value: Value) -> Result<&Shape, BuildError> {
        match self.visible(value) {
            Some(node) => Ok(&node.shape),
            None => Err(self.refuse("shape", BuildErrorKind::UnknownValue { found: value.0 })),
        }
    }

    /// Declares a state slot.
    ///
    /// # Errors
    /// A size of 0, a donor that is not a `kv` slot, or too many slots.
    pub fn slot(&mut self, layer: u32, kind: SlotKind) -> Result<SlotId, BuildError> {
        self.ordinal += 1;
        let sizes: &[usize] = match &kind {
            SlotKind::Kv { heads, dim_k, dim_v, .. } => &[*heads, *dim_k, *dim_v],
            SlotKind::Conv { channels, kernel } => &[*channels, *kernel],
            SlotKind::Recurrent { shape } => shape,
            SlotKind::IndexKeys { dim } => &[*dim],
            SlotKind::KvShared { with } => {
                let donor = self.slots.get(with.0 as usize).map(|slot| &slot.kind);
                if !matches!(donor, Some(SlotKind::Kv { .. })) {
                    let found = format!("{donor:?}");
                    let expected = "a kv slot declared before".to_owned();
                    return Err(self.refuse("slot", BuildErrorKind::Slot { slot: with.0, expected, found }));
                }
                &[]
            }
        };
        if sizes.contains(&0) {
            let (expected, found) = ("sizes of at least 1".to_owned(), format!("{kind:?}"));
            return Err(self.refuse("slot", BuildErrorKind::Attribute { name: "kind", expected, found }));
        }
        let n_elements = sizes.iter().fold(1, |product: usize, n| product.saturating_mul(*n));
        let limits = &self.limits;
        let bounds = [
            (self.slots.len(), limits.max_slots.saturating_sub(1), "slots", limits.max_slots),
            (sizes.len(), limits.max_rank, "dimensions", limits.max_rank),
            (n_elements, limits.max_elements, "elements", limits.max_elements),
        ];
        if let Some((_, _, what, limit)) = bounds.into_iter().find(|(found, most, ..)| found > most) {
            return Err(self.refuse("slot", BuildErrorKind::Limit { what, limit }));
        }
        self.slots.push(Slot { layer, kind });
        Ok(SlotId(self.slots.len() as u32 - 1))
    }

    /// Adds one operation.
    ///
    /// # Errors
    /// [`BuildError`] with the operation, its ordinal and what does not fit; the builder is unchanged.
    pub fn add(&mut self, op: Op, inputs: &[Value]) -> Result<Value, BuildError> {
        self.ordinal += 1;
        let name = op.name();
        let (shape, value_type) = self.check(&op, inputs).map_err(|kind| self.refuse(name, kind))?;
        if let Some(slot) = op.slot() {
            self.used_slots.insert(slot);
        }
        Ok(self.push(Node { op, inputs: inputs.to_vec(), shape, value_type, section: self.section }))
    }

    /// Cuts a value into parts along one axis.
    ///
    /// # Errors
    /// As [`GraphBuilder::add`]; also when the sizes do not sum to the axis.
    pub fn split(&mut self, x: Value, sizes: &[usize], axis: usize) -> Result<Vec<Value>, BuildError> {
        let total = match self.shape(x)?.0.get(axis) {
            Some(Dim::Fixed(n)) => *n,
            _ => 0,
        };
        let sum = sizes.iter().fold(0, |sum: usize, n| sum.saturating_add(*n));
        if sum != total || sizes.contains(&0) {
            let (expected, found) = (format!("positive numbers that sum to {total}"), format!("{sizes:?}"));
            return Err(self.refuse("split", BuildErrorKind::Attribute { name: "sizes", expected, found }));
        }
        let mut start = 0;
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            parts.push(self.add(Op::Slice { axis, start, stop: start + size }, &[x])?);
            start += size;
        }
        Ok(parts)
    }

    /// The k largest of the last dimension: (values, indices), largest first.
    ///
    /// # Errors
    /// As [`GraphBuilder::add`].
    pub fn topk(&mut self, x: Value, k: usize) -> Result<(Value, Value), BuildError> {
        let indices = self.add(Op::TopK { k }, &[x])?;
        Ok((self.add(Op::Gather, &[x, indices])?, indices))
    }

    /// Begins a loop over T: gives the state `[B, shape…]` and each input at this step `[B, item…]`.
    ///
    /// # Errors
    /// An open scan, a slot that is not recurrent, or an input that is not one float item a token.
    pub fn begin_scan(&mut self, slot: SlotId, inputs: &[Value]) -> Result<Vec<Value>, BuildError> {
        self.ordinal += 1;
        let shapes = self.check_scan(slot, inputs).map_err(|kind| self.refuse("scan", kind))?;
        self.used_slots.insert(slot);
        self.scan = Some(OpenScan { slot, inputs: inputs.to_vec(), first: self.nodes.len() });
        let section = self.section;
        let body_input = |(index, shape)| Node {
            op: Op::BodyInput { index },
            inputs: Vec::new(),
            shape,
            value_type: ValueType::Float,
            section,
        };
        let nodes: Vec<_> = shapes.into_iter().enumerate().map(body_input).collect();
        Ok(nodes.into_iter().map(|node| self.push(node)).collect())
    }

    /// Ends the loop begun last: gives the outputs `[B, T, item…]`.
    ///
    /// # Errors
    /// No open scan, or a new state of another shape than the slot's.
    pub fn end_scan(&mut self, state: Value, output: Value) -> Result<Value, BuildError> {
        self.ordinal += 1;
        let Some(scan) = &self.scan else {
            let kind = BuildErrorKind::Order { expected: "begin_scan first", found: "end_scan" };
            return Err(self.refuse("scan", kind));
        };
        let first = scan.first;
        let wanted = self.nodes[first].shape.clone();
        for value in [state, output] {
            if self.visible(value).is_none() {
                return Err(self.refuse("scan", BuildErrorKind::UnknownValue { found: value.0 }));
            }
        }
        let found = &self.nodes[state.0 as usize];
        if found.shape != wanted || found.value_type != ValueType::Float {
            let (expected, found) = (wanted.to_string(), found.shape.to_string());
            return Err(self.refuse("scan", BuildErrorKind::Shape { input: "state", expected, found }));
        }
        let item = self.nodes[output.0 as usize].shape.item();
        let value_type = self.nodes[output.0 as usize].value_type;
        let Some(scan) = self.scan.take() else { unreachable!("checked above") };
        let mut nodes = self.nodes.split_off(first);
        self.n_inner_nodes += nodes.len();
        for node in &mut nodes {
            for input in &mut node.inputs {
                input.0 -= first as u32;
            }
        }
        let local = |value: Value| Value(value.0 - first as u32);
        let body = Box::new(Body { nodes, state: local(state), output: local(output) });
        let op = Op::Scan { slot: scan.slot, body };
        let shape = Shape::per_token(&item);
        Ok(self.push(Node { op, inputs: scan.inputs, shape, value_type, section: self.section }))
    }

    /// Ends the graph with its logits `[B,T,V]`.
    ///
    /// # Errors
    /// An output that is not float `[B,T,V]`, an open scan, a slot declared but never used, or checkpoint
    /// tensors that are neither used nor ignored.
    pub fn finish(mut self, output: Value) -> Result<Graph, BuildError> {
        if self.scan.is_some() {
            let kind = BuildErrorKind::Order { expected: "end_scan first", found: "output" };
            return Err(self.refuse("output", kind));
        }
        let Some(node) = self.visible(output) else {
            return Err(self.refuse("output", BuildErrorKind::UnknownValue { found: output.0 }));
        };
        let is_logits = node.shape.lead() == [Dim::B, Dim::T] && node.shape.rank() == 3;
        if !is_logits || node.value_type != ValueType::Float {
            let (expected, found) = ("[B,T,V]".to_owned(), format!("{} {}", node.value_type, node.shape));
            return Err(self.refuse("output", BuildErrorKind::Shape { input: "logits", expected, found }));
        }
        let unused = (0..self.slots.len() as u32).find(|i| !self.used_slots.contains(&SlotId(*i)));
        if let Some(slot) = unused {
            let (expected, found) = ("an operation that uses it".to_owned(), "declared only".to_owned());
            return Err(self.refuse("output", BuildErrorKind::Slot { slot, expected, found }));
        }
        let (nodes, slots, ignored) = (take(&mut self.nodes), take(&mut self.slots), take(&mut self.ignored));
        let graph = canonical::canonicalise(nodes, slots, output, ignored.into_iter().collect());
        let tensors = graph.nodes.iter().flat_map(|node| node.op.tensors());
        let used: HashSet<_> = tensors.chain(graph.ignored.iter().map(String::as_str)).collect();
        let names: Vec<_> =
            self.catalogue.keys().filter(|name| !used.contains(name.as_str())).cloned().collect();
        if !names.is_empty() {
            return Err(self.refuse("output", BuildErrorKind::UnusedTensors { names }));
        }
        Ok(graph)
    }

    fn check(&self, op: &Op, inputs: &[Value]) -> Result<(Shape, ValueType), BuildErrorKind> {
        self.check_bounds(op, inputs)?;
        let is_stateful = op.slot().is_some() || matches!(op, Op::Tokens | Op::Positions | Op::Rope(_));
        if self.scan.is_some() && is_stateful {
            return Err(BuildErrorKind::Order {
                expected: "operations without state inside a scan",
                found: op.name(),
            });
        }
        if let Some(slot) = op.slot()
            && self.used_slots.contains(&slot)
        {
            return Err(BuildErrorKind::Slot {
                slot: slot.0,
                expected: "one operation a slot".into(),
                found: "a slot that is used already".into(),
            });
        }
        let nodes: Vec<&Node> = inputs
            .iter()
            .map(|value| self.visible(*value).ok_or(BuildErrorKind::UnknownValue { found: value.0 }))
            .collect::<Result<_, _>>()?;
        if let Some(slot) = op.slot()
            && let Some(Slot { kind: SlotKind::KvShared { with }, .. }) = self.slots.get(slot.0 as usize)
            && !self.used_slots.contains(with)
        {
            let (expected, found) = ("the donor's attention first", "a donor that nothing has filled");
            return Err(BuildErrorKind::Slot {
                slot: slot.0,
                expected: expected.into(),
                found: found.into(),
            });
        }
        let result = infer(op, &nodes, &Context { catalogue: &self.catalogue, slots: &self.slots })?;
        let (max_rank, max_elements) = (self.limits.max_rank, self.limits.max_elements);
        if result.0.rank() > max_rank {
            return Err(BuildErrorKind::Limit { what: "dimensions", limit: max_rank });
        }
        if result.0.item_len() > max_elements {
            return Err(BuildErrorKind::Limit { what: "elements", limit: max_elements });
        }
        Ok(result)
    }

    fn check_bounds(&self, op: &Op, inputs: &[Value]) -> Result<(), BuildErrorKind> {
        let Limits { max_nodes, max_name_bytes, max_inputs, .. } = self.limits;
        let feature = if let Op::Inject { feature } = op { feature.as_str() } else { "" };
        let longest = op.tensors().into_iter().chain([feature]).map(str::len).max().unwrap_or(0);
        if self.nodes.len() + self.n_inner_nodes >= max_nodes {
            return Err(BuildErrorKind::Limit { what: "nodes", limit: max_nodes });
        }
        if longest > max_name_bytes {
            return Err(BuildErrorKind::Limit { what: "bytes of a name", limit: max_name_bytes });
        }
        if inputs.len() > max_inputs {
            return Err(BuildErrorKind::Limit { what: "inputs", limit: max_inputs });
        }
        Ok(())
    }

    fn check_scan(&self, slot: SlotId, inputs: &[Value]) -> Result<Vec<Shape>, BuildErrorKind> {
        if self.scan.is_some() {
            return Err(BuildErrorKind::Order { expected: "end_scan first", found: "begin_scan" });
        }
        if self.nodes.len() + self.n_inner_nodes + inputs.len() >= self.limits.max_nodes {
            return Err(BuildErrorKind::Limit { what: "nodes", limit: self.limits.max_nodes });
        }
        if inputs.len() > self.limits.max_inputs {
            return Err(BuildErrorKind::Limit { what: "inputs", limit: self.limits.max_inputs });
        }
        let kind = self.slots.get(slot.0 as usize).map(|slot| &slot.kind);
        let Some(SlotKind::Recurrent { shape }) = kind else {
            let (expected, found) = ("a recurrent slot".to_owned(), format!("{kind:?}"));
            return Err(BuildErrorKind::Slot { slot: slot.0, expected, found });
        };
        if self.used_slots.contains(&slot) {
            let (expected, found) =
                ("one operation a slot".to_owned(), "a slot that is used already".to_owned());
            return Err(BuildErrorKind::Slot { slot: slot.0, expected, found });
        }
        let per_row = |item: &[usize]| {
            Shape(std::iter::once(Dim::B).chain(item.iter().map(|n| Dim::Fixed(*n))).collect())
        };
        let mut shapes = vec![per_row(shape)];
        for value in inputs {
            let node = self.visible(*value).ok_or(BuildErrorKind::UnknownValue { found: value.0 })?;
            if node.shape.lead() != [Dim::B, Dim::T] || node.value_type != ValueType::Float {
                let (expected, found) = ("float [B,T,…]".to_owned(), node.shape.to_string());
                return Err(BuildErrorKind::Shape { input: "x", expected, found });
            }
            shapes.push(per_row(&node.shape.item()));
        }
        Ok(shapes)
    }

    /// The node of a handle, if it may be used here: inside a scan only the body's own.
    pub(crate) fn visible(&self, value: Value) -> Option<&Node> {
        let first = self.scan.as_ref().map_or(0, |scan| scan.first);
        let index = value.0 as usize;
        if index < first { None } else { self.nodes.get(index) }
    }

    fn push(&mut self, node: Node) -> Value {
        self.nodes.push(node);
        Value(self.nodes.len() as u32 - 1)
    }

    fn refuse(&self, op: &'static str, kind: BuildErrorKind) -> BuildError {
        BuildError { op, ordinal: self.ordinal, section: self.section, kind }
    }
}
