//! Why a grammar cannot be compiled, or a constraint cannot go on.

use host_core::{Report, Reported};

/// Why a grammar cannot be compiled, or a constraint cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// A JSON schema that is not JSON.
    #[error("the schema is not JSON: {detail}")]
    NotJson {
        /// What the reader says.
        detail: String,
    },
    /// A JSON schema with something that cannot be enforced.
    #[error("`{construct}` of a JSON schema cannot be enforced")]
    UnsupportedSchema {
        /// The keyword.
        construct: String,
        /// Where in the schema, as a JSON pointer; empty where that is not known.
        at: String,
        /// Why, where there is more to say.
        detail: String,
    },
    /// A schema that no value satisfies.
    #[error("no value satisfies the schema: {detail}")]
    Unsatisfiable {
        /// The contradiction.
        detail: String,
    },
    /// A regular expression or a grammar that cannot be read.
    #[error("the {kind} cannot be read: {detail}")]
    Syntax {
        /// `regular expression` or `grammar`.
        kind: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// More than the budget allows.
    #[error("the constraint needs more than its budget: {detail}")]
    TooComplex {
        /// Which limit.
        detail: String,
    },
    /// A vocabulary that cannot be used.
    #[error("the vocabulary cannot be constrained: {detail}")]
    Vocabulary {
        /// Why.
        detail: String,
    },
    /// A token that the constraint does not allow.
    #[error("token {token} is not allowed here")]
    NotAllowed {
        /// The token id.
        token: u32,
    },
    /// A rollback beyond the beginning.
    #[error("{n} tokens are to be taken back, {held} were accepted")]
    Rollback {
        /// Tokens to be taken back.
        n: usize,
        /// Tokens accepted.
        held: usize,
    },
}

impl Reported for ConstraintError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            ConstraintError::NotJson { .. } => {
                Report::new("constraint.not-json", text).mend("give a JSON schema as JSON text")
            }
            ConstraintError::UnsupportedSchema { construct, at, detail } => {
                let place = if at.is_empty() { construct.clone() } else { format!("{construct} at {at}") };
                let report = Report::new("constraint.unsupported-schema", text)
                    .expected("keywords that generation can enforce")
                    .found(place)
                    .mend("say it without that keyword, and check what it asks for afterwards");
                if detail.is_empty() { report } else { report.note(detail.clone()) }
            }
            ConstraintError::Unsatisfiable { .. } => {
                Report::new("constraint.unsatisfiable", text).mend("loosen the schema")
            }
            ConstraintError::Syntax { .. } => Report::new("constraint.syntax", text)
                .mend("regular expressions are those of Rust, without look-around; grammars are Lark"),
            ConstraintError::TooComplex { .. } => {
                Report::new("constraint.too-complex", text).mend("simplify the schema or grammar")
            }
            ConstraintError::Vocabulary { .. } => {
                Report::new("constraint.vocabulary", text).mend("use the tokenizer that belongs to the model")
            }
            ConstraintError::NotAllowed { token } => Report::new("constraint.not-allowed", text)
                .expected("a token of the mask")
                .found(token.to_string())
                .mend("choose among what the constraint allows"),
            ConstraintError::Rollback { n, held } => Report::new("constraint.rollback", text)
                .expected(format!("at most {held}"))
                .found(n.to_string())
                .mend("take back no more than was accepted"),
        }
    }
}
