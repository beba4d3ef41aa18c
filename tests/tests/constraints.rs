//! Constrained generation with a real model: every finished answer satisfies its JSON schema, as an independent
//! validator judges, and what cannot be enforced is refused by name.
//!
//! Eight requests run at a time, greedy and drawn in turn. The model is small and follows no instruction well; the
//! masks alone make its answers valid.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::PathBuf;
use std::sync::Arc;

use host_core::{FinishReason, Numeric, Reported, SamplingSettings};
use host_engine::{
    ConstraintError, Engine, EngineOptions, Grammar, GrammarBudget, GrammarSpec, Outcome, Request,
    TokenTable, Whitespace,
};
use host_text::Tokenizer;
use serde::Deserialize;
use serde_json::Value;
use tests::golden::Generation;
use tests::model::{overrides, told};
use tests::places::{fixture, read_json};
use tests::{Host, skip};

const BATCH: usize = 8;
const MAX_TOKENS: usize = 48;
const PROMPT: &str = "A short JSON value: ";

#[derive(Deserialize)]
struct Case {
    kind: String,
    name: String,
    schema: Value,
    /// The keyword that is named when the schema is refused.
    refused: Option<String>,
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> = read_json(&fixture("json-schemas").join("schemas.json"));
    assert!(cases.iter().filter(|case| case.refused.is_none()).count() >= 60, "the fixture is whole");
    cases
}

fn model() -> Option<PathBuf> {
    let golden = Generation::read("smollm2-135m");
    skip::model_file(&golden.model_file, &golden.model_sha256)
}

fn table(tokenizer: &Tokenizer, n_vocab: usize) -> Arc<TokenTable> {
    let ids = 0..tokenizer.n_vocab() as u32;
    let special: Vec<u32> = ids.clone().filter(|id| tokenizer.is_special(*id)).collect();
    let tokens = ids.map(|id| tokenizer.token_bytes(id).unwrap_or_default()).collect();
    told(TokenTable::new(n_vocab, tokens, &special, tokenizer.stop_ids()))
}

fn compile(case: &Case, table: &Arc<TokenTable>) -> Result<Grammar, ConstraintError> {
    let spec = GrammarSpec::JsonSchema { schema: case.schema.to_string(), whitespace: Whitespace::None };
    Grammar::compile(&spec, table, GrammarBudget::default())
}

#[test]
fn answers_satisfy_their_schemas_or_the_construct_is_named() {
    let Some(path) = model() else { return };
    let model = Host::lua().open(&path, &overrides(Numeric::Fast, 128, BATCH, 128)).unwrap();
    let tokenizer = model.tokenizer();
    let table = table(&tokenizer, model.graph.n_vocab());
    let options = EngineOptions { context_tokens: 128, max_step_tokens: 128 };
    let mut engine = Engine::new(model.compile(), options);
    let prompt_ids = told(tokenizer.encode(PROMPT, true, true));

    let mut faults = Vec::new();
    let mut requests = Vec::new();
    for (i, case) in cases().into_iter().enumerate() {
        match (compile(&case, &table), &case.refused) {
            (Ok(grammar), None) => {
                let temperature = if i % 2 == 0 { 0.0 } else { 0.8 };
                let sampling = SamplingSettings { temperature, seed: i as u64, ..SamplingSettings::GREEDY };
                let request = Request {
                    constraint: Some(grammar),
                    stop_token_ids: tokenizer.stop_ids().to_vec(),
                    ..Request::new(prompt_ids.clone(), MAX_TOKENS, sampling)
                };
                requests.push((case, request));
            }
            (Err(ConstraintError::UnsupportedSchema { construct, .. }), Some(expected))
                if construct == *expected => {}
            (outcome, _) => faults.push(format!("{}, {}: {outcome:?}", case.kind, case.name)),
        }
    }

    let (mut n_valid, mut n_cut) = (0, 0);
    while !requests.is_empty() {
        let batch = requests.drain(..BATCH.min(requests.len()));
        let (cases, batch): (Vec<Case>, Vec<Request>) = batch.unzip();
        for (case, answer) in cases.iter().zip(run(&mut engine, batch, &tokenizer)) {
            match answer {
                Err(why) => faults.push(format!("{}, {}: {why}", case.kind, case.name)),
                Ok((_, FinishReason::Length)) => n_cut += 1,
                Ok((text, _)) => match judge(&case.schema, &text) {
                    Ok(()) => n_valid += 1,
                    Err(why) => faults.push(format!("{}, {}: {text}: {why}", case.kind, case.name)),
                },
            }
        }
    }
    println!("{n_valid} answers are valid, {n_cut} were cut at {MAX_TOKENS} tokens");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(n_valid >= 60, "most answers end within the limit: {n_valid} did, {n_cut} did not");
}

/// The text of each request and why it ended, in order.
fn run(
    engine: &mut Engine,
    batch: Vec<Request>,
    tokenizer: &Tokenizer,
) -> Vec<Result<(String, FinishReason), String>> {
    let ids: Vec<_> = batch.into_iter().map(|request| told(engine.submit(request))).collect();
    let mut tokens = vec![Vec::new(); ids.len()];
    let mut ends = vec![Err("no outcome".to_owned()); ids.len()];
    while !engine.is_idle() {
        for event in engine.step() {
            let row = ids.iter().position(|id| *id == event.request).unwrap();
            match event.outcome {
                Outcome::Token { token_id, .. } => tokens[row].push(token_id),
                Outcome::Finished { reason, .. } => ends[row] = Ok(reason),
                Outcome::Failed(report) => ends[row] = Err(report.to_string()),
            }
        }
    }
    let text = |tokens: &Vec<u32>| tokenizer.decode(tokens, false);
    ends.into_iter().zip(&tokens).map(|(end, tokens)| end.map(|reason| (text(tokens), reason))).collect()
}

/// What the independent validator says.
fn judge(schema: &Value, text: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let options = jsonschema::options().should_validate_formats(true);
    let validator = options.build(schema).map_err(|error| error.to_string())?;
    validator.validate(&value).map_err(|error| error.to_string())
}

#[test]
fn a_refusal_is_a_whole_report() {
    let tokens = (0..=255).map(|byte| vec![byte]).chain([b"</s>".to_vec()]).collect();
    let table = told(TokenTable::new(257, tokens, &[], &[256]));
    let refused = cases().into_iter().filter(|case| case.refused.is_some());
    for case in refused {
        let report = compile(&case, &table).unwrap_err().report();
        assert_eq!(report.code, "constraint.unsupported-schema", "{}", case.name);
        let keyword = case.refused.unwrap();
        assert!(
            report.found.is_some_and(|found| found.contains(&keyword)) && report.mend.is_some(),
            "{}",
            case.name
        );
    }
}
