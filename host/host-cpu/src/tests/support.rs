//! Small graphs on this device: compiled, and run in every way that must not change a bit.

use host_device::{CompileOptions, Device, Executable};
use host_graph::Graph;

pub(super) use super::models::{
    Folder, Model, Random, TOKENS, as_logits, bits, compare, options, run, run_in_batch, step,
};
use super::oracle::Oracle;
use crate::device::CpuDevice;
use crate::features::Simd;

/// Elements that share a scale, at the fewest that this device multiplies with.
pub(super) const SMALLEST_GROUP: usize = 16;

pub(super) fn compile(model: &Model, graph: &Graph, options: &CompileOptions) -> Box<dyn Executable> {
    compile_for(Simd::available()[0], model, graph, options)
}

pub(super) fn compile_for(
    simd: Simd,
    model: &Model,
    graph: &Graph,
    options: &CompileOptions,
) -> Box<dyn Executable> {
    let device = CpuDevice::with_simd(simd).unwrap();
    device.compile(graph, &model.checkpoint, options, &mut |_, _| {}).unwrap()
}

/// Runs a graph in every way that must not change a bit, and gives the logits of [`TOKENS`].
pub(super) fn run_every_way(
    name: &str,
    model: &Model,
    graph: &Graph,
    options: &CompileOptions,
) -> Vec<Vec<f32>> {
    let mut executable = compile(model, graph, options);
    let whole = run(&mut *executable, &TOKENS, TOKENS.len());
    let expected = bits(&whole);
    assert_eq!(bits(&run(&mut *executable, &TOKENS, 7)), expected, "{name}: chunks of 7");
    assert_eq!(bits(&run(&mut *executable, &TOKENS, 1)), expected, "{name}: token by token");
    assert_eq!(bits(&run_in_batch(&mut *executable, &TOKENS)), expected, "{name}: in a batch");
    for n_threads in [2, 3] {
        let mut executable = compile(model, graph, &CompileOptions { n_threads, ..options.clone() });
        let found = bits(&run(&mut *executable, &TOKENS, TOKENS.len()));
        assert_eq!(found, expected, "{name}: {n_threads} threads");
        assert_eq!(bits(&run_in_batch(&mut *executable, &TOKENS)), expected, "{name}: threads in a batch");
    }
    for simd in Simd::available() {
        let mut executable = compile_for(simd, model, graph, options);
        assert_eq!(bits(&run(&mut *executable, &TOKENS, TOKENS.len())), expected, "{name}: {simd}");
    }
    whole
}

/// Runs a graph in every way and compares with the oracle: `bound` is the largest difference, in units of the
/// largest logit of a row (at least 1).
pub(super) fn check(name: &str, model: &Model, graph: &Graph, options: &CompileOptions, bound: f64) {
    let found = run_every_way(name, model, graph, options);
    let expected = Oracle::new(graph, &model.checkpoint, options.kv).logits(&TOKENS);
    compare(name, &found, &expected, bound);
}
