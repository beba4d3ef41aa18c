//! A grammar, compiled once for a vocabulary.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Logger, Matcher};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::budget::Budget;
use super::error::ConstraintError;
use super::{Constraint, TokenTable, schema};

/// What a text must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrammarSpec {
    /// A JSON value that satisfies this schema.
    JsonSchema {
        /// The schema, as JSON.
        schema: String,
        /// What may stand between the parts of the value.
        whitespace: Whitespace,
    },
    /// A text that this regular expression matches as a whole; in the form of Rust's.
    Regex(String),
    /// A text of this grammar in Lark's form.
    Lark(String),
}

/// What may stand between the parts of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whitespace {
    /// Nothing: the value is written as short as it can be.
    None,
    /// Any white space.
    Free,
}

/// A grammar, compiled for one vocabulary. Clones share it.
#[derive(Clone)]
pub struct Grammar {
    table: Arc<TokenTable>,
    matcher: Arc<Matcher>,
}

impl Grammar {
    /// Compiles a grammar, or takes it from the table's cache: the same source, vocabulary and budget are compiled
    /// once.
    ///
    /// # Errors
    /// [`ConstraintError`]: what the source asks for cannot be read, enforced or afforded.
    pub fn compile(
        spec: &GrammarSpec,
        table: &Arc<TokenTable>,
        budget: Budget,
    ) -> Result<Self, ConstraintError> {
        let key = key(spec, table, budget);
        if let Some(matcher) = table.cached(&key) {
            return Ok(Grammar { table: Arc::clone(table), matcher });
        }
        let found = spec.source().len();
        if found > budget.source_bytes {
            let detail = format!("{found} bytes of source, at most {}", budget.source_bytes);
            return Err(ConstraintError::TooComplex { detail });
        }
        let grammar = spec.parse()?;
        let mut matcher = Matcher::new(catch_unwind(AssertUnwindSafe(|| {
            table.factory().create_parser_from_init_ext(
                GrammarInit::Serialized(grammar),
                Logger::new(0, 0),
                InferenceCapabilities::default(),
                budget.limits(),
            )
        })));
        if let Some(message) = matcher.get_error() {
            return Err(spec.error(&message));
        }
        if let Some(warning) = matcher.grammar_warnings().into_iter().next() {
            return Err(spec.error(&warning));
        }
        let matcher = Arc::new(matcher);
        table.keep(key, Arc::clone(&matcher));
        Ok(Grammar { table: Arc::clone(table), matcher })
    }

    /// The vocabulary that it was compiled for.
    pub fn table(&self) -> &Arc<TokenTable> {
        &self.table
    }

    /// Whether both are the same compiled grammar.
    pub fn is_same(&self, other: &Grammar) -> bool {
        Arc::ptr_eq(&self.matcher, &other.matcher)
    }

    /// The constraint of one request, at the beginning of its text.
    pub fn constraint(&self) -> Constraint {
        Constraint::new((*self.matcher).clone(), self.table.n_vocab())
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grammar({:?})", self.table)
    }
}

impl GrammarSpec {
    fn source(&self) -> &str {
        match self {
            GrammarSpec::JsonSchema { schema: source, .. }
            | GrammarSpec::Regex(source)
            | GrammarSpec::Lark(source) => source,
        }
    }

    /// What tells specs of the same source apart.
    fn tag(&self) -> &'static str {
        match self {
            GrammarSpec::JsonSchema { whitespace: Whitespace::None, .. } => "json-schema",
            GrammarSpec::JsonSchema { whitespace: Whitespace::Free, .. } => "json-schema, free white space",
            GrammarSpec::Regex(_) => "regex",
            GrammarSpec::Lark(_) => "lark",
        }
    }

    fn parse(&self) -> Result<TopLevelGrammar, ConstraintError> {
        match self {
            GrammarSpec::JsonSchema { schema: source, whitespace } => {
                let not_json = |e: serde_json::Error| ConstraintError::NotJson { detail: e.to_string() };
                let mut schema: Value = serde_json::from_str(source).map_err(not_json)?;
                schema::check(&schema, "")?;
                if let Value::Bool(anything) = schema {
                    schema = if anything { json!({}) } else { json!({ "enum": [] }) };
                }
                let is_free = *whitespace == Whitespace::Free;
                // The compiler takes its options from this key of the outermost schema.
                schema["x-guidance"] =
                    json!({ "whitespace_flexible": is_free, "lenient": false, "coerce_one_of": false });
                Ok(TopLevelGrammar::from_json_schema(schema))
            }
            GrammarSpec::Regex(source) => Ok(TopLevelGrammar::from_regex(source)),
            GrammarSpec::Lark(source) => Ok(TopLevelGrammar::from_lark(source.clone())),
        }
    }

    /// The compiler's error in our words.
    fn error(&self, message: &str) -> ConstraintError {
        if is_about_budget(message) {
            return ConstraintError::TooComplex { detail: first_line(message) };
        }
        match self {
            GrammarSpec::JsonSchema { .. } => schema::error(message),
            GrammarSpec::Regex(_) => {
                ConstraintError::Syntax { kind: "regular expression", detail: first_line(message) }
            }
            GrammarSpec::Lark(_) => ConstraintError::Syntax { kind: "grammar", detail: first_line(message) },
        }
    }
}

/// Whether a limit of the budget was reached.
pub(super) fn is_about_budget(message: &str) -> bool {
    [
        "too big",
        "fuel",
        "too complex",
        "TooComplex",
        "too many",
        "limit",
        "stack level exceeded",
        "schema too large",
    ]
    .iter()
    .any(|part| message.contains(part))
}

pub(super) fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

fn key(spec: &GrammarSpec, table: &TokenTable, budget: Budget) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(table.digest());
    hash.update(format!("{budget:?}\n{}\n", spec.tag()));
    hash.update(spec.source());
    hash.finalize().into()
}
