//! The graph of a model: what a plugin builds and a device compiles.
//!
//! A graph is a list of operations over values of known shape. It holds no weights, no batch size, no cache
//! kind and no quantisation: it names checkpoint tensors and declares state slots, and the composition
//! decides how both are stored. Each builder call is checked at once, so an error points at the caller's own
//! line.

mod body;
mod builder;
mod canonical;
mod error;
mod graph;
mod infer;
mod op;
mod parse;
mod roles;
mod rope;
mod shape;
mod text_error;

pub use body::Body;
pub use builder::{GraphBuilder, Limits};
pub use canonical::Fingerprint;
pub use error::{BuildError, BuildErrorKind};
pub use graph::{Catalogue, Graph, Node, Section, Slot, SlotId, SlotKind, TensorFacts, Value};
pub use op::{Activation, BinaryOp, Mask, Op, ReduceOp, UnaryOp};
pub use roles::{Use, use_by_name};
pub use rope::{RopeFrequencies, RopeLayout, RopeSpec};
pub use shape::{Dim, Shape, ValueType};
pub use text_error::TextError;

#[cfg(test)]
mod tests;
