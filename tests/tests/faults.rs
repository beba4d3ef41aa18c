//! The fault matrix: whatever a plugin does to its own request, the others of the same batch get the same bits; and a
//! plugin that does it again and again is kept out until it works.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use guests::attacks::{Arena, Attack, End, attacks};
use guests::numbers;
use host_core::{FinishReason, Numeric, Report, Reported, SamplingSettings};
use host_engine::{Engine, EngineOptions, Outcome, Request, RequestId};
use host_plugins::{
    Clock, Grants, LogSink, PluginError, PolicyInstance, Quarantine, QuarantineRules, Runtime, SamplingPolicy,
};
use tests::model::overrides;
use tests::places::fixtures;
use tests::{Host, Model};

const MAX_TOKENS: usize = 8;

/// Deeds of a policy, with the code in each runtime and what the report says beside plugin and hook.
const FAULTS: &[(&str, [&str; 2], &str, &str)] = &[
    ("loop", ["plugin.time-budget"; 2], "`step`", "150 ms"),
    ("loop late", ["plugin.time-budget"; 2], "`step`", "150 ms"),
    ("loop in open", ["plugin.time-budget"; 2], "`open`", "300 ms"),
    ("panic", ["plugin.trap", "plugin.script-error"], "`step`", "I am not well"),
    ("panic in open", ["plugin.trap", "plugin.script-error"], "`open`", "I am not well"),
    ("recurse", ["plugin.trap", "plugin.script-error"], "`step`", "stack"),
    ("bomb", ["plugin.memory-budget"; 2], "`step`", "8388608 bytes"),
    ("not a number", ["policy.parameter"; 2], "`step`", "NaN"),
    ("unknown token", ["policy.unknown-token"; 2], "`step`", "is beyond the vocabulary"),
    ("inverted run", ["policy.parameter"; 2], "`step`", "7..3"),
    ("oversized list", ["policy.limit"; 2], "`step`", "8192 biases"),
    ("long force", ["policy.limit"; 2], "`step`", "8192 forced tokens"),
    ("log flood", ["plugin.output-budget"; 2], "`step`", "4096 bytes of log text"),
    ("many calls", ["plugin.output-budget"; 2], "`step`", "1000 calls"),
    ("not granted", ["policy.not-granted"; 2], "`step`", "top-k(4)"),
    // Nobody failed, but no token is left: the engine's own words, with the plugin that took part.
    ("nothing left", ["engine.logits"; 2], "`step`", "at least one token that may follow"),
];

/// Faults of a package, by the name of the attack: they end before or while the plugin is opened.
const PACKAGES: &[&str] =
    &["a file", "another version", "no hook", "half of its bytes", "nesting without end"];

struct Bench {
    model: Model,
    arena: Arena,
}

/// Tokens with the bits of their log-probabilities, and the end.
type Answer = (Vec<(u32, Vec<u32>)>, Result<FinishReason, Box<Report>>);

impl Bench {
    fn new() -> Self {
        let folder = fixtures("tiny-llama-gqa-f32").remove(0);
        let model = Host::lua().open(&folder, &overrides(Numeric::Fast, 64, 8, 64)).unwrap();
        Bench { model, arena: Arena::open() }
    }

    fn engine(&self) -> Engine {
        let options = EngineOptions { context_tokens: 64, max_step_tokens: 64 };
        Engine::new(self.model.compile(), options)
    }

    fn open(&self, policy: &dyn SamplingPolicy, deed: &str) -> Result<Box<dyn PolicyInstance>, PluginError> {
        let n_vocab = self.model.graph.n_vocab() as u32;
        policy.open(&format!("{{\"do\": \"{deed}\"}}"), numbers(n_vocab), &Grants::default())
    }

    /// Requests of every sort: greedy, drawn, with a policy of each runtime.
    fn honest(&self, engine: &mut Engine) -> Vec<RequestId> {
        let drawn = SamplingSettings { temperature: 1.2, seed: 7, ..SamplingSettings::GREEDY };
        let plain = |prompt: &[u32], sampling| Request {
            logprobs: Some(3),
            ignore_eos: true,
            ..Request::new(prompt.to_vec(), MAX_TOKENS, sampling)
        };
        let with = |runtime, sampling| {
            let policy = self.arena.misbehave(runtime);
            Request { policy: Some(self.open(&*policy, "nothing").unwrap()), ..plain(&[2, 7, 1], sampling) }
        };
        let requests = [
            plain(&[1, 2, 3], SamplingSettings::GREEDY),
            plain(&[4, 5, 6, 7, 8], drawn.clone()),
            with(Runtime::Wasm, drawn.clone()),
            with(Runtime::Lua, drawn),
        ];
        requests.into_iter().map(|request| engine.submit(request).unwrap()).collect()
    }
}

/// Runs everything to its end; `between` comes after the first step.
fn answers(engine: &mut Engine, ids: &[RequestId], between: impl FnOnce()) -> Vec<Answer> {
    let mut answers: Vec<Answer> = ids.iter().map(|_| (Vec::new(), Ok(FinishReason::Stop))).collect();
    let mut between = Some(between);
    while !engine.is_idle() {
        for event in engine.step() {
            let i = ids.iter().position(|id| *id == event.request).unwrap();
            match event.outcome {
                Outcome::Token { token_id, logprobs } => {
                    let bits = logprobs.iter().flat_map(|found| {
                        let top = found.top.iter().map(|(_, logprob)| logprob.to_bits());
                        top.chain([found.logprob.to_bits()])
                    });
                    answers[i].0.push((token_id, bits.collect()));
                }
                Outcome::Finished { reason, .. } => answers[i].1 = Ok(reason),
                Outcome::Failed(report) => answers[i].1 = Err(Box::new(report)),
            }
        }
        if let Some(between) = between.take() {
            between();
        }
    }
    answers
}

#[test]
fn a_fault_ends_its_request_with_a_report_and_changes_no_bit_of_another() {
    let bench = Bench::new();
    let mut engine = bench.engine();
    let expected = {
        let ids = bench.honest(&mut engine);
        answers(&mut engine, &ids, || ())
    };
    assert!(expected.iter().all(|(tokens, end)| tokens.len() == MAX_TOKENS && end.is_ok()));
    for (runtime, i) in [Runtime::Wasm, Runtime::Lua].into_iter().zip(0..) {
        let policy = bench.arena.misbehave(runtime);
        for (deed, codes, hook, says) in FAULTS {
            // In the middle of the batch; one that is refused in `open` never gets into it.
            let mut ids = bench.honest(&mut engine);
            let report = match bench.open(&*policy, deed) {
                Err(error) => {
                    assert_eq!(answers(&mut engine, &ids, || ()), expected, "{deed}");
                    error.report()
                }
                Ok(instance) => {
                    let request = Request::new(vec![9, 9], MAX_TOKENS, SamplingSettings::GREEDY);
                    let offender = Request { policy: Some(instance), ignore_eos: true, ..request };
                    ids.push(engine.submit(offender).unwrap());
                    let mut found = answers(&mut engine, &ids, || ());
                    let (_, end) = found.pop().unwrap();
                    assert_eq!(found, expected, "{deed}");
                    *end.expect_err(deed)
                }
            };
            let text = report.to_string();
            assert_eq!(report.code, codes[i], "{deed}: {text}");
            assert!(text.contains(hook) && text.contains(says), "{deed}: {text}");
            assert!(text.contains("misbehave-policy 1.0.0"), "{deed}: {text}");
        }
    }
}

#[test]
fn a_package_that_is_refused_changes_no_bit_of_a_running_batch() {
    let bench = Bench::new();
    let mut engine = bench.engine();
    let ids = bench.honest(&mut engine);
    let expected = answers(&mut engine, &ids, || ());
    let attacks = attacks();
    for name in PACKAGES {
        let attack: &Attack = attacks.iter().find(|attack| attack.name == *name).unwrap();
        for runtime in [Runtime::Wasm, Runtime::Lua] {
            let form = if runtime == Runtime::Wasm { &attack.wasm } else { &attack.lua };
            let End::Refused(code, _) = form.end else { panic!("{name} does harm") };
            let ids = bench.honest(&mut engine);
            let found = answers(&mut engine, &ids, || {
                assert_eq!(bench.arena.run(runtime, form.guest).unwrap_err().code, code, "{name}");
            });
            assert_eq!(found, expected, "{name}");
        }
    }
}

#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// From the first fault to the plugin's return, with requests of an engine.
#[test]
fn a_plugin_that_fails_again_and_again_is_kept_out_until_it_works() {
    let bench = Bench::new();
    let mut engine = bench.engine();
    let rules = QuarantineRules { faults: 3, within_s: 60, first_backoff_s: 10, longest_backoff_s: 600 };
    for runtime in [Runtime::Wasm, Runtime::Lua] {
        let clock = Hand::default();
        let ledger = Quarantine::new(clock.clone(), LogSink::discard());
        let policy = ledger.policy(rules, bench.arena.misbehave(runtime));
        let mut run = |deed: &str| -> Result<FinishReason, &'static str> {
            let instance = bench.open(&*policy, deed).map_err(|error| error.report().code)?;
            let request = Request::new(vec![9, 9], 2, SamplingSettings::GREEDY);
            let id = engine.submit(Request { policy: Some(instance), ignore_eos: true, ..request }).unwrap();
            let (_, end) = answers(&mut engine, &[id], || ()).remove(0);
            end.map_err(|report| report.code)
        };
        assert_eq!(run("many calls"), Err("plugin.output-budget"));
        assert_eq!(run("loop in open"), Err("plugin.time-budget"));
        assert_eq!(run("invalid"), Err("plugin.invalid-config"), "no fault of the plugin");
        assert_eq!(run("nothing"), Ok(FinishReason::Length), "two of three");
        assert_eq!(run("not a number"), Err("policy.parameter"));
        assert_eq!(run("nothing"), Err("plugin.quarantined"));
        assert_eq!(ledger.health()[0].n_faults, 3);

        clock.0.fetch_add(10, Ordering::Relaxed);
        assert_eq!(run("many calls"), Err("plugin.output-budget"), "one may try");
        clock.0.fetch_add(19, Ordering::Relaxed);
        assert_eq!(run("nothing"), Err("plugin.quarantined"), "twice as long");
        clock.0.fetch_add(1, Ordering::Relaxed);
        assert_eq!(run("nothing"), Ok(FinishReason::Length), "it works again");
        assert_eq!(run("many calls"), Err("plugin.output-budget"));
        assert_eq!(run("nothing"), Ok(FinishReason::Length), "and its faults were forgotten");
    }
}
