//! What one run of a pipeline may spend. The numbers stand in a TOML file, never in code.

use host_core::Place;
use serde::Deserialize;

use super::PipelineError;

/// Bounds on one run. Reaching one ends the run with an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineBudget {
    /// Milliseconds that the script may run without waiting for the host.
    pub burst_ms: u64,
    /// Milliseconds that the script may run in all, waiting not counted.
    pub lua_ms: u64,
    /// Milliseconds from start to end.
    pub wall_ms: u64,
    /// Bytes of the script's memory.
    pub lua_memory_bytes: usize,
    /// Calls of the host.
    pub host_calls: usize,
    /// Tasks that are spawned.
    pub tasks: usize,
    /// Bytes that are emitted and returned.
    pub output_bytes: usize,
    /// Bytes of log text.
    pub log_bytes: usize,
}

impl PipelineBudget {
    /// Reads the TOML; `file` is named in errors.
    ///
    /// # Errors
    /// [`PipelineError::Budget`]: a key is absent, unknown, or no whole number.
    pub fn parse(text: &str, file: &str) -> Result<Self, PipelineError> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start].matches('\n').count() as u32 + 1);
            let excerpt = line.and_then(|line| text.lines().nth(line as usize - 1)).map(str::to_owned);
            let place = Place { file: file.to_owned(), line, column: None, excerpt, width: 0 };
            PipelineError::Budget { message: error.message().to_owned(), place: Box::new(place) }
        })
    }
}
