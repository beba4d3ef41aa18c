//! The body of a scan: a small graph run once a token.

use crate::graph::{Node, Value};

/// Nodes whose handles count from 0 within the body; [`crate::Op::BodyInput`] 0 is the state.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// The nodes, inputs before users.
    pub nodes: Vec<Node>,
    /// The new state.
    pub state: Value,
    /// The output of this step.
    pub output: Value,
}
