//! Draws: the golden ones, the plain form of the flat settings, and what all draws have in common.

use host_core::SamplingSettings;
use proptest::prelude::*;

use super::{OneRow, choose};
use crate::candidates::{Candidates, Scratch};
use crate::chain::Chain;
use crate::edits::Edits;
use crate::error::SampleError;
use crate::random::{Draw, Key, gumbel};

/// The row of the golden draws.
fn golden_row() -> Vec<f32> {
    (0..51).map(|i| ((37 * i) % 101) as f32 / 20.0).collect()
}

fn at(temperature: f32, seed: u64) -> SamplingSettings {
    SamplingSettings { temperature, seed, ..SamplingSettings::GREEDY }
}

fn sample(settings: &SamplingSettings, row: &[f32], history: &[u32], step: u64) -> Result<u32, SampleError> {
    choose(settings.clone(), row, history, step)
}

/// What top-p keeps of a row, most likely first.
fn top_p_of(row: &[f32], p: f32) -> Vec<(u32, f32)> {
    let (logits, mut scratch) = (OneRow(row), Scratch::default());
    let mut candidates = Candidates::new(&logits, 0, &mut scratch).expect("finite logits");
    candidates.keep_mass(p).expect("finite logits");
    candidates.sorted().clone()
}

/// Made with MLX 0.31.2: `random.categorical` under the keys that `random.rs` tells.
#[test]
fn draws_are_the_golden_ones() {
    let top_p = SamplingSettings { top_p: 0.9, ..at(1.0, 0) };
    let min_p = SamplingSettings { min_p: 0.3, ..at(1.0, 0) };
    let cases = [
        ("T 0.7", at(0.7, 0), [27, 35, 19, 29, 38, 19, 5, 19, 19, 38, 38, 49]),
        ("T 1", at(1.0, 1234), [50, 7, 16, 34, 49, 10, 49, 16, 49, 7, 7, 48]),
        ("top-p 0.9", top_p, [27, 35, 19, 29, 38, 19, 5, 19, 43, 38, 38, 18]),
        ("min-p 0.3", min_p, [27, 35, 19, 30, 38, 19, 5, 19, 43, 38, 38, 49]),
    ];
    for (name, settings, expected) in cases {
        let found: Vec<u32> =
            (0..12).map(|step| sample(&settings, &golden_row(), &[], step).expect("finite logits")).collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn top_p_keeps_the_golden_count() {
    assert_eq!(top_p_of(&golden_row(), 0.9).len(), 23);
}

#[test]
fn the_penalty_looks_at_the_window_and_counts_a_token_once() {
    let row = [2.0, 1.5, -0.5, 1.2_f32];
    let settings = |penalty, window| SamplingSettings {
        repetition_penalty: penalty,
        repetition_context_tokens: window,
        ..SamplingSettings::GREEDY
    };
    let cases = [
        ("off", settings(1.0, 0), &[0, 0, 0][..], 0),
        ("2 / 1.4 = 1.43 lies below 1.5", settings(1.4, 0), &[0, 3], 1),
        ("twice is once: 2 / 1.3 = 1.54", settings(1.3, 0), &[0, 0, 0], 0),
        ("both fall below the third", settings(2.0, 0), &[0, 1], 3),
        ("token 0 left the window", settings(2.0, 2), &[0, 1, 2], 0),
        ("a window beyond the history", settings(2.0, 100), &[0], 1),
        ("ids beyond the vocabulary are nobody's", settings(2.0, 0), &[99], 0),
    ];
    for (name, settings, history, expected) in cases {
        assert_eq!(sample(&settings, &row, history, 0), Ok(expected), "{name}");
    }
    let below_zero = [-1.0, -1.1_f32];
    assert_eq!(sample(&settings(1.2, 0), &below_zero, &[0], 0), Ok(1), "negative logits are multiplied");
}

#[test]
fn ties_go_to_the_lowest_id() {
    assert_eq!(sample(&SamplingSettings::GREEDY, &[1.0, 3.0, 3.0], &[], 0), Ok(1));
    let one = SamplingSettings { top_k: 1, ..at(1.0, 5) };
    assert_eq!(sample(&one, &[1.0, 3.0, 3.0], &[], 0), Ok(1));
}

#[test]
fn broken_logits_are_refused() {
    let excluded = [f32::NEG_INFINITY; 4];
    let nan = [0.0, f32::NAN, 1.0];
    let infinite = [0.0, f32::INFINITY, 1.0];
    let ways = [
        ("all", at(1.0, 0)),
        ("top-k", SamplingSettings { top_k: 2, ..at(1.0, 0) }),
        ("top-p", SamplingSettings { top_p: 0.5, ..at(1.0, 0) }),
        ("min-p", SamplingSettings { min_p: 0.5, ..at(1.0, 0) }),
        ("penalty", SamplingSettings { repetition_penalty: 1.5, ..at(1.0, 0) }),
    ];
    for (name, settings) in ways {
        assert_eq!(sample(&settings, &nan, &[0], 0), Err(SampleError::NotANumber), "{name}");
        assert_eq!(sample(&settings, &infinite, &[0], 0), Err(SampleError::NotANumber), "{name}");
        assert_eq!(sample(&settings, &excluded, &[0], 0), Err(SampleError::NothingLeft), "{name}");
    }
    assert_eq!(sample(&SamplingSettings::GREEDY, &nan, &[], 0), Err(SampleError::NotANumber));
}

/// The order of the filters, by sorting and masking everything; slow and plain.
fn kept_plainly(settings: &SamplingSettings, row: &[f32]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
    let weight = |i: &usize| (f64::from(row[*i]) - f64::from(row[order[0]])).exp();
    let total: f64 = order.iter().map(weight).sum();
    let mut mass = 0.0;
    let n = order.iter().take_while(|i| {
        let is_kept = mass < f64::from(settings.top_p) * total;
        mass += weight(i);
        is_kept
    });
    let mut kept: Vec<usize> =
        n.filter(|i| row[**i] >= row[order[0]] + settings.min_p.ln()).copied().collect();
    if settings.top_k > 0 {
        kept.truncate(settings.top_k as usize);
    }
    (0..row.len()).map(|i| kept.contains(&i)).collect()
}

prop_compose! {
    fn settings()(
        temperature in 0.05_f32..3.0,
        top_k in prop_oneof![Just(0_u32), 1_u32..200],
        top_p in prop_oneof![Just(1.0_f32), 0.05_f32..0.999],
        min_p in prop_oneof![Just(0.0_f32), 0.0_f32..1.0],
        seed in any::<u64>(),
    ) -> SamplingSettings {
        SamplingSettings { temperature, top_k, top_p, min_p, seed, ..SamplingSettings::GREEDY }
    }
}

fn rows() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-12.0_f32..12.0, 1..300)
}

proptest! {
    #[test]
    fn a_draw_is_the_plain_gumbel_argmax(settings in settings(), row in rows(), step in 0_u64..1000) {
        let found = sample(&settings, &row, &[], step).expect("finite logits");
        let draw = Draw::new(Key::new(settings.seed, step), row.len() as u32);
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let score = |i: usize| (row[i] - largest) / settings.temperature + gumbel(draw.word(i as u32));
        let kept = kept_plainly(&settings, &row);
        let best = (0..row.len()).filter(|i| kept[*i]).max_by(|a, b| score(*a).total_cmp(&score(*b)).then(b.cmp(a)));
        prop_assert_eq!(Some(found as usize), best);
    }

    #[test]
    fn top_p_keeps_its_mass_and_no_more(row in rows(), top_p in 0.01_f32..0.999) {
        let kept = top_p_of(&row, top_p);
        let total: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        let mass = |part: &[(u32, f32)]| part.iter().map(|(_, x)| f64::from(*x).exp()).sum::<f64>() / total;
        // f32 exponentials in the log-sum-exp: a relative 1e-6.
        prop_assert!(mass(&kept) >= f64::from(top_p) - 1e-6);
        prop_assert!(mass(&kept[..kept.len() - 1]) < f64::from(top_p) + 1e-6);
    }

    #[test]
    fn temperature_zero_is_argmax(row in rows(), mut settings in settings(), step in 0_u64..10) {
        settings.temperature = 0.0;
        prop_assert_eq!(sample(&settings, &row, &[], step).ok(), host_device::argmax(&row));
    }

    #[test]
    fn the_same_seed_draws_the_same_token(row in rows(), settings in settings(), step in 0_u64..100) {
        let mut chain = Chain::new(&settings.clone().into()).expect("settings in range");
        let logits = OneRow(&row);
        let mut at = |step| chain.choose(&super::at(&logits, &[], step), &Edits::none()).map(|it| it.token_id);
        // What was drawn before changes nothing.
        for other in 0..3 {
            at(other).expect("finite logits");
        }
        prop_assert_eq!(at(step), sample(&settings, &row, &[], step));
    }
}

/// 4000 draws from three tokens; each count lies within 5 standard deviations of its expectation.
#[test]
fn frequencies_are_the_softmax() {
    let row = [0.0, 1.0, 2.0_f32];
    let total: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
    let n = 4000;
    let mut counts = [0.0_f64; 3];
    for step in 0..n {
        counts[sample(&at(1.0, 42), &row, &[], step).expect("finite logits") as usize] += 1.0;
    }
    for (logit, count) in row.iter().zip(counts) {
        let p = f64::from(*logit).exp() / total;
        let deviation = (n as f64 * p * (1.0 - p)).sqrt();
        assert!((count - n as f64 * p).abs() < 5.0 * deviation, "{counts:?}");
    }
}
