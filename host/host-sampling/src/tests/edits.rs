//! What a step's edits do, and what is never asked of the device.

use std::cell::Cell;

use host_core::{Sampler, SamplingSettings};
use host_device::Logits;

use super::{OneRow, at, choose};
use crate::chain::{Chain, StepInput};
use crate::edits::Edits;
use crate::error::SampleError;
use crate::mask::TokenMask;
use crate::view::RowView;

const ROW: [f32; 6] = [1.0, 5.0, 3.0, 4.0, -1.0, 0.0];

fn greedy(edits: &Edits) -> Result<u32, SampleError> {
    let mut chain = Chain::new(&SamplingSettings::GREEDY.into()).expect("in range");
    chain.choose(&at(&OneRow(&ROW), &[3, 3], 0), edits).map(|choice| choice.token_id)
}

#[test]
fn edits_act_before_the_chain() {
    let runs = |runs: &[(u32, u32)]| Some(TokenMask::from_runs(6, runs.iter().copied()));
    let lowered = Sampler::Presence { penalty: 9.0, context_tokens: 0 };
    let cases = [
        ("nothing", Edits::none(), Ok(1)),
        ("a mask", Edits { allowed: runs(&[(2, 5)]), ..Edits::none() }, Ok(3)),
        ("an empty mask", Edits { allowed: runs(&[]), ..Edits::none() }, Err(SampleError::NothingLeft)),
        ("a bias adds up", Edits { bias: vec![(5, 3.0), (5, 3.0)], ..Edits::none() }, Ok(5)),
        ("a bias excludes", Edits { bias: vec![(1, f32::NEG_INFINITY)], ..Edits::none() }, Ok(3)),
        (
            "a sampler sees the history",
            Edits { samplers: vec![lowered], allowed: runs(&[(2, 4)]), ..Edits::none() },
            Ok(2),
        ),
        ("a forced token", Edits { forced: vec![4, 0], ..Edits::none() }, Ok(4)),
        (
            "forced and excluded",
            Edits { forced: vec![4], allowed: runs(&[(0, 2)]), ..Edits::none() },
            Err(SampleError::ForcedExcluded { token: 4 }),
        ),
        (
            "forced beyond the vocabulary",
            Edits { forced: vec![6], ..Edits::none() },
            Err(SampleError::UnknownToken { token: 6, n_vocab: 6 }),
        ),
        (
            "a bias beyond the vocabulary",
            Edits { bias: vec![(9, 1.0)], ..Edits::none() },
            Err(SampleError::UnknownToken { token: 9, n_vocab: 6 }),
        ),
        (
            "a mask of another vocabulary",
            Edits { allowed: Some(TokenMask::all(7)), ..Edits::none() },
            Err(SampleError::OtherVocabulary { found: 7, n_vocab: 6 }),
        ),
        (
            "a sampler with a memory",
            Edits { samplers: vec![Sampler::MirostatV2 { tau: 1.0, eta: 0.1 }], ..Edits::none() },
            Err(SampleError::Stateful { name: "mirostat_v2" }),
        ),
    ];
    for (name, edits, expected) in cases {
        assert_eq!(greedy(&edits), expected, "{name}");
    }
    let wrong = Edits { samplers: vec![Sampler::TopP { p: 0.0 }], ..Edits::none() };
    assert!(matches!(greedy(&wrong), Err(SampleError::Setting(_))));
}

#[test]
fn masks_of_two_intersect() {
    let mut edits = Edits::none();
    edits.allow(TokenMask::from_runs(6, [(0, 4)]));
    edits.allow(TokenMask::from_runs(6, [(2, 6)]));
    assert_eq!(greedy(&edits), Ok(3));
    assert!(!edits.is_empty());
    edits.clear();
    assert!(edits.is_empty());
}

/// Counts how often the whole row is read.
struct Counted<'a>(OneRow<'a>, Cell<usize>);

impl Logits for Counted<'_> {
    fn n_rows(&self) -> usize {
        1
    }

    fn n_vocab(&self) -> usize {
        self.0.n_vocab()
    }

    fn read(&self, row: usize, out: &mut Vec<f32>) {
        self.1.set(self.1.get() + 1);
        self.0.read(row, out);
    }

    fn argmax(&self, row: usize) -> Option<u32> {
        self.0.argmax(row)
    }

    fn top(&self, row: usize, n: usize) -> Vec<(u32, f32)> {
        self.0.top(row, n)
    }
}

#[test]
fn a_row_is_read_only_where_all_of_it_is_needed() {
    let at_one = SamplingSettings { temperature: 1.0, ..SamplingSettings::GREEDY };
    let cases = [
        ("greedy", SamplingSettings::GREEDY, 0),
        ("top-k", SamplingSettings { top_k: 3, ..at_one.clone() }, 0),
        ("top-k under a temperature", SamplingSettings { top_k: 3, temperature: 0.7, ..at_one.clone() }, 0),
        ("all", at_one.clone(), 1),
        ("top-p and top-k", SamplingSettings { top_p: 0.9, top_k: 3, ..at_one.clone() }, 1),
        (
            "penalty, min-p, top-p",
            SamplingSettings { presence_penalty: 1.0, min_p: 0.1, top_p: 0.9, ..at_one },
            1,
        ),
    ];
    for (name, settings, expected) in cases {
        let counted = Counted(OneRow(&ROW), Cell::new(0));
        let mut chain = Chain::new(&settings.into()).expect("in range");
        chain.choose(&at(&counted, &[1], 0), &Edits::none()).expect("finite logits");
        assert_eq!(counted.1.get(), expected, "{name}");
    }
}

/// Token 1 is the most likely one of [`ROW`], token 3 the next.
#[test]
fn a_mask_that_allows_the_most_likely_token_has_nothing_read() {
    let at_one = SamplingSettings { temperature: 1.0, ..SamplingSettings::GREEDY };
    let cases = [
        ("allowed", SamplingSettings::GREEDY, (1, 3), 1, 0),
        ("excluded", SamplingSettings::GREEDY, (2, 6), 3, 1),
        ("allowed, and all are weighed", SamplingSettings { min_p: 0.9, ..at_one.clone() }, (1, 3), 1, 1),
        ("allowed, with the next in rank", SamplingSettings { top_k: 1, ..at_one }, (1, 4), 1, 1),
    ];
    for (name, settings, run, token, n_reads) in cases {
        let counted = Counted(OneRow(&ROW), Cell::new(0));
        let mut chain = Chain::new(&settings.into()).expect("in range");
        let edits = Edits { allowed: Some(TokenMask::from_runs(6, [run])), ..Edits::none() };
        let choice = chain.choose(&at(&counted, &[], 0), &edits).expect("finite logits");
        assert_eq!((choice.token_id, counted.1.get()), (token, n_reads), "{name}");
    }
}

#[test]
fn log_probabilities_are_taken_after_the_penalties() {
    let settings = SamplingSettings {
        logit_bias: vec![(1, -3.0)],
        top_k: 1,
        temperature: 0.5,
        ..SamplingSettings::GREEDY
    };
    let mut chain = Chain::new(&settings.into()).expect("in range");
    let logits = OneRow(&ROW);
    let input = StepInput { logprobs: Some(2), ..at(&logits, &[], 0) };
    let choice = chain.choose(&input, &Edits::none()).expect("finite logits");
    let penalised = [1.0, 2.0, 3.0, 4.0, -1.0, 0.0_f64];
    let lse = penalised.iter().map(|x| x.exp()).sum::<f64>().ln();
    let logprobs = choice.logprobs.expect("they were asked for");
    assert_eq!(choice.token_id, 3);
    assert!((f64::from(logprobs.logprob) - (4.0 - lse)).abs() < 1e-6);
    assert_eq!(logprobs.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3, 2]);
    let forced = Edits { forced: vec![5], ..Edits::none() };
    let logprobs = chain.choose(&input, &forced).expect("allowed").logprobs.expect("they were asked for");
    assert!((f64::from(logprobs.logprob) - (0.0 - lse)).abs() < 1e-6);
}

#[test]
fn the_order_of_a_chain_matters() {
    let chain = |samplers: &[Sampler]| host_core::SamplingChain {
        samplers: samplers.to_vec(),
        special_ids: Vec::new(),
        seed: 0,
    };
    let bias = Sampler::LogitBias { bias: vec![(4, 9.0)] };
    let top = Sampler::TopK { k: 1 };
    assert_eq!(choose(chain(&[bias.clone(), top.clone()]), &ROW, &[], 0), Ok(4));
    assert_eq!(choose(chain(&[top, bias]), &ROW, &[], 0), Ok(1), "what was dropped does not come back");
}

#[test]
fn a_view_shows_what_the_row_holds() {
    let logits = OneRow(&ROW);
    let view = RowView::new(&logits, 0);
    assert_eq!(view.top(2), [(1, 5.0), (3, 4.0)]);
    assert_eq!(view.get(&[4, 6]), [Some(-1.0), None]);
    let total: f64 = ROW.iter().map(|x| f64::from(*x).exp()).sum();
    let term = |x: &f32| f64::from(*x).exp() / total * (total.ln() - f64::from(*x));
    assert!((view.entropy() - ROW.iter().map(term).sum::<f64>()).abs() < 1e-6);
}

#[test]
fn random_words_are_functions_of_their_place() {
    let words: std::collections::BTreeSet<u32> = (0..4)
        .flat_map(|seed| {
            (0..4).flat_map(move |step| (0..4).map(move |draw| crate::random_u32(seed, step, draw)))
        })
        .collect();
    assert_eq!(words.len(), 64, "each place has its own");
    assert_eq!(crate::random_u32(1, 2, 3), crate::random_u32(1, 2, 3));
}
