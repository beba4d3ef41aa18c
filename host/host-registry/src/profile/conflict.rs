//! Lines of `[match]` that cannot hold together. A profile that has them would fit nothing, and say so only by never
//! being chosen; with `extends` one of the two may stand in another file.

use serde_json::Value;

use super::predicate::{Match, Predicate, same};

/// A line that another one makes impossible, or that is impossible by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The line.
    pub(crate) key: String,
    /// The other one; the same key where the line contradicts itself.
    pub(crate) other: String,
    /// What the other one asks.
    pub(crate) because: String,
}

/// Every conflict, in the file's order.
pub(crate) fn conflicts(lines: &Match) -> Vec<Conflict> {
    let mut found = Vec::new();
    for (key, predicate) in &lines.0 {
        if let Some(because) = contradicts_itself(predicate) {
            found.push(Conflict { key: key.clone(), other: key.clone(), because });
        }
        for (other, of_other) in &lines.0 {
            let Some(inner) = key.strip_prefix(other.as_str()).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            if is_required(predicate)
                && let Some(because) = has_no_key(of_other, inner)
            {
                found.push(Conflict { key: key.clone(), other: other.clone(), because });
            }
        }
    }
    found
}

fn is_required(predicate: &Predicate) -> bool {
    !predicate.optional && predicate.present != Some(false)
}

/// Why a value for which the line holds cannot have the key.
fn has_no_key(line: &Predicate, inner: &str) -> Option<String> {
    let first = inner.split('.').next().unwrap_or(inner);
    if line.present == Some(false) {
        return Some("absent".to_owned());
    }
    let is_no_object = line.equals.is_some()
        || line.one_of.is_some()
        || line.contains.is_some()
        || line.min.is_some()
        || line.max.is_some();
    let lacks = line.keys.as_ref().is_some_and(|keys| !line.modules && !keys.iter().any(|key| key == first));
    (is_no_object || lacks).then(|| line.to_string())
}

/// Why no value can meet all conditions of one line.
fn contradicts_itself(line: &Predicate) -> Option<String> {
    let within = |value: &Value| {
        let number = value.as_f64();
        let above = line.min.is_none_or(|min| number.is_some_and(|number| number >= min));
        let below = line.max.is_none_or(|max| number.is_some_and(|number| number <= max));
        above && below
    };
    let listed =
        |value: &Value| line.one_of.as_ref().is_none_or(|values| values.iter().any(|one| same(one, value)));
    let contains = |value: &Value| {
        let list = value.as_array();
        line.contains.as_ref().is_none_or(|wanted| {
            list.is_some_and(|list| wanted.iter().all(|one| list.iter().any(|held| same(one, held))))
        })
    };
    let possible = |value: &Value| within(value) && listed(value) && contains(value);
    let holds = match (&line.equals, &line.one_of) {
        (Some(value), _) => possible(value),
        (None, Some(values)) => values.iter().any(possible),
        (None, None) => true,
    };
    let is_value = line.equals.is_some() || line.one_of.is_some() || line.min.is_some() || line.max.is_some();
    let two_kinds = (line.keys.is_some() && (is_value || line.contains.is_some()))
        || (line.contains.is_some() && (line.min.is_some() || line.max.is_some()));
    (!holds || two_kinds).then(|| line.to_string())
}
