//! The finished graph: nodes, sections, state slots, and the tensors it was built against.

use std::collections::BTreeMap;
use std::fmt;

use crate::op::Op;
use crate::shape::{Shape, ValueType};

/// A handle to the result of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// Which part of the model a node belongs to, so that a host can stream, place or trace layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Section {
    /// From token ids to the first layer's input.
    Embed,
    /// One layer.
    Layer(u32),
    /// From the last layer's output to logits; runs only for positions whose logits are wanted.
    Head,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Section::Embed => f.write_str("embed"),
            Section::Layer(i) => write!(f, "layer[{i}]"),
            Section::Head => f.write_str("head"),
        }
    }
}

/// A handle to a state slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

/// What a slot keeps for each sequence between steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SlotKind {
    /// Keys `[heads, dim_k]` and values `[heads, dim_v]` a token.
    Kv {
        /// Key-value heads.
        heads: usize,
        /// Width of a key.
        dim_k: usize,
        /// Width of a value.
        dim_v: usize,
        /// Only this many last tokens are ever read.
        window: Option<usize>,
    },
    /// Reads the keys and values of another layer's slot.
    KvShared {
        /// The slot that is read.
        with: SlotId,
    },
    /// The last `kernel - 1` inputs of a causal convolution: `[kernel - 1, channels]`.
    Conv {
        /// Channels.
        channels: usize,
        /// Kernel width.
        kernel: usize,
    },
    /// A float32 state of this shape.
    Recurrent {
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Index keys `[dim]` a token, for sparse selection.
    IndexKeys {
        /// Width of a key.
        dim: usize,
    },
}

/// One declared state slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The layer it belongs to.
    pub layer: u32,
    /// What it keeps.
    pub kind: SlotKind,
}

/// One operation with its inputs and the type of its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Its inputs, all of lower index.
    pub inputs: Vec<Value>,
    /// The shape of its result.
    pub shape: Shape,
    /// The element type of its result.
    pub value_type: ValueType,
    /// The part of the model it belongs to.
    pub section: Section,
}

/// What a builder knows of a checkpoint tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorFacts {
    /// Logical shape, for a linear weight `[out, in]`, however it is packed.
    pub shape: Vec<usize>,
    /// Whether it can be read as plain numbers (not quantised).
    pub is_dense: bool,
}

/// Checkpoint tensors by name.
pub type Catalogue = BTreeMap<String, TensorFacts>;

/// A checked graph in canonical order: every node is needed, inputs come before their users.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) output: Value,
    pub(crate) ignored: Vec<String>,
}

impl Graph {
    /// All nodes, inputs before users.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node that computes a value.
    pub fn node(&self, value: Value) -> &Node {
        &self.nodes[value.0 as usize]
    }

    /// The declared state slots; a [`SlotId`] is an index here.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The slot of a handle.
    pub fn slot(&self, id: SlotId) -> &Slot {
        &self.slots[id.0 as usize]
    }

    /// The logits: float `[B,T,V]`.
    pub fn output(&self) -> Value {
        self.output
    }

    /// Entries of the vocabulary: the width of the logits.
    pub fn n_vocab(&self) -> usize {
        self.node(self.output).shape.last().unwrap_or(0)
    }

    /// How many layers have a section.
    pub fn n_layers(&self) -> usize {
        let layers = self.nodes.iter().filter_map(|node| match node.section {
            Section::Layer(i) => Some(i as usize + 1),
            _ => None,
        });
        layers.max().unwrap_or(0)
    }

    /// The checkpoint tensors it uses, in order of first use, each once.
    pub fn tensors(&self) -> Vec<&str> {
        let mut seen = std::collections::HashSet::new();
        let names = self.nodes.iter().flat_map(|node| node.op.tensors());
        names.filter(|name| seen.insert(*name)).collect()
    }

    /// The checkpoint tensors that the plugin declared as not needed.
    pub fn ignored_tensors(&self) -> &[String] {
        &self.ignored
    }
}
