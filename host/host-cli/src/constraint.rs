//! What an answer must be: `--json-schema`, `--regex` or `--grammar`, compiled for the model's vocabulary.

use std::path::Path;

use host_engine::{Grammar, GrammarBudget, GrammarSpec, TokenTables, Whitespace};
use host_service::token_table;
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
    tables: &TokenTables,
) -> Result<Option<Grammar>, Failure> {
    let spec = match (&args.json_schema, &args.regex, &args.grammar) {
        (Some(file), ..) => GrammarSpec::JsonSchema { schema: read(file)?, whitespace: Whitespace::None },
        (_, Some(regex), _) => GrammarSpec::Regex(regex.clone()),
        (.., Some(file)) => GrammarSpec::Lark(read(file)?),
        _ => return Ok(None),
    };
    let table = token_table(tokenizer, n_vocab, tables)?;
    Ok(Some(Grammar::compile(&spec, &table, GrammarBudget::default())?))
}

fn read(file: &Path) -> Result<String, Failure> {
    Ok(std::fs::read_to_string(file).map_err(CliError::file("read", file))?)
}
