//! What a policy costs a request and a step: `cargo bench --workspace --bench policies`.

use guests::measure::{instance_times, step_times};
use guests::{lua_package, numbers, sixteen_runs_wasm, wasm_package};
use host_lua::LuaPolicy;
use host_plugins::{Budget, Grants, LogSink, SamplingPolicy};
use host_wasm::WasmRuntime;

/// As wide as SmolLM2's.
const N_VOCAB: u32 = 49_152;

fn main() {
    let runtime = WasmRuntime::new(None).expect("the engine starts");
    let (budget, log) = (Budget::default(), LogSink::discard());
    let runs = runtime.open_policy(&sixteen_runs_wasm(), budget, log.clone()).expect("the guest is good");
    let no_repeat = runtime.open_policy(&wasm_package("no-repeat"), budget, log.clone());
    let no_repeat = no_repeat.expect("the plugin is good");
    let twin = LuaPolicy::open(&lua_package("no-repeat-lua"), budget, log).expect("the plugin is good");

    let open = |policy: &dyn SamplingPolicy, params: &str| instance_times(policy, params, N_VOCAB, 5_000);
    println!("an instance for a request, opened and dropped");
    println!("  sixteen-runs    {}", open(&runs, "{}"));
    println!("  no-repeat       {}", open(&no_repeat, r#"{"ngram": 3}"#));
    println!("  no-repeat-lua   {}", open(&twin, r#"{"ngram": 3}"#));

    println!("a step by a mask of 16 runs over {N_VOCAB} tokens");
    for n_requests in [1, 8, 32] {
        let instance =
            |_| runs.open("{}", numbers(N_VOCAB), &Grants::default()).expect("the params are good");
        let mut instances: Vec<_> = (0..n_requests).map(instance).collect();
        println!("  {n_requests:>2} requests     {}", step_times(&mut instances, N_VOCAB, 20_000));
    }
}
