//! Policies and grammars: what they are told, how they act, and that their faults are their own.

use host_plugins::{Needs, PluginError, PluginName, PolicyInput, PolicyInstance, PolicyTraits};
use host_sampling::{Budget as GrammarBudget, Edits, Grammar, GrammarSpec, TokenTable};

use super::*;

/// A policy that does what a function says.
struct Scripted<F> {
    name: PluginName,
    needs: Needs,
    step: F,
}

impl<F> PolicyInstance for Scripted<F>
where
    F: FnMut(&PolicyInput<'_>) -> Result<Edits, PluginError> + Send + 'static,
{
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            needs: self.needs,
            is_argmax_invariant: false,
            supports_rollback: false,
            supports_fork: false,
        }
    }

    fn step(&mut self, input: &PolicyInput<'_>) -> Result<Edits, PluginError> {
        (self.step)(input)
    }

    fn rollback(&mut self, _: u32) -> Result<(), PluginError> {
        unreachable!("the engine takes nothing back")
    }

    fn fork(&mut self) -> Result<Box<dyn PolicyInstance>, PluginError> {
        unreachable!("the engine forks nothing")
    }
}

pub(super) fn plugin() -> PluginName {
    PluginName { id: "scripted".to_owned(), version: "1.0.0".parse().expect("a version") }
}

/// A request whose policy reads logits: it is asked after the device.
pub(super) fn with_policy(
    request: Request,
    step: impl FnMut(&PolicyInput<'_>) -> Result<Edits, PluginError> + Send + 'static,
) -> Request {
    let policy = Scripted { name: plugin(), needs: Needs::FullLogits, step };
    Request { policy: Some(Box::new(policy)), ..request }
}

/// A request whose policy reads no logits: it is asked while the device computes.
pub(super) fn with_blind_policy(
    request: Request,
    step: impl FnMut(&PolicyInput<'_>) -> Result<Edits, PluginError> + Send + 'static,
) -> Request {
    let policy = Scripted { name: plugin(), needs: Needs::MaskOnly, step };
    Request { policy: Some(Box::new(policy)), ..request }
}

#[test]
fn a_policy_hears_every_token_once_and_its_edits_act() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let (heard, listen) = std::sync::mpsc::channel();
    let request = with_policy(greedy(&[3, 5], 4), move |input| {
        heard.send((input.position(), input.accepted.to_vec())).expect("the test listens");
        // The runner-up in place of the most likely token.
        let best = input.row.expect("it reads logits").top(1)[0].0;
        Ok(Edits { bias: vec![(best, f32::NEG_INFINITY)], ..Edits::none() })
    });
    let id = engine.submit(request).expect("a good request");
    let events = drain(&mut engine);
    let mut tokens = vec![3, 5];
    for _ in 0..4 {
        tokens.push((toy.next(&tokens) + 1) % toy.n_vocab as u32);
    }
    assert_eq!(tokens_of(&events, id), tokens[2..]);
    let heard: Vec<_> = listen.try_iter().collect();
    assert_eq!(heard[0], (0, vec![3, 5]));
    let later: Vec<_> = (1..4).map(|i| (i as u64, vec![tokens[1 + i]])).collect();
    assert_eq!(heard[1..], later);
}

#[test]
fn forced_tokens_follow_in_one_run_and_as_single_ones_with_log_probabilities() {
    let toy = Toy::default();
    for logprobs in [None, Some(0)] {
        let (mut engine, log) = engine(&toy);
        let request = Request { logprobs, ..greedy(&[3], 5) };
        let request = with_policy(request, |input| {
            let forced = if input.position() == 1 { vec![7, 8, 9] } else { Vec::new() };
            Ok(Edits { forced, ..Edits::none() })
        });
        let id = engine.submit(request).expect("a good request");
        let events = drain(&mut engine);
        let first = toy.next(&[3]);
        let last = toy.next(&[3, first, 7, 8, 9]);
        assert_eq!(tokens_of(&events, id), [first, 7, 8, 9, last]);
        let runs: Vec<usize> = log.lock().expect("no panic").iter().map(|step| step[0]).collect();
        let expected: &[usize] = if logprobs.is_none() { &[1, 1, 3] } else { &[1, 1, 1, 1, 1] };
        assert_eq!(runs, expected);
        assert_all_released(&engine);
    }
}

#[test]
fn forced_tokens_end_with_the_request() {
    let toy = Toy::default();
    let all = |_: &PolicyInput<'_>| Ok(Edits { forced: vec![7, 8, 9, 10], ..Edits::none() });
    let (mut engine, _) = engine(&toy);
    let id = engine.submit(with_policy(greedy(&[3], 3), all)).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, id), [7, 8, 9]);
    assert_eq!(end_of(&events, id), Ok(FinishReason::Length));
    let request = Request { stop_token_ids: vec![9], ..greedy(&[3], 10) };
    let id = engine.submit(with_policy(request, all)).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, id), [7, 8]);
    assert_eq!(end_of(&events, id), Ok(FinishReason::Stop));
}

#[test]
fn a_policy_may_end_its_request_with_its_own_reason() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let reason = FinishReason::Policy("enough".to_owned());
    let given = reason.clone();
    let request = with_policy(greedy(&[3], 9), move |input| {
        let finish = (input.position() == 2).then(|| given.clone());
        Ok(Edits { finish, ..Edits::none() })
    });
    let id = engine.submit(request).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, id).len(), 2);
    assert_eq!(end_of(&events, id), Ok(reason));
}

#[test]
fn a_policy_that_fails_ends_its_request_alone() {
    let toy = Toy::default();
    let alone = {
        let (mut engine, _) = engine(&toy);
        let id = engine.submit(drawn(&[4, 4], 12, 9)).expect("a good request");
        tokens_of(&drain(&mut engine), id)
    };
    let (mut engine, _) = engine(&toy);
    let other = engine.submit(drawn(&[4, 4], 12, 9)).expect("a good request");
    let failing = with_policy(greedy(&[3, 5], 12), |input| match input.position() {
        3 => Err(PluginError::Time { plugin: plugin(), hook: "step", budget_ms: 50 }),
        _ => Ok(Edits::none()),
    });
    let failing = engine.submit(failing).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, other), alone);
    assert_eq!(tokens_of(&events, failing).len(), 3);
    assert_eq!(end_of(&events, failing), Err("plugin.time-budget"));
    assert_all_released(&engine);
}

/// A guest may take its budget, so the flag is looked at before each guest of a step and not only before the step.
#[test]
fn a_request_that_is_cancelled_during_a_step_waits_for_no_guest_of_its_own() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let cancel = CancelFlag::new();
    let raised = cancel.clone();
    let first = with_policy(greedy(&[3], 4), move |input| {
        if input.position() == 1 {
            raised.cancel();
        }
        Ok(Edits::none())
    });
    let second = with_policy(Request { cancel, ..greedy(&[5], 4) }, |input| {
        assert_eq!(input.position(), 0, "the request was cancelled before this step");
        Ok(Edits::none())
    });
    let first = engine.submit(first).expect("a good request");
    let second = engine.submit(second).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(end_of(&events, first), Ok(FinishReason::Length));
    assert_eq!(end_of(&events, second), Ok(FinishReason::Cancelled));
    assert_eq!(tokens_of(&events, second).len(), 1);
    assert_all_released(&engine);
}

#[test]
fn an_engine_that_is_stopped_calls_no_further_guest() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let stop = engine.stop_flag();
    let first = with_policy(greedy(&[3], 4), move |_| {
        stop.cancel();
        Ok(Edits::none())
    });
    let second = with_policy(greedy(&[5], 4), |_| panic!("it was stopped before"));
    let (first, second) = (engine.submit(first).expect("good"), engine.submit(second).expect("good"));
    let plain = engine.submit(greedy(&[7], 4)).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, first).len(), 1);
    assert_eq!(end_of(&events, first), Ok(FinishReason::Cancelled));
    assert_eq!(end_of(&events, second), Ok(FinishReason::Cancelled));
    assert_eq!(end_of(&events, plain), Ok(FinishReason::Length));
    assert_all_released(&engine);
}

/// Token `i` of the toy's vocabulary is the character 33 + i; the last one ends a generation.
pub(super) fn grammar(toy: &Toy, regex: &str) -> Grammar {
    let tokens = (0..toy.n_vocab as u8).map(|i| vec![33 + i]).collect();
    let table =
        TokenTable::new(toy.n_vocab, tokens, &[], &[toy.n_vocab as u32 - 1]).expect("a sound vocabulary");
    Grammar::compile(&GrammarSpec::Regex(regex.to_owned()), &table, GrammarBudget::default()).expect("sound")
}

#[test]
fn a_constrained_row_keeps_to_its_grammar_and_disturbs_nobody() {
    let toy = Toy::default();
    let alone = {
        let (mut engine, _) = engine(&toy);
        let id = engine.submit(drawn(&[1, 2], 9, 3)).expect("a good request");
        tokens_of(&drain(&mut engine), id)
    };
    let (mut engine, _) = engine(&toy);
    let other = engine.submit(drawn(&[1, 2], 9, 3)).expect("a good request");
    let mut constrained = |regex: &str| {
        let request = Request { constraint: Some(grammar(&toy, regex)), ..drawn(&[4], 9, 5) };
        engine.submit(request).expect("a good request")
    };
    let (three, many) = (constrained("[!-%]{3}"), constrained("[&-)]+"));
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, other), alone);
    let found = tokens_of(&events, three);
    assert!(found.len() == 3 && found.iter().all(|token| *token < 5), "{found:?}");
    assert_eq!(end_of(&events, three), Ok(FinishReason::Stop), "nothing may follow, so nothing was computed");
    let found = tokens_of(&events, many);
    assert!(found.iter().all(|token| (5..9).contains(token) || *token == 60), "{found:?}");
}

#[test]
fn a_grammar_of_another_vocabulary_is_refused() {
    let (mut engine, _) = engine(&Toy::default());
    let other = grammar(&Toy { n_vocab: 60, ..Toy::default() }, "a");
    let refused = engine.submit(Request { constraint: Some(other), ..greedy(&[1], 1) });
    assert_eq!(refused.map_err(|error| error.report().code), Err("engine.other-vocabulary"));
}
