//! Attention of one token a sequence over a cache and the page behind it; see `page_attention/README.md`.

use super::Random;
use crate::case::{Case, Data, Dtype, Launch, Template};
use crate::{Kernel, Stage};

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "page-attention",
    about: "one query a sequence over plain keys and values, rows padded in front",
    stages: &[Stage {
        name: "tenon_page_attention",
        inputs: &["q", "k_cache", "v_cache", "k_page", "v_page", "place"],
        outputs: &["out"],
        body: include_str!("../../page_attention/body.metal"),
    }],
    cases,
};

/// Sizes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sequences, one query each.
    pub sequences: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Width of a head, of keys and values alike.
    pub dim: usize,
    /// Positions of a page.
    pub page: usize,
    /// The element type of q, keys, values and result.
    pub dtype: Dtype,
}

/// Bytes of threadgroup memory that every GPU has.
const MOST_BYTES: usize = 32 * 1024;

impl Shape {
    /// SIMD groups of a thread group.
    fn units(&self) -> usize {
        if self.dim > 256 { 8 } else { 16 }
    }

    /// Why the kernel does not support these sizes; `None` when it does.
    pub fn refusal(&self) -> Option<&'static str> {
        match self {
            Shape { dtype: Dtype::U32 | Dtype::I32, .. } => Some("q must be of a float type"),
            Shape { dim, .. } if dim % 32 != 0 || *dim == 0 => Some("heads must be a multiple of 32 wide"),
            Shape { dim, .. } if (dim + 2) * self.units() * 4 > MOST_BYTES => Some("heads are too wide"),
            Shape { heads, kv_heads, .. } if *kv_heads == 0 || heads % kv_heads != 0 => {
                Some("heads of queries must be a multiple of those of keys")
            }
            Shape { sequences: 0, .. } | Shape { page: 0, .. } => Some("there must be a sequence and a page"),
            _ => None,
        }
    }

    /// How it is launched; scores are multiplied by `scale`.
    pub fn launch(&self, scale: f32) -> Launch {
        let int = |n: usize| Template::Int(n as i32);
        let units = self.units();
        // Positions whose keys and values a lane holds at once: 32 registers of each.
        let at_once = (32 * 32 / self.dim).clamp(1, 4);
        Launch {
            grid: [32 * units, self.heads, self.sequences],
            group: [32 * units, 1, 1],
            templates: vec![
                ("T", Template::Type(self.dtype)),
                ("H", int(self.heads)),
                ("KV", int(self.kv_heads)),
                ("D", int(self.dim)),
                ("PAGE", int(self.page)),
                ("SEQUENCES", int(self.sequences)),
                ("UNITS", int(units)),
                ("AT_ONCE", int(at_once)),
                ("SCALE", Template::float(scale)),
            ],
            outputs: vec![(vec![self.sequences, self.heads, 1, self.dim], self.dtype)],
        }
    }
}

/// Where the positions of a case stand.
struct Place {
    cached: usize,
    filled: usize,
    capacity: usize,
    pads: Vec<usize>,
}

/// The plain form in double precision: one softmax over all positions.
fn plain(shape: &Shape, place: &Place, scale: f32, q: &[f32], kv: [&[f32]; 4]) -> Vec<f32> {
    let Shape { sequences, heads, kv_heads, dim, page, .. } = *shape;
    let of_head = |sequence: usize, head: usize| {
        let kv_row = sequence * kv_heads + head / (heads / kv_heads);
        let element = |[cache, paged]: [&[f32]; 2], at: usize, d: usize| {
            f64::from(match at.checked_sub(place.cached) {
                None => cache[(kv_row * place.capacity + at) * dim + d],
                Some(at) => paged[(kv_row * page + at) * dim + d],
            })
        };
        let [k_cache, v_cache, k_page, v_page] = kv;
        let q = &q[(sequence * heads + head) * dim..][..dim];
        let positions = place.pads[sequence]..place.cached + place.filled + 1;
        let scores: Vec<f64> = positions
            .clone()
            .map(|at| {
                let dot = |d: usize| f64::from(q[d]) * element([k_cache, k_page], at, d);
                (0..dim).map(dot).sum::<f64>() * f64::from(scale)
            })
            .collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        let channel = |d: usize| {
            let terms = positions.clone().zip(&weights).map(|(at, w)| w * element([v_cache, v_page], at, d));
            (terms.sum::<f64>() / total) as f32
        };
        (0..dim).map(channel).collect::<Vec<f32>>()
    };
    let all = (0..sequences).flat_map(|s| (0..heads).map(move |h| (s, h)));
    all.flat_map(|(s, h)| of_head(s, h)).collect()
}

fn cases() -> Vec<Case> {
    let base = Shape { sequences: 1, heads: 4, kv_heads: 2, dim: 64, page: 8, dtype: Dtype::Bf16 };
    let place = |cached, filled, pads: &[usize]| Place { cached, filled, capacity: 256, pads: pads.to_vec() };
    let shapes = [
        ("the page alone", base, place(0, 0, &[0])),
        ("cache and page", base, place(40, 3, &[0])),
        ("a full page", Shape { dim: 128, ..base }, place(100, 7, &[0])),
        ("unequal rows", Shape { sequences: 3, ..base }, place(50, 5, &[0, 11, 52])),
        ("three heads share one", Shape { heads: 9, kv_heads: 3, dim: 96, ..base }, place(17, 1, &[4])),
        ("wide heads", Shape { dim: 512, heads: 2, kv_heads: 1, ..base }, place(20, 2, &[0])),
        ("half", Shape { dtype: Dtype::F16, ..base }, place(33, 0, &[0])),
        ("float32", Shape { dtype: Dtype::F32, ..base }, place(33, 6, &[1])),
    ];
    shapes.into_iter().map(|(name, shape, place)| case(name, shape, &place)).collect()
}

fn case(name: &str, shape: Shape, at: &Place) -> Case {
    let mut random = Random(66);
    let Shape { sequences, heads, kv_heads, dim, page, dtype } = shape;
    let mut numbers = |dims: &[usize]| Data::floats(dims, dtype, &random.units(dims.iter().product(), 1.0));
    let q = numbers(&[sequences, heads, 1, dim]);
    let cache = [sequences, kv_heads, at.capacity, dim];
    let paged = [sequences, kv_heads, page, dim];
    let kv = [cache, cache, paged, paged].map(|dims| numbers(&dims));
    let [k_cache, v_cache, k_page, v_page] = &kv;
    // Scores of up to about 2.
    let scale = 6.0 / (dim as f32).sqrt();
    let values = [k_cache, v_cache, k_page, v_page].map(Data::numbers);
    let expected = plain(&shape, at, scale, &q.numbers(), values.each_ref().map(Vec::as_slice));
    let n_positions = at.cached + at.filled + 1;
    let mut place = vec![at.cached as i32, at.filled as i32, at.capacity as i32];
    place.extend(at.pads.iter().map(|pad| (n_positions - 1 - pad) as i32));
    place.extend(at.pads.iter().map(|pad| *pad as i32));
    let [k_cache, v_cache, k_page, v_page] = kv;
    Case {
        name: name.to_owned(),
        inputs: vec![
            ("q", q),
            ("k_cache", k_cache),
            ("v_cache", v_cache),
            ("k_page", k_page),
            ("v_page", v_page),
            ("place", Data::ints(&[place.len()], &place)),
        ],
        launches: vec![shape.launch(scale)],
        expected: vec![expected],
        // Scores sum `dim` terms of up to 6 in all in float32, weights and values one a position; the result
        // rounds once.
        tolerance: (8 * dim + 2 * n_positions) as f64 * 2.0_f64.powi(-24) + dtype.rounding(),
    }
}
