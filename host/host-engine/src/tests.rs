//! The loop over a toy executable: what a request gets depends on nothing but itself.

use host_core::{FinishReason, Reported, SamplingSettings};
use proptest::prelude::*;

use crate::fake::{FakeExecutable, StepLog, Toy};
use crate::{
    CancelFlag, Driver, Engine, EngineError, EngineOptions, Event, Outcome, Request, RequestId, SessionId,
    Usage,
};

mod foresight;
mod policies;
mod session_policies;

fn engine(toy: &Toy) -> (Engine, StepLog) {
    let (executable, log) = FakeExecutable::new(toy.clone());
    let options = EngineOptions { context_tokens: toy.context_tokens, max_step_tokens: toy.max_step_tokens };
    (Engine::new(executable, options), log)
}

fn greedy(prompt: &[u32], max_tokens: usize) -> Request {
    Request::new(prompt.to_vec(), max_tokens, SamplingSettings::GREEDY)
}

fn drawn(prompt: &[u32], max_tokens: usize, seed: u64) -> Request {
    let sampling = SamplingSettings { temperature: 1.5, seed, ..SamplingSettings::GREEDY };
    Request::new(prompt.to_vec(), max_tokens, sampling)
}

/// Steps until nothing runs.
fn drain(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..10_000 {
        if engine.is_idle() {
            return events;
        }
        events.extend(engine.step());
    }
    panic!("the engine does not come to rest");
}

fn tokens_of(events: &[Event], id: RequestId) -> Vec<u32> {
    let token = |event: &Event| match (&event.outcome, event.request == id) {
        (Outcome::Token { token_id, .. }, true) => Some(*token_id),
        _ => None,
    };
    events.iter().filter_map(token).collect()
}

/// The last outcome of a request: a reason, or the code of the error. Nothing may follow it.
fn end_of(events: &[Event], id: RequestId) -> Result<FinishReason, &'static str> {
    let mut own = events.iter().filter(|event| event.request == id).rev();
    match &own.next().expect("the request has an outcome").outcome {
        Outcome::Finished { reason, .. } => Ok(reason.clone()),
        Outcome::Failed(report) => Err(report.code),
        Outcome::Token { .. } => panic!("the request goes on"),
    }
}

fn usage_of(events: &[Event], id: RequestId) -> Usage {
    let usage = |event: &Event| match (&event.outcome, event.request == id) {
        (Outcome::Finished { usage, .. }, true) => Some(*usage),
        _ => None,
    };
    events.iter().find_map(usage).expect("the request finished")
}

/// Every sequence is freed: a toy executable counts them in its memory plan.
fn assert_all_released(engine: &Engine) {
    assert_eq!(engine.executable().memory().state_bytes, 0, "sequences are still held");
}

#[test]
fn one_request_generates_what_the_model_says() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let id = engine.submit(greedy(&[3, 5], 6)).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, id), toy.continue_greedily(&[3, 5], 6));
    assert_eq!(end_of(&events, id), Ok(FinishReason::Length));
    let expected = Usage { prompt_tokens: 2, reused_tokens: 0, generated_tokens: 6 };
    assert_eq!(usage_of(&events, id), expected);
    assert_all_released(&engine);
    assert!(engine.step().is_empty());
}

#[test]
fn bad_requests_are_refused_at_the_door() {
    let toy = Toy { context_tokens: 4, ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let hot = SamplingSettings { temperature: -1.0, ..SamplingSettings::GREEDY };
    let mut many_logprobs = greedy(&[1], 1);
    many_logprobs.logprobs = Some(62);
    let mut no_session = greedy(&[1], 1);
    no_session.session = Some(crate::SessionId(9));
    let cases = [
        (greedy(&[], 1), "engine.empty-prompt"),
        (greedy(&[1; 5], 1), "engine.prompt-too-long"),
        (greedy(&[1, 61], 1), "engine.prompt-token"),
        (greedy(&[1], 0), "engine.no-tokens"),
        (Request::new(vec![1], 1, hot), "sampling.out-of-range"),
        (many_logprobs, "engine.too-many-logprobs"),
        (no_session, "engine.unknown-session"),
    ];
    for (request, expected) in cases {
        let error = engine.submit(request).expect_err(expected);
        assert_eq!(error.report().code, expected);
    }
    assert!(engine.is_idle());
}

#[test]
fn a_stop_token_ends_unless_it_is_to_be_ignored() {
    let toy = Toy::default();
    let whole = toy.continue_greedily(&[3, 5], 6);
    let position = whole.iter().position(|token| *token == whole[3]).expect("it is there");
    for ignore_eos in [false, true] {
        let (mut engine, _) = engine(&toy);
        let mut request = greedy(&[3, 5], 6);
        request.stop_token_ids = vec![whole[3]];
        request.ignore_eos = ignore_eos;
        let id = engine.submit(request).expect("a good request");
        let events = drain(&mut engine);
        let (n, reason) = if ignore_eos { (6, FinishReason::Length) } else { (position, FinishReason::Stop) };
        assert_eq!(tokens_of(&events, id), whole[..n]);
        assert_eq!(end_of(&events, id), Ok(reason));
    }
}

#[test]
fn a_prompt_may_fill_the_context_and_generation_ends_with_it() {
    let toy = Toy { context_tokens: 8, ..Toy::default() };
    for n_prompt in [1, 7, 8] {
        let (mut engine, _) = engine(&toy);
        let prompt = vec![2; n_prompt];
        let id = engine.submit(greedy(&prompt, 100)).expect("a good request");
        let events = drain(&mut engine);
        // The last token needs no room: it is not fed again.
        assert_eq!(tokens_of(&events, id), toy.continue_greedily(&prompt, 8 - n_prompt + 1));
        assert_eq!(end_of(&events, id), Ok(FinishReason::Length));
        assert_all_released(&engine);
    }
}

#[test]
fn decoding_rows_come_first_and_prompts_fill_the_step() {
    let toy = Toy { max_step_tokens: 7, ..Toy::default() };
    let (mut engine, log) = engine(&toy);
    engine.submit(greedy(&[1, 2], 5)).expect("a good request");
    engine.submit(greedy(&[1; 12], 2)).expect("a good request");
    engine.submit(greedy(&[4; 3], 2)).expect("a good request");
    drain(&mut engine);
    let expected = vec![vec![2, 5], vec![1, 6], vec![1, 1, 3], vec![1, 1, 1], vec![1]];
    assert_eq!(*log.lock().expect("no panic"), expected);
}

#[test]
fn rows_take_turns_where_a_step_has_no_room_for_all() {
    let toy = Toy { max_step_tokens: 2, max_sequences: 5, ..Toy::default() };
    let (mut engine, log) = engine(&toy);
    let ids: Vec<RequestId> =
        (0..5).map(|i| engine.submit(greedy(&[i], 4)).expect("a good request")).collect();
    let events = drain(&mut engine);
    for (i, id) in ids.into_iter().enumerate() {
        assert_eq!(tokens_of(&events, id), toy.continue_greedily(&[i as u32], 4));
    }
    assert!(log.lock().expect("no panic").iter().all(|runs| runs.len() <= 2));
}

#[test]
fn requests_wait_for_a_sequence_in_their_order() {
    let toy = Toy { max_sequences: 2, ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let ids: Vec<RequestId> =
        (0..5).map(|i| engine.submit(greedy(&[i, i], 3)).expect("a good request")).collect();
    let events = drain(&mut engine);
    let mut order: Vec<RequestId> = events.iter().map(|event| event.request).collect();
    order.dedup();
    order.sort();
    order.dedup();
    assert_eq!(order, ids);
    let ends: Vec<RequestId> = events
        .iter()
        .filter(|event| matches!(event.outcome, Outcome::Finished { .. }))
        .map(|event| event.request)
        .collect();
    assert_eq!(ends, ids);
}

#[test]
fn cancelling_ends_a_row_before_the_next_step_and_a_waiting_request_at_once() {
    let toy = Toy { max_sequences: 2, ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let requests: Vec<Request> = (0..3).map(|i| greedy(&[i], 9)).collect();
    let flags: Vec<_> = requests.iter().map(|request| request.cancel.clone()).collect();
    let ids: Vec<RequestId> =
        requests.into_iter().map(|request| engine.submit(request).expect("a good request")).collect();
    let mut events = engine.step();
    flags[0].cancel();
    flags[2].cancel();
    events.extend(drain(&mut engine));
    assert_eq!(tokens_of(&events, ids[0]).len(), 1);
    assert_eq!(end_of(&events, ids[0]), Ok(FinishReason::Cancelled));
    assert_eq!(tokens_of(&events, ids[1]), toy.continue_greedily(&[1], 9));
    assert_eq!(tokens_of(&events, ids[2]).len(), 0);
    assert_eq!(end_of(&events, ids[2]), Ok(FinishReason::Cancelled));
    assert_all_released(&engine);
}

#[test]
fn a_refused_run_ends_its_row_and_the_step_goes_on_without_it() {
    let toy = Toy { refused_token: Some(13), ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let good = engine.submit(greedy(&[1, 2], 4)).expect("a good request");
    let bad = engine.submit(greedy(&[1, 13], 4)).expect("only the device knows");
    let other = engine.submit(greedy(&[2, 3], 4)).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(end_of(&events, bad), Err("device.token-out-of-range"));
    assert_eq!(tokens_of(&events, good), toy.continue_greedily(&[1, 2], 4));
    assert_eq!(tokens_of(&events, other), toy.continue_greedily(&[2, 3], 4));
    assert_all_released(&engine);
}

#[test]
fn logits_that_are_no_numbers_end_their_row_only() {
    let toy = Toy { nan_after: Some(50), ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let good = engine.submit(greedy(&[1, 2], 4)).expect("a good request");
    let bad = engine.submit(greedy(&[1, 50], 4)).expect("only the device knows");
    let events = drain(&mut engine);
    assert_eq!(end_of(&events, bad), Err("engine.logits"));
    assert_eq!(end_of(&events, good), Ok(FinishReason::Length));
    assert_all_released(&engine);
}

#[test]
fn a_failing_device_ends_every_row_and_later_requests_run() {
    let toy = Toy { failing_step: Some(2), max_sequences: 2, ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let ids: Vec<RequestId> =
        (0..3).map(|i| engine.submit(greedy(&[i], 6)).expect("a good request")).collect();
    let events = drain(&mut engine);
    for id in &ids[..2] {
        assert_eq!(tokens_of(&events, *id).len(), 2);
        assert_eq!(end_of(&events, *id), Err("device.memory"));
    }
    assert_eq!(tokens_of(&events, ids[2]), toy.continue_greedily(&[2], 6));
    assert_all_released(&engine);
}

#[test]
fn logprobs_come_with_each_token() {
    let toy = Toy::default();
    let (mut engine, _) = engine(&toy);
    let mut request = greedy(&[1], 2);
    request.logprobs = Some(2);
    engine.submit(request).expect("a good request");
    let events = drain(&mut engine);
    let Outcome::Token { token_id, logprobs: Some(logprobs) } = &events[0].outcome else {
        panic!("no logprobs: {events:?}")
    };
    assert_eq!(logprobs.top[0], (*token_id, logprobs.logprob));
    assert_eq!(logprobs.top.len(), 2);
    // The toy's logits fall by 0.25 a rank.
    assert!((logprobs.top[0].1 - logprobs.top[1].1 - 0.25).abs() < 1e-6);
}

#[test]
fn a_session_computes_only_what_is_new() {
    for is_append_only in [false, true] {
        let toy = Toy { is_append_only, ..Toy::default() };
        let (mut engine, log) = engine(&toy);
        let session = engine.open_session();
        let mut say = |prompt: &[u32]| {
            let mut request = greedy(prompt, 3);
            request.session = Some(session);
            let id = engine.submit(request).expect("a good request");
            let events = drain(&mut engine);
            (tokens_of(&events, id), usage_of(&events, id).reused_tokens)
        };
        let first = toy.continue_greedily(&[1, 2, 3], 3);
        assert_eq!(say(&[1, 2, 3]), (first.clone(), 0));
        // The sequence holds the prompt and all generated tokens but the last, which was never fed.
        let longer = [&[1, 2, 3][..], &first, &[9, 9]].concat();
        assert_eq!(say(&longer), (toy.continue_greedily(&longer, 3), 5));
        assert_eq!(log.lock().expect("no panic")[3], [3]);
        // Another continuation: the sequence goes back to what both have in common, or starts anew.
        let reused = if is_append_only { 0 } else { 3 };
        assert_eq!(say(&[1, 2, 3, 60]), (toy.continue_greedily(&[1, 2, 3, 60], 3), reused));
        // The same prompt again: its last token is computed for its logits.
        let reused = if is_append_only { 0 } else { 3 };
        assert_eq!(say(&[1, 2, 3, 60]), (toy.continue_greedily(&[1, 2, 3, 60], 3), reused));
        engine.close_session(session).expect("it is open");
        assert_all_released(&engine);
        assert!(matches!(engine.close_session(session), Err(EngineError::UnknownSession(_))));
    }
}

#[test]
fn a_session_runs_one_request_and_holds_one_sequence() {
    let toy = Toy { max_sequences: 1, ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let session = engine.open_session();
    let request = || Request { session: Some(session), ..greedy(&[1], 2) };
    engine.submit(request()).expect("a good request");
    let busy = engine.submit(request()).expect_err("it runs one");
    assert_eq!(busy.report().code, "engine.session-busy");
    assert!(matches!(engine.close_session(session), Err(EngineError::SessionBusy(_))));
    drain(&mut engine);
    let outside = engine.submit(greedy(&[1], 2)).expect("a good request");
    let events = drain(&mut engine);
    assert_eq!(end_of(&events, outside), Err("device.too-many-sequences"), "nothing would ever make room");
    let cancelled = request();
    cancelled.cancel.cancel();
    engine.submit(cancelled).expect("the session is free again");
    drain(&mut engine);
    engine.close_session(session).expect("it is open");
    assert_all_released(&engine);
}

#[test]
fn a_forked_session_holds_the_same_and_goes_its_own_way() {
    let toy = Toy { max_sequences: 2, ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let trunk = engine.open_session();
    let empty = engine.fork_session(trunk).expect("an empty one needs no sequence");
    engine.close_session(empty).expect("it is open");
    let say = |engine: &mut Engine, session, prompt: &[u32]| {
        let mut request = greedy(prompt, 2);
        request.session = Some(session);
        let id = engine.submit(request).expect("a good request");
        let events = drain(engine);
        (tokens_of(&events, id), usage_of(&events, id).reused_tokens)
    };
    say(&mut engine, trunk, &[1, 2, 3]);
    let branch = engine.fork_session(trunk).expect("there is room for one more");
    let full = engine.fork_session(trunk).expect_err("there is no third sequence");
    assert_eq!(full.report().code, "device.too-many-sequences");
    assert_eq!(say(&mut engine, branch, &[1, 2, 3, 9]), (toy.continue_greedily(&[1, 2, 3, 9], 2), 3));
    assert_eq!(say(&mut engine, trunk, &[1, 2, 3, 8]), (toy.continue_greedily(&[1, 2, 3, 8], 2), 3));
    for session in [trunk, branch] {
        engine.close_session(session).expect("it is open");
    }
    assert_all_released(&engine);
    assert!(matches!(engine.fork_session(trunk), Err(EngineError::UnknownSession(_))));
}

#[test]
fn a_failing_device_empties_the_sessions() {
    let toy = Toy { failing_step: Some(2), ..Toy::default() };
    let (mut engine, _) = engine(&toy);
    let session = engine.open_session();
    let request = || Request { session: Some(session), ..greedy(&[1], 2) };
    engine.submit(request()).expect("a good request");
    drain(&mut engine);
    engine.submit(greedy(&[5], 2)).expect("a good request");
    drain(&mut engine);
    assert_all_released(&engine);
    let id = engine.submit(request()).expect("the session is open");
    let events = drain(&mut engine);
    assert_eq!(tokens_of(&events, id), toy.continue_greedily(&[1], 2));
    assert_eq!(usage_of(&events, id).reused_tokens, 0);
}

proptest! {
    /// Whatever joins and leaves beside it, however its prompt is cut, a request gets the same tokens.
    #[test]
    fn a_request_does_not_feel_its_neighbours(
        prompts in prop::collection::vec(prop::collection::vec(0_u32..61, 1..40), 1..9),
        joins in prop::collection::vec(0_usize..12, 9),
        cancelled in prop::collection::vec(prop::bool::weighted(0.2), 9),
        max_step_tokens in 1_usize..64,
        max_sequences in 1_usize..8,
    ) {
        let alone = |i: usize| {
            let (mut engine, _) = engine(&Toy::default());
            let id = engine.submit(drawn(&prompts[i], 6, i as u64)).expect("a good request");
            tokens_of(&drain(&mut engine), id)
        };
        let (mut engine, _) = engine(&Toy { max_step_tokens, max_sequences, ..Toy::default() });
        let mut ids = vec![None; prompts.len()];
        let mut events = Vec::new();
        for step in 0..12 {
            for (i, prompt) in prompts.iter().enumerate().filter(|(i, _)| joins[*i] == step) {
                let request = drawn(prompt, 6, i as u64);
                let cancel = request.cancel.clone();
                ids[i] = Some(engine.submit(request).expect("a good request"));
                if cancelled[i] {
                    cancel.cancel();
                }
            }
            events.extend(engine.step());
        }
        events.extend(drain(&mut engine));
        for (i, id) in ids.into_iter().enumerate() {
            let id = id.expect("all have joined");
            if cancelled[i] {
                prop_assert_eq!(end_of(&events, id), Ok(FinishReason::Cancelled));
            } else {
                prop_assert_eq!(tokens_of(&events, id), alone(i));
            }
        }
        assert_all_released(&engine);
    }
}

#[test]
fn the_driver_serves_many_threads() {
    let toy = Toy::default();
    let driver = Driver::start(engine(&toy).0).expect("a thread");
    std::thread::scope(|scope| {
        for i in 0..6_u32 {
            let (driver, toy) = (&driver, &toy);
            scope.spawn(move || {
                let outcomes: Vec<Outcome> = driver.submit(greedy(&[i], 5)).expect("it runs").collect();
                let tokens: Vec<u32> = outcomes
                    .iter()
                    .filter_map(|outcome| match outcome {
                        Outcome::Token { token_id, .. } => Some(*token_id),
                        _ => None,
                    })
                    .collect();
                assert_eq!(tokens, toy.continue_greedily(&[i], 5));
                assert!(matches!(outcomes.last(), Some(Outcome::Finished { .. })));
            });
        }
    });
}

#[test]
fn the_driver_ends_what_nobody_listens_to() {
    let toy = Toy { max_sequences: 1, context_tokens: 1_000_000, ..Toy::default() };
    let driver = Driver::start(engine(&toy).0).expect("a thread");
    let mut endless = driver.submit(greedy(&[1], usize::MAX)).expect("it runs");
    assert!(matches!(endless.next(), Some(Outcome::Token { .. })));
    drop(endless);
    // The only sequence is free again, or this would wait for ever.
    assert_eq!(driver.submit(greedy(&[2], 2)).expect("it runs").count(), 3);
    let refused: Vec<Outcome> = driver.submit(greedy(&[], 2)).expect("it runs").collect();
    assert!(matches!(&refused[..], [Outcome::Failed(report)] if report.code == "engine.empty-prompt"));
    let session = driver.open_session().expect("it runs");
    driver.close_session(session).expect("it is open");
    let mut running = driver.submit(greedy(&[1], usize::MAX)).expect("it runs");
    drop(driver);
    // Some tokens may have come; then the channel closes, or this would wait for ever.
    assert!(running.all(|outcome| matches!(outcome, Outcome::Token { .. })));
}
