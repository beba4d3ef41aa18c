//! Decode attention over quantised keys and values, split over blocks; see `decode_attention/README.md`.

use super::{Affine, Random};
use crate::case::{Case, Data, Dtype, Launch, Template};
use crate::{Kernel, Stage};

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "decode-attention",
    about: "one query over quantised keys and values, each read once",
    stages: &[
        Stage {
            name: "tenon_decode_attention_block",
            inputs: &["q", "k_codes", "k_scales", "k_biases", "v_codes", "v_scales", "v_biases", "length"],
            outputs: &["block_sums", "block_tops", "block_totals"],
            body: include_str!("../../decode_attention/block.metal"),
        },
        Stage {
            name: "tenon_decode_attention_merge",
            inputs: &["block_sums", "block_tops", "block_totals", "length"],
            outputs: &["out"],
            body: include_str!("../../decode_attention/merge.metal"),
        },
    ],
    cases,
};

/// Sizes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Width of a head.
    pub dim: usize,
    /// Positions attended to.
    pub positions: usize,
    /// Positions that the cache has room for.
    pub capacity: usize,
    /// Bits of a code.
    pub bits: usize,
    /// Elements that share a scale.
    pub group: usize,
    /// The element type of q, scales, biases and result.
    pub dtype: Dtype,
}

impl Shape {
    /// Why the kernel does not support these sizes; `None` when it does.
    pub fn refusal(&self) -> Option<&'static str> {
        let own = self.dim / 32;
        match self {
            Shape { dtype: Dtype::U32 | Dtype::I32, .. } => Some("q must be of a float type"),
            Shape { bits, .. } if ![4, 8].contains(bits) => Some("codes must have 4 or 8 bits"),
            Shape { group, .. } if ![32, 64, 128].contains(group) => Some("groups must be 32, 64 or 128"),
            Shape { dim, .. } if dim % 32 != 0 => Some("heads must be a multiple of 32 wide"),
            Shape { bits, .. } if !(own * bits).is_multiple_of(32) => Some("a lane must own whole words"),
            Shape { group, .. } if own > *group || group % own != 0 => {
                Some("a lane's channels must lie in one group")
            }
            Shape { heads, kv_heads, .. } if heads % kv_heads != 0 => {
                Some("heads of queries must be a multiple of those of keys")
            }
            Shape { positions, capacity, .. } if positions > capacity || *positions == 0 => {
                Some("there must be a position, and no more than fit")
            }
            _ => None,
        }
    }

    /// Positions of a block, and blocks.
    fn blocks(&self) -> (usize, usize) {
        let block = if self.positions <= 2048 { 128 } else { 512 };
        (block, self.positions.div_ceil(block))
    }

    /// The input `length`: positions, capacity, blocks. They change from call to call, and nothing is compiled anew.
    pub fn length(&self) -> [i32; 3] {
        [self.positions, self.capacity, self.blocks().1].map(|n| n as i32)
    }

    /// How both stages are launched.
    pub fn launches(&self) -> Vec<Launch> {
        let (block, blocks) = self.blocks();
        let int = |n: usize| Template::Int(n as i32);
        let per_block = vec![self.heads, blocks];
        vec![
            Launch {
                grid: [32, 4 * blocks, self.heads],
                group: [32, 4, 1],
                templates: vec![
                    ("T", Template::Type(self.dtype)),
                    ("BITS", int(self.bits)),
                    ("GROUP", int(self.group)),
                    ("D", int(self.dim)),
                    ("H", int(self.heads)),
                    ("KV", int(self.kv_heads)),
                    ("BLOCK", int(block)),
                ],
                outputs: vec![
                    (vec![self.heads, blocks, self.dim], Dtype::F32),
                    (per_block.clone(), Dtype::F32),
                    (per_block, Dtype::F32),
                ],
            },
            Launch {
                grid: [self.dim, self.heads, 1],
                group: [32, 1, 1],
                templates: vec![("T", Template::Type(self.dtype)), ("D", int(self.dim))],
                outputs: vec![(vec![self.heads, self.dim], self.dtype)],
            },
        ]
    }
}

/// The plain form in double precision, but for the rounding of scores that the spec asks for.
fn plain(shape: &Shape, q: &[f32], k: &[f64], v: &[f64]) -> Vec<f32> {
    let Shape { heads, kv_heads, dim, positions, capacity, dtype, .. } = *shape;
    let of_head = |head: usize| {
        let row = |at: usize| (head / (heads / kv_heads) * capacity + at) * dim;
        let q = &q[head * dim..(head + 1) * dim];
        let score = |at: usize| {
            let k = &k[row(at)..row(at) + dim];
            f64::from(dtype.round(q.iter().zip(k).map(|(q, k)| f64::from(*q) * k).sum::<f64>() as f32))
        };
        let scores: Vec<f64> = (0..positions).map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        let channel = move |d: usize| {
            let sum: f64 = weights.iter().enumerate().map(|(at, w)| w * v[row(at) + d]).sum();
            (sum / total) as f32
        };
        (0..dim).map(channel).collect::<Vec<f32>>()
    };
    (0..heads).flat_map(of_head).collect()
}

fn cases() -> Vec<Case> {
    let base = Shape {
        heads: 2,
        kv_heads: 1,
        dim: 256,
        positions: 5,
        capacity: 8,
        bits: 4,
        group: 64,
        dtype: Dtype::Bf16,
    };
    let shapes = [
        ("fewer positions than a block", base),
        ("one position", Shape { positions: 1, ..base }),
        ("several blocks", Shape { positions: 333, capacity: 512, heads: 4, kv_heads: 2, ..base }),
        ("8 bits", Shape { bits: 8, dim: 128, positions: 140, capacity: 140, ..base }),
        ("half, wide groups", Shape { dtype: Dtype::F16, group: 128, ..base }),
        ("wide heads", Shape { dim: 512, heads: 2, kv_heads: 1, positions: 129, capacity: 130, ..base }),
    ];
    shapes.into_iter().map(|(name, shape)| case(name, shape)).collect()
}

fn case(name: &str, shape: Shape) -> Case {
    let mut random = Random(62);
    let Shape { heads, kv_heads, dim, positions, capacity, bits, group, dtype } = shape;
    // Scores of up to about 2.
    let q = Data::floats(&[heads, dim], dtype, &random.units(heads * dim, 6.0 / (dim as f32).sqrt()));
    let mut cache = || Affine::random(&mut random, &[kv_heads, capacity], dim, [bits, group], dtype, 1.0);
    let (k, v) = (cache(), cache());
    let expected = vec![plain(&shape, &q.numbers(), &k.numbers(), &v.numbers())];
    Case {
        name: name.to_owned(),
        inputs: vec![
            ("q", q),
            ("k_codes", k.codes),
            ("k_scales", k.scales),
            ("k_biases", k.biases),
            ("v_codes", v.codes),
            ("v_scales", v.scales),
            ("v_biases", v.biases),
            ("length", Data::ints(&[3], &shape.length())),
        ],
        launches: shape.launches(),
        expected,
        // A score near the middle between two numbers of the dtype may round to the other one: a step of up to
        // 4 roundings' size in one weight; sums over all positions in float32; the result rounds once.
        tolerance: 9.0 * dtype.rounding() + (positions + dim) as f64 * 2.0_f64.powi(-24),
    }
}
