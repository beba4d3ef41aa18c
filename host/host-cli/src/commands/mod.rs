//! The commands, a module each.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod completion;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod generate;
pub(crate) mod graph;
pub(crate) mod import;
pub(crate) mod models;
pub(crate) mod plugin;
pub(crate) mod profiles;
pub(crate) mod quantize;
pub(crate) mod run;

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde_json::Value;

use crate::error::{CliError, Failure};
use crate::exit::Exit;

/// Prints a text on standard output.
///
/// # Errors
/// Output that fails. A reader that went away is no error: it has what it wanted.
pub(crate) fn print(text: &str) -> Result<Exit, Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::Stream { stream: "output", source }.into())
        }
        _ => Ok(Exit::Done),
    }
}

/// Prints one JSON object.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_json(value: &Value) -> Result<Exit, Failure> {
    print(&format!("{value:#}\n"))
}

/// Streams text to standard output, and remembers how that ended.
#[derive(Debug, Default)]
pub(crate) struct Printer {
    error: Option<io::Error>,
    has_text: bool,
    ends_with_newline: bool,
}

impl Printer {
    /// Prints a piece at once; breaks when the output is gone.
    pub(crate) fn say(&mut self, piece: &str) -> ControlFlow<()> {
        if self.error.is_some() {
            return ControlFlow::Break(());
        }
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(piece.as_bytes()).and_then(|()| out.flush()) {
            self.error = Some(error);
            return ControlFlow::Break(());
        }
        self.has_text |= !piece.is_empty();
        self.ends_with_newline = piece.ends_with('\n');
        ControlFlow::Continue(())
    }

    /// Begins a new line where text stands in the last one.
    pub(crate) fn end_line(&mut self) {
        if self.has_text && !self.ends_with_newline {
            let _ = self.say("\n");
        }
    }

    /// Ends the last line.
    ///
    /// # Errors
    /// What went wrong with the output, unless its reader went away.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        if !self.ends_with_newline {
            let _ = self.say("\n");
        }
        match self.error {
            Some(source) if source.kind() != io::ErrorKind::BrokenPipe => {
                Err(CliError::Stream { stream: "output", source }.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.error.is_some()
    }
}
