//! The arguments of pipeline calls, read strictly from their JSON form.

use host_core::Report;
use host_plugins::pipeline::{GenerateOptions, Item, Prompt, SessionForm, SessionOptions, Turn};
use host_sampling::{GrammarSpec, Whitespace};
use serde_json::{Map, Value};

/// What a call may refuse.
pub(super) type Answer<T> = Result<T, Report>;

/// An argument that does not fit.
pub(super) fn refused(name: &str, expected: &str, found: &Value) -> Report {
    let found = shown(found);
    Report::new("pipeline.argument", format!("`{name}` is {found}, expected {expected}"))
        .expected(expected)
        .found(found)
}

/// A value as an error shows it, short.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a table".to_owned(),
        other => {
            let text = other.to_string();
            text.char_indices().nth(40).map_or_else(|| text.clone(), |(end, _)| format!("{}…", &text[..end]))
        }
    }
}

/// A string is text as it is, a list of messages a conversation.
pub(super) fn prompt(value: Value) -> Answer<Prompt> {
    match value {
        Value::String(text) => Ok(Prompt::Text(text)),
        other => turns("prompt", other).map(Prompt::Chat),
    }
}

/// A list of messages.
pub(super) fn turns(name: &str, value: Value) -> Answer<Vec<Turn>> {
    match value {
        Value::Array(items) => items.into_iter().map(turn).collect(),
        other => Err(refused(name, "a string or a list of messages { role, content }", &other)),
    }
}

/// `{ role, content }`.
fn turn(value: Value) -> Answer<Turn> {
    let expected = "a message { role = string, content = string }";
    let Value::Object(mut object) = value else { return Err(refused("message", expected, &value)) };
    let (role, content) = (object.remove("role"), object.remove("content"));
    match (role, content, object.is_empty()) {
        (Some(Value::String(role)), Some(Value::String(content)), true) => Ok(Turn { role, content }),
        (_, _, false) => {
            let extra = object.keys().next().cloned().unwrap_or_default();
            Err(unknown("message", &extra, &["role", "content"]))
        }
        _ => Err(refused("message", expected, &Value::Object(object))),
    }
}

/// What is appended to a session.
pub(super) fn item(value: Value) -> Answer<Item> {
    match value {
        Value::String(text) => Ok(Item::Text(text)),
        other => turn(other).map(Item::Turn),
    }
}

/// `{ form = "chat" | "text", policy = {…} }`, chat where nothing is given.
pub(super) fn session(value: Value) -> Answer<SessionOptions> {
    let mut object = table("options", value)?;
    let form = object.remove("form");
    let policy = policy(&mut object)?;
    only(&object, "session", &["form", "policy"])?;
    let form = match form.as_ref().map(|form| form.as_str()) {
        None | Some(Some("chat")) => SessionForm::Chat,
        Some(Some("text")) => SessionForm::Text,
        Some(_) => return Err(refused("form", "\"chat\" or \"text\"", &form.unwrap_or_default())),
    };
    Ok(SessionOptions { form, policy })
}

pub(super) const GENERATE: [&str; 10] = [
    "max_tokens",
    "seed",
    "stop",
    "sampling",
    "chain",
    "policy",
    "json_schema",
    "regex",
    "grammar",
    "on_text",
];

/// The options of a generation.
pub(super) fn generate(value: Value) -> Answer<GenerateOptions> {
    let mut object = table("options", value)?;
    let max_tokens = match object.remove("max_tokens") {
        None => None,
        Some(value) => Some(whole("max_tokens", &value)? as usize),
    };
    let seed = object.remove("seed").map(|value| whole("seed", &value)).transpose()?;
    let stop = object.remove("stop").map(strings).transpose()?.unwrap_or_default();
    let sampling = match object.remove("sampling") {
        None => Map::new(),
        Some(value) => table("sampling", value)?,
    };
    let chain = object.remove("chain");
    let policy = policy(&mut object)?;
    let constraint = constraint(&mut object)?;
    only(&object, "generate", &GENERATE)?;
    if chain.is_some() && !sampling.is_empty() {
        let message = "`sampling` and `chain` are given, expected one of them";
        return Err(Report::new("pipeline.argument", message));
    }
    Ok(GenerateOptions { max_tokens, seed, stop, sampling, chain, policy, constraint })
}

/// A policy as a profile writes it; the host reads it.
fn policy(object: &mut Map<String, Value>) -> Answer<Option<Map<String, Value>>> {
    match object.remove("policy") {
        None => Ok(None),
        Some(Value::Object(policy)) => Ok(Some(policy)),
        Some(other) => {
            Err(refused("policy", "a table { plugin = ID, version = RANGE, params = {…} }", &other))
        }
    }
}

/// One of `json_schema`, `regex` and `grammar`.
fn constraint(object: &mut Map<String, Value>) -> Answer<Option<GrammarSpec>> {
    let given =
        ["json_schema", "regex", "grammar"].map(|name| object.remove(name).map(|value| (name, value)));
    let mut given = given.into_iter().flatten();
    let Some((name, value)) = given.next() else { return Ok(None) };
    if let Some((other, _)) = given.next() {
        let message = format!("`{name}` and `{other}` are given, expected one of them");
        return Err(Report::new("pipeline.argument", message));
    }
    let whitespace = Whitespace::None;
    Ok(Some(match (name, value) {
        ("json_schema", Value::String(schema)) => GrammarSpec::JsonSchema { schema, whitespace },
        ("json_schema", value @ Value::Object(_)) => {
            GrammarSpec::JsonSchema { schema: value.to_string(), whitespace }
        }
        ("json_schema", other) => return Err(refused(name, "a table, or a schema's text", &other)),
        ("regex", value) => GrammarSpec::Regex(text(name, value)?),
        (_, value) => GrammarSpec::Lark(text(name, value)?),
    }))
}

fn strings(value: Value) -> Answer<Vec<String>> {
    let expected = "a string or a list of strings";
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Ok(text),
                other => Err(refused("stop", expected, &other)),
            })
            .collect(),
        Value::Object(object) if object.is_empty() => Ok(Vec::new()),
        other => Err(refused("stop", expected, &other)),
    }
}

/// A whole number of at least 0.
pub(super) fn whole(name: &str, value: &Value) -> Answer<u64> {
    value.as_u64().ok_or_else(|| refused(name, "a whole number of at least 0", value))
}

/// A string.
pub(super) fn text(name: &str, value: Value) -> Answer<String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(refused(name, "a string", &other)),
    }
}

fn table(name: &str, value: Value) -> Answer<Map<String, Value>> {
    match value {
        Value::Null => Ok(Map::new()),
        Value::Object(object) => Ok(object),
        other => Err(refused(name, "a table", &other)),
    }
}

fn only(rest: &Map<String, Value>, function: &str, known: &[&str]) -> Answer<()> {
    match rest.keys().next() {
        Some(key) => Err(unknown(function, key, known)),
        None => Ok(()),
    }
}

fn unknown(function: &str, key: &str, known: &[&str]) -> Report {
    let message = format!("{function}: there is no option `{key}`");
    Report::new("pipeline.argument", message).expected(known.join(", ")).found(key)
}
