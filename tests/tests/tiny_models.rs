//! Every tiny model against the oracle: the logits of all positions in exact numbers, greedy tokens, and the same
//! graph from a plugin's component and its script.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;

use host_core::Numeric;
use host_device::{Executable, argmax};
use tests::golden::Tiny;
use tests::model::{overrides, told};
use tests::places::{fixtures, name};
use tests::rows::{alone, largest_difference, step};
use tests::{Host, Model, Runtime};

const TINY: [&str; 4] = ["tiny-llama", "tiny-gemma3", "tiny-mlx", "tiny-qwen3"];

#[test]
fn tiny_models_give_the_oracles_logits_and_tokens() {
    let host = Host::lua();
    let mut faults = Vec::new();
    let folders: Vec<_> = TINY.iter().flat_map(|prefix| fixtures(prefix)).collect();
    assert!(folders.len() >= 29, "all fixtures are there");
    for folder in &folders {
        let golden = Tiny::read(folder);
        let model = open(&host, folder);
        let (mut executable, tolerance) = (model.compile(), tolerance(&model, &golden));
        let rows = alone(&mut *executable, &golden.input_ids);
        assert_eq!(rows.len(), golden.logits.len());
        let differences = rows.iter().zip(&golden.logits).map(|(found, row)| largest_difference(found, row));
        let largest = differences.fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a });
        println!("{:<32} {largest:.1e} of {tolerance:.1e}", name(folder));
        let is_within = largest <= tolerance;
        if !is_within {
            faults.push(format!("{}: logits differ by {largest:e}, allowed {tolerance:e}", name(folder)));
        }
        faults.extend(
            greedy_fault(&mut *executable, &golden, tolerance)
                .map(|fault| format!("{}: {fault}", name(folder))),
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Decodes greedily. Where the oracle's first two logits are nearer than both sides' errors, either may be chosen;
/// the oracle's own choice goes on.
fn greedy_fault(executable: &mut dyn Executable, golden: &Tiny, tolerance: f32) -> Option<String> {
    let sequence = told(executable.new_sequence());
    let mut last = step(executable, &[(sequence, &golden.input_ids)]).remove(0).pop().expect("a row a token");
    for (t, expected) in golden.greedy_output_ids.iter().enumerate() {
        let (found, margin) = (argmax(&last), golden.greedy_margin[t]);
        if found != Some(*expected) && margin > 2.0 * tolerance {
            return Some(format!("step {t}: {found:?} in place of {expected}, margin {margin}"));
        }
        last = step(executable, &[(sequence, &[*expected])]).remove(0).pop().expect("a row a token");
    }
    executable.release(sequence);
    None
}

/// How far two float32 computations of one model may be from each other.
///
/// Each sum of n products is off by a random walk of n roundings, about sqrt(n) u of its size, where u = 2^-24. The
/// sums of a layer that follow on each other (two norms, queries and keys, scores, values, output, gate and up,
/// down), and those at both ends, add their errors. Rotations are off by some u of an angle, as large as the
/// position, in each layer. Both sides err, and logits are as large as the largest.
fn tolerance(model: &Model, golden: &Tiny) -> f32 {
    const U: f32 = f32::EPSILON / 2.0;
    const SUMS_A_LAYER: f32 = 8.0;
    const SUMS_AT_THE_ENDS: f32 = 3.0;
    let config = &model.checkpoint.config().json;
    let width = |key: &str| config[key].as_u64().expect("a width") as f32;
    let n_terms = width("hidden_size").max(width("intermediate_size"));
    let n_layers = model.graph.n_layers() as f32;
    let n_positions = (golden.input_ids.len() + golden.greedy_output_ids.len()) as f32;
    let sums = (n_layers * SUMS_A_LAYER + SUMS_AT_THE_ENDS) * n_terms.sqrt();
    let largest = golden.logits.iter().flatten().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    2.0 * U * (sums + n_layers * n_positions) * largest
}

#[test]
fn a_component_and_its_script_build_the_same_graphs() {
    let Some(wasm) = Host::load(Runtime::Wasm) else { return };
    let lua = Host::lua();
    for folder in TINY.iter().flat_map(|prefix| fixtures(prefix)) {
        let [wasm, lua] = [&wasm, &lua].map(|host| open(host, &folder));
        assert_eq!(wasm.graph.text(), lua.graph.text(), "{}", name(&folder));
        assert_eq!(wasm.graph.fingerprint(), lua.graph.fingerprint());
        assert!(wasm.graph == lua.graph, "{}", name(&folder));
        assert_ne!(
            wasm.composition.hash(),
            lua.composition.hash(),
            "a composition names what built its graph"
        );
    }
}

fn open(host: &Host, folder: &Path) -> Model {
    host.open(folder, &overrides(Numeric::Exact, 64, 2, 64)).unwrap()
}
