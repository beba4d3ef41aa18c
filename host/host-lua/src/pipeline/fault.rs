//! What ended a script, as the host's error.

use host_core::{Place, Report};
use host_plugins::clip;
use host_plugins::pipeline::{PipelineError, PipelineSource};
use mlua::{Error, Lua, Table, Value};

/// Raised in Lua when a run is over: the reason stands with the host.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the run is over")]
pub(super) struct Over;

impl Over {
    pub(super) fn into_lua(self) -> Error {
        Error::external(self)
    }
}

/// What Luau raises when an allocation is refused.
const NO_MEMORY: &str = "not enough memory";

/// Whether a caught value is Luau's or mlua's word for a refused allocation.
pub(super) fn is_memory(value: &Value) -> bool {
    match value {
        Value::String(text) => text.as_bytes() == NO_MEMORY.as_bytes(),
        Value::Error(error) => is_memory_error(error),
        _ => false,
    }
}

pub(super) fn is_memory_error(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => is_memory_error(cause),
        Error::RuntimeError(message) => message.starts_with(NO_MEMORY),
        _ => false,
    }
}

/// A source that does not compile. The compiler does not know the chunk's name: `:line: message`.
pub(super) fn syntax(error: &Error, name: &str, source: &PipelineSource) -> PipelineError {
    let text = match error {
        Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    let (place, message) = split_place(&format!("{name}:{}", text.trim_start_matches(':')), source);
    PipelineError::Syntax { message, place }
}

/// An error value that ended a task; `place` is `file:line` where a table was raised.
pub(super) fn script_error(value: &Value, place: Option<&str>, source: &PipelineSource) -> PipelineError {
    let place = place.and_then(|text| split_place(&format!("{text}: "), source).0);
    match value {
        Value::Table(table) => of_table(table, place),
        Value::String(text) => {
            let (place, message) = split_place(&clip(text.to_string_lossy()), source);
            PipelineError::Script { message, place }
        }
        Value::Error(error) => {
            let (place, message) = split_place(&clip(error.to_string()), source);
            PipelineError::Script { message, place }
        }
        other => {
            let message = format!("raised a {}, expected a string or a table with `code`", other.type_name());
            PipelineError::Script { message, place }
        }
    }
}

/// Codes that this host gives; a script's own code stands in the message.
fn of_table(table: &Table, place: Option<Box<Place>>) -> PipelineError {
    let text = |key: &str| match table.raw_get::<Value>(key) {
        Ok(Value::String(text)) => Some(clip(text.to_string_lossy())),
        _ => None,
    };
    let message = text("message").unwrap_or_default();
    match text("code") {
        None => PipelineError::Script {
            message: "raised a table without `code`, expected a string or a table with `code`".to_owned(),
            place,
        },
        Some(raised) => PipelineError::Raised { raised, message, place },
    }
}

/// A failure that a script may catch: `{ code, message, expected, found, mend }`.
pub(super) fn failure(lua: &Lua, report: &Report) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("code", report.code)?;
    table.raw_set("message", report.message.as_str())?;
    let parts = [("expected", &report.expected), ("found", &report.found), ("mend", &report.mend)];
    for (key, part) in parts {
        if let Some(text) = part {
            table.raw_set(key, text.as_str())?;
        }
    }
    Ok(table)
}

/// Luau's messages read `file:line: message`.
fn split_place(text: &str, source: &PipelineSource) -> (Option<Box<Place>>, String) {
    let text = text.split("\nstack traceback:").next().unwrap_or(text);
    let text = text.strip_prefix("syntax error: ").or(text.strip_prefix("runtime error: ")).unwrap_or(text);
    let parsed = text.split_once(':').and_then(|(name, rest)| {
        let (line, message) = rest.split_once(':')?;
        Some((source.place(name, line.parse().ok()?)?, message))
    });
    match parsed {
        Some((place, message)) => (Some(place), message.trim().to_owned()),
        None => (None, text.trim().to_owned()),
    }
}

/// How many frames may lie between a host function and the script's own line: the prelude's.
const DEPTH: usize = 16;

/// `file:line` of the script's innermost frame.
pub(super) fn calling_place(lua: &Lua, source: &PipelineSource) -> Option<String> {
    let at = |level| {
        lua.inspect_stack(level, |frame| {
            let name = frame.source().short_src.map(|name| name.into_owned());
            name.filter(|name| source.has_script(name)).zip(frame.current_line())
        })
    };
    let (file, line) = (0..DEPTH).find_map(|level| at(level).flatten())?;
    Some(format!("{file}:{line}"))
}
