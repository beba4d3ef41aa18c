//! The gated delta rule, step by step with the state in registers; see `gated_delta/README.md`.

use super::Random;
use crate::case::{Case, Data, Dtype, Launch, Template};
use crate::{Kernel, Stage};

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "gated-delta",
    about: "the gated delta rule over any number of tokens, in one launch",
    stages: &[Stage {
        name: "tenon_gated_delta",
        inputs: &["q", "k", "v", "g", "beta", "state", "steps"],
        outputs: &["y", "new_state"],
        body: include_str!("../../gated_delta/body.metal"),
    }],
    cases,
};

/// Sizes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sequences.
    pub rows: usize,
    /// New tokens of each.
    pub steps: usize,
    /// Heads of keys.
    pub key_heads: usize,
    /// Heads of values.
    pub heads: usize,
    /// Width of a key.
    pub dim_k: usize,
    /// Width of a value.
    pub dim_v: usize,
    /// The element type of q, k, v, beta and the result; gate and state are float32.
    pub dtype: Dtype,
}

impl Shape {
    /// Why the kernel does not support these sizes; `None` when it does.
    pub fn refusal(&self) -> Option<&'static str> {
        match self {
            Shape { dtype: Dtype::U32 | Dtype::I32, .. } => Some("q, k and v must be of a float type"),
            Shape { dim_k, .. } if dim_k % 32 != 0 => Some("keys must be a multiple of 32 wide"),
            Shape { dim_v, .. } if dim_v % 4 != 0 => Some("values must be a multiple of 4 wide"),
            Shape { heads, key_heads, .. } if heads % key_heads != 0 => {
                Some("heads of values must be a multiple of those of keys")
            }
            _ => None,
        }
    }

    /// How it is launched.
    pub fn launch(&self) -> Launch {
        let int = |n: usize| Template::Int(n as i32);
        Launch {
            grid: [32, self.dim_v, self.rows * self.heads],
            group: [32, 4, 1],
            templates: vec![
                ("T", Template::Type(self.dtype)),
                ("DK", int(self.dim_k)),
                ("DV", int(self.dim_v)),
                ("HK", int(self.key_heads)),
                ("HV", int(self.heads)),
            ],
            outputs: vec![
                (vec![self.rows, self.steps, self.heads, self.dim_v], self.dtype),
                (vec![self.rows, self.heads, self.dim_v, self.dim_k], Dtype::F32),
            ],
        }
    }
}

/// The plain form, in double precision: `S *= g; d = (v - S k) beta; S += d k^T; y = S q`.
fn plain(shape: &Shape, inputs: &[Vec<f32>; 6]) -> Vec<Vec<f32>> {
    let [q, k, v, g, beta, state] = inputs;
    let Shape { rows, steps, key_heads, heads, dim_k, dim_v, .. } = *shape;
    let mut state: Vec<f64> = state.iter().map(|x| f64::from(*x)).collect();
    let mut y = vec![0.0; rows * steps * heads * dim_v];
    for row in 0..rows {
        for token in row * steps..(row + 1) * steps {
            for head in 0..heads {
                let key = (token * key_heads + head / (heads / key_heads)) * dim_k;
                let gate = token * heads + head;
                for i in 0..dim_v {
                    let entries = &mut state[((row * heads + head) * dim_v + i) * dim_k..][..dim_k];
                    entries.iter_mut().for_each(|s| *s *= f64::from(g[gate]));
                    let dot = |s: &[f64], x: &[f32]| -> f64 {
                        s.iter().zip(x).map(|(s, x)| s * f64::from(*x)).sum()
                    };
                    let held = dot(entries, &k[key..key + dim_k]);
                    let delta = (f64::from(v[gate * dim_v + i]) - held) * f64::from(beta[gate]);
                    let keys = &k[key..key + dim_k];
                    entries.iter_mut().zip(keys).for_each(|(s, k)| *s += delta * f64::from(*k));
                    y[gate * dim_v + i] = dot(entries, &q[key..key + dim_k]) as f32;
                }
            }
        }
    }
    vec![y, state.into_iter().map(|x| x as f32).collect()]
}

fn cases() -> Vec<Case> {
    let base = Shape { rows: 1, steps: 3, key_heads: 1, heads: 1, dim_k: 32, dim_v: 8, dtype: Dtype::F32 };
    let shapes = [
        ("one head", base),
        ("one token", Shape { steps: 1, dim_k: 128, ..base }),
        ("a key head for three", Shape { key_heads: 2, heads: 6, dim_k: 64, ..base }),
        ("two sequences", Shape { rows: 2, heads: 2, steps: 5, ..base }),
        ("half", Shape { dtype: Dtype::F16, ..base }),
        ("bfloat16", Shape { dtype: Dtype::Bf16, steps: 4, ..base }),
    ];
    shapes.into_iter().map(|(name, shape)| case(name, shape)).collect()
}

fn case(name: &str, shape: Shape) -> Case {
    let mut random = Random(63);
    let Shape { rows, steps, key_heads, heads, dim_k, dim_v, dtype } = shape;
    let keys = [rows, steps, key_heads, dim_k];
    let size = (1.0 / dim_k as f32).sqrt();
    let mut numbers =
        |dims: &[usize], dtype, size| Data::floats(dims, dtype, &random.units(dims.iter().product(), size));
    let q = numbers(&keys, dtype, size);
    let k = numbers(&keys, dtype, size);
    let v = numbers(&[rows, steps, heads, dim_v], dtype, 1.0);
    let gates = numbers(&[rows, steps, heads], Dtype::F32, 0.5);
    let gates: Vec<f32> = gates.numbers().iter().map(|x| x + 0.5).collect();
    let g = Data::floats(&[rows, steps, heads], Dtype::F32, &gates);
    let beta = numbers(&[rows, steps, heads], dtype, 1.0);
    let state = numbers(&[rows, heads, dim_v, dim_k], Dtype::F32, 1.0);
    let inputs = [&q, &k, &v, &g, &beta, &state].map(Data::numbers);
    let expected = plain(&shape, &inputs);
    let steps_data = Data::ints(&[1], &[steps as i32]);
    let names = ["q", "k", "v", "g", "beta", "state", "steps"];
    Case {
        name: name.to_owned(),
        inputs: names.into_iter().zip([q, k, v, g, beta, state, steps_data]).collect(),
        launches: vec![shape.launch()],
        expected,
        // Each step sums `dim_k` terms twice in float32; the result rounds once more.
        tolerance: (steps * (2 * dim_k + 4)) as f64 * 2.0_f64.powi(-24) + dtype.rounding(),
    }
}
