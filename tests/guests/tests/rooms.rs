//! Guests live in a pool: one too many is refused, and a place is free again when its request ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use guests::{Loop, misbehave_policy_wasm, numbers};
use host_core::{Reported, SamplingSettings};
use host_plugins::{Budget, Grants, LogSink, SamplingPolicy};
use host_wasm::{WasmPolicy, WasmRuntime};

fn policy(guests: u32) -> WasmPolicy {
    let runtime = WasmRuntime::with_guests(None, guests).unwrap();
    runtime.open_policy(&misbehave_policy_wasm(), Budget::default(), LogSink::discard()).unwrap()
}

#[test]
fn one_guest_too_many_is_refused_and_the_others_go_on() {
    let policy = policy(3);
    let open = || policy.open(r#"{"do": "nothing"}"#, numbers(50), &Grants::default());
    let mut instances: Vec<_> = (0..3).map(|_| open().unwrap()).collect();
    let report = open().unwrap_err().report();
    assert_eq!(report.code, "plugin.no-room", "{report}");
    assert!(report.message.contains("misbehave-policy 1.0.0"), "{report}");
    for instance in &mut instances {
        let mut request = Loop::new(50, &[1, 2], &SamplingSettings::GREEDY.into());
        request.step(&mut **instance).unwrap();
    }
    instances.pop();
    open().unwrap();
}

/// A memory of the pool is used again; nothing of its last guest is in it.
#[test]
fn a_place_is_clean_when_it_is_used_again() {
    let policy = policy(1);
    for _ in 0..3 {
        for (deed, is_well) in [("loop late", true), ("bomb", false), ("panic", false)] {
            let params = format!(r#"{{"do": "{deed}"}}"#);
            let mut instance = policy.open(&params, numbers(50), &Grants::default()).unwrap();
            let mut request = Loop::new(50, &[1, 2], &SamplingSettings::GREEDY.into());
            // "loop late" counts its steps in the guest's memory and loops in the third.
            assert_eq!(request.step(&mut *instance).is_ok(), is_well, "{deed}");
            assert_eq!(request.step(&mut *instance).is_ok(), is_well, "{deed}");
        }
    }
}
