//! Why a pipeline was refused or failed.

use std::path::PathBuf;

use host_core::{Place, Report, Reported};

/// Which bound of a [`super::PipelineBudget`] was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// `burst_ms`
    Burst,
    /// `lua_ms`
    Lua,
    /// `wall_ms`
    Wall,
    /// `lua_memory_bytes`
    Memory,
    /// `host_calls`
    Calls,
    /// `tasks`
    Tasks,
    /// `output_bytes`
    Output,
    /// `log_bytes`
    Log,
}

impl Spent {
    /// Code, what was spent, and the key of the budget.
    fn told(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Spent::Burst => ("pipeline.burst-budget", "its time without waiting for the host", "burst_ms"),
            Spent::Lua => ("pipeline.lua-time-budget", "its time in Lua", "lua_ms"),
            Spent::Wall => ("pipeline.wall-budget", "its time from start to end", "wall_ms"),
            Spent::Memory => ("pipeline.memory-budget", "its memory", "lua_memory_bytes"),
            Spent::Calls => ("pipeline.call-budget", "its calls of the host", "host_calls"),
            Spent::Tasks => ("pipeline.task-budget", "its tasks", "tasks"),
            Spent::Output => ("pipeline.output-budget", "its output", "output_bytes"),
            Spent::Log => ("pipeline.log-budget", "its log", "log_bytes"),
        }
    }
}

/// Why a pipeline was refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each field is told by its name and by the variant's message")]
pub enum PipelineError {
    /// A budget file that does not fit.
    #[error("pipeline budget: {message}")]
    Budget { message: String, place: Box<Place> },
    /// A source that cannot be read.
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, message: String },
    /// A source that is no text, or a folder with too many sources.
    #[error("{}: {message}", .path.display())]
    Source { path: PathBuf, message: String, expected: String },
    /// A script that does not parse.
    #[error("{message}")]
    Syntax { message: String, place: Option<Box<Place>> },
    /// A script without `main`.
    #[error("{script} defines no function `main`")]
    MissingMain { script: String },
    /// An error that the script raised or ran into.
    #[error("{message}")]
    Script { message: String, place: Option<Box<Place>> },
    /// An error table with a `code`, from the script itself.
    #[error("{raised}: {message}")]
    Raised { raised: String, message: String, place: Option<Box<Place>> },
    /// What the host refused, and the script did not handle.
    #[error("{}", .report.message)]
    Refused { report: Box<Report> },
    /// A bound of the budget was reached.
    #[error("the pipeline spent {}", .spent.told().1)]
    Spent { spent: Spent, limit: u64 },
    /// Ended from outside.
    #[error("the pipeline was cancelled")]
    Cancelled,
    /// Tasks that wait for each other.
    #[error("{n_tasks} tasks wait for each other, and no generation runs")]
    Deadlock { n_tasks: usize },
    /// The runtime does not start.
    #[error("the script's runtime does not start: {message}")]
    Runtime { message: String },
}

impl PipelineError {
    fn code(&self) -> &'static str {
        match self {
            PipelineError::Budget { .. } => "pipeline.budget",
            PipelineError::Read { .. } => "pipeline.read",
            PipelineError::Source { .. } => "pipeline.source",
            PipelineError::Syntax { .. } => "pipeline.syntax",
            PipelineError::MissingMain { .. } => "pipeline.missing-main",
            PipelineError::Script { .. } => "pipeline.script-error",
            PipelineError::Raised { .. } => "pipeline.raised",
            PipelineError::Refused { report } => report.code,
            PipelineError::Spent { spent, .. } => spent.told().0,
            PipelineError::Cancelled => "pipeline.cancelled",
            PipelineError::Deadlock { .. } => "pipeline.deadlock",
            PipelineError::Runtime { .. } => "pipeline.runtime",
        }
    }
}

impl Reported for PipelineError {
    fn report(&self) -> Report {
        let report = Report::new(self.code(), self.to_string());
        match self {
            PipelineError::Budget { place, .. } => {
                report.at((**place).clone()).mend("correct the budget file")
            }
            PipelineError::Read { message, .. } => report.found(message),
            PipelineError::Source { expected, .. } => report.expected(expected),
            PipelineError::Syntax { place, .. }
            | PipelineError::Script { place, .. }
            | PipelineError::Raised { place, .. } => match place {
                Some(place) => report.at((**place).clone()),
                None => report,
            },
            PipelineError::MissingMain { .. } => report.expected("function main(args) … end"),
            PipelineError::Refused { report } => (**report).clone(),
            PipelineError::Spent { spent, limit } => {
                let key = spent.told().2;
                report
                    .expected(format!("at most {limit} ({key})"))
                    .mend(format!("let the script do less, or raise --{}", key.replace('_', "-")))
            }
            PipelineError::Deadlock { .. } => report.mend("let no task join itself or one that joins it"),
            PipelineError::Cancelled | PipelineError::Runtime { .. } => report,
        }
    }
}
