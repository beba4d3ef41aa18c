//! Which JSON schemas are taken: every keyword that asks for something must be one that masks enforce.
//!
//! What a keyword means where it stands alone is not repeated here; this only keeps anything from being passed over
//! in silence.

use serde_json::Value;

use super::error::ConstraintError;

/// Keywords that masks enforce.
const ENFORCED: [&str; 27] = [
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "const",
    "enum",
    "type",
    "items",
    "additionalItems",
    "prefixItems",
    "minItems",
    "maxItems",
    "properties",
    "additionalProperties",
    "patternProperties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// Keywords that ask nothing of a value.
const ANNOTATIONS: [&str; 11] = [
    "$defs",
    "definitions",
    "$schema",
    "$comment",
    "title",
    "description",
    "default",
    "readOnly",
    "writeOnly",
    "examples",
    "deprecated",
];

/// Keywords whose value is one schema, a list of them, and a table of them.
const ONE: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
const LISTS: [&str; 5] = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];
const TABLES: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Goes through every schema within `schema`.
///
/// # Errors
/// [`ConstraintError::UnsupportedSchema`] names the first keyword that is neither enforced nor an annotation.
pub(super) fn check(schema: &Value, at: &str) -> Result<(), ConstraintError> {
    let Value::Object(object) = schema else { return Ok(()) };
    for (keyword, value) in object {
        let name = keyword.as_str();
        let here = format!("{at}/{}", keyword.replace('~', "~0").replace('/', "~1"));
        if !ENFORCED.contains(&name) && !ANNOTATIONS.contains(&name) {
            let (construct, detail) = (keyword.clone(), String::new());
            return Err(ConstraintError::UnsupportedSchema { construct, at: here, detail });
        }
        if name == "$ref" && !value.as_str().is_some_and(|target| target.starts_with('#')) {
            let detail = "only references within the schema are followed".to_owned();
            return Err(ConstraintError::UnsupportedSchema { construct: keyword.clone(), at: here, detail });
        }
        match value {
            Value::Object(_) if ONE.contains(&name) => check(value, &here)?,
            Value::Array(list) if LISTS.contains(&name) => {
                list.iter().enumerate().try_for_each(|(i, part)| check(part, &format!("{here}/{i}")))?;
            }
            Value::Object(table) if TABLES.contains(&name) => {
                table.iter().try_for_each(|(key, part)| check(part, &format!("{here}/{key}")))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// What the compiler's error says of a schema whose keywords are all known.
pub(super) fn error(message: &str) -> ConstraintError {
    let detail = message.lines().next().unwrap_or_default().to_owned();
    if message.contains("Unsatisfiable") {
        return ConstraintError::Unsatisfiable { detail };
    }
    // The first keyword that the message speaks of.
    let mut words = message.split(|c: char| !c.is_ascii_alphanumeric() && c != '$');
    let named = words.find(|word| ENFORCED.contains(word));
    let named = named.or(message.contains("regex").then_some("pattern"));
    let construct = named.map_or_else(|| detail.clone(), str::to_owned);
    ConstraintError::UnsupportedSchema { construct, at: String::new(), detail }
}
