//! Values as Python writes them: `str`, `repr` and `json.dumps`.
//!
//! Templates are written for Python, and their text reaches the model: `True` for `true` is another prompt.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// `str(value)`.
pub(super) fn to_string(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => {
            let mut text = String::new();
            write_repr(value, &mut text)?;
            Ok(text)
        }
    }
}

/// `repr(value)`; an undefined value is empty, as Jinja prints it.
fn write_repr(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(value, out),
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => write_list(value, out)?,
        ValueKind::Map => write_map(value, out)?,
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn write_list(value: &Value, out: &mut String) -> Result<(), Error> {
    out.push('[');
    for (i, item) in value.try_iter()?.enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write_repr(&item, out)?;
    }
    out.push(']');
    Ok(())
}

fn write_map(value: &Value, out: &mut String) -> Result<(), Error> {
    out.push('{');
    for (i, key) in value.try_iter()?.enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write_repr(&key, out)?;
        out.push_str(": ");
        write_repr(&value.get_item(&key)?, out)?;
    }
    out.push('}');
    Ok(())
}

/// A text in quotes: single ones, unless it has a single and no double one.
fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c @ ('\0'..='\x1f' | '\x7f'..='\u{a0}' | '\u{ad}') => {
                out.push_str(&format!("\\x{:02x}", c as u32))
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn write_number(value: &Value, out: &mut String) {
    match f64::try_from(value.clone()) {
        Ok(number) if !value.is_integer() => out.push_str(&float(number)),
        _ => out.push_str(&value.to_string()),
    }
}

/// `repr` of a float: the shortest digits that give it back, with an exponent from 1e16 up and below 1e-4.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse().unwrap_or(0) {
        -4..16 => format!("{number:?}"),
        exponent => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, i32::abs(exponent)),
    }
}

/// How `json.dumps` writes.
#[derive(Clone, Debug)]
pub(super) struct JsonStyle {
    pub(super) ensure_ascii: bool,
    /// What one level of nesting is indented by; `None` writes one line.
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) sort_keys: bool,
}

impl JsonStyle {
    /// `json.dumps(value)`.
    ///
    /// # Errors
    /// A value that JSON cannot say.
    pub(super) fn write(&self, value: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.value(value, 0, &mut out)?;
        Ok(out)
    }

    fn value(&self, value: &Value, level: usize, out: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value, out),
            ValueKind::String => self.text(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, level, out)?,
            ValueKind::Map => self.map(value, level, out)?,
            kind => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("{kind} value is not JSON serializable"),
                ));
            }
        }
        Ok(())
    }

    fn number(&self, value: &Value, out: &mut String) {
        let mut text = String::new();
        write_number(value, &mut text);
        out.push_str(match &text[..] {
            "nan" => "NaN",
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            number => number,
        });
    }

    fn list(&self, value: &Value, level: usize, out: &mut String) -> Result<(), Error> {
        out.push('[');
        let mut is_empty = true;
        for item in value.try_iter()? {
            self.separate(is_empty, level + 1, out);
            is_empty = false;
            self.value(&item, level + 1, out)?;
        }
        self.close(is_empty, level, ']', out);
        Ok(())
    }

    fn map(&self, value: &Value, level: usize, out: &mut String) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        out.push('{');
        for (i, key) in keys.iter().enumerate() {
            self.separate(i == 0, level + 1, out);
            self.text(&json_key(key)?, out);
            out.push_str(&self.key_separator);
            self.value(&value.get_item(key)?, level + 1, out)?;
        }
        self.close(keys.is_empty(), level, '}', out);
        Ok(())
    }

    fn separate(&self, is_first: bool, level: usize, out: &mut String) {
        if !is_first {
            out.push_str(&self.item_separator);
        }
        self.new_line(level, out);
    }

    fn close(&self, is_empty: bool, level: usize, bracket: char, out: &mut String) {
        if !is_empty {
            self.new_line(level, out);
        }
        out.push(bracket);
    }

    fn new_line(&self, level: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(level));
        }
    }

    fn text(&self, text: &str, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                c if c < ' '
                    || (self.ensure_ascii && !c.is_ascii())
                    || (self.ensure_ascii && c == '\x7f') =>
                {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// A dictionary's key as JSON has it: always a text.
fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        _ => to_string(key),
    }
}
