//! What a graph does with each checkpoint tensor, for quantisation profiles.
//!
//! The use decides: a projection whose result becomes attention's keys is `attention-k`, whatever its name. Where
//! the use says nothing, as for a projection into a recurrence, the tensor's name does.

use std::collections::BTreeMap;

use host_core::quant::Role;

use crate::graph::{Graph, Node, Section, Value};
use crate::op::{BinaryOp, Op, UnaryOp};

/// The role and layer of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// What the model does with it.
    pub role: Role,
    /// The layer whose section uses it first.
    pub layer: Option<usize>,
}

impl Graph {
    /// The use of each tensor, by name; a tensor with several uses, such as a table that is the head as well, has
    /// the first one's.
    pub fn uses(&self) -> BTreeMap<&str, Use> {
        let walk = Walk::new(self);
        let mut uses = BTreeMap::new();
        for at in 0..self.nodes().len() {
            let node = &self.nodes()[at];
            let layer = match node.section {
                Section::Layer(i) => Some(i as usize),
                Section::Embed | Section::Head => None,
            };
            for (name, role) in walk.roles_of(at) {
                let role = if role == Role::Other { role_by_name(name) } else { role };
                uses.entry(name).or_insert(Use { role, layer });
            }
        }
        uses
    }
}

/// The use of a tensor by its name alone: where no graph uses it.
pub fn use_by_name(name: &str) -> Use {
    let mut parts = name.split('.').skip_while(|part| *part != "layers");
    Use { role: role_by_name(name), layer: parts.nth(1).and_then(|layer| layer.parse().ok()) }
}

fn role_by_name(name: &str) -> Role {
    let (module, part) = name.rsplit_once('.').unwrap_or((name, ""));
    let module = module.rsplit('.').next().unwrap_or(module);
    match (module, part) {
        (_, "bias") => Role::Bias,
        ("embed_tokens" | "wte" | "tok_embeddings", _) => Role::Embedding,
        ("q_proj", _) => Role::AttentionQ,
        ("k_proj", _) => Role::AttentionK,
        ("v_proj", _) => Role::AttentionV,
        ("o_proj", _) => Role::AttentionO,
        ("gate_proj", _) => Role::MlpGate,
        ("up_proj", _) => Role::MlpUp,
        ("down_proj", _) => Role::MlpDown,
        ("lm_head", _) => Role::Head,
        (norm, "weight") if norm.ends_with("norm") => Role::Norm,
        _ => Role::Other,
    }
}

/// A graph with the users of each node.
struct Walk<'a> {
    graph: &'a Graph,
    users: Vec<Vec<usize>>,
}

impl<'a> Walk<'a> {
    fn new(graph: &'a Graph) -> Self {
        let mut users = vec![Vec::new(); graph.nodes().len()];
        for (at, node) in graph.nodes().iter().enumerate() {
            node.inputs.iter().for_each(|input| users[input.0 as usize].push(at));
        }
        Walk { graph, users }
    }

    fn node(&self, at: usize) -> &'a Node {
        &self.graph.nodes()[at]
    }

    /// The tensors that a node names, with their roles.
    fn roles_of(&self, at: usize) -> Vec<(&'a str, Role)> {
        let node = self.node(at);
        let bias = |name: &'a Option<String>| name.as_deref().map(|name| (name, Role::Bias));
        match &node.op {
            Op::Embedding { weight } | Op::PerLayerEmbedding { weight, .. } => {
                vec![(weight, Role::Embedding)]
            }
            Op::Linear { weight, bias: added } => {
                std::iter::once((weight.as_str(), self.role_of_linear(at))).chain(bias(added)).collect()
            }
            Op::Conv1dCausal { weight, bias: added, .. } => {
                std::iter::once((weight.as_str(), Role::Other)).chain(bias(added)).collect()
            }
            Op::RmsNorm { weight, .. } => weight.iter().map(|name| (name.as_str(), Role::Norm)).collect(),
            Op::LayerNorm { weight, bias: added, .. } => {
                let weight = weight.iter().map(|name| (name.as_str(), Role::Norm));
                weight.chain(bias(added)).collect()
            }
            Op::Moe { gate, up, down, .. } => {
                [gate, up, down].map(|name| (name.as_str(), Role::Expert)).to_vec()
            }
            other => other.tensors().into_iter().map(|name| (name, Role::Other)).collect(),
        }
    }

    fn role_of_linear(&self, at: usize) -> Role {
        if self.node(at).section == Section::Head {
            return Role::Head;
        }
        let input = self.node(at).inputs[0];
        self.attention_input(at)
            .or_else(|| {
                self.leads_to(at, &is_choosing, &|op| matches!(op, Op::TopK { .. })).then_some(Role::Router)
            })
            .or_else(|| self.mlp_input(at))
            .or_else(|| {
                self.comes_from(input, &|op| matches!(op, Op::Attention { .. })).then_some(Role::AttentionO)
            })
            .or_else(|| self.comes_from(input, &is_activation).then_some(Role::MlpDown))
            .unwrap_or(Role::Other)
    }

    /// Queries, keys or values; a fused projection counts as the first of them.
    fn attention_input(&self, at: usize) -> Option<Role> {
        let roles = [Role::AttentionQ, Role::AttentionK, Role::AttentionV];
        let attention = |op: &Op| matches!(op, Op::Attention { .. });
        let ends = self.ends(at, &is_reshaping, &attention);
        ends.into_iter().filter_map(|(end, input)| roles.get(self.input_index(end, input)).copied()).min()
    }

    /// What an activation is applied to, or what an activation's result multiplies.
    fn mlp_input(&self, at: usize) -> Option<Role> {
        if self.leads_to(at, &is_reshaping, &is_activation) {
            return Some(Role::MlpGate);
        }
        let product = |op: &Op| matches!(op, Op::Binary(BinaryOp::Mul));
        let multiplies_activation = |(end, input): (usize, usize)| {
            let others = self.node(end).inputs.iter().filter(|other| other.0 as usize != input);
            others.copied().any(|other| self.comes_from(other, &is_activation))
        };
        let ends = self.ends(at, &is_reshaping, &product);
        ends.into_iter().any(multiplies_activation).then_some(Role::MlpUp)
    }

    fn input_index(&self, at: usize, input: usize) -> usize {
        let mut inputs = self.node(at).inputs.iter();
        inputs.position(|value| value.0 as usize == input).expect("a user has it as an input")
    }

    fn leads_to(&self, at: usize, passes: &dyn Fn(&Op) -> bool, is_end: &dyn Fn(&Op) -> bool) -> bool {
        !self.ends(at, passes, is_end).is_empty()
    }

    /// The users, through operations that pass, whose operation is an end, each with the input that led there.
    fn ends(
        &self,
        from: usize,
        passes: &dyn Fn(&Op) -> bool,
        is_end: &dyn Fn(&Op) -> bool,
    ) -> Vec<(usize, usize)> {
        let (mut ends, mut open) = (Vec::new(), vec![from]);
        while let Some(at) = open.pop() {
            for user in &self.users[at] {
                let op = &self.node(*user).op;
                if is_end(op) {
                    ends.push((*user, at));
                } else if passes(op) {
                    open.push(*user);
                }
            }
        }
        ends
    }

    /// Whether a value is made by such an operation, perhaps multiplied, normalised or put into another shape since.
    fn comes_from(&self, value: Value, is_origin: &dyn Fn(&Op) -> bool) -> bool {
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            let node = self.graph.node(value);
            if is_origin(&node.op) {
                return true;
            }
            if is_reshaping(&node.op) || matches!(node.op, Op::Binary(BinaryOp::Mul)) {
                open.extend(&node.inputs);
            }
        }
        false
    }
}

/// Operations that leave a projection's result what it is.
fn is_reshaping(op: &Op) -> bool {
    matches!(
        op,
        Op::Rope(_)
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Scale { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Cast { .. }
    )
}

/// Operations between a router's projection and its choice.
fn is_choosing(op: &Op) -> bool {
    matches!(
        op,
        Op::Softmax
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Scale { .. }
            | Op::Reshape { .. }
            | Op::Cast { .. }
            | Op::Reduce { .. }
    )
}

fn is_activation(op: &Op) -> bool {
    use UnaryOp as U;
    matches!(op, Op::Unary(U::Silu | U::Gelu | U::GeluTanh | U::Relu | U::Relu2))
}
