//! Masks of grammars over SmolLM2's vocabulary: the schemas of the suite, walked at random.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use guests::measure::Times;
use host_engine::{Grammar, GrammarBudget, GrammarSpec, TokenTable, Whitespace, random_u32};
use host_text::Tokenizer;
use host_weights::Checkpoint;
use serde_json::Value;
use tests::places::{fixture, read_json};

use crate::figure::{Figure, Report};

/// Walks of each schema, and the most tokens of one.
const WALKS: u32 = 20;
const TOKENS: u32 = 48;

pub(crate) fn measure(model: &Path, report: &mut Report) {
    let checkpoint = Checkpoint::open(model).unwrap();
    let tokenizer = Tokenizer::from_vocabulary(checkpoint.vocabulary().unwrap()).unwrap();
    let (mut tables, mut compiled, mut masks) = (Vec::new(), Vec::new(), Vec::new());
    let begun = Instant::now();
    let table = table(&tokenizer);
    tables.push(begun.elapsed());
    let cases: Vec<Value> = read_json(&fixture("json-schemas").join("schemas.json"));
    for case in cases.iter().filter(|case| case["refused"].is_null()) {
        let schema = case["schema"].to_string();
        let spec = GrammarSpec::JsonSchema { schema, whitespace: Whitespace::None };
        let begun = Instant::now();
        let grammar = Grammar::compile(&spec, &table, GrammarBudget::default()).unwrap();
        compiled.push(begun.elapsed());
        for walk in 0..WALKS {
            walk_through(&grammar, walk, |time| masks.push(time));
        }
    }
    let title = format!("grammar mask over {} tokens", table.n_vocab());
    let target = [("p50", 50.0), ("p99", 600.0)];
    report.add(Figure::new(title, "native", &Times::new(masks), &target));
    report.add(Figure::new("grammar compiled", "native", &Times::new(compiled), &[("p99", 20_000.0)]));
    report.add(Figure::new("vocabulary made ready for grammars (once)", "native", &Times::new(tables), &[]));
}

fn table(tokenizer: &Tokenizer) -> Arc<TokenTable> {
    let ids = 0..tokenizer.n_vocab() as u32;
    let special: Vec<u32> = ids.clone().filter(|id| tokenizer.is_special(*id)).collect();
    let tokens = ids.map(|id| tokenizer.token_bytes(id).unwrap_or_default()).collect();
    TokenTable::new(tokenizer.n_vocab(), tokens, &special, tokenizer.stop_ids()).unwrap()
}

/// Takes some token of each mask, another in each walk.
fn walk_through(grammar: &Grammar, walk: u32, mut time: impl FnMut(std::time::Duration)) {
    let mut constraint = grammar.constraint();
    for step in 0..TOKENS {
        let begun = Instant::now();
        let mask = constraint.mask().unwrap();
        time(begun.elapsed());
        let pick = random_u32(u64::from(walk), u64::from(step), 0) as usize % mask.count();
        constraint.accept(mask.iter().nth(pick).unwrap()).unwrap();
        if constraint.is_finished() {
            return;
        }
    }
}
