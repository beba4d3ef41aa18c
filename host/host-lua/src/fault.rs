//! Errors on their way from a host function through Lua to the host, and the places they point at.

use host_core::Place;
use host_graph::BuildError;
use host_plugins::{FieldProblem, PluginError, StepRefusal, clip};
use mlua::{Error, Lua};

use crate::library;
use crate::script::{CHUNK_ROOT, Script};

/// What a host function raises in Lua. A script may catch it; if it does not, the host knows it again.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Raised {
    /// A refused builder call.
    #[error("{0}")]
    Build(BuildError, Option<Place>),
    /// A refused call on a step.
    #[error("{0}")]
    Step(StepRefusal, Option<Place>),
    /// Config values that cannot be read.
    #[error("{}", told(.0))]
    InvalidConfig(Vec<FieldProblem>, Option<Place>),
    /// Config values that are not offered.
    #[error("{}", told(.0))]
    Unsupported(Vec<FieldProblem>, Option<Place>),
    /// A host function called with arguments that do not fit.
    #[error("{0}")]
    Argument(String, Option<Place>),
    /// The time is over.
    #[error("the time budget is spent")]
    Time,
    /// More calls on a step than granted.
    #[error("the calls of the step are spent")]
    Calls,
    /// Too much log text.
    #[error("the log budget is spent")]
    Log,
}

fn told(fields: &[FieldProblem]) -> String {
    let told =
        |field: &FieldProblem| format!("{}: expected {}, found {}", field.path, field.expected, field.found);
    fields.iter().map(told).collect::<Vec<_>>().join("; ")
}

impl Raised {
    pub(crate) fn into_lua(self) -> Error {
        Error::external(self)
    }
}

/// How many frames may lie between a host function and the script's own line: the prelude's.
const DEPTH: usize = 16;

/// The script's line that called the host function now running, perhaps through the prelude.
pub(crate) fn calling_place(lua: &Lua) -> Option<Place> {
    let at = |level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let file = source.short_src.map(|name| name.into_owned());
            file.filter(|name| name.starts_with(CHUNK_ROOT)).zip(frame.current_line())
        })
    };
    let (file, line) = (0..DEPTH).find_map(|level| at(level).flatten())?;
    Some(Place { file, line: Some(line as u32), column: None, excerpt: None, width: 0 })
}

/// Turns what ended a script into the host's error.
pub(crate) fn plugin_error(error: &Error, script: &Script, hook: &'static str) -> PluginError {
    let (plugin, budget) = (script.name.clone(), &script.budget);
    if let Some(raised) = error.downcast_ref::<Raised>() {
        return from_raised(raised.clone(), script, hook);
    }
    match root(error) {
        Error::MemoryError(_) => PluginError::Memory { plugin, hook, budget_bytes: budget.memory_bytes },
        // The compiler does not know the chunk's name: `:line: message`.
        Error::SyntaxError { message, .. } => {
            let message = message.trim_start_matches(':');
            let (place, message) = split_place(&format!("{}:{message}", script.chunk_name()), script);
            PluginError::Syntax { plugin, message, place }
        }
        other => {
            let (place, message) = split_place(&clip(other.to_string()), script);
            let is_address = message.contains(": 0x");
            let message = if is_address { "raised a value that is not a string".to_owned() } else { message };
            PluginError::Script { plugin, hook, message, place }
        }
    }
}

fn from_raised(raised: Raised, script: &Script, hook: &'static str) -> PluginError {
    let (plugin, budget) = (script.name.clone(), &script.budget);
    match raised {
        Raised::Build(error, place) => {
            PluginError::Build { plugin, hook, place: script.excerpt(place), error: Box::new(error) }
        }
        Raised::InvalidConfig(fields, place) => {
            PluginError::InvalidConfig { plugin, fields, place: script.excerpt(place) }
        }
        Raised::Unsupported(fields, place) => {
            PluginError::Unsupported { plugin, fields, place: script.excerpt(place) }
        }
        Raised::Argument(message, place) => {
            PluginError::Script { plugin, hook, message, place: script.excerpt(place) }
        }
        Raised::Step(refusal, place) => {
            PluginError::Step { plugin, hook, place: script.excerpt(place), error: Box::new(refusal) }
        }
        Raised::Time => PluginError::Time { plugin, hook, budget_ms: budget.time_ms(hook) },
        Raised::Calls => {
            PluginError::Output { plugin, hook, what: "calls in a step", limit: budget.step.calls }
        }
        Raised::Log => {
            PluginError::Output { plugin, hook, what: "bytes of log text", limit: budget.log_bytes }
        }
    }
}

/// The error below the wrapping that mlua puts around what passes through callbacks.
fn root(error: &Error) -> &Error {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => root(cause),
        other => other,
    }
}

/// Luau's messages read `file:line: message`, followed by a stack trace.
fn split_place(text: &str, script: &Script) -> (Option<Box<Place>>, String) {
    let (text, trace) = text.split_once("\nstack traceback:").unwrap_or((text, ""));
    let text = text.strip_prefix("syntax error: ").or(text.strip_prefix("runtime error: ")).unwrap_or(text);
    let parsed = match line_of(text, library::CHUNK) {
        // A library function that was replaced: the script's line is below it.
        Some((_, message)) => {
            let line = trace.lines().find_map(|frame| line_of(frame.trim(), script.chunk_name()));
            let Some((line, _)) = line else { return (None, message.trim().to_owned()) };
            Some((line, message))
        }
        None => line_of(text, script.chunk_name()),
    };
    let Some((line, message)) = parsed else { return (None, text.trim().to_owned()) };
    let place = Place {
        file: script.chunk_name().to_owned(),
        line: Some(line),
        column: None,
        excerpt: None,
        width: 0,
    };
    (script.excerpt(Some(place)), message.trim().to_owned())
}

/// The line and the rest of `chunk:line: rest` or `chunk:line rest`.
fn line_of<'a>(text: &'a str, chunk: &str) -> Option<(u32, &'a str)> {
    let rest = text.strip_prefix(chunk)?.strip_prefix(':')?;
    let n_digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (line, rest) = rest.split_at(n_digits);
    Some((line.parse().ok()?, rest.strip_prefix(':').unwrap_or(rest)))
}
