//! Sampling policies without a model: a step, many requests in a step, an instance, a runaway.

use std::time::{Duration, Instant};

use guests::measure::{Times, batch_instance_times, instance_times, step_times};
use guests::{
    Row, lua_package, lua_script_of, misbehave_policy_lua, misbehave_policy_wasm, numbers, pass_through_wasm,
    sixteen_runs_wasm, wasm_package,
};
use host_lua::LuaPolicy;
use host_plugins::{Budget, Grants, LogSink, PolicyInput, PolicyInstance, SamplingPolicy};
use host_sampling::RowView;
use host_wasm::WasmRuntime;

use crate::batch;
use crate::figure::{Figure, Report};

/// As wide as SmolLM2's.
pub(crate) const N_VOCAB: u32 = 49_152;
/// One percent of a token at 200 tokens a second.
const TOKEN_SHARE_US: f64 = 50.0;

/// The time between two requests whose instances are measured as they would come, in which the thread computes: two
/// thousand a second. Without a pause a script's instances are asked for faster than they can be made ahead; with one,
/// every instance finds the caches as others left them.
const PAUSE: Duration = Duration::from_micros(500);
/// The time between two full batches whose requests all begin at once: some steps of a small model.
const BATCH_PAUSE: Duration = Duration::from_millis(20);

/// The twin of the guest `sixteen-runs`: the same numbers, written anew in each step. What a loop reads often stands in
/// locals of its function, which are faster than those around it.
const SIXTEEN_RUNS: &str = "function open(params, vocabulary)
    local width = vocabulary:n_vocab() // 32
    local runs = buffer.create(16 * 8)
    return {
        step = function(self, step)
            local runs, width, start = runs, width, 0
            for at = 0, 15 * 8, 8 do
                buffer.writeu32(runs, at, start)
                buffer.writeu32(runs, at + 4, start + width)
                start += 2 * width
            end
            step:allow_runs(runs)
        end,
    }
end";

/// The same runs, written once.
const SIXTEEN_KEPT: &str = "function open(params, vocabulary)
    local width = vocabulary:n_vocab() // 32
    local runs = buffer.create(16 * 8)
    for i = 0, 15 do
        buffer.writeu32(runs, 8 * i, 2 * i * width)
        buffer.writeu32(runs, 8 * i + 4, (2 * i + 1) * width)
    end
    return { step = function(self, step) step:allow_runs(runs) end }
end";

/// The same as a list of pairs, which is easier to write and costs a table for each.
const SIXTEEN_PAIRS: &str = "function open(params, vocabulary)
    local width = vocabulary:n_vocab() // 32
    return {
        step = function(self, step)
            local runs = table.create(16)
            for i = 0, 15 do
                runs[i + 1] = { 2 * i * width, (2 * i + 1) * width }
            end
            step:allow_runs(runs)
        end,
    }
end";

/// The twin of the guest `pass-through`.
pub(crate) const PASS_THROUGH: &str = "function open(params, vocabulary)
    return { step = function(self, step) end }
end";

/// A policy in both runtimes.
pub(crate) struct Twins {
    pub(crate) wasm: Box<dyn SamplingPolicy>,
    pub(crate) lua: Box<dyn SamplingPolicy>,
}

impl Twins {
    pub(crate) fn both(&self) -> [(&'static str, &dyn SamplingPolicy); 2] {
        [("wasm", &*self.wasm), ("lua", &*self.lua)]
    }
}

pub(crate) fn pass_through(runtime: &WasmRuntime) -> Twins {
    let (budget, log) = (Budget::default(), LogSink::discard());
    let lua = lua_script_of("sampling-policy", PASS_THROUGH);
    Twins {
        wasm: Box::new(runtime.open_policy(&pass_through_wasm(), budget, log.clone()).unwrap()),
        lua: Box::new(LuaPolicy::open(&lua, budget, log).unwrap()),
    }
}

pub(crate) fn measure(report: &mut Report) {
    let runtime = WasmRuntime::new(None).unwrap();
    let (budget, log) = (Budget::default(), LogSink::discard());
    let wasm = |package| -> Box<dyn SamplingPolicy> {
        Box::new(runtime.open_policy(&package, budget, log.clone()).unwrap())
    };
    let lua = |package| -> Box<dyn SamplingPolicy> {
        Box::new(LuaPolicy::open(&package, budget, log.clone()).unwrap())
    };
    let runs =
        Twins { wasm: wasm(sixteen_runs_wasm()), lua: lua(lua_script_of("sampling-policy", SIXTEEN_RUNS)) };
    let pass_through = pass_through(&runtime);
    let no_repeat = Twins { wasm: wasm(wasm_package("no-repeat")), lua: lua(lua_package("no-repeat-lua")) };

    for (name, policy) in runs.both() {
        let times = step_times(&mut [open(policy, "{}")], N_VOCAB, 100_000);
        report.add(Figure::new("step, a mask of 16 runs", name, &times, &[("p50", 1.0), ("p99", 20.0)]));
    }
    for (title, source) in
        [("the same runs, written once", SIXTEEN_KEPT), ("the same as a list of pairs", SIXTEEN_PAIRS)]
    {
        let policy = lua(lua_script_of("sampling-policy", source));
        let times = step_times(&mut [open(&*policy, "{}")], N_VOCAB, 100_000);
        report.add(Figure::new(title, "lua", &times, &[("p50", 1.0), ("p99", 20.0)]));
    }
    for (name, policy) in runs.both() {
        let mut instances: Vec<_> = (0..32).map(|_| open(policy, "{}")).collect();
        let times = step_times(&mut instances, N_VOCAB, 10_000);
        report.add(Figure::new("32 requests with an instance each, one after another", name, &times, &[]));
    }
    batch::measure("32 requests, pass-through, added to a step", &pass_through, report);
    batch::measure("32 requests, a mask of 16 runs, added to a step", &runs, report);
    for (name, policy) in pass_through.both() {
        let times = step_times(&mut [open(policy, "{}")], N_VOCAB, 100_000);
        report.add(Figure::new("step, a pass-through", name, &times, &[("p50", TOKEN_SHARE_US)]));
    }
    let target = [("p50", 25.0)];
    for (of, params, twins) in [("sixteen-runs", "{}", &runs), ("no-repeat", "{\"ngram\": 3}", &no_repeat)] {
        for (name, policy) in twins.both() {
            let times = instance_times(policy, params, N_VOCAB, 5_000, Duration::ZERO);
            report.add(Figure::new(format!("instance for a request, {of}"), name, &times, &target));
        }
        for (name, policy) in twins.both() {
            let times = instance_times(policy, params, N_VOCAB, 1_000, PAUSE);
            report.add(Figure::new(
                format!("the same, 2,000 requests a second, {of}"),
                name,
                &times,
                &target,
            ));
        }
    }
    for (name, policy) in runs.both() {
        let times = batch_instance_times(policy, "{}", N_VOCAB, 100, 32, BATCH_PAUSE);
        report.add(Figure::new("the same, 32 requests at once, sixteen-runs", name, &times, &target));
    }
    let hostile = Twins { wasm: wasm(misbehave_policy_wasm()), lua: lua(misbehave_policy_lua()) };
    for (name, policy) in hostile.both() {
        let times = Times::new((0..20).map(|_| runaway(policy)).collect());
        let figure =
            Figure::new("runaway step, beyond its budget of 50 ms", name, &times, &[("max", 10_000.0)]);
        report.add(figure.less(budget.step.time_ms as f64 * 1e3));
    }
}

fn open(policy: &dyn SamplingPolicy, params: &str) -> Box<dyn PolicyInstance> {
    policy.open(params, numbers(N_VOCAB), &Grants::default()).unwrap()
}

/// How long an endless step takes to be answered with an error.
fn runaway(policy: &dyn SamplingPolicy) -> Duration {
    let mut instance = open(policy, "{\"do\": \"loop\"}");
    let row = Row(vec![0.0; N_VOCAB as usize]);
    let input = PolicyInput { row: Some(&RowView::new(&row, 0)), accepted: &[1], generated: &[], seed: 1 };
    let begun = Instant::now();
    assert!(instance.step(&input).is_err());
    begun.elapsed()
}
