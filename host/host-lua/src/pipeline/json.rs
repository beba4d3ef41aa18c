//! Lua values as JSON and back.
//!
//! A table with the array's metatable or with the keys 1 to n is an array, one with string keys an object; an
//! empty table is an object. Numbers without a fraction below 2^53 are written as whole numbers.

use mlua::{Lua, Result, Table, Value};
use serde_json::{Map, Number};

/// Deeper values are taken for cycles.
const DEPTH: usize = 64;
/// Above this a double skips whole numbers.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// A Lua value as JSON; else what about it does not fit.
pub(super) fn from_lua(value: &Value, array: &Table) -> std::result::Result<serde_json::Value, String> {
    read(value, array, 0)
}

fn read(value: &Value, array: &Table, depth: usize) -> std::result::Result<serde_json::Value, String> {
    match value {
        Value::Nil => Ok(serde_json::Value::Null),
        value if *value == Value::NULL => Ok(serde_json::Value::Null),
        Value::Boolean(truth) => Ok((*truth).into()),
        Value::Integer(n) => Ok((*n).into()),
        Value::Number(n) if n.fract() == 0.0 && n.abs() < WHOLE => Ok((*n as i64).into()),
        Value::Number(n) => Number::from_f64(*n).map(serde_json::Value::Number).ok_or_else(|| n.to_string()),
        Value::String(text) => text
            .to_str()
            .map(|text| text.to_owned().into())
            .map_err(|_| "a string that is not UTF-8".to_owned()),
        Value::Table(table) if depth < DEPTH => read_table(table, array, depth + 1),
        Value::Table(_) => Err(format!("tables more than {DEPTH} deep, or a cycle")),
        other => Err(format!("a {}", other.type_name())),
    }
}

fn read_table(table: &Table, array: &Table, depth: usize) -> std::result::Result<serde_json::Value, String> {
    let n_items = table.raw_len();
    let is_array = n_items > 0 || table.metatable().is_some_and(|found| found == *array);
    let mut items = Vec::with_capacity(n_items);
    for i in 1..=if is_array { n_items } else { 0 } {
        let item: Value = table.raw_get(i).map_err(|error| error.to_string())?;
        items.push(read(&item, array, depth)?);
    }
    let mut object = Map::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        match key {
            Value::String(_) if is_array => return Err("a table with both a list and names".to_owned()),
            Value::String(key) => {
                let key = key.to_str().map_err(|_| "a name that is not UTF-8".to_owned())?.to_owned();
                object.insert(key, read(&value, array, depth)?);
            }
            key if is_array && is_index(&key, n_items) => {}
            key => return Err(format!("a table with the key {}", shown(&key))),
        }
    }
    // Luau keeps no order; a reader of the output gets one.
    object.sort_keys();
    Ok(if is_array { items.into() } else { object.into() })
}

fn is_index(key: &Value, n_items: usize) -> bool {
    let number = match key {
        Value::Integer(n) => *n as f64,
        Value::Number(n) => *n,
        _ => return false,
    };
    number.fract() == 0.0 && number >= 1.0 && number <= n_items as f64
}

fn shown(key: &Value) -> String {
    match key {
        Value::Integer(n) => n.to_string(),
        Value::Number(n) => n.to_string(),
        other => format!("a {}", other.type_name()),
    }
}

/// JSON as a Lua value; arrays carry the metatable, so that they stay arrays when they are empty.
pub(super) fn to_lua(lua: &Lua, value: &serde_json::Value, array: &Table) -> Result<Value> {
    Ok(match value {
        serde_json::Value::Null => Value::NULL,
        serde_json::Value::Bool(truth) => Value::Boolean(*truth),
        serde_json::Value::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Value::String(lua.create_string(text)?),
        serde_json::Value::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (i, item) in items.iter().enumerate() {
                table.raw_set(i + 1, to_lua(lua, item, array)?)?;
            }
            table.set_metatable(Some(array.clone()))?;
            Value::Table(table)
        }
        serde_json::Value::Object(object) => {
            let table = lua.create_table_with_capacity(0, object.len())?;
            for (key, value) in object {
                table.raw_set(key.as_str(), to_lua(lua, value, array)?)?;
            }
            Value::Table(table)
        }
    })
}
