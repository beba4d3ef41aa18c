//! How values are printed, and the filters that differ from Jinja's defaults.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind, Output, State};

use super::python::{self, JsonStyle};

/// Prints the value of `{{ … }}` as Python does.
pub(super) fn format(out: &mut Output<'_>, _: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&python::to_string(value)?),
    };
    written.map_err(Error::from)
}

/// `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(value: &Value, ensure_ascii: Option<bool>, options: Kwargs) -> Result<String, Error> {
    let named: Option<bool> = options.get("ensure_ascii")?;
    let indent = options.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none());
    let indent = indent.as_ref().map(indentation).transpose()?;
    let separators = options.get::<Option<Value>>("separators")?.filter(|pair| !pair.is_none());
    let (item_separator, key_separator) = match &separators {
        Some(pair) => (separator(pair, 0)?, separator(pair, 1)?),
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let style = JsonStyle {
        ensure_ascii: named.or(ensure_ascii).unwrap_or(false),
        indent,
        item_separator,
        key_separator,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    style.write(value)
}

/// What one level is indented by: so many spaces, or a text.
fn indentation(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.to_owned());
    }
    match indent.as_i64() {
        Some(spaces @ ..=64) => Ok(" ".repeat(usize::try_from(spaces).unwrap_or(0))),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "indent must be a text or at most 64 spaces")),
    }
}

fn separator(pair: &Value, index: usize) -> Result<String, Error> {
    let separator = pair.get_item_by_index(index)?;
    separator
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "separators must be a pair of texts"))
}

/// `str(value).strip(characters)`.
pub(super) fn trim(value: &Value, characters: Option<&str>) -> Result<String, Error> {
    let text = python::to_string(value)?;
    Ok(match characters {
        Some(characters) => text.trim_matches(|character| characters.contains(character)).to_owned(),
        None => text.trim().to_owned(),
    })
}

/// `separator.join(items)`, or of an attribute of each item.
pub(super) fn join(items: &Value, separator: Option<&str>, options: Kwargs) -> Result<String, Error> {
    let attribute: Option<&str> = options.get("attribute")?;
    options.assert_all_used()?;
    let mut joined = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        if i > 0 {
            joined.push_str(separator.unwrap_or_default());
        }
        let item = attribute.map_or(Ok(item.clone()), |name| item.get_attr(name))?;
        joined.push_str(&python::to_string(&item)?);
    }
    Ok(joined)
}
