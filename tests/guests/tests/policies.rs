//! Sampling policies over both runtimes: twins give the same tokens, and each step has its own deadline. What becomes
//! of policies that misbehave is judged in `escape`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use guests::{
    Bytes, Loop, lua_package, misbehave_policy_lua, misbehave_policy_wasm, numbers, released_package,
    wasm_package,
};
use host_core::{Reported, SamplingChain, SamplingSettings};
use host_lua::LuaPolicy;
use host_plugins::{
    Budget, Grants, LogSink, Needs, PluginError, PluginPackage, PolicyInput, PolicyInstance,
    PolicyVocabulary, Right, SamplingPolicy, StepBudget,
};
use host_wasm::WasmRuntime;
use serde_json::{Value as Json, json};

const N_TOKENS: usize = 60;

fn open_both(packages: [PluginPackage; 2], budget: Budget) -> [Box<dyn SamplingPolicy>; 2] {
    let [wasm, lua] = packages;
    let runtime = WasmRuntime::new(None).unwrap();
    let wasm = runtime.open_policy(&wasm, budget, LogSink::discard()).unwrap();
    [Box::new(wasm), Box::new(LuaPolicy::open(&lua, budget, LogSink::discard()).unwrap())]
}

fn twins(id: &str) -> [Box<dyn SamplingPolicy>; 2] {
    open_both([wasm_package(id), lua_package(&format!("{id}-lua"))], Budget::default())
}

fn grants() -> Grants {
    Grants::new([Right::FullLogits])
}

fn chain(temperature: f32, seed: u64) -> SamplingChain {
    SamplingSettings { temperature, seed, ..SamplingSettings::GREEDY }.into()
}

/// The tokens that a policy gives without an engine.
fn decode(instance: &mut dyn PolicyInstance, case: &Json) -> Vec<u32> {
    let chain = chain(case["temperature"].as_f64().unwrap() as f32, case["seed"].as_u64().unwrap());
    let mut request = Loop::new(case["n_vocab"].as_u64().unwrap() as u32, &[1, 2, 3], &chain);
    // A policy that excludes every token has no next step.
    let n_tokens = if case["params"]["ngram"] == json!(2) { 40 } else { N_TOKENS };
    for _ in 0..n_tokens {
        request.step(instance).unwrap();
    }
    request.generated().to_vec()
}

fn cases() -> Vec<Json> {
    serde_json::from_str(include_str!("../cases/policies.json")).unwrap()
}

fn case(policy: &str) -> Json {
    cases().into_iter().find(|case| case["policy"] == policy).unwrap()
}

fn vocabulary(case: &Json) -> Arc<dyn PolicyVocabulary> {
    if case["vocabulary"] == "bytes" {
        return Arc::new(Bytes);
    }
    numbers(case["n_vocab"].as_u64().unwrap() as u32)
}

#[test]
fn twins_give_the_same_tokens() {
    for case in cases() {
        let [wasm, lua] = twins(case["policy"].as_str().unwrap()).map(|policy| {
            let params = case["params"].to_string();
            let mut instance = policy.open(&params, vocabulary(&case), &grants()).unwrap();
            (policy.describe().unwrap(), decode(&mut *instance, &case))
        });
        assert_eq!(wasm, lua, "{case}");
    }
}

/// Constraints came with contract 0.2; what was built against it then still holds to them.
#[test]
fn a_stored_policy_with_a_constraint_gives_the_same_tokens() {
    let runtime = WasmRuntime::new(None).unwrap();
    let (budget, log) = (Budget::default(), LogSink::discard());
    let stored = runtime.open_policy(&released_package("0.2", "json"), budget, log).unwrap();
    let [_, lua] = twins("json");
    for case in cases().into_iter().filter(|case| case["policy"] == "json") {
        let [stored, lua] = [&stored as &dyn SamplingPolicy, &*lua].map(|policy| {
            let params = case["params"].to_string();
            decode(&mut *policy.open(&params, vocabulary(&case), &grants()).unwrap(), &case)
        });
        assert_eq!(stored, lua, "{case}");
    }
}

#[test]
fn twins_refuse_alike() {
    let cases = [
        ("no-repeat", json!({ "ngram": 0 }), "plugin.invalid-config", "params.ngram: 0"),
        ("no-repeat", json!({}), "plugin.invalid-config", "params.ngram: nothing"),
        ("no-repeat", json!({ "ngram": 2, "n": 1 }), "plugin.unsupported-config", "params.n: 1"),
        (
            "watermark",
            json!({ "gamma": 1, "delta": 1, "key": 1 }),
            "plugin.invalid-config",
            "params.gamma: 1",
        ),
        ("watermark", json!([]), "plugin.invalid-config", "params: []"),
        ("standard", json!({ "top_p": "x" }), "plugin.invalid-config", "params.top_p: \"x\""),
        (
            "json",
            json!({ "schema": true, "whitespace": "some" }),
            "plugin.invalid-config",
            "params.whitespace: \"some\"",
        ),
        ("json", json!({ "whitespace": "none" }), "plugin.invalid-config", "params.schema: nothing"),
        (
            "json",
            json!({ "schema": { "properties": { "a": { "not": {} } } }, "whitespace": "none" }),
            "constraint.unsupported-schema",
            "not at /properties/a/not",
        ),
        (
            "json",
            json!({ "schema": { "type": "integer", "minimum": 3, "maximum": 2 }, "whitespace": "none" }),
            "constraint.unsatisfiable",
            "",
        ),
        ("entropy-adaptive", json!({ "low": 0 }), "plugin.invalid-config", "params.low: 0"),
    ];
    for (id, params, code, found) in cases {
        for policy in twins(id) {
            let error = policy.open(&params.to_string(), numbers(10), &grants()).unwrap_err();
            let report = error.report();
            assert_eq!((report.code, report.found.as_deref().unwrap_or_default()), (code, found), "{report}");
            assert!(!error.is_fault(), "{report}");
        }
    }
}

/// No n-gram of the whole text comes twice, which a set tells.
#[test]
fn no_repeat_repeats_nothing() {
    for case in cases().into_iter().filter(|case| case["policy"] == "no-repeat") {
        let n = case["params"]["ngram"].as_u64().unwrap() as usize;
        let [wasm, _] = twins("no-repeat");
        let vocabulary = numbers(case["n_vocab"].as_u64().unwrap() as u32);
        let mut instance = wasm.open(&case["params"].to_string(), vocabulary, &grants()).unwrap();
        let text = [&[1, 2, 3][..], &decode(&mut *instance, &case)].concat();
        let grams: std::collections::BTreeSet<_> = text.windows(n).collect();
        assert_eq!(grams.len(), text.len() + 1 - n, "{case}");
    }
}

/// An independent validator judges what a policy let through until the text ended.
#[test]
fn what_json_lets_through_satisfies_the_schema() {
    for case in cases().into_iter().filter(|case| case["policy"] == "json") {
        for policy in twins("json") {
            let mut instance =
                policy.open(&case["params"].to_string(), vocabulary(&case), &grants()).unwrap();
            let tokens = decode(&mut *instance, &case);
            let text: Vec<u8> =
                tokens.iter().take_while(|token| **token != 0).map(|token| *token as u8).collect();
            assert!(
                text.len() < tokens.len(),
                "the text has not ended: {:?}",
                String::from_utf8_lossy(&text)
            );
            let value: Json = serde_json::from_slice(&text).unwrap();
            assert!(jsonschema::is_valid(&case["params"]["schema"], &value), "{value}");
            // After the end, nothing but the end.
            assert!(tokens[text.len()..].iter().all(|token| *token == 0));
        }
    }
}

/// A constraint goes back with the text, and a fork's goes its own way.
#[test]
fn a_constraint_follows_the_text() {
    let case = case("json");
    for policy in twins("json") {
        let open = || policy.open(&case["params"].to_string(), vocabulary(&case), &grants()).unwrap();
        let allowed = |instance: &mut dyn PolicyInstance, text: &str| -> String {
            let generated: Vec<u32> = text.bytes().map(u32::from).collect();
            let row = guests::logits(128, &generated);
            let row = host_sampling::RowView::new(&row, 0);
            let input = PolicyInput { row: Some(&row), accepted: &generated, generated: &generated, seed: 1 };
            let mask = instance.step(&input).unwrap().allowed.unwrap();
            mask.iter().map(|id| id as u8 as char).collect()
        };
        let mut instance = open();
        assert_eq!(allowed(&mut *instance, ""), "{");
        assert_eq!(allowed(&mut *instance, r#"{"name":"x","age":1"#), ",0123456789");
        instance.rollback(3).unwrap();
        assert_eq!(allowed(&mut *instance, r#"{"name":"x","age"#), "\"");
        let mut fork = instance.fork().unwrap();
        assert_eq!(allowed(&mut *fork, r#"{"name":"x","age":12"#), ",0");
        assert_eq!(allowed(&mut *instance, r#"{"name":"x","age":2"#), ",0123456789");
        assert_eq!(allowed(&mut *fork, r#"{"name":"x","age":120,"tags":["#), "\"]");
        // A text that is none of the constraint's own ends the request.
        let generated: Vec<u32> = "{]".bytes().map(u32::from).collect();
        let row = guests::logits(128, &generated);
        let row = host_sampling::RowView::new(&row, 0);
        let input = PolicyInput { row: Some(&row), accepted: &generated, generated: &generated, seed: 1 };
        assert_eq!(instance.step(&input).unwrap_err().report().code, "constraint.not-allowed");
    }
}

/// The statistic of the paper, with a green list computed anew in whole numbers of 128 bits.
#[test]
fn the_watermark_is_found_with_its_key_alone() {
    let case = json!({ "params": { "gamma": 0.25, "delta": 4.0, "key": 77 }, "n_vocab": 500,
                       "temperature": 1.0, "seed": 9 });
    let [wasm, _] = twins("watermark");
    let mut instance = wasm.open(&case["params"].to_string(), numbers(500), &grants()).unwrap();
    let text = [&[3][..], &decode(&mut *instance, &case)].concat();
    let z = |key: u128| {
        let n = (text.len() - 1) as f64;
        let green = text.windows(2).filter(|pair| is_green(key, pair[0], pair[1], 0.25)).count() as f64;
        (green - 0.25 * n) / (0.25 * 0.75 * n).sqrt()
    };
    assert!(z(77) > 6.0, "z = {}", z(77));
    assert!(z(78).abs() < 4.0, "z = {}", z(78));
}

fn is_green(key: u128, previous: u32, id: u32, gamma: f64) -> bool {
    let p = (1_u128 << 31) - 1;
    let x = (u128::from(previous) + key + 1) % p;
    let seed = ((x * x * x + key * x + 1) % p).max(1);
    let power = (0..=id).fold(1, |power: u128, _| power * 16_807 % p);
    ((seed * power % p) as f64) < gamma * p as f64
}

/// The same samplers in the request's own chain.
#[test]
fn standard_is_the_native_chain() {
    let case = json!({ "params": { "top_p": 0.9, "min_p": 0.05, "top_k": 40, "temperature": 0.8 },
                       "n_vocab": 300, "temperature": 1.0, "seed": 6 });
    let native = SamplingSettings {
        temperature: 0.8,
        top_p: 0.9,
        min_p: 0.05,
        top_k: 40,
        seed: 6,
        ..SamplingSettings::GREEDY
    };
    let mut alone = Loop::new(300, &[1, 2, 3], &native.into());
    let [nothing, _] = misbehave(Budget::default());
    let mut nothing = nothing.open(r#"{"do": "nothing"}"#, numbers(300), &grants()).unwrap();
    for _ in 0..N_TOKENS {
        alone.step(&mut *nothing).unwrap();
    }
    for policy in twins("standard") {
        let mut instance = policy.open(&case["params"].to_string(), numbers(300), &grants()).unwrap();
        assert_eq!(decode(&mut *instance, &case), alone.generated());
    }
}

#[test]
fn full_logits_are_a_right() {
    for policy in twins("entropy-adaptive") {
        assert_eq!(policy.describe().unwrap().needs, Needs::FullLogits);
        let params = case("entropy-adaptive")["params"].to_string();
        let error = policy.open(&params, numbers(10), &Grants::default()).unwrap_err();
        assert_eq!(error.report().code, "plugin.not-granted");
        assert!(error.to_string().contains("full-logits"), "{error}");
    }
}

/// After a rollback, and in a fork, a policy stands where one stands that never saw more.
#[test]
fn rollback_and_fork_leave_no_trace() {
    for case in cases().into_iter().filter(|case| case["policy"] != "standard") {
        let n_vocab = case["n_vocab"].as_u64().unwrap() as u32;
        for policy in twins(case["policy"].as_str().unwrap()) {
            let open = || policy.open(&case["params"].to_string(), vocabulary(&case), &grants()).unwrap();
            let chain = chain(0.0, 1);
            let plain = |tokens: &[u32]| Loop::new(n_vocab, tokens, &chain).edits(&mut *open()).unwrap();
            let mut instance = open();
            Loop::new(n_vocab, &[1, 2, 3, 4, 1], &chain).edits(&mut *instance).unwrap();
            instance.rollback(2).unwrap();
            let mut fork = instance.fork().unwrap();
            let next = |instance: &mut dyn PolicyInstance, token: u32| {
                // The logits belong to the whole text; only `accepted` is what is new.
                let row = guests::logits(n_vocab, &[1, 2, 3, token]);
                let row = host_sampling::RowView::new(&row, 0);
                let input = host_plugins::PolicyInput {
                    row: Some(&row),
                    accepted: &[token],
                    generated: &[],
                    seed: 1,
                };
                instance.step(&input).unwrap()
            };
            assert_eq!(next(&mut *instance, 2), plain(&[1, 2, 3, 2]), "{case}");
            assert_eq!(next(&mut *fork, 1), plain(&[1, 2, 3, 1]), "{case}");
            drop(instance);
            assert_eq!(next(&mut *fork, 4), {
                let mut all = open();
                Loop::new(n_vocab, &[1, 2, 3, 1], &chain).edits(&mut *all).unwrap();
                next(&mut *all, 4)
            });
        }
    }
}

fn budget() -> Budget {
    let step = StepBudget { time_ms: 250, calls: 1_000, list_entries: 65_536, text_bytes: 4_096 };
    Budget { time_ms: 300, memory_bytes: 16 << 20, log_bytes: 4_096, step, ..Budget::default() }
}

/// The same with 40 ms for a step.
fn short() -> Budget {
    Budget { step: StepBudget { time_ms: 40, ..budget().step }, ..budget() }
}

fn misbehave(budget: Budget) -> [Box<dyn SamplingPolicy>; 2] {
    open_both([misbehave_policy_wasm(), misbehave_policy_lua()], budget)
}

fn deed(policy: &dyn SamplingPolicy, deed: &str) -> Result<Box<dyn PolicyInstance>, PluginError> {
    policy.open(&json!({ "do": deed }).to_string(), numbers(50), &grants())
}

/// Opens and steps once.
fn run(policy: &dyn SamplingPolicy, name: &str) -> Result<(), PluginError> {
    let mut instance = deed(policy, name)?;
    Loop::new(50, &[1, 2], &chain(0.0, 1)).edits(&mut *instance).map(drop)
}

/// What a policy refuses is no fault, what it gives up with is one; its words arrive.
#[test]
fn refusals_and_errors_have_their_own_codes() {
    let cases = [
        ("invalid", ["plugin.invalid-config"; 2], "`params.do`", false),
        ("unsupported", ["plugin.unsupported-config"; 2], "`params.do`", false),
        ("error", ["plugin.guest-error", "plugin.script-error"], "in `step`: I changed my mind", true),
    ];
    for (policy, i) in misbehave(budget()).iter().zip(0..) {
        for (deed, codes, contains, is_fault) in cases {
            let error = run(policy.as_ref(), deed).expect_err(deed);
            assert_eq!((error.report().code, error.is_fault()), (codes[i], is_fault), "{deed}: {error}");
            assert!(error.to_string().contains(contains), "{deed}: {error}");
        }
    }
}

#[test]
fn an_ended_instance_stays_ended_and_its_fork_with_it() {
    for policy in misbehave(budget()) {
        let mut instance = deed(policy.as_ref(), "loop").unwrap();
        let mut fork = instance.fork().unwrap();
        let step = |instance: &mut Box<dyn PolicyInstance>| {
            let error = Loop::new(50, &[1, 2], &chain(0.0, 1)).edits(&mut **instance).unwrap_err();
            error.report().code
        };
        assert_eq!(step(&mut instance), "plugin.time-budget");
        assert_eq!(step(&mut instance), "plugin.ended");
        assert_eq!(step(&mut fork), "plugin.ended");
        run(policy.as_ref(), "nothing").unwrap();
    }
}

/// A component's handle cannot outlive the call; a script's can, and is refused.
#[test]
fn a_step_ends_with_its_call() {
    let [_, lua] = misbehave(budget());
    let mut instance = deed(lua.as_ref(), "kept step").unwrap();
    Loop::new(50, &[1, 2], &chain(0.0, 1)).edits(&mut *instance).unwrap();
    let report = instance.rollback(1).unwrap_err().report();
    assert_eq!(report.code, "policy.no-step", "{report}");
    assert!(report.place.is_some_and(|place| place.excerpt.is_some()), "the script's line is shown");
}

/// The best of a few runs, so that a busy machine does not fail the test.
#[test]
fn a_runaway_step_is_answered_within_its_budget_and_ten_milliseconds() {
    for policy in misbehave(short()) {
        let timed = || {
            let mut instance = deed(policy.as_ref(), "loop").unwrap();
            let mut request = Loop::new(50, &[1, 2], &chain(0.0, 1));
            let start = Instant::now();
            let error = request.edits(&mut *instance).unwrap_err();
            assert_eq!(error.report().code, "plugin.time-budget");
            start.elapsed()
        };
        let best = (0..10).map(|_| timed()).min().unwrap();
        assert!(best >= Duration::from_millis(40) && best <= Duration::from_millis(50), "{best:?}");
    }
}

#[test]
fn the_deadline_counts_anew_for_each_step() {
    for policy in misbehave(short()) {
        let mut instance = deed(policy.as_ref(), "loop late").unwrap();
        let mut request = Loop::new(50, &[1, 2], &chain(0.0, 1));
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(60));
            request.step(&mut *instance).unwrap();
        }
        assert_eq!(request.step(&mut *instance).unwrap_err().report().code, "plugin.time-budget");
    }
}

#[test]
fn a_plugin_of_another_kind_is_refused() {
    let runtime = WasmRuntime::new(None).unwrap();
    let budget = Budget::default();
    let error = runtime.open_policy(&wasm_package("llama"), budget, LogSink::discard()).unwrap_err();
    assert_eq!(error.report().code, "plugin.wrong-kind");
    let error = LuaPolicy::open(&lua_package("llama-lua"), budget, LogSink::discard()).unwrap_err();
    assert_eq!(error.report().code, "plugin.wrong-kind");
    let error = runtime.open(&wasm_package("no-repeat"), budget, LogSink::discard()).unwrap_err();
    assert_eq!(error.report().code, "plugin.wrong-kind");
}
