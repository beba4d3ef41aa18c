//! A graph made ready to run: the order of its nodes, which of them are computed once, which only for the
//! positions whose logits are wanted, and which products share one.

use std::collections::{BTreeMap, HashMap};

use host_device::DeviceError;
use host_graph::{BinaryOp, Dim, Graph, Node, Op, RopeSpec, Section, Slot, SlotKind, UnaryOp, Value};
use mlx_rs::{Array, Dtype};

use crate::fault::Fault;
use crate::ops;
use crate::plan::{self, Plan};
use crate::weights::{Kind, Matrix, Weight, joined};
use crate::{Backend, DEVICE_ID};

/// The nodes of a graph or of a scan's body, with what is known about them before the first step.
pub(crate) struct Program {
    pub(crate) nodes: Vec<Node>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) output: Value,
    /// In which order nodes are computed.
    pub(crate) order: Vec<usize>,
    /// Nodes computed only for the positions whose logits are wanted.
    pub(crate) is_head: Vec<bool>,
    /// How many nodes use a node's value.
    pub(crate) n_uses: Vec<usize>,
    /// Products computed by the first of their members.
    pub(crate) fused: HashMap<usize, Fused>,
    /// Activations that only a product of elements uses, with that product: it computes both.
    pub(crate) gates: HashMap<usize, usize>,
    /// How a step of one token a sequence is replayed, or why it cannot be.
    pub(crate) plan: Result<Plan, &'static str>,
    pub(crate) dtype: Dtype,
}

/// Products of one input by their first member: all members, in order.
pub(crate) type Groups = BTreeMap<usize, Vec<usize>>;

/// Several products of one input.
pub(crate) struct Fused {
    /// Node and width of each, in order.
    pub(crate) members: Vec<(usize, usize)>,
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Array>,
}

/// What nodes name: weights as arrays, and tables of rotations.
pub(crate) struct Tables {
    /// What runs the arrays.
    pub(crate) backend: Backend,
    pub(crate) weights: HashMap<String, Weight>,
    /// Those that products take alone.
    pub(crate) matrices: HashMap<String, Matrix>,
    /// Norm weights with their offset added.
    pub(crate) shifted: HashMap<(String, u32), Array>,
    /// Positions a radian, by node.
    pub(crate) periods: HashMap<usize, Array>,
}

impl Tables {
    pub(crate) fn new(backend: Backend, weights: HashMap<String, Weight>) -> Self {
        Tables { backend, weights, matrices: HashMap::new(), shifted: HashMap::new(), periods: HashMap::new() }
    }
}

/// Refuses what this device lacks. Reads no tensor.
pub(crate) fn check(graph: &Graph) -> Result<(), DeviceError> {
    for node in graph.nodes() {
        let n_lead = node.shape.lead().len();
        let is_apart = node.shape.0[n_lead..].iter().any(|dim| !matches!(dim, Dim::Fixed(_)));
        if is_apart {
            let what = format!("{} with the shape {}", node.op.name(), node.shape);
            return Err(DeviceError::Unsupported {
                device: DEVICE_ID,
                what,
                has: "values whose first dimensions are B and T".to_owned(),
            });
        }
    }
    order(graph.nodes(), graph.slots()).map(|_| ())
}

impl Program {
    /// Takes a checked graph over loaded weights. Members of a shared product give up their own matrices.
    pub(crate) fn new(graph: &Graph, tables: &mut Tables, dtype: Dtype) -> Result<Self, DeviceError> {
        let nodes = graph.nodes().to_vec();
        let mut program = Program {
            order: order(&nodes, graph.slots())?,
            is_head: head(&nodes, graph.output()),
            n_uses: uses(&nodes, &[graph.output()]),
            fused: HashMap::new(),
            gates: HashMap::new(),
            plan: Err("it was not planned yet"),
            slots: graph.slots().to_vec(),
            output: graph.output(),
            nodes,
            dtype,
        };
        program.make_tables(tables)?;
        let groups = groups(&program.nodes, &program.order, &program.is_head, |name| {
            tables.weights.get(name).map(Weight::kind)
        });
        program.fuse(&groups, tables)?;
        program.plan = plan::plan(&program.nodes, &program.slots, &program.order, &program.n_uses, &groups);
        for node in program.all_nodes() {
            let Op::Linear { weight: name, .. } = &node.op else { continue };
            if let Some(weight) = tables.weights.get(name) {
                tables.matrices.insert(name.clone(), Matrix::of(weight)?);
            }
        }
        if tables.backend != Backend::Cpu {
            program.gates = program.find_gates();
        }
        Ok(program)
    }

    /// The nodes of the graph and those of its scans' bodies.
    fn all_nodes(&self) -> impl Iterator<Item = &Node> {
        let bodies = self.nodes.iter().filter_map(|node| match &node.op {
            Op::Scan { body, .. } => Some(&body.nodes),
            _ => None,
        });
        self.nodes.iter().chain(bodies.flatten())
    }

    fn make_tables(&self, tables: &mut Tables) -> Result<(), DeviceError> {
        for (index, node) in self.nodes.iter().enumerate() {
            if let Op::Rope(spec) = &node.op {
                tables.periods.insert(index, periods(spec)?);
            }
        }
        for node in self.all_nodes() {
            let Op::RmsNorm { weight: Some(name), offset, .. } = &node.op else { continue };
            if *offset == 0.0 {
                continue;
            }
            let Some(Weight::Dense(weight)) = tables.weights.get(name) else { continue };
            let shifted = ops::cast(weight, Dtype::Float32)?;
            let shifted = ops::cast(&ops::add(&shifted, &ops::scalar(*offset, Dtype::Float32)?)?, self.dtype)?;
            ops::eval([&shifted])?;
            tables.shifted.insert((name.clone(), offset.to_bits()), shifted);
        }
        Ok(())
    }

    /// `act(a) * b`, where nothing else uses `act(a)`.
    fn find_gates(&self) -> HashMap<usize, usize> {
        let mut gates = HashMap::new();
        for (product, node) in self.nodes.iter().enumerate() {
            let Op::Binary(BinaryOp::Mul) = node.op else { continue };
            let gate = node.inputs[0].0 as usize;
            let is_activation =
                matches!(self.nodes[gate].op, Op::Unary(UnaryOp::Silu | UnaryOp::Gelu | UnaryOp::GeluTanh));
            let is_alike = self.is_head[gate] == self.is_head[product]
                && self.nodes[gate].shape == node.shape
                && self.nodes[node.inputs[1].0 as usize].shape == node.shape;
            if is_activation && is_alike && self.n_uses[gate] == 1 {
                gates.insert(gate, product);
            }
        }
        gates
    }

    /// Joins the products of each group.
    fn fuse(&mut self, groups: &Groups, tables: &mut Tables) -> Result<(), DeviceError> {
        for (first, members) in groups {
            let fused = self.join(members, tables)?;
            self.fused.insert(*first, fused);
        }
        Ok(())
    }

    fn join(&self, group: &[usize], tables: &mut Tables) -> Result<Fused, DeviceError> {
        let names: Vec<(&str, Option<&str>)> = group
            .iter()
            .filter_map(|index| match &self.nodes[*index].op {
                Op::Linear { weight, bias } => Some((weight.as_str(), bias.as_deref())),
                _ => None,
            })
            .collect();
        let weights: Vec<&Weight> = names.iter().map(|(name, _)| &tables.weights[*name]).collect();
        let weight = joined(&weights)?;
        let biases: Option<Vec<&Weight>> =
            names.iter().map(|(_, bias)| bias.and_then(|name| tables.weights.get(name))).collect();
        let bias = match biases.map(|biases| joined(&biases)).transpose()? {
            Some(Weight::Dense(bias)) => Some(bias),
            _ => None,
        };
        for (name, _) in names {
            tables.weights.remove(name);
        }
        let width = |index: &usize| self.nodes[*index].shape.last().unwrap_or(1);
        let members = group.iter().map(|index| (*index, width(index))).collect();
        Ok(Fused { members, matrix: Matrix::of(&weight)?, bias })
    }
}

/// Products of one input whose matrices are stored alike and nothing else uses.
pub(crate) fn groups(
    nodes: &[Node],
    order: &[usize],
    is_head: &[bool],
    kind_of: impl Fn(&str) -> Option<Kind>,
) -> Groups {
    let mut n_users: HashMap<&str, usize> = HashMap::new();
    for name in nodes.iter().flat_map(|node| node.op.tensors()) {
        *n_users.entry(name).or_default() += 1;
    }
    let mut by_input: HashMap<(u32, bool, bool), Vec<usize>> = HashMap::new();
    for index in order {
        let node = &nodes[*index];
        let Op::Linear { weight, bias } = &node.op else { continue };
        let is_alone = n_users[weight.as_str()] == 1;
        if is_alone && !node.shape.lead().is_empty() {
            let key = (node.inputs[0].0, bias.is_some(), is_head[*index]);
            by_input.entry(key).or_default().push(*index);
        }
    }
    let kind = |index: &usize| match &nodes[*index].op {
        Op::Linear { weight, .. } => kind_of(weight),
        _ => None,
    };
    let are_alike = |members: &Vec<usize>| {
        let first = kind(&members[0]);
        first.is_some() && members.iter().all(|member| kind(member) == first)
    };
    let groups = by_input.into_values().filter(|members| members.len() > 1 && are_alike(members));
    groups.map(|members| (members[0], members)).collect()
}

/// Positions a radian, one a pair, as MLX's rotation takes them.
fn periods(spec: &RopeSpec) -> Result<Array, Fault> {
    let periods: Vec<f32> = spec.inverse_frequencies().iter().map(|f| 1.0 / f).collect();
    ops::from_floats(&periods, &[periods.len() as i32], Dtype::Float32)
}

/// The nodes' own order, but each reader of another slot behind the one that fills it.
pub(crate) fn order(nodes: &[Node], slots: &[Slot]) -> Result<Vec<usize>, DeviceError> {
    let filler: HashMap<u32, usize> =
        nodes.iter().enumerate().filter_map(|(i, node)| node.op.slot().map(|slot| (slot.0, i))).collect();
    let waits_for = |index: usize| {
        let slot = nodes[index].op.slot()?;
        match slots.get(slot.0 as usize)?.kind {
            SlotKind::KvShared { with } => filler.get(&with.0).copied(),
            _ => None,
        }
    };
    let mut placed = vec![false; nodes.len()];
    let mut order = Vec::with_capacity(nodes.len());
    while order.len() < nodes.len() {
        let before = order.len();
        for index in 0..nodes.len() {
            let is_ready = |value: &Value| placed[value.0 as usize];
            let can_run = nodes[index].inputs.iter().all(is_ready)
                && waits_for(index).is_none_or(|donor| placed[donor]);
            if !placed[index] && can_run {
                placed[index] = true;
                order.push(index);
            }
        }
        if order.len() == before {
            return Err(DeviceError::Unsupported {
                device: DEVICE_ID,
                what: "a slot that is shared before it is filled".to_owned(),
                has: "shared slots whose donor does not depend on their reader".to_owned(),
            });
        }
    }
    Ok(order)
}

/// Nodes of the head that nothing outside of it uses and that look at one token at a time.
pub(crate) fn head(nodes: &[Node], output: Value) -> Vec<bool> {
    let mut is_head = vec![true; nodes.len()];
    let mut is_used = vec![false; nodes.len()];
    is_used[output.0 as usize] = true;
    for index in (0..nodes.len()).rev() {
        let node = &nodes[index];
        let looks_around = node.op.slot().is_some() || matches!(node.op, Op::Rope(_));
        let is_per_token = !node.shape.lead().is_empty();
        is_head[index] &= node.section == Section::Head && !looks_around && is_used[index] && is_per_token;
        for input in &node.inputs {
            is_used[input.0 as usize] = true;
            is_head[input.0 as usize] &= is_head[index];
        }
    }
    is_head
}

pub(crate) fn uses(nodes: &[Node], results: &[Value]) -> Vec<usize> {
    let mut n_uses = vec![0; nodes.len()];
    for value in nodes.iter().flat_map(|node| &node.inputs).chain(results) {
        n_uses[value.0 as usize] += 1;
    }
    n_uses
}
