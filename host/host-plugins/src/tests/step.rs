//! The step as both runtimes show it: what it gives, what it refuses, what it leaves behind.

use std::sync::Arc;

use host_core::{Breaker, FinishReason, Reported, Sampler};
use host_device::{Logits, argmax, top};
use host_sampling::{Edits, RowView, TokenMask, random_u32};

use crate::{
    Budget, LogSink, Needs, PluginName, PolicyInput, PolicyStep, PolicyVocabulary, StepBudget, StepRefusal,
};

const LOGITS: [f32; 40] = {
    let mut logits = [0.0; 40];
    (logits[5], logits[9]) = (4.0, 3.0);
    logits
};

struct Row;

impl Logits for Row {
    fn n_rows(&self) -> usize {
        1
    }

    fn n_vocab(&self) -> usize {
        LOGITS.len()
    }

    fn read(&self, _: usize, out: &mut Vec<f32>) {
        *out = LOGITS.to_vec();
    }

    fn argmax(&self, _: usize) -> Option<u32> {
        argmax(&LOGITS)
    }

    fn top(&self, _: usize, n: usize) -> Vec<(u32, f32)> {
        top(&LOGITS, n)
    }
}

struct Forty;

impl PolicyVocabulary for Forty {
    fn n_vocab(&self) -> u32 {
        40
    }

    fn eos_ids(&self) -> Vec<u32> {
        vec![0]
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        (id < 40).then(|| vec![id as u8])
    }

    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        text.parse().ok().map(|id| vec![id])
    }
}

/// A step that has not begun.
fn ended(needs: Needs) -> PolicyStep {
    let plugin = PluginName { id: "p".to_owned(), version: "1.0.0".parse().unwrap() };
    let step = StepBudget { time_ms: 1, calls: 20, list_entries: 8, text_bytes: 4 };
    let budget = Budget { step, log_bytes: 10, ..Budget::default() };
    let mut step = PolicyStep::new(plugin, Arc::new(Forty), &budget, LogSink::discard());
    step.set_needs(needs);
    step
}

fn begin(step: &mut PolicyStep, position: u64) {
    let row = RowView::new(&Row, 0);
    let generated = vec![0; position as usize];
    step.begin(&PolicyInput { row: Some(&row), accepted: &[1, 2], generated: &generated, seed: 3 });
}

/// A step that has begun.
fn running(needs: Needs) -> PolicyStep {
    let mut step = ended(needs);
    begin(&mut step, 6);
    step
}

#[test]
fn what_is_read_is_what_the_needs_name() {
    let is_granted = |needs: Needs| {
        let mut step = running(needs);
        [step.top(2).is_ok(), step.top(3).is_ok(), step.get(&[5]).is_ok(), step.entropy().is_ok()]
    };
    assert_eq!(is_granted(Needs::MaskOnly), [false; 4]);
    assert_eq!(is_granted(Needs::TopK(2)), [true, false, false, false]);
    assert_eq!(is_granted(Needs::FullLogits), [true; 4]);
    for needs in [Needs::TopK(2), Needs::FullLogits] {
        assert_eq!(running(needs).top(2).unwrap(), [(5, 4.0), (9, 3.0)]);
    }
    let mut step = running(Needs::FullLogits);
    assert_eq!(step.get(&[9, 0]).unwrap(), [3.0, 0.0]);
    let sum: f64 = LOGITS.iter().map(|logit| f64::from(*logit).exp()).sum();
    let terms = LOGITS.iter().map(|logit| {
        let p = f64::from(*logit).exp() / sum;
        -p * p.ln()
    });
    // The softmax's terms are float32: 2^-24 of each, and their logarithms.
    assert!((step.entropy().unwrap() - terms.sum::<f64>()).abs() < 1e-5);
    assert_eq!(step.accepted().unwrap(), [1, 2]);
    assert_eq!(step.position().unwrap(), 6);
}

#[test]
fn random_numbers_begin_anew_in_each_step() {
    let mut step = running(Needs::MaskOnly);
    let drawn: Vec<u32> = (0..3).map(|_| step.random_u32().unwrap()).collect();
    assert_eq!(drawn, [0, 1, 2].map(|draw| random_u32(3, 6, draw)));
    begin(&mut step, 7);
    assert_eq!(step.random_u32().unwrap(), random_u32(3, 7, 0));
}

#[test]
fn edits_add_up_and_begin_anew() {
    let mut step = running(Needs::MaskOnly);
    step.allow_runs(vec![(0, 10), (30, 40)]).unwrap();
    step.allow_words(vec![0b1010_0000_0000]).unwrap();
    step.bias(&[1, 1], &[0.5, f32::NEG_INFINITY]).unwrap();
    step.force(&[4]).unwrap();
    step.force(&[5, 6]).unwrap();
    step.apply(Sampler::TopK { k: 3 }).unwrap();
    step.finish("done").unwrap();
    let mut both = TokenMask::from_runs(40, [(0, 10), (30, 40)]);
    both.intersect(&TokenMask::from_runs(40, [(9, 10), (11, 12)]));
    let expected = Edits {
        allowed: Some(both),
        bias: vec![(1, 0.5), (1, f32::NEG_INFINITY)],
        samplers: vec![Sampler::TopK { k: 3 }],
        forced: vec![4, 5, 6],
        finish: Some(FinishReason::Policy("done".to_owned())),
    };
    assert_eq!(step.end(), expected);
    begin(&mut step, 7);
    assert_eq!(step.end(), Edits::none());
}

type Call = fn(&mut PolicyStep) -> Result<(), StepRefusal>;

#[test]
fn a_refused_call_changes_nothing_and_is_remembered() {
    let dry = |breaker| Sampler::Dry {
        multiplier: 1.0,
        base: 2.0,
        allowed_length: 1,
        context_tokens: 0,
        sequence_breakers: vec![breaker],
    };
    let cases: [(Call, &str, &str); 19] = [
        (|step| step.top(1).map(drop), "policy.not-granted", "needs = top-k(1) or full-logits"),
        (|step| step.get(&[1]).map(drop), "policy.not-granted", "needs = full-logits"),
        (|step| step.entropy().map(drop), "policy.not-granted", "needs = mask-only"),
        (|step| step.bias(&[40], &[0.0]), "policy.unknown-token", "ids below 40"),
        (|step| step.bias(&[1], &[]), "policy.parameter", "0 values for 1 ids"),
        (|step| step.bias(&[1], &[f32::NAN]), "policy.parameter", "NaN"),
        (|step| step.bias(&[1], &[f32::INFINITY]), "policy.parameter", "inf"),
        (|step| step.bias(&[1; 9], &[0.0; 9]), "policy.limit", "at most 8 biases"),
        (|step| step.allow_runs(vec![(3, 2)]), "policy.parameter", "3..2"),
        (|step| step.allow_runs(vec![(3, 41)]), "policy.unknown-token", "40"),
        (|step| step.allow_runs(vec![(0, 1); 9]), "policy.limit", "at most 8 runs"),
        (|step| step.allow_words(vec![0; 3]), "policy.limit", "at most 2 words"),
        (|step| step.force(&[7, 99]), "policy.unknown-token", "99"),
        (|step| step.force(&[7; 9]), "policy.limit", "at most 8 forced"),
        (|step| step.finish("too long"), "policy.limit", "at most 4 bytes"),
        (|step| step.encode("abcde").map(drop), "policy.limit", "at most 4 bytes"),
        (|step| step.encode("ab").map(drop), "policy.parameter", "\"ab\""),
        (|step| step.apply(Sampler::TopP { p: 0.0 }), "policy.parameter", "0 in `top_p`"),
        (|step| step.apply(Sampler::MirostatV2 { tau: 5.0, eta: 0.1 }), "policy.parameter", "mirostat_v2"),
    ];
    for (call, code, contains) in cases {
        let mut step = running(Needs::MaskOnly);
        let refusal = call(&mut step).unwrap_err();
        let report = refusal.report();
        assert_eq!(report.code, code, "{report}");
        assert!(report.to_string().contains(contains), "{report} lacks {contains}");
        assert_eq!(step.last_refusal(), Some(&refusal));
        assert_eq!(step.end(), Edits::none());
    }
    for (breaker, code) in
        [(Breaker::Id(40), "policy.unknown-token"), (Breaker::Text("\n".to_owned()), "policy.parameter")]
    {
        let refusal = running(Needs::MaskOnly).apply(dry(breaker)).unwrap_err();
        assert_eq!(refusal.report().code, code);
    }
}

#[test]
fn a_step_that_has_ended_refuses_every_call() {
    let mut step = running(Needs::FullLogits);
    step.end();
    for mut step in [step, ended(Needs::FullLogits)] {
        let refusals = [
            step.accepted().map(drop).unwrap_err(),
            step.top(1).map(drop).unwrap_err(),
            step.force(&[1]).unwrap_err(),
        ];
        assert!(refusals.iter().all(|refusal| matches!(refusal, StepRefusal::NoStep { .. })), "{refusals:?}");
    }
}

#[test]
fn calls_and_log_text_are_bounded() {
    let mut step = running(Needs::MaskOnly);
    (0..20).for_each(|_| step.position().map(drop).unwrap());
    assert_eq!(step.position().unwrap_err().report().expected.as_deref(), Some("at most 20 calls in a step"));
    begin(&mut step, 1);
    step.position().expect("each step has its own calls");
    assert!(step.log("123456789"), "nine bytes and the line's end");
    assert!(!step.log(""), "the log is the request's");
}
