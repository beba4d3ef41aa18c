//! One file of rules: read, checked, and applied to the tensors of a checkpoint.

use std::ops::Range;

use host_core::quant::{QuantProfile, Scheme, TensorFacts};
use host_core::{Report, Reported};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::fault::RulesFault;
use super::glob;
use super::values::{LayerRange, Roles, SchemeText};
use crate::error::ProfileError;
use crate::profile::Sha256Digest;
use crate::schema_error;
use crate::source::ProfileSource;

/// The rules of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantRules {
    id: String,
    about: String,
    rules: Vec<Spanned<QuantRule>>,
    source: ProfileSource,
}

/// One rule. All of its conditions must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantRule {
    /// A glob over the tensor's name.
    #[serde(rename = "match")]
    pub match_: String,
    /// The tensor's role is one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Roles>,
    /// The tensor belongs to one of these layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<LayerRange>,
    /// What such a tensor gets.
    pub scheme: SchemeText,
    /// What was measured when the rule was made; it decides nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// How much the model's next-token distribution changed when only the tensors of a rule were quantised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The width at which it was measured.
    pub bits: u64,
    /// The mean Kullback-Leibler divergence, in nats a token.
    pub kl: f64,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile<R> {
    schema: u32,
    id: String,
    about: String,
    rule: Vec<R>,
}

impl QuantRules {
    /// Reads one file. `file` is named in reports.
    ///
    /// # Errors
    /// The first fault of syntax or schema, with its place.
    pub fn parse(file: &str, text: &str) -> Result<QuantRules, ProfileError> {
        let source = ProfileSource::parse(file, text)
            .map_err(|fault| ProfileError::Syntax { place: Box::new(fault.place), message: fault.message })?;
        schema_error::check_version(&source)?;
        let read: RulesFile<Spanned<QuantRule>> =
            toml::from_str(text).map_err(|error| schema_error::explain(&source, &error))?;
        let RulesFile { id, about, rule: rules, .. } = read;
        let value_fault = |key: &str, expected: &str, found: String, place| ProfileError::Value {
            place: Box::new(place),
            key: key.to_owned(),
            expected: expected.to_owned(),
            found,
        };
        let name_ok = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        if id.is_empty() || !id.bytes().all(name_ok) {
            let expected = "a name of lower-case letters, digits, `.`, `-` and `_`";
            return Err(value_fault("id", expected, format!("{id:?}"), source.place(&["id"])));
        }
        if about.trim().is_empty() || about.chars().any(char::is_control) {
            return Err(value_fault(
                "about",
                "one line of text",
                format!("{about:?}"),
                source.place(&["about"]),
            ));
        }
        if rules.is_empty() {
            return Err(value_fault(
                "rule",
                "at least one rule",
                "empty".to_owned(),
                source.place(&["rule"]),
            ));
        }
        Ok(QuantRules { id, about, rules, source })
    }

    /// The name it is chosen by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// One line for people.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The rules, in order.
    pub fn rules(&self) -> impl Iterator<Item = &QuantRule> {
        self.rules.iter().map(Spanned::get_ref)
    }

    /// The file's text.
    pub fn text(&self) -> &str {
        self.source.text()
    }

    /// The file as the user named it.
    pub fn file(&self) -> &str {
        self.source.file()
    }

    /// SHA-256 of the text.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(self.text().as_bytes())
    }

    pub(super) fn id_place(&self) -> host_core::Place {
        self.source.place(&["id"])
    }

    fn place(&self, span: Range<usize>) -> Box<host_core::Place> {
        Box::new(self.source.place_of(span))
    }
}

impl QuantRule {
    fn holds(&self, tensor: &TensorFacts) -> bool {
        let role = self.role.as_ref().is_none_or(|roles| roles.0.contains(&tensor.role));
        let layer = self.layers.is_none_or(|layers| tensor.layer.is_some_and(|layer| layers.contains(layer)));
        role && layer && glob::matches(&self.match_, &tensor.name)
    }
}

impl QuantProfile for QuantRules {
    fn plan(&self, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, Report> {
        let mut is_used = vec![false; self.rules.len()];
        let mut schemes = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let Some(at) = self.rules().position(|rule| rule.holds(tensor)) else {
                let file = self.file().to_owned();
                return Err(RulesFault::Unmatched { file, tensor: Box::new(tensor.clone()) }.report());
            };
            is_used[at] = true;
            let rule = &self.rules[at];
            let scheme = rule.get_ref().scheme.0;
            scheme
                .check(tensor)
                .map_err(|source| RulesFault::Scheme { place: self.place(rule.span()), source }.report())?;
            schemes.push(scheme);
        }
        match is_used.iter().position(|is_used| !is_used) {
            None => Ok(schemes),
            Some(at) => {
                let rule = &self.rules[at];
                let matched_before = tensors.iter().find(|tensor| rule.get_ref().holds(tensor));
                Err(RulesFault::Idle {
                    place: self.place(rule.span()),
                    glob: rule.get_ref().match_.clone(),
                    taken: matched_before.map(|tensor| tensor.name.clone()),
                }
                .report())
            }
        }
    }
}

/// A file of rules, as [`QuantRules::parse`] reads it; each line of `notes` becomes a comment at its head.
pub fn rules_text(id: &str, about: &str, notes: &[String], rules: &[QuantRule]) -> String {
    let mut text: String = notes.iter().map(|note| format!("# {note}\n")).collect();
    let quoted = |text: &str| toml::Value::from(text).to_string();
    text.push_str(&format!("schema = 1\nid = {}\nabout = {}\n", quoted(id), quoted(about)));
    for rule in rules {
        text.push_str("\n[[rule]]\n");
        let table = toml::Table::try_from(rule).expect("a rule is a table");
        for (key, value) in table {
            text.push_str(&format!("{key} = {value}\n"));
        }
    }
    text
}
