//! What a pass-through policy adds to a token of SmolLM2, from end to end.
//!
//! Three engines decode the same text, one step of each in turn, so that a machine that is slow for a while is slow for
//! all of them; what a policy adds is the difference within a turn.

use std::path::Path;
use std::time::{Duration, Instant};

use guests::measure::Times;
use guests::numbers;
use host_core::{Numeric, SamplingSettings};
use host_engine::{Engine, EngineOptions, Outcome, Request};
use host_plugins::{Grants, PolicyInstance};
use host_wasm::WasmRuntime;
use tests::Host;
use tests::model::{Model, overrides, told};

use crate::figure::{Figure, Report};
use crate::policies::pass_through;

const CONTEXT_TOKENS: usize = 512;
const NEW_TOKENS: usize = 400;
/// The first steps warm caches.
const WARM: usize = 20;
/// One percent of a token at 200 tokens a second.
const TARGET_US: f64 = 50.0;

pub(crate) fn measure(path: &Path, report: &mut Report) {
    let model = Host::lua().open(path, &overrides(Numeric::Fast, CONTEXT_TOKENS, 1, CONTEXT_TOKENS)).unwrap();
    let policies = pass_through(&WasmRuntime::new(None).unwrap());
    let n_vocab = model.graph.n_vocab() as u32;
    let open = |policy: &dyn host_plugins::SamplingPolicy| {
        Some(policy.open("{}", numbers(n_vocab), &Grants::default()).unwrap())
    };
    let mut engines =
        [None, open(&*policies.wasm), open(&*policies.lua)].map(|policy| decoding(&model, policy));
    let mut turns: Vec<[Duration; 3]> = Vec::new();
    for turn in 0..NEW_TOKENS {
        let mut times = [Duration::ZERO; 3];
        // Another one goes first in each turn.
        for i in 0..3 {
            let at = (turn + i) % 3;
            let begun = Instant::now();
            let events = engines[at].step();
            times[at] = begun.elapsed();
            assert!(events.iter().all(|event| !matches!(event.outcome, Outcome::Failed(_))), "{events:?}");
        }
        turns.push(times);
    }
    let turns = &turns[WARM..];
    let plain = Times::new(turns.iter().map(|times| times[0]).collect());
    report.add(Figure::new("token of SmolLM2, one thread, without a policy", "native", &plain, &[]));
    for (runtime, at) in [("wasm", 1), ("lua", 2)] {
        let times = Times::new(turns.iter().map(|times| times[at]).collect());
        report.add(Figure::new("token of SmolLM2 with a pass-through", runtime, &times, &[]));
        // Differences go both ways; they are kept above zero while they are sorted.
        let shift = Duration::from_secs(10);
        let added = turns.iter().map(|times| (shift + times[at]).saturating_sub(times[0])).collect();
        let title = "that is more, turn by turn";
        let figure = Figure::new(title, runtime, &Times::new(added), &[("p50", TARGET_US)]);
        report.add(figure.less(shift.as_secs_f64() * 1e6));
    }
}

/// An engine that has read its prompt.
fn decoding(model: &Model, policy: Option<Box<dyn PolicyInstance>>) -> Engine {
    let options = EngineOptions { context_tokens: CONTEXT_TOKENS, max_step_tokens: CONTEXT_TOKENS };
    let mut engine = Engine::new(model.compile(), options);
    let prompt_ids = told(model.tokenizer().encode("A tenon is", true, true));
    let request = Request {
        policy,
        ignore_eos: true,
        ..Request::new(prompt_ids, NEW_TOKENS + 10, SamplingSettings::GREEDY)
    };
    told(engine.submit(request));
    engine.step();
    engine
}
