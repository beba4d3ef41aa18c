//! The contract's types and the host's, one into the other.

use host_graph::{
    Activation, BuildError, BuildErrorKind, Dim, Mask, RopeFrequencies, RopeLayout, RopeSpec, Shape,
    TensorFacts, ValueType,
};

use crate::contract_0_2::graph::tenon::plugin::graph;
use crate::contract_0_2::graph::tenon::plugin::types::{self, Mismatch, Refusal};

/// A refusal in the contract's words.
pub(crate) fn build_error(error: BuildError) -> types::BuildError {
    types::BuildError {
        op: error.op.to_owned(),
        ordinal: u32::try_from(error.ordinal).unwrap_or(u32::MAX),
        why: refusal(error.kind),
    }
}

fn refusal(kind: BuildErrorKind) -> Refusal {
    let mismatch = |subject: &str, expected: String, found: String| Mismatch {
        subject: subject.to_owned(),
        expected,
        found,
    };
    match kind {
        BuildErrorKind::Shape { input, expected, found } => Refusal::Shape(mismatch(input, expected, found)),
        BuildErrorKind::Type { input, expected, found } => Refusal::Element(mismatch(input, expected, found)),
        BuildErrorKind::MissingTensor { name, .. } => Refusal::MissingTensor(name),
        BuildErrorKind::TensorShape { name, expected, found } => {
            Refusal::TensorShape(mismatch(&name, expected, found))
        }
        BuildErrorKind::Quantised { name } => Refusal::Quantised(name),
        BuildErrorKind::Attribute { name, expected, found } => {
            Refusal::Attribute(mismatch(name, expected, found))
        }
        BuildErrorKind::Slot { slot, expected, found } => {
            Refusal::Slot(mismatch(&slot.to_string(), expected, found))
        }
        BuildErrorKind::UnknownValue { found } => Refusal::UnknownValue(found),
        BuildErrorKind::Order { expected, found } => {
            Refusal::Order(mismatch("order", expected.to_owned(), found.to_owned()))
        }
        BuildErrorKind::Limit { what, limit } => Refusal::Limit(format!("more than {limit} {what}")),
        BuildErrorKind::UnusedTensors { names } => Refusal::UnusedTensors(names),
    }
}

/// A dimension beyond 32 bits fits no graph; the builder's own check still sees the true number.
fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

pub(crate) fn wide(list: &[u32]) -> Vec<usize> {
    list.iter().map(|n| *n as usize).collect()
}

pub(crate) fn tensor_facts(facts: &TensorFacts) -> graph::TensorFacts {
    graph::TensorFacts { shape: facts.shape.iter().copied().map(narrow).collect(), is_dense: facts.is_dense }
}

pub(crate) fn dims(shape: &Shape) -> Vec<graph::Dim> {
    let dim = |dim: &Dim| match dim {
        Dim::B => graph::Dim::Batch,
        Dim::T => graph::Dim::Tokens,
        Dim::Fixed(n) => graph::Dim::Fixed(narrow(*n)),
    };
    shape.0.iter().map(dim).collect()
}

pub(crate) fn element(element: graph::Element) -> ValueType {
    match element {
        graph::Element::Float => ValueType::Float,
        graph::Element::Int => ValueType::Int,
        graph::Element::Bool => ValueType::Bool,
    }
}

pub(crate) fn activation(activation: graph::Activation) -> Activation {
    match activation {
        graph::Activation::Silu => Activation::Silu,
        graph::Activation::Gelu => Activation::Gelu,
        graph::Activation::GeluTanh => Activation::GeluTanh,
    }
}

pub(crate) fn mask(mask: graph::Mask) -> Mask {
    match mask {
        graph::Mask::Causal => Mask::Causal,
        graph::Mask::Window(n) => Mask::Window(n as usize),
        graph::Mask::Chunked(n) => Mask::Chunked(n as usize),
        graph::Mask::BidirectionalPrefix => Mask::BidirectionalPrefix,
    }
}

impl From<graph::RopeSpec> for RopeSpec {
    fn from(spec: graph::RopeSpec) -> Self {
        RopeSpec {
            dims: spec.dims as usize,
            theta: spec.theta as f32,
            layout: match spec.layout {
                graph::RopeLayout::SplitHalves => RopeLayout::SplitHalves,
                graph::RopeLayout::Interleaved => RopeLayout::Interleaved,
            },
            frequencies: spec.frequencies.into(),
            attention_factor: spec.attention_factor as f32,
            mrope_section: wide(&spec.mrope_section),
        }
    }
}

impl From<graph::RopeFrequencies> for RopeFrequencies {
    fn from(frequencies: graph::RopeFrequencies) -> Self {
        match frequencies {
            graph::RopeFrequencies::Default => RopeFrequencies::Default,
            graph::RopeFrequencies::Linear(factor) => RopeFrequencies::Linear { factor: factor as f32 },
            graph::RopeFrequencies::Llama3(rope) => RopeFrequencies::Llama3 {
                factor: rope.factor as f32,
                low_freq_factor: rope.low_freq_factor as f32,
                high_freq_factor: rope.high_freq_factor as f32,
                original_max_position_embeddings: rope.original_max_position_embeddings as f32,
            },
            graph::RopeFrequencies::Yarn(rope) => RopeFrequencies::Yarn {
                factor: rope.factor as f32,
                beta_fast: rope.beta_fast as f32,
                beta_slow: rope.beta_slow as f32,
                original_max_position_embeddings: rope.original_max_position_embeddings as f32,
                truncate: rope.truncate,
            },
            graph::RopeFrequencies::Longrope(factors) => {
                RopeFrequencies::LongRope { factors: factors.into_iter().map(|f| f as f32).collect() }
            }
            graph::RopeFrequencies::Proportional(rope) => RopeFrequencies::Proportional {
                factor: rope.factor as f32,
                full_dims: rope.full_dims as usize,
            },
        }
    }
}
