//! Each sampler against its plain form in float64: the tokens left, and their log-probabilities.
//!
//! `goldens.json` is made by `tests/oracle/samplers.py`.

use host_core::{Sampler, SamplingChain};
use serde_json::Value;

use super::OneRow;
use crate::candidates::{Candidates, Scratch};
use crate::chain::Chain;
use crate::edits::Edits;
use crate::link::{Link, Surroundings};
use crate::random::Key;

/// Logits are float32: half a unit in the last place of numbers up to 16, a few operations long.
const TOLERANCE: f64 = 2e-5;

/// What a chain leaves of a row: ids in ascending order with their log-probabilities.
fn left(chain: &[Sampler], row: &[f32]) -> Vec<(u32, f64)> {
    let (logits, mut scratch) = (OneRow(row), Scratch::default());
    let mut candidates = Candidates::new(&logits, 0, &mut scratch).expect("finite logits");
    let mut key = Key::new(0, 0);
    let mut around = Surroundings { history: &[], special_ids: &[0], key: &mut key };
    for sampler in chain {
        let mut link = Link::new(sampler).expect("in range");
        link.apply(&mut candidates, &mut around).expect("finite logits");
    }
    let lse = candidates.log_sum_exp().expect("something is left");
    let temperature = f64::from(candidates.temperature());
    let logprob = |(id, logit): &(u32, f32)| (*id, f64::from(*logit) / temperature - lse);
    let mut left: Vec<(u32, f64)> = candidates.entries().iter().map(logprob).collect();
    left.sort_unstable_by_key(|(id, _)| *id);
    left
}

#[test]
fn samplers_leave_what_their_plain_forms_leave() {
    let goldens: Value = serde_json::from_str(include_str!("goldens.json")).expect("JSON");
    let cases = goldens["cases"].as_array().expect("a list");
    assert!(cases.len() > 100, "the goldens are whole");
    for case in cases {
        let chain: Vec<Sampler> = serde_json::from_value(case["chain"].clone()).expect("a chain");
        let row = goldens["rows"][case["row"].as_str().expect("a name")].as_array().expect("a row");
        let logit = |logit: &Value| logit.as_f64().map_or(f32::NEG_INFINITY, |logit| logit as f32);
        let row: Vec<f32> = row.iter().map(logit).collect();
        let expected: Vec<(u32, f64)> = serde_json::from_value(case["left"].clone()).expect("pairs");
        let found = left(&chain, &row);
        let ids = |tokens: &[(u32, f64)]| tokens.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(&found), ids(&expected), "{} of {}", case["chain"], case["row"]);
        for ((id, found), (_, expected)) in found.iter().zip(&expected) {
            let is_near = (found - expected).abs() <= TOLERANCE * expected.abs().max(1.0);
            assert!(
                is_near,
                "{} of {}: token {id}: {found}, expected {expected}",
                case["chain"], case["row"]
            );
        }
    }
}

#[test]
fn runs_of_draws_are_those_of_the_plain_forms() {
    let goldens: Value = serde_json::from_str(include_str!("goldens.json")).expect("JSON");
    let row: Vec<f32> = serde_json::from_value(goldens["rows"]["spread"].clone()).expect("a row");
    let runs = [
        ("xtc", 0, Sampler::Xtc { probability: 0.5, threshold: 0.03 }),
        ("mirostat_v2", 7, Sampler::MirostatV2 { tau: 2.0, eta: 0.6 }),
    ];
    for (name, seed, sampler) in runs {
        let expected: Vec<u32> = serde_json::from_value(goldens["draws"][name].clone()).expect("tokens");
        let spec = SamplingChain { samplers: vec![sampler], special_ids: Vec::new(), seed };
        let mut chain = Chain::new(&spec).expect("in range");
        let logits = OneRow(&row);
        let draw = |chain: &mut Chain, step: usize| {
            chain
                .choose(&super::at(&logits, &[], step as u64), &Edits::none())
                .expect("finite logits")
                .token_id
        };
        let found: Vec<u32> = (0..expected.len()).map(|step| draw(&mut chain, step)).collect();
        assert_eq!(found, expected, "{name}");
        let mut fork = chain.clone();
        for chain in [&mut chain, &mut fork] {
            chain.rollback(5);
            let again: Vec<u32> =
                (expected.len() - 5..expected.len()).map(|step| draw(chain, step)).collect();
            assert_eq!(again, expected[expected.len() - 5..], "{name}, after a rollback");
        }
    }
}
