//! Why rules give no plan for a checkpoint, and rules that are not there.

use host_core::quant::{QuantError, TensorFacts};
use host_core::{Place, Report, Reported};

use crate::source::short;

/// Why a file of rules cannot be applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RulesFault {
    /// A tensor that no rule matches.
    #[error("{file}: no rule matches the tensor `{}`", .tensor.name)]
    Unmatched {
        /// The file of rules.
        file: String,
        /// The first such tensor.
        tensor: Box<TensorFacts>,
    },
    /// A rule that no tensor came to.
    #[error("{}: the rule for `{glob}` matches no tensor of this model", short(.place))]
    Idle {
        /// The rule.
        place: Box<Place>,
        /// Its glob.
        glob: String,
        /// A tensor that it would match, had no rule before it taken it.
        taken: Option<String>,
    },
    /// A scheme that the tensor cannot take.
    #[error("{}: {source}", short(.place))]
    Scheme {
        /// The rule.
        place: Box<Place>,
        /// What does not fit.
        source: QuantError,
    },
    /// No rules of that name.
    #[error("there are no quantisation rules `{id}`")]
    UnknownId {
        /// The name asked for.
        id: String,
        /// Those most like it.
        nearest: Vec<String>,
        /// All of them.
        known: Vec<String>,
    },
}

impl Reported for RulesFault {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            RulesFault::Unmatched { tensor, .. } => {
                let layer = tensor.layer.map(|layer| format!(", layer {layer}")).unwrap_or_default();
                Report::new("quant.unmatched-tensor", text)
                    .expected("a rule for each tensor")
                    .found(format!("{:?} {}, role {}{layer}", tensor.shape, tensor.dtype, tensor.role))
                    .mend("add a rule for it; a last rule with match = \"*\" and scheme = \"keep\" keeps the rest")
            }
            RulesFault::Idle { place, taken, .. } => {
                let report = Report::new("quant.idle-rule", text)
                    .expected("a rule that decides for at least one tensor")
                    .at(*place.clone());
                match taken {
                    Some(name) => report
                        .found(format!("rules before it match all that it would, such as `{name}`"))
                        .mend("move the rule up, or remove it"),
                    None => report.mend("mend its match, role or layers, or remove it"),
                }
            }
            RulesFault::Scheme { place, source } => {
                let mut report = source.report().at(*place.clone());
                report.message = text;
                report
            }
            RulesFault::UnknownId { known, nearest, .. } => {
                let mend = match nearest.as_slice() {
                    [] => "name one of them, or the path of a .toml file".to_owned(),
                    names => format!("did you mean `{}`?", names.join("` or `")),
                };
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Report::new("quant.unknown-rules", text).expected(format!("one of: {known}")).mend(mend)
            }
        }
    }
}
