//! One shape for every refusal and error that reaches a person or a program.
//!
//! Libraries keep typed errors; each error enum implements [`Reported`], so that the terminal, `--json`,
//! HTTP, WIT and Lua all show the same code, the same values and the same mend.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// Where in a text file (profile, script, configuration) a report points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file as the user named it.
    pub file: String,
    /// One-based line, if known.
    pub line: Option<u32>,
    /// One-based column in characters, if known.
    pub column: Option<u32>,
    /// The text of that line, for underlining.
    pub excerpt: Option<String>,
    /// Characters to underline from `column` on; 0 underlines nothing.
    pub width: u32,
}

impl Place {
    /// The place of a span of bytes in a file's text; the file alone where the span is not known.
    pub fn in_text(file: &str, text: &str, span: Option<Range<usize>>) -> Self {
        let file = file.to_owned();
        let Some((before, part)) = span.and_then(|span| Some((text.get(..span.start)?, text.get(span)?)))
        else {
            return Place { file, line: None, column: None, excerpt: None, width: 0 };
        };
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let first_line = |text: &str| text.lines().next().unwrap_or("").to_owned();
        Place {
            file,
            line: Some(before.matches('\n').count() as u32 + 1),
            column: Some(before[line_start..].chars().count() as u32 + 1),
            excerpt: Some(first_line(&text[line_start..])),
            width: first_line(part).chars().count() as u32,
        }
    }
}

/// An error as it is shown: a stable code, what happened, what was expected and found, and the mend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Stable, dotted, lower case: `weights.truncated`.
    pub code: &'static str,
    /// One sentence without a full stop.
    pub message: String,
    /// What was expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What the reader can do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
    /// Where a text file is at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Further lines: nearest matches, failing predicates, causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Report {
    /// A report with a code and a message; the other parts are added with the methods below.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Report {
            code,
            message: message.into(),
            expected: None,
            found: None,
            mend: None,
            place: None,
            notes: Vec::new(),
        }
    }

    /// Adds what was expected.
    #[must_use]
    pub fn expected(mut self, text: impl Into<String>) -> Self {
        self.expected = Some(text.into());
        self
    }

    /// Adds what was found.
    #[must_use]
    pub fn found(mut self, text: impl Into<String>) -> Self {
        self.found = Some(text.into());
        self
    }

    /// Adds what the reader can do about it.
    #[must_use]
    pub fn mend(mut self, text: impl Into<String>) -> Self {
        self.mend = Some(text.into());
        self
    }

    /// Adds the place in a text file.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Adds one more line.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        let parts = [("expected", &self.expected), ("found", &self.found), ("mend", &self.mend)];
        for (label, text) in parts {
            if let Some(text) = text {
                write!(f, "\n  {label:<9} {text}")?;
            }
        }
        for note in &self.notes {
            write!(f, "\n  {:<9} {note}", "note")?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// An error type of a library crate that can be shown.
///
/// Implemented once per error enum, next to its variants, so that a code is declared in one place.
pub trait Reported: std::error::Error {
    /// The error as it is shown.
    fn report(&self) -> Report;
}

impl Reported for Report {
    fn report(&self) -> Report {
        self.clone()
    }
}
