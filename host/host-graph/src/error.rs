//! What a builder call can be refused for.

use host_core::{Report, Reported};

use crate::graph::Section;

/// A refused builder call: which operation, the how manieth, in which section, and why.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{op} (operation {ordinal}, section {section}): {kind}")]
pub struct BuildError {
    /// The operation.
    pub op: &'static str,
    /// Counts the builder's calls from 1.
    pub ordinal: usize,
    /// The section the call was made in.
    pub section: Section,
    /// Why it was refused.
    pub kind: BuildErrorKind,
}

/// Why a builder call was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildErrorKind {
    /// An input has the wrong shape.
    #[error("input `{input}` has shape {found}, expected {expected}")]
    Shape {
        /// The input's name in the operation's description.
        input: &'static str,
        /// What fits, with the symbols of the description.
        expected: String,
        /// The shape given.
        found: String,
    },
    /// An input has the wrong element type.
    #[error("input `{input}` is {found}, expected {expected}")]
    Type {
        /// The input's name in the operation's description.
        input: &'static str,
        /// The type that fits.
        expected: String,
        /// The type given.
        found: String,
    },
    /// The checkpoint has no tensor of that name.
    #[error("the checkpoint has no tensor `{name}`")]
    MissingTensor {
        /// The name asked for.
        name: String,
        /// The most similar names.
        nearest: Vec<String>,
    },
    /// A checkpoint tensor has another shape than the operation needs.
    #[error("tensor `{name}` has shape {found}, expected {expected}")]
    TensorShape {
        /// The tensor.
        name: String,
        /// The shape needed.
        expected: String,
        /// The shape in the checkpoint.
        found: String,
    },
    /// A quantised tensor where plain numbers are needed.
    #[error("tensor `{name}` is quantised, expected plain numbers")]
    Quantised {
        /// The tensor.
        name: String,
    },
    /// An attribute is out of its range.
    #[error("`{name}` is {found}, expected {expected}")]
    Attribute {
        /// The attribute.
        name: &'static str,
        /// Its range.
        expected: String,
        /// The value given.
        found: String,
    },
    /// A state slot does not fit the operation or is used twice.
    #[error("slot {slot}: {found}, expected {expected}")]
    Slot {
        /// The slot's index.
        slot: u32,
        /// What the operation needs.
        expected: String,
        /// What the slot is.
        found: String,
    },
    /// A handle that this builder did not give, or that belongs to another scope.
    #[error("there is no value {found} here")]
    UnknownValue {
        /// The handle.
        found: u32,
    },
    /// A call in the wrong place: a scan that was not begun, an output inside a scan.
    #[error("{found}, expected {expected}")]
    Order {
        /// What should come first.
        expected: &'static str,
        /// What was called.
        found: &'static str,
    },
    /// The graph grew beyond a limit.
    #[error("more than {limit} {what}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Checkpoint tensors that the graph neither uses nor ignores by name.
    #[error("{} tensors of the checkpoint are not used", .names.len())]
    UnusedTensors {
        /// Their names.
        names: Vec<String>,
    },
}

impl BuildErrorKind {
    fn code(&self) -> &'static str {
        match self {
            BuildErrorKind::Shape { .. } => "graph.shape",
            BuildErrorKind::Type { .. } => "graph.type",
            BuildErrorKind::MissingTensor { .. } => "graph.missing-tensor",
            BuildErrorKind::TensorShape { .. } => "graph.tensor-shape",
            BuildErrorKind::Quantised { .. } => "graph.quantised-tensor",
            BuildErrorKind::Attribute { .. } => "graph.attribute",
            BuildErrorKind::Slot { .. } => "graph.slot",
            BuildErrorKind::UnknownValue { .. } => "graph.unknown-value",
            BuildErrorKind::Order { .. } => "graph.order",
            BuildErrorKind::Limit { .. } => "graph.limit",
            BuildErrorKind::UnusedTensors { .. } => "graph.unused-tensors",
        }
    }
}

impl Reported for BuildError {
    fn report(&self) -> Report {
        let kind = &self.kind;
        let mut report = Report::new(kind.code(), self.to_string());
        match kind {
            BuildErrorKind::Shape { expected, found, .. }
            | BuildErrorKind::Type { expected, found, .. }
            | BuildErrorKind::TensorShape { expected, found, .. }
            | BuildErrorKind::Attribute { expected, found, .. }
            | BuildErrorKind::Slot { expected, found, .. } => {
                report = report.expected(expected).found(found);
            }
            BuildErrorKind::Order { expected, found } => report = report.expected(*expected).found(*found),
            BuildErrorKind::MissingTensor { name, nearest } => {
                report = report.expected(format!("a tensor `{name}` in the checkpoint"));
                report = report.found(match nearest.as_slice() {
                    [] => "no similar name".to_owned(),
                    names => format!("similar: {}", names.join(", ")),
                });
                report =
                    report.mend("use a checkpoint of this architecture, or a graph plugin made for this one");
            }
            BuildErrorKind::Quantised { name } => {
                report = report
                    .expected(format!("`{name}` as f32, f16 or bf16"))
                    .found("a quantised tensor")
                    .mend("exclude the tensor from quantisation");
            }
            BuildErrorKind::UnknownValue { .. } => {
                report = report.mend("pass a value that this builder returned in the same scope");
            }
            BuildErrorKind::Limit { .. } => report = report.mend("build a smaller graph"),
            BuildErrorKind::UnusedTensors { names } => {
                let shown: Vec<_> = names.iter().take(8).cloned().collect();
                report = report
                    .expected("every tensor used, or ignored by name")
                    .found(shown.join(", "))
                    .mend("use a graph plugin that knows these tensors, or let it call `ignore` for them");
            }
        }
        report
    }
}
