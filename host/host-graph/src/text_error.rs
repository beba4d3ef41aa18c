//! What the text of a graph can be refused for.

use host_core::{Report, Reported};

use crate::error::BuildError;

/// A refused text, with the line, counted from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TextError {
    /// Something else stands there.
    #[error("line {line}, column {column}: expected {expected}")]
    Syntax {
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
        /// What may stand there.
        expected: String,
        /// What does.
        found: String,
    },
    /// No operation of that name may stand there.
    #[error("line {line}: there is no operation `{found}` here")]
    Operation {
        /// The line.
        line: usize,
        /// The name.
        found: String,
    },
    /// The operation gives something else than the line says.
    #[error("line {line}: the operation gives {expected}")]
    Type {
        /// The line.
        line: usize,
        /// What it gives.
        expected: String,
        /// What the line says.
        found: String,
    },
    /// The builder refuses what the line says.
    #[error("line {line}: the graph cannot be built")]
    Build {
        /// The line.
        line: usize,
        /// Why.
        source: BuildError,
    },
    /// The graph is sound, and its text is another one.
    #[error("line {line} is not in canonical form")]
    Form {
        /// The first line that differs.
        line: usize,
        /// The canonical line.
        expected: String,
        /// What stands there.
        found: String,
    },
}

impl Reported for TextError {
    fn report(&self) -> Report {
        let text = self.to_string();
        const AGAIN: &str = "make the text anew with `tenon graph`; it is not for editing";
        match self {
            TextError::Syntax { expected, found, .. } => {
                Report::new("graph.text-syntax", text).expected(expected).found(found).mend(AGAIN)
            }
            TextError::Operation { found, .. } => Report::new("graph.text-operation", text)
                .expected("an operation of this version of the form")
                .found(found)
                .mend(AGAIN),
            TextError::Type { expected, found, .. } => {
                Report::new("graph.text-type", text).expected(expected).found(found).mend(AGAIN)
            }
            TextError::Build { source, .. } => {
                let cause = source.report();
                let report = Report { message: format!("{text}: {}", cause.message), ..cause };
                if report.mend.is_some() { report } else { report.mend(AGAIN) }
            }
            TextError::Form { expected, found, .. } => {
                Report::new("graph.text-form", text).expected(expected).found(found).mend(AGAIN)
            }
        }
    }
}
