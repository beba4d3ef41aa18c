//! What the types of the schema cannot say: ranges, names, and conditions that contradict each other.

use serde_json::Value;

use super::{ByCase, GraphRef, Predicate, Profile, Quant, SamplingDefaults};
use crate::fingerprint::{ARTIFACT, ConfigFingerprint, FINGERPRINT};
use crate::tokenizer::{asked_by, known_keys};
use host_core::TokenizerKey;
use host_plugins::QuarantineRules;

/// Operating systems that a profile may name a device for.
const SYSTEMS: [&str; 2] = ["linux", "macos"];
/// Numeric profiles that it may name an element type for.
const NUMERICS: [&str; 2] = ["exact", "fast"];

/// A value that its type admits and its meaning does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueFault {
    /// The path of the key in the file.
    pub(crate) key: Vec<String>,
    /// What would do.
    pub(crate) expected: String,
    /// What is there.
    pub(crate) found: String,
}

/// Every fault of a profile.
pub(crate) fn faults(profile: &Profile) -> Vec<ValueFault> {
    let mut faults = Faults(Vec::new());
    faults.name(&["id"], &profile.id);
    faults.text(&["about"], &profile.about);
    faults.source(profile);
    faults.matching(profile);
    faults.compose(profile);
    faults.kv(profile);
    faults.sampling(profile);
    faults.serve(profile);
    faults.limits(profile);
    faults.budgets(profile);
    faults.0
}

struct Faults(Vec<ValueFault>);

impl Faults {
    fn add(&mut self, key: &[&str], expected: impl Into<String>, found: impl Into<String>) {
        let key = key.iter().map(|part| (*part).to_owned()).collect();
        self.0.push(ValueFault { key, expected: expected.into(), found: found.into() });
    }

    fn name(&mut self, key: &[&str], name: &str) {
        let byte_ok = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        let starts_ok = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !starts_ok || !name.bytes().all(byte_ok) {
            self.add(key, "a name of lower-case letters, digits, `.`, `-` and `_`", format!("{name:?}"));
        }
    }

    fn text(&mut self, key: &[&str], text: &str) {
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            self.add(key, "one line of text", format!("{text:?}"));
        }
    }

    fn at_least_one(&mut self, key: &[&str], number: usize) {
        if number == 0 {
            self.add(key, "at least 1", "0");
        }
    }

    fn source(&mut self, profile: &Profile) {
        let Some(source) = &profile.source else { return };
        self.text(&["source", "model"], &source.model);
        for file in source.sha256.keys().filter(|file| file.trim().is_empty()) {
            self.add(&["source", "sha256"], "a file name before each digest", format!("{file:?}"));
        }
    }

    fn matching(&mut self, profile: &Profile) {
        if profile.match_.0.is_empty() {
            self.add(&["match"], "at least one line, such as `model_type = \"llama\"`", "without lines");
        }
        for (key, predicate) in &profile.match_.0 {
            if key.split('.').any(str::is_empty) {
                let expected = "a key of config.json, parts joined by dots";
                self.add(&["match", key], expected, format!("{key:?}"));
            }
            if let Some((expected, found)) = predicate_fault(predicate) {
                self.add(&["match", key], expected, found);
            } else if let Some((expected, found)) = identity_fault(key, predicate) {
                self.add(&["match", key], expected, found);
            }
            match asked_by(key) {
                Some(None) => self.add(
                    &["match", key],
                    format!("one of {}", known_keys()),
                    "nothing that a tokenizer tells",
                ),
                Some(Some(asked)) => {
                    if let Some((expected, found)) = tokenizer_fault(asked, predicate) {
                        self.add(&["match", key], expected, found);
                    }
                }
                None => {}
            }
        }
        if profile.match_.keys().any(|key| key == ARTIFACT)
            && profile.match_.keys().all(|key| key != FINGERPRINT)
        {
            self.add(&["match", ARTIFACT], "`fingerprint` beside `artifact`", "`artifact` alone");
        }
    }

    fn compose(&mut self, profile: &Profile) {
        let compose = &profile.compose;
        match &compose.graph {
            GraphRef::Frozen(wanted) => self.name(&["compose", "graph", "frozen"], &wanted.frozen),
            GraphRef::Plugin(wanted) => {
                self.name(&["compose", "graph", "plugin"], &wanted.plugin);
                if let Some(runtime) = &wanted.runtime {
                    self.name(&["compose", "graph", "runtime"], runtime);
                }
            }
        }
        if compose.loader.0.is_empty() {
            self.add(&["compose", "loader"], "at least one name", "an empty list");
        }
        compose.loader.0.iter().for_each(|name| self.name(&["compose", "loader"], name));
        self.unique(&["compose", "loader"], &compose.loader.0);
        match &compose.quant {
            Quant::Named(name) => self.name(&["compose", "quant"], name),
            Quant::Scheme(id) => self.name(&["compose", "quant", "scheme"], id),
            Quant::Plugin(wanted) => {
                self.name(&["compose", "quant", "plugin"], &wanted.plugin);
                if let Some(runtime) = &wanted.runtime {
                    self.name(&["compose", "quant", "runtime"], runtime);
                }
            }
        }
        if let Some(implementation) = &compose.implementation {
            self.name(&["compose", "implementation"], &implementation.id);
        }
        self.name(&["compose", "loop"], &compose.loop_);
        self.by_case(&["compose", "device"], &compose.device, &SYSTEMS);
        profile.kernels.require.iter().for_each(|name| self.name(&["kernels", "require"], name));
        self.unique(&["kernels", "require"], &profile.kernels.require);
    }

    fn kv(&mut self, profile: &Profile) {
        self.name(&["kv", "kind"], &profile.kv.kind);
        self.by_case(&["kv", "dtype"], &profile.kv.dtype, &NUMERICS);
    }

    /// A name, or one for at least one of these cases.
    fn by_case(&mut self, path: &[&str], names: &ByCase, cases: &[&str; 2]) {
        let by = match names {
            ByCase::Any(name) => return self.name(path, name),
            ByCase::By(by) => by,
        };
        if by.is_empty() {
            self.add(path, format!("a name for `{}`, `{}` or both", cases[0], cases[1]), "an empty table");
        }
        for (case, name) in by {
            let path: Vec<&str> = path.iter().copied().chain([case.as_str()]).collect();
            if !cases.contains(&case.as_str()) {
                self.add(&path, format!("`{}` or `{}`", cases[0], cases[1]), format!("`{case}`"));
            }
            self.name(&path, name);
        }
    }

    fn sampling(&mut self, profile: &Profile) {
        // The seed has no range; it belongs to the request.
        let error = match &profile.sampling.defaults {
            SamplingDefaults::Flat(settings) => settings.check().err(),
            SamplingDefaults::Chain(samplers) => samplers.iter().find_map(|sampler| sampler.check().err()),
        };
        if let Some(error) = error {
            match error.sampler {
                None => self.add(&["sampling", error.name], error.expected, error.found),
                Some(sampler) => {
                    let found = format!("{} in `{}` of `{sampler}`", error.found, error.name);
                    self.add(&["sampling", "chain"], error.expected, found);
                }
            }
        }
    }

    fn serve(&mut self, profile: &Profile) {
        self.at_least_one(&["serve", "max_tokens"], profile.serve.max_tokens);
        if profile.serve.system.as_ref().is_some_and(|system| system.is_empty()) {
            self.add(&["serve", "system"], "a message, or no key", "an empty text");
        }
        if profile.serve.stop.iter().any(String::is_empty) {
            self.add(&["serve", "stop"], "texts of at least one character", "an empty text");
        }
        self.unique(&["serve", "stop"], &profile.serve.stop);
    }

    fn limits(&mut self, profile: &Profile) {
        let limits = &profile.limits;
        self.at_least_one(&["limits", "context_tokens"], limits.context_tokens.limit());
        self.at_least_one(&["limits", "max_sequences"], limits.max_sequences);
        self.at_least_one(&["limits", "max_step_tokens"], limits.max_step_tokens);
        // Each sequence appends at least one token in a step that decodes all of them.
        if limits.max_step_tokens < limits.max_sequences {
            let expected = format!("at least max_sequences, {}", limits.max_sequences);
            self.add(&["limits", "max_step_tokens"], &expected, limits.max_step_tokens.to_string());
        }
        if limits.memory_bytes.is_some_and(|bytes| bytes.0 == 0) {
            self.add(&["limits", "memory_bytes"], "at least 1 byte, or no key", "0");
        }
        if let Some(super::Threads::Count(0)) = limits.n_threads {
            self.add(&["limits", "n_threads"], "\"all\" or at least 1", "0");
        }
        if let Some(rules) = limits.quarantine {
            self.quarantine(rules);
        }
    }

    fn budgets(&mut self, profile: &Profile) {
        let named = profile.plugin_ids();
        for (id, budget) in &profile.plugins {
            if !named.contains(&id.as_str()) {
                let expected = format!("a plugin that the profile names: {}", named.join(", "));
                self.add(&["plugins", id], &expected, format!("`{id}`"));
            }
            for (key, most, number) in budget.out_of_range() {
                self.add(&["plugins", id, key], format!("1 to {most}"), number.to_string());
            }
        }
    }

    fn quarantine(&mut self, rules: QuarantineRules) {
        for (key, number) in rules.numbers() {
            self.at_least_one(&["limits", "quarantine", key], number as usize);
        }
        let QuarantineRules { first_backoff_s, longest_backoff_s, .. } = rules;
        if longest_backoff_s < first_backoff_s {
            let expected = format!("at least first_backoff_s, {first_backoff_s}");
            let key = ["limits", "quarantine", "longest_backoff_s"];
            self.add(&key, &expected, longest_backoff_s.to_string());
        }
    }

    fn unique(&mut self, key: &[&str], names: &[String]) {
        let twice = |(i, name): &(usize, &String)| names[..*i].contains(name);
        if let Some((_, name)) = names.iter().enumerate().find(twice) {
            self.add(key, "each name once", format!("{name:?} twice"));
        }
    }
}

/// What is wrong with one line of `[match]`: (expected, found).
fn predicate_fault(predicate: &Predicate) -> Option<(&'static str, String)> {
    let Predicate { equals, one_of, min, max, contains, present, keys, modules, optional } = predicate;
    let literals = equals.iter().chain(one_of.iter().flatten()).chain(contains.iter().flatten());
    let asks_of_value = !literals_absent(predicate) || min.is_some() || max.is_some() || keys.is_some();
    if let Some(value) = { literals }.find(|value| !is_literal(value)) {
        let found = if value.is_null() { "inf or nan".to_owned() } else { value.to_string() };
        return Some(("finite numbers, texts, truth values, or lists of them", found));
    }
    if min.is_some_and(|min| !min.is_finite()) || max.is_some_and(|max| !max.is_finite()) {
        return Some(("finite numbers for min and max", "inf or nan".to_owned()));
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Some(("min at most max", format!("min {min}, max {max}")));
    }
    if one_of.as_ref().is_some_and(Vec::is_empty) {
        return Some(("at least one value in `in`", "an empty list".to_owned()));
    }
    if contains.as_ref().is_some_and(Vec::is_empty) {
        return Some(("at least one value in `contains`", "an empty list".to_owned()));
    }
    if keys.as_ref().is_some_and(Vec::is_empty) {
        return Some(("at least one key in `keys`", "an empty list".to_owned()));
    }
    if *modules && keys.is_none() {
        return Some(("`keys` beside `modules`", "`modules` alone".to_owned()));
    }
    if present.is_some() && (*optional || (*present == Some(false) && asks_of_value)) {
        return Some(("`present` alone", "`present` beside conditions that it contradicts".to_owned()));
    }
    if present.is_none() && !asks_of_value {
        return Some(("at least one condition on the value", "without condition".to_owned()));
    }
    None
}

fn literals_absent(predicate: &Predicate) -> bool {
    predicate.equals.is_none() && predicate.one_of.is_none() && predicate.contains.is_none()
}

/// What is wrong with a line that is no key of the configuration: it takes texts of one form, and nothing else.
fn identity_fault(key: &str, predicate: &Predicate) -> Option<(&'static str, String)> {
    let (is_good, expected): (fn(&str) -> bool, _) = match key {
        FINGERPRINT => (|text| text.parse::<ConfigFingerprint>().is_ok(), "16 lower-case hexadecimal digits"),
        ARTIFACT => (is_artifact, "`hf:ORG/NAME@COMMIT`"),
        _ => return None,
    };
    let texts: Vec<&Value> = predicate.equals.iter().chain(predicate.one_of.iter().flatten()).collect();
    let bad = texts.iter().find(|value| !value.as_str().is_some_and(is_good));
    if let Some(bad) = bad {
        return Some((expected, bad.to_string()));
    }
    let only = Predicate {
        equals: predicate.equals.clone(),
        one_of: predicate.one_of.clone(),
        ..Predicate::default()
    };
    (texts.is_empty() || *predicate != only).then(|| (expected, predicate.to_string()))
}

/// What is wrong with a line on the tokenizer: each question has answers of one type.
fn tokenizer_fault(asked: TokenizerKey, predicate: &Predicate) -> Option<(&'static str, String)> {
    let (is_good, expected): (fn(&Value) -> bool, _) = match asked {
        TokenizerKey::Kind | TokenizerKey::Pre | TokenizerKey::Class => {
            (is_word, "a text, `in` with texts, or `present`")
        }
        TokenizerKey::NVocab => {
            (is_count, "a whole number from 1 on, `in` with some, `min`, `max` or `present`")
        }
        TokenizerKey::Digest => (is_digest, "64 lower-case hexadecimal digits, `in` with some, or `present`"),
    };
    let mut values = predicate.equals.iter().chain(predicate.one_of.iter().flatten());
    if let Some(bad) = values.find(|value| !is_good(value)) {
        return Some((expected, bad.to_string()));
    }
    let has_bounds = predicate.min.is_some() || predicate.max.is_some();
    let asks_of_parts = predicate.contains.is_some() || predicate.keys.is_some();
    let is_other = asks_of_parts || (has_bounds && asked != TokenizerKey::NVocab);
    is_other.then(|| (expected, predicate.to_string()))
}

fn is_word(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn is_count(value: &Value) -> bool {
    value.as_u64().is_some_and(|count| count > 0)
}

fn is_digest(value: &Value) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    value.as_str().is_some_and(|text| text.len() == 64 && text.bytes().all(is_hex))
}

fn is_artifact(text: &str) -> bool {
    let parts = text.strip_prefix("hf:").and_then(|rest| rest.split_once('@'));
    parts.is_some_and(|(name, commit)| {
        name.split_once('/').is_some_and(|(org, name)| !org.is_empty() && !name.is_empty())
            && (40..=64).contains(&commit.len())
            && commit.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// What TOML and JSON both can say. TOML's infinities come as null, its dates as objects.
fn is_literal(value: &Value) -> bool {
    match value {
        Value::Null | Value::Object(_) => false,
        Value::Array(values) => values.iter().all(is_literal),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
