//! What needs no logits is found out while the device computes, once a step, and changes nothing of what comes out.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use host_plugins::PluginError;
use host_sampling::{Edits, TokenMask};

use super::policies::{grammar, plugin, with_blind_policy};
use super::*;

/// How long a test waits for what is to happen at once.
const LONG: Duration = Duration::from_secs(10);

/// An engine whose device ends no step before it has heard something.
fn engine_that_waits(toy: &Toy) -> (Engine, Sender<()>) {
    let (mut executable, _) = FakeExecutable::new(toy.clone());
    let (tell, heard): (_, Receiver<()>) = channel();
    executable.meanwhile = Box::new(move || heard.recv_timeout(LONG).expect("the guide is asked meanwhile"));
    let options = EngineOptions { context_tokens: toy.context_tokens, max_step_tokens: toy.max_step_tokens };
    (Engine::new(executable, options), tell)
}

/// Forbids what the toy would say.
fn forbid(toy: &Toy, text: &[u32]) -> Edits {
    Edits { bias: vec![(toy.next(text), f32::NEG_INFINITY)], ..Edits::none() }
}

/// The toy's runner-up, again and again.
fn runners_up(toy: &Toy, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut text = prompt.to_vec();
    for _ in 0..n {
        text.push((toy.next(&text) + 1) % toy.n_vocab as u32);
    }
    text.split_off(prompt.len())
}

#[test]
fn a_policy_that_reads_no_logits_is_asked_while_the_device_computes() {
    let toy = Toy::default();
    let (mut engine, tell) = engine_that_waits(&toy);
    let (judge, mut text) = (toy.clone(), Vec::new());
    let request = with_blind_policy(greedy(&[3, 5], 4), move |input| {
        assert!(input.row.is_none(), "there are no logits yet");
        text.extend_from_slice(input.accepted);
        tell.send(()).expect("the device listens");
        Ok(forbid(&judge, &text))
    });
    let id = engine.submit(request).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, id), runners_up(&toy, &[3, 5], 4));
    assert_all_released(&engine);
}

/// The device refuses one row and computes the step again without it: nobody else is asked a second time.
#[test]
fn a_step_that_is_run_again_asks_nobody_again() {
    let toy = Toy { refused_token: Some(13), ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let (tell, heard) = channel();
    let (judge, mut text) = (toy.clone(), Vec::new());
    let request = with_blind_policy(greedy(&[3, 5], 3), move |input| {
        tell.send((input.position(), input.accepted.to_vec())).expect("the test listens");
        text.extend_from_slice(input.accepted);
        Ok(forbid(&judge, &text))
    });
    let good = engine.submit(request).expect("a good request");
    let bad = with_blind_policy(greedy(&[1, 13], 3), |_| Ok(Edits::none()));
    let bad = engine.submit(bad).expect("only the device knows");
    let constrained = Request { constraint: Some(grammar(&toy, "[!-#][$-%][&-)]")), ..drawn(&[4], 9, 5) };
    let constrained = engine.submit(constrained).expect("a good request");
    let events = drain(&mut engine);
    let expected = runners_up(&toy, &[3, 5], 3);
    assert_eq!(tokens_of(&events, good), expected);
    assert_eq!(end_of(&events, bad), Err("device.token-out-of-range"));
    let found = tokens_of(&events, constrained);
    assert!(matches!(found[..], [0..3, 3..5, 5..9]), "each token has its own mask: {found:?}");
    let heard: Vec<_> = heard.try_iter().collect();
    assert_eq!(heard, [(0, vec![3, 5]), (1, vec![expected[0]]), (2, vec![expected[1]])]);
    assert_all_released(&engine);
}

#[test]
fn a_fault_that_was_foreseen_ends_its_request_alone() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let other = engine.submit(drawn(&[4, 4], 6, 9)).expect("a good request");
    let failing = with_blind_policy(greedy(&[3, 5], 6), |input| match input.position() {
        2 => Err(PluginError::Time { plugin: plugin(), hook: "step", budget_ms: 50 }),
        _ => Ok(Edits::none()),
    });
    let failing = engine.submit(failing).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, other).len(), 6);
    assert_eq!(tokens_of(&events, failing), toy.continue_greedily(&[3, 5], 2));
    assert_eq!(end_of(&events, failing), Err("plugin.time-budget"));
}

#[test]
fn a_policy_and_a_grammar_both_restrict_and_forced_tokens_go_on_in_the_grammar() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let mask = |input: &host_plugins::PolicyInput<'_>| {
        let mut edits = Edits::none();
        match input.position() {
            0 => edits.allow(TokenMask::from_runs(61, [(2, 40)])),
            _ => edits.forced = vec![1, 0],
        }
        Ok(edits)
    };
    let request = Request { constraint: Some(grammar(&toy, "[!-%]{3}")), ..greedy(&[4], 9) };
    let id = engine.submit(with_blind_policy(request, mask)).expect("a good request");
    let events = drain(&mut engine);
    let found = tokens_of(&events, id);
    assert!((2..5).contains(&found[0]), "in both sets: {found:?}");
    assert_eq!(found[1..], [1, 0]);
    assert_eq!(end_of(&events, id), Ok(FinishReason::Stop));
}

/// With log-probabilities forced tokens follow one a step; nobody is asked about those.
#[test]
fn a_policy_is_not_asked_about_tokens_that_it_forced() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let (tell, heard) = channel();
    let request = Request { logprobs: Some(0), ..greedy(&[3], 5) };
    let request = with_blind_policy(request, move |input| {
        tell.send(input.position()).expect("the test listens");
        let forced = if input.position() == 1 { vec![7, 8, 9] } else { Vec::new() };
        Ok(Edits { forced, ..Edits::none() })
    });
    let id = engine.submit(request).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, id)[1..4], [7, 8, 9]);
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [0, 1, 4]);
}

#[test]
fn an_engine_that_is_stopped_asks_nobody_ahead() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let policy = |_: &host_plugins::PolicyInput<'_>| panic!("it was stopped before");
    let id = engine.submit(with_blind_policy(greedy(&[5], 4), policy)).expect("a good request");
    engine.stop_flag().cancel();
    let events = drain(&mut engine);
    assert_eq!(end_of(&events, id), Ok(FinishReason::Cancelled));
    assert_all_released(&engine);
}
