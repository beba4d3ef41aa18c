//! A policy in plain C: the contract needs no SDK. It passes the cases of its twins in Rust and in Lua.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use guests::{Loop, lua_package, numbers};
use host_core::{Reported, SamplingChain, SamplingSettings};
use host_lua::LuaPolicy;
use host_plugins::{Budget, Grants, LogSink, PluginPackage, PolicyInstance, SamplingPolicy};
use host_wasm::WasmRuntime;
use serde_json::{Value as Json, json};

/// The policy in C and its twin, or none where it was not built.
fn twins() -> Option<[Box<dyn SamplingPolicy>; 2]> {
    let Some(folder) = std::env::var_os("TENON_TEST_C_POLICY") else {
        println!("skipped: TENON_TEST_C_POLICY does not name the policy that `cargo xtask c-policy` builds");
        return None;
    };
    let (budget, log) = (Budget::default(), LogSink::discard());
    let package = PluginPackage::read(Path::new(&folder)).unwrap();
    let in_c = WasmRuntime::new(None).unwrap().open_policy(&package, budget, log.clone()).unwrap();
    let in_lua = LuaPolicy::open(&lua_package("no-repeat-lua"), budget, log).unwrap();
    Some([Box::new(in_c), Box::new(in_lua)])
}

fn open(policy: &dyn SamplingPolicy, params: &Json, n_vocab: u32) -> Box<dyn PolicyInstance> {
    policy.open(&params.to_string(), numbers(n_vocab), &Grants::default()).unwrap()
}

fn chain(case: &Json) -> SamplingChain {
    let temperature = case["temperature"].as_f64().unwrap() as f32;
    let seed = case["seed"].as_u64().unwrap();
    SamplingSettings { temperature, seed, ..SamplingSettings::GREEDY }.into()
}

#[test]
fn it_gives_the_tokens_of_its_twin() {
    let Some(twins) = twins() else { return };
    let cases: Vec<Json> = serde_json::from_str(include_str!("../cases/policies.json")).unwrap();
    for case in cases.iter().filter(|case| case["policy"] == "no-repeat") {
        let n_vocab = case["n_vocab"].as_u64().unwrap() as u32;
        let decode = |policy: &dyn SamplingPolicy| {
            let mut instance = open(policy, &case["params"], n_vocab);
            let mut request = Loop::new(n_vocab, &[1, 2, 3], &chain(case));
            (0..40).for_each(|_| drop(request.step(&mut *instance).unwrap()));
            (policy.describe().unwrap(), request.generated().to_vec())
        };
        let [in_c, in_lua] = [&twins[0], &twins[1]].map(|policy| decode(&**policy));
        assert_eq!(in_c, in_lua, "{case}");
    }
}

#[test]
fn its_rollback_and_its_fork_leave_no_trace() {
    let Some([in_c, _]) = twins() else { return };
    let case = json!({ "temperature": 0.0, "seed": 1 });
    let start = || Loop::new(50, &[1, 2, 1], &chain(&case));
    let mut instance = open(&*in_c, &json!({ "ngram": 2 }), 50);
    // What followed a 1 before, once more after a rollback, and in a fork whose trunk is gone.
    let first = start().edits(&mut *instance).unwrap();
    assert_eq!(first.bias, [(2, f32::NEG_INFINITY)]);
    instance.rollback(3).unwrap();
    let mut fork = instance.fork().unwrap();
    assert_eq!(start().edits(&mut *instance).unwrap(), first);
    drop(instance);
    assert_eq!(start().edits(&mut *fork).unwrap(), first);
    assert_eq!(start().edits(&mut *fork).unwrap().bias.len(), 3);
}

#[test]
fn it_refuses_what_its_twin_refuses_in_the_same_words() {
    let Some(twins) = twins() else { return };
    for params in
        ["{\"ngram\": 0}", "{}", "{\"ngram\": 2, \"n\": 1}", "{\"ngram\": \"x\"}", "{\"ngram\": -1}", "[]"]
    {
        let [in_c, in_lua] = [&twins[0], &twins[1]].map(|policy| {
            let report = policy.open(params, numbers(10), &Grants::default()).unwrap_err().report();
            (report.code, report.expected, report.found)
        });
        assert_eq!(in_c, in_lua, "{params}");
    }
}
