//! Python's methods on texts, lists and dictionaries: the published set, and those it lacks or has otherwise.

use minijinja::value::{Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::python;

/// Calls a method of a value that Jinja itself does not know.
pub(super) fn call(
    state: &State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => on_text(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq => on_list(value, method, args)?,
        ValueKind::Map => on_dictionary(value, method, args)?,
        _ => None,
    };
    own.map_or_else(|| pycompat::unknown_method_callback(state, value, method, args), Ok)
}

fn on_text(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let value = match method {
        // Python's tests are false of an empty text.
        "isalnum" | "isalpha" | "isdigit" | "isnumeric" | "isspace" if text.is_empty() => false.into(),
        "islower" => is_cased(text, char::is_lowercase).into(),
        "isupper" => is_cased(text, char::is_uppercase).into(),
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let items =
                items.try_iter()?.map(|item| python::to_string(&item)).collect::<Result<Vec<_>, _>>()?;
            items.join(text).into()
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "partition" | "rpartition" => partition(text, method, args)?,
        "rsplit" => rsplit(text, args)?,
        "find" | "rfind" | "index" | "rindex" => find(text, method, args)?,
        "casefold" => text.to_lowercase().into(),
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// Whether all letters that have a case have this one, and there is one.
fn is_cased(text: &str, has_case: fn(char) -> bool) -> bool {
    let mut cased = text.chars().filter(|c| c.is_lowercase() || c.is_uppercase()).peekable();
    cased.peek().is_some() && cased.all(has_case)
}

fn partition(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    let parts = if method == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
    let parts = match (parts, method) {
        (Some((before, after)), _) => [before, separator, after],
        (None, "partition") => [text, "", ""],
        (None, _) => ["", "", text],
    };
    Ok(parts.into_iter().collect())
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
    let most =
        most.and_then(|most| usize::try_from(most).ok()).map_or(usize::MAX, |most| most.saturating_add(1));
    let parts: Vec<&str> = match separator {
        Some(separator) => text.rsplitn(most, separator).collect(),
        None => split_words_from_end(text, most),
    };
    Ok(parts.into_iter().rev().collect())
}

/// At most `most` pieces between runs of whitespace, from the end; the last piece is what remains.
fn split_words_from_end(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() && parts.len() + 1 < most {
        let word = rest.rsplit(char::is_whitespace).next().unwrap_or(rest);
        parts.push(word);
        rest = rest[..rest.len() - word.len()].trim_end();
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

/// Where a text first or last occurs, in characters; `find` gives -1 and `index` fails when it does not.
fn find(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (what,): (&str,) = from_args(args)?;
    let found = if method.starts_with('r') { text.rfind(what) } else { text.find(what) };
    match found {
        Some(offset) => Ok(Value::from(text[..offset].chars().count())),
        None if method.ends_with("find") => Ok(Value::from(-1)),
        None => Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
    }
}

fn on_list(list: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            let at = list.try_iter()?.position(|item| item == *what);
            let missing = || Error::new(ErrorKind::InvalidOperation, "value is not in the list");
            at.map(|at| Some(Value::from(at))).ok_or_else(missing)
        }
        "copy" => Ok(Some(list.clone())),
        _ => Ok(None),
    }
}

fn on_dictionary(dictionary: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    if method != "copy" {
        return Ok(None);
    }
    let () = from_args(args)?;
    Ok(Some(dictionary.clone()))
}
