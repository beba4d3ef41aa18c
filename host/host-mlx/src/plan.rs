//! What a step of one token a sequence can do in fewer operations: parts of layers, recognised in the graph.
//!
//! Nothing here runs or reads a tensor: the same plan settles before weights are opened whether the kernels that
//! a profile names fit this model, and says afterwards what a step does ([`crate::replay`]).

use std::collections::{HashMap, HashSet};

use host_graph::{BinaryOp, Graph, Mask, Node, Op, RopeSpec, Slot, SlotKind, UnaryOp, Value};

use crate::program::Groups;

/// A step, in the order of its parts.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
}

/// One part of a step.
#[derive(Debug)]
pub(crate) enum Part {
    /// A node as it stands.
    Node(usize),
    /// Products of one input, and the norm before them.
    Products { x: Value, norm: Option<usize>, first: usize },
    /// A product and the residual.
    LinearAdd { x: Value, residual: Value, linear: usize, out: usize },
    /// `silu(norm(x) Wg^T) * (norm(x) Wu^T)`.
    NormSwiglu { x: Value, norm: usize, first: usize, out: usize },
    /// From the product for q, k and v to what attention gives.
    Heads(Heads),
}

/// See [`Part::Heads`].
#[derive(Debug)]
pub(crate) struct Heads {
    pub(crate) slot: usize,
    /// The first member of the product for q, k and v.
    pub(crate) qkv: usize,
    /// The rotation of q; that of k is the same.
    pub(crate) rope: usize,
    /// The norms of q and k.
    pub(crate) norms: Option<[usize; 2]>,
    pub(crate) scale: f32,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) dim: usize,
    /// The attention.
    pub(crate) out: usize,
}

/// Recognises the parts of a graph.
///
/// # Errors
/// Why a step of this graph cannot be replayed.
pub(crate) fn plan(
    nodes: &[Node],
    slots: &[Slot],
    order: &[usize],
    n_uses: &[usize],
    groups: &Groups,
) -> Result<Plan, &'static str> {
    if slots.iter().any(|slot| !matches!(slot.kind, SlotKind::Kv { window: None, .. })) {
        return Err("each slot must hold keys and values without a window");
    }
    let finder = Finder { nodes, slots, n_uses, groups };
    let (mut roots, mut absorbed) = (HashMap::new(), HashSet::new());
    for index in order.iter().copied() {
        if let Some((part, inner)) = finder.part(index)? {
            absorbed.extend(inner);
            roots.insert(index, part);
        }
    }
    let mut parts = Vec::new();
    for index in order.iter().copied() {
        if let Some(part) = roots.remove(&index) {
            parts.push(part);
        } else if !absorbed.contains(&index) && !nodes[index].shape.lead().is_empty() {
            if let Op::Rope(_) = nodes[index].op {
                return Err("a rotation must stand before attention");
            }
            parts.push(Part::Node(index));
        }
    }
    // A part found later may have taken the product that an earlier one stands for.
    parts.retain(|part| !matches!(part, Part::Products { first, .. } if absorbed.contains(first)));
    Ok(Plan { parts })
}

/// The same for a graph that nothing was loaded for yet.
///
/// # Errors
/// As [`plan`].
pub(crate) fn of_graph(graph: &Graph, order: &[usize], groups: &Groups) -> Result<Plan, &'static str> {
    plan(graph.nodes(), graph.slots(), order, &crate::program::uses(graph.nodes(), &[graph.output()]), groups)
}

struct Finder<'a> {
    nodes: &'a [Node],
    slots: &'a [Slot],
    n_uses: &'a [usize],
    groups: &'a Groups,
}

/// A part that stands at a node, with the nodes that it takes in.
type Found = Option<(Part, Vec<usize>)>;

impl Finder<'_> {
    fn part(&self, index: usize) -> Result<Found, &'static str> {
        match &self.nodes[index].op {
            Op::Attention { .. } => self.heads(index).map(Some),
            Op::Linear { .. } => Ok(self.products(index)),
            Op::Binary(BinaryOp::Add) => Ok(self.linear_add(index)),
            Op::Binary(BinaryOp::Mul) => Ok(self.norm_swiglu(index)),
            op if op.slot().is_some() => Err("attention alone may look at other tokens"),
            _ => Ok(None),
        }
    }

    /// The node of a value that nothing else uses.
    fn only(&self, value: Value) -> Option<usize> {
        let index = value.0 as usize;
        (self.n_uses[index] == 1).then_some(index)
    }

    fn input(&self, index: usize, at: usize) -> Value {
        self.nodes[index].inputs[at]
    }

    /// The norm that gives `value`, when `n_users` products are all that use it.
    fn norm_before(&self, value: Value, n_users: usize) -> Option<usize> {
        let index = value.0 as usize;
        let is_norm = matches!(self.nodes[index].op, Op::RmsNorm { weight: Some(_), .. });
        let is_of_rows = self.nodes[index].shape.item().len() == 1;
        (is_norm && is_of_rows && self.n_uses[index] == n_users).then_some(index)
    }

    /// Whether a value is one row a token.
    fn is_rows(&self, value: Value) -> bool {
        let shape = &self.nodes[value.0 as usize].shape;
        shape.lead().len() == 2 && shape.item().len() == 1
    }

    fn products(&self, index: usize) -> Found {
        let members = self.groups.get(&index);
        let is_member = self.groups.values().any(|members| members.contains(&index));
        if is_member && members.is_none() {
            return None;
        }
        let n_members = members.map_or(1, Vec::len);
        let x = self.input(index, 0);
        let norm = self.norm_before(x, n_members).filter(|norm| self.is_rows(self.input(*norm, 0)));
        if members.is_none() && norm.is_none() {
            return None;
        }
        let mut inner: Vec<usize> = members.into_iter().flatten().copied().filter(|m| *m != index).collect();
        inner.extend(norm);
        let x = norm.map_or(x, |norm| self.input(norm, 0));
        Some((Part::Products { x, norm, first: index }, inner))
    }

    fn linear_add(&self, index: usize) -> Found {
        let [a, b] = self.nodes[index].inputs[..] else { return None };
        [(b, a), (a, b)].into_iter().find_map(|(product, residual)| {
            let linear = self.only(product)?;
            let Op::Linear { bias: None, .. } = self.nodes[linear].op else { return None };
            let is_alike = self.nodes[residual.0 as usize].shape == self.nodes[linear].shape
                && self.is_rows(residual)
                && self.is_rows(self.input(linear, 0));
            let is_member = self.groups.values().any(|members| members.contains(&linear));
            let x = self.input(linear, 0);
            (is_alike && !is_member && self.norm_before(x, 1).is_none())
                .then(|| (Part::LinearAdd { x, residual, linear, out: index }, vec![linear]))
        })
    }

    fn norm_swiglu(&self, index: usize) -> Found {
        let [gated, up] = self.nodes[index].inputs[..] else { return None };
        let (gated, up) = (self.only(gated)?, self.only(up)?);
        let Op::Unary(UnaryOp::Silu) = self.nodes[gated].op else { return None };
        let gate = self.only(self.input(gated, 0))?;
        let Op::Linear { bias: None, .. } = self.nodes[gate].op else { return None };
        if self.groups.get(&gate)?[..] != [gate, up] {
            return None;
        }
        let norm = self.norm_before(self.input(gate, 0), 2).filter(|norm| self.is_rows(self.input(*norm, 0)))?;
        let part = Part::NormSwiglu { x: self.input(norm, 0), norm, first: gate, out: index };
        Some((part, vec![norm, gate, up, gated]))
    }

    /// What lies between a product and attention: reshaping, perhaps a norm, a rotation.
    fn turned(&self, value: Value) -> Option<(usize, Option<usize>, usize, Vec<usize>)> {
        let rope = self.only(value)?;
        let Op::Rope(_) = self.nodes[rope].op else { return None };
        let before = self.only(self.input(rope, 0))?;
        let (norm, reshape) = match self.nodes[before].op {
            Op::RmsNorm { weight: Some(_), .. } => (Some(before), self.only(self.input(before, 0))?),
            _ => (None, before),
        };
        let linear = self.reshaped(reshape)?;
        let inner = [Some(rope), norm, Some(reshape), Some(linear)].into_iter().flatten().collect();
        Some((linear, norm, rope, inner))
    }

    fn reshaped(&self, reshape: usize) -> Option<usize> {
        let Op::Reshape { .. } = self.nodes[reshape].op else { return None };
        let linear = self.only(self.input(reshape, 0))?;
        matches!(self.nodes[linear].op, Op::Linear { .. }).then_some(linear)
    }

    fn heads(&self, index: usize) -> Result<(Part, Vec<usize>), &'static str> {
        let Op::Attention { slot, scale, mask: Mask::Causal, softcap: None, sinks: None } = self.nodes[index].op
        else {
            return Err("attention must be causal, without a cap and without sinks");
        };
        let slot = slot.0 as usize;
        let SlotKind::Kv { heads: kv_heads, dim_k, dim_v, .. } = self.slots[slot].kind else {
            return Err("each slot must hold keys and values");
        };
        if dim_k != dim_v {
            return Err("keys and values must be equally wide");
        }
        let [q, k, v] = self.nodes[index].inputs[..] else {
            return Err("attention must read all that its slot holds");
        };
        let apart = "q and k must be rotated products, and v the product beside them";
        let (q, k) = (self.turned(q).ok_or(apart)?, self.turned(k).ok_or(apart)?);
        let v_shape = self.only(v).ok_or(apart)?;
        let v = self.reshaped(v_shape).ok_or(apart)?;
        if self.groups.get(&q.0).ok_or(apart)?[..] != [q.0, k.0, v] {
            return Err(apart);
        }
        let spec = |rope: usize| -> Option<&RopeSpec> {
            if let Op::Rope(spec) = &self.nodes[rope].op { Some(spec) } else { None }
        };
        if spec(q.2) != spec(k.2) || spec(q.2).is_none_or(|spec| !spec.mrope_section.is_empty()) {
            return Err("q and k must be rotated alike, by one position a token");
        }
        let norms = match (q.1, k.1) {
            (Some(q), Some(k)) => Some([q, k]),
            (None, None) => None,
            _ => return Err("q and k must both be normed, or neither"),
        };
        let heads = self.nodes[index].shape.item().first().copied().unwrap_or(0);
        let rope = q.2;
        // The product for all three is a part of its own: its other members and its norm are taken in there.
        let inner: Vec<usize> =
            [q.3, k.3, vec![v_shape]].concat().into_iter().filter(|i| ![q.0, k.0, v].contains(i)).collect();
        let part = Heads {
            slot,
            qkv: q.0,
            rope,
            norms,
            scale,
            heads,
            kv_heads,
            dim: dim_k,
            out: index,
        };
        Ok((Part::Heads(part), inner))
    }
}
