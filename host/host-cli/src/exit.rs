//! Exit codes: what a script can tell from the number alone.

use std::process::ExitCode;

use crate::error::Failure;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done. Also when the reader of the output went away: it has what it wanted.
    Done,
    /// Something failed: a file, the network, a broken model.
    Failed,
    /// The command line asks for something that does not exist or contradicts itself.
    Usage,
    /// Refused before any weight was read: no profile fits, or a part is not there as named.
    Refused,
    /// Ended by Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The number; those above 128 are 128 and the signal's.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Interrupted => 130,
        }
    }

    /// What a failure ends the program with.
    pub(crate) fn of(failure: &Failure) -> Exit {
        failure.reports().first().map_or(Exit::Failed, |report| Exit::of_report(report.code))
    }

    /// What an error with this report code ends the program with.
    fn of_report(code: &str) -> Exit {
        let area = code.split('.').next().unwrap_or_default();
        match (area, code) {
            ("usage" | "sampling" | "constraint" | "request", _)
            | (_, "models.source-form" | "models.variable" | "profile.unknown-id" | "quant.unknown-rules")
            | (_, "author.name" | "author.folder-taken" | "author.no-plugin") => Exit::Usage,
            (_, "pipeline.cancelled") => Exit::Interrupted,
            ("profile" | "registry" | "compose" | "plugin" | "graph" | "quant", _) => Exit::Refused,
            (_, "reload.kept-out" | "reload.memory" | "reload.draining") => Exit::Refused,
            (_, "device.unsupported" | "device.memory") => Exit::Refused,
            _ => Exit::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
