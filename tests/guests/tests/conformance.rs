//! One suite over both runtimes: what a guest may do. What becomes of one that misbehaves is judged in `escape`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use guests::{misbehave_lua, misbehave_wasm};
use host_core::{Report, Reported};
use host_graph::{Catalogue, Graph, Limits, TensorFacts};
use host_lua::LuaPlugin;
use host_plugins::{Budget, GraphPlugin, LogSink, PluginError};
use host_wasm::WasmRuntime;

fn budget() -> Budget {
    let graph = Limits { max_nodes: 1_000, max_slots: 100, ..Limits::default() };
    Budget { time_ms: 300, memory_bytes: 16 << 20, log_bytes: 4_096, graph, ..Budget::default() }
}

fn catalogue() -> Catalogue {
    Catalogue::from([("table".to_owned(), TensorFacts { shape: vec![10, 4], is_dense: true })])
}

/// Both forms of the guest that misbehaves on demand.
fn both(budget: Budget, log: &LogSink) -> [Box<dyn GraphPlugin>; 2] {
    let wasm = WasmRuntime::new(None).unwrap().open(&misbehave_wasm(), budget, log.clone()).unwrap();
    [Box::new(wasm), Box::new(LuaPlugin::open(&misbehave_lua(), budget, log.clone()).unwrap())]
}

fn run(plugin: &dyn GraphPlugin, deed: &str) -> Result<Graph, PluginError> {
    plugin.build(&format!("{{\"do\": \"{deed}\"}}"), catalogue())
}

/// What a plugin refuses is no fault, and its words arrive.
#[test]
fn refusals_have_their_own_codes_in_both_runtimes() {
    for plugin in both(budget(), &LogSink::discard()) {
        for (deed, code, contains) in [
            ("missing tensor", "graph.missing-tensor", "`nowhere`"),
            ("invalid", "plugin.invalid-config", "`do`"),
            ("unsupported", "plugin.unsupported-config", "`do`"),
        ] {
            let error = run(plugin.as_ref(), deed).expect_err(deed);
            assert!(!error.is_fault(), "{deed}: {error}");
            let report = error.report();
            assert_eq!(report.code, code, "{deed}: {report}");
            assert!(report.to_string().contains(contains), "{deed}: {report}");
            assert!(report.message.contains("misbehave 1.0.0"), "{deed}: {report}");
        }
    }
}

#[test]
fn a_fault_leaves_nothing_behind() {
    for plugin in both(budget(), &LogSink::discard()) {
        let before = run(plugin.as_ref(), "nothing").unwrap().fingerprint();
        for deed in ["loop", "bomb", "recurse", "panic", "missing tensor", "log flood"] {
            run(plugin.as_ref(), deed).expect_err(deed);
            assert_eq!(run(plugin.as_ref(), "nothing").unwrap().fingerprint(), before, "after {deed}");
        }
        assert_eq!(
            run(plugin.as_ref(), "swallow").unwrap().fingerprint(),
            before,
            "a mended refusal is no fault"
        );
    }
}

/// The builder's own error arrives, whatever way it went.
#[test]
fn a_refusal_passed_on_is_the_builders_own() {
    let [wasm, lua] = both(budget(), &LogSink::discard());
    let errors = [&wasm, &lua].map(|plugin| match run(plugin.as_ref(), "reused slot") {
        Err(PluginError::Build { error, .. }) => *error,
        other => panic!("{other:?}"),
    });
    assert_eq!(errors[0], errors[1]);
    assert_eq!((errors[0].op, errors[0].ordinal), ("attention", 7));
}

/// The best of a few runs, so that a busy machine does not fail the test; a runaway's true end is measured.
#[test]
fn a_runaway_is_answered_within_its_budget_and_ten_milliseconds() {
    for plugin in both(Budget { time_ms: 50, ..budget() }, &LogSink::discard()) {
        let timed = || {
            let start = Instant::now();
            let error = run(plugin.as_ref(), "loop").unwrap_err();
            (start.elapsed(), error.report().code)
        };
        let runs: Vec<_> = (0..10).map(|_| timed()).collect();
        assert!(
            runs.iter()
                .all(|(time, code)| *code == "plugin.time-budget" && *time >= Duration::from_millis(50))
        );
        let best = runs.iter().map(|(time, _)| *time).min().unwrap();
        println!("{}: {best:?} for a budget of 50 ms", plugin.name());
        assert!(best <= Duration::from_millis(60), "{}: {best:?}", plugin.name());
    }
}

#[test]
fn the_deadline_counts_anew_for_each_build() {
    for plugin in both(Budget { time_ms: 150, ..budget() }, &LogSink::discard()) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(400) {
            run(plugin.as_ref(), "nothing").unwrap();
        }
    }
}

#[test]
fn log_lines_reach_the_host_with_the_plugins_name() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let lines = Arc::clone(&lines);
        LogSink::new(move |plugin, line| lines.lock().unwrap().push(format!("{plugin}: {line}")))
    };
    for plugin in both(budget(), &sink) {
        run(plugin.as_ref(), "log once").unwrap();
    }
    assert_eq!(*lines.lock().unwrap(), ["misbehave 1.0.0: hello", "misbehave 1.0.0: hello"]);
}

#[test]
fn guests_run_side_by_side() {
    let plugins = both(Budget { time_ms: 200, ..budget() }, &LogSink::discard());
    for plugin in &plugins {
        std::thread::scope(|scope| {
            let spin = scope.spawn(|| run(plugin.as_ref(), "loop"));
            for _ in 0..20 {
                run(plugin.as_ref(), "nothing").unwrap();
            }
            assert_eq!(spin.join().unwrap().unwrap_err().report().code, "plugin.time-budget");
        });
    }
}

#[test]
fn config_texts_that_are_no_config_are_refused() {
    let small = Budget { config_bytes: 100, ..budget() };
    for plugin in both(small, &LogSink::discard()) {
        for (text, code) in [
            ("", "plugin.invalid-config"),
            ("[]", "plugin.invalid-config"),
            ("{\"do\": 1e999}", "plugin.invalid-config"),
            ("{\"do\": \"x\"", "plugin.invalid-config"),
            ("{}", "plugin.invalid-config"),
            (&format!("{{\"do\": \"{}\"}}", "x".repeat(200)), "plugin.invalid-config"),
            (&"[".repeat(90), "plugin.invalid-config"),
        ] {
            let report = plugin.build(text, catalogue()).unwrap_err().report();
            assert_eq!(report.code, code, "{text}: {report}");
        }
    }
}

#[test]
fn a_package_for_the_other_runtime_is_refused() {
    let runtime = WasmRuntime::new(None).unwrap();
    let report = |error: PluginError| -> Report { error.report() };
    let error = report(runtime.open(&misbehave_lua(), budget(), LogSink::discard()).unwrap_err());
    assert_eq!(error.code, "plugin.wrong-runtime");
    let error = report(LuaPlugin::open(&misbehave_wasm(), budget(), LogSink::discard()).unwrap_err());
    assert_eq!(error.code, "plugin.wrong-runtime");
}
