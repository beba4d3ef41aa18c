//! Small graphs on this device: compiled, and run whole, in chunks, token by token and in a batch.

use host_device::{CompileOptions, Device, Executable};
use host_graph::Graph;

pub(super) use super::models::{Folder, Model, TOKENS, as_logits, compare, options, run, run_in_batch};
use super::oracle::Oracle;
use crate::MlxDevice;

/// Elements that share a scale, at the fewest that this device multiplies with.
pub(super) const SMALLEST_GROUP: usize = 32;

pub(super) fn compile(model: &Model, graph: &Graph, options: &CompileOptions) -> Box<dyn Executable> {
    MlxDevice::new().compile(graph, &model.checkpoint, options, &mut |_, _| {}).unwrap()
}

/// The logits of [`TOKENS`] in every way of running them.
fn every_way(model: &Model, graph: &Graph, options: &CompileOptions) -> [(&'static str, Vec<Vec<f32>>); 4] {
    let mut executable = compile(model, graph, options);
    [
        ("whole", run(&mut *executable, &TOKENS, TOKENS.len())),
        ("in chunks of 7", run(&mut *executable, &TOKENS, 7)),
        ("token by token", run(&mut *executable, &TOKENS, 1)),
        ("in a batch", run_in_batch(&mut *executable, &TOKENS)),
    ]
}

/// How much wider than the native device's bounds, which count a sum of `n` terms in sixteen lanes: `n / 16 + 4`
/// roundings. MLX's CPU build sums one after the other in its reference BLAS, `n - 1` roundings, which is less than 16
/// times as many for every `n`; its GPUs' kernels lie between.
///
/// Source: Higham (2002), Accuracy and Stability of Numerical Algorithms, section 4.2: a sum errs by at most its
/// longest chain of additions times the unit roundoff times the sum of the terms' sizes.
const WIDER: f64 = 16.0;

/// Runs a graph in every way and compares each with the judge: `bound` is the largest difference, in units of
/// the largest logit of a row (at least 1).
pub(super) fn check(name: &str, model: &Model, graph: &Graph, options: &CompileOptions, bound: f64) {
    let expected = Oracle::new(graph, &model.checkpoint, options.kv).logits(&TOKENS);
    for (way, found) in every_way(model, graph, options) {
        compare(&format!("{name}, {way}"), &found, &expected, WIDER * bound);
    }
}

/// Runs a graph in every way; all must agree to rounding. Gives the logits of the whole run.
pub(super) fn run_every_way(
    name: &str,
    model: &Model,
    graph: &Graph,
    options: &CompileOptions,
) -> Vec<Vec<f32>> {
    let [(_, whole), others @ ..] = every_way(model, graph, options);
    let expected: Vec<Vec<f64>> =
        whole.iter().map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect();
    for (way, found) in others {
        compare(&format!("{name}, {way}"), &found, &expected, 1e-5);
    }
    whole
}
