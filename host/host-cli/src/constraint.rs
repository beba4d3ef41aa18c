//! What an answer must be: `--json-schema`, `--regex` or `--grammar`, compiled for the model's vocabulary.

use std::path::Path;
use std::sync::Arc;

use host_engine::{ConstraintError, Grammar, GrammarBudget, GrammarSpec, TokenTable, Whitespace};
use host_text::Tokenizer;

use crate::args::GenerateArgs;
use crate::error::{CliError, Failure};

/// The grammar that the flags ask for, if they ask for one.
///
/// # Errors
/// A file that cannot be read, or [`host_engine::ConstraintError`].
pub(crate) fn grammar(
    args: &GenerateArgs,
    tokenizer: &Tokenizer,
    n_vocab: usize,
) -> Result<Option<Grammar>, Failure> {
    let spec = match (&args.json_schema, &args.regex, &args.grammar) {
        (Some(file), ..) => GrammarSpec::JsonSchema { schema: read(file)?, whitespace: Whitespace::None },
        (_, Some(regex), _) => GrammarSpec::Regex(regex.clone()),
        (.., Some(file)) => GrammarSpec::Lark(read(file)?),
        _ => return Ok(None),
    };
    let table = table(tokenizer, n_vocab)?;
    Ok(Some(Grammar::compile(&spec, &table, GrammarBudget::default())?))
}

fn read(file: &Path) -> Result<String, Failure> {
    Ok(std::fs::read_to_string(file).map_err(CliError::file("read", file))?)
}

/// The tokenizer's tokens as bytes.
///
/// # Errors
/// [`ConstraintError::Vocabulary`].
pub(crate) fn table(tokenizer: &Tokenizer, n_vocab: usize) -> Result<Arc<TokenTable>, ConstraintError> {
    let ids = 0..tokenizer.n_vocab() as u32;
    let special: Vec<u32> = ids.clone().filter(|id| tokenizer.is_special(*id)).collect();
    let tokens = ids.map(|id| tokenizer.token_bytes(id).unwrap_or_default()).collect();
    TokenTable::new(n_vocab, tokens, &special, tokenizer.stop_ids())
}
