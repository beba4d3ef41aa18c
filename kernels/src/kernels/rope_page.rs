//! What stands between the product for q, k and v and attention in a step of one token a sequence; see
//! `rope_page/README.md`.

use super::Random;
use crate::case::{Case, Data, Dtype, Launch, Template};
use crate::{Kernel, Stage};

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "rope-page",
    about: "norms and rotates q and k of one token a sequence, and puts k and v into the page",
    stages: &[Stage {
        name: "tenon_rope_page",
        inputs: &["qkv", "k_page", "v_page", "periods", "q_norm", "k_norm", "place"],
        outputs: &["q", "k_next", "v_next"],
        body: include_str!("../../rope_page/body.metal"),
    }],
    cases,
};

/// Sizes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sequences, one token each.
    pub sequences: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Width of a head, of keys and values alike.
    pub dim: usize,
    /// Dimensions that are rotated.
    pub rotated: usize,
    /// Positions of a page.
    pub page: usize,
    /// Whether pairs are neighbours; else halves.
    pub is_interleaved: bool,
    /// Whether heads of q and k are normed before.
    pub has_norms: bool,
    /// The element type of everything but periods.
    pub dtype: Dtype,
}

/// SIMD groups of a thread group.
const UNITS: usize = 4;

impl Shape {
    /// Why the kernel does not support these sizes; `None` when it does.
    pub fn refusal(&self) -> Option<&'static str> {
        match self {
            Shape { dtype: Dtype::U32 | Dtype::I32, .. } => Some("q, k and v must be of a float type"),
            Shape { dim, .. } if dim % 32 != 0 || *dim == 0 => Some("heads must be a multiple of 32 wide"),
            Shape { rotated, dim, .. } if rotated > dim || rotated % 2 != 0 => {
                Some("the rotated dimensions must be even and within the head")
            }
            Shape { heads, kv_heads, .. } if *kv_heads == 0 || heads % kv_heads != 0 => {
                Some("heads of queries must be a multiple of those of keys")
            }
            Shape { page, .. } if page % UNITS != 0 || *page == 0 => Some("pages must be a multiple of 4"),
            Shape { sequences: 0, .. } => Some("there must be a sequence"),
            _ => None,
        }
    }

    /// How it is launched: `eps` of the norms of q and k, `factor` of what is rotated.
    pub fn launch(&self, eps: [f32; 2], factor: f32) -> Launch {
        let int = |n: usize| Template::Int(n as i32);
        let units = self.heads + 2 * self.kv_heads * self.page;
        // Whole thread groups only: with an odd number of heads, one SIMD group each.
        let group = if units.is_multiple_of(UNITS) { UNITS } else { 1 };
        let page = vec![self.sequences, self.kv_heads, self.page, self.dim];
        Launch {
            grid: [32, units, self.sequences],
            group: [32, group, 1],
            templates: vec![
                ("T", Template::Type(self.dtype)),
                ("H", int(self.heads)),
                ("KV", int(self.kv_heads)),
                ("D", int(self.dim)),
                ("DIMS", int(self.rotated)),
                ("PAGE", int(self.page)),
                ("INTERLEAVED", int(usize::from(self.is_interleaved))),
                ("NORM", int(usize::from(self.has_norms))),
                ("Q_EPS", Template::float(eps[0])),
                ("K_EPS", Template::float(eps[1])),
                ("FACTOR", Template::float(factor)),
            ],
            outputs: vec![
                (vec![self.sequences, self.heads, 1, self.dim], self.dtype),
                (page.clone(), self.dtype),
                (page, self.dtype),
            ],
        }
    }
}

/// What a case is made of beside its sizes.
struct Numbers {
    qkv: Vec<f32>,
    pages: [Vec<f32>; 2],
    periods: Vec<f32>,
    norms: [Vec<f32>; 2],
    eps: [f32; 2],
    factor: f32,
    filled: usize,
    positions: Vec<i32>,
}

/// The plain form: one head after the other, angles in double precision.
fn plain(shape: &Shape, given: &Numbers) -> Vec<Vec<f32>> {
    let Shape { sequences, heads, kv_heads, dim, page, .. } = *shape;
    let head = |sequence: usize, head: usize| {
        let from = (sequence * (heads + 2 * kv_heads) + head) * dim;
        &given.qkv[from..from + dim]
    };
    let turned = |sequence: usize, x: &[f32], which: usize| {
        let x = if shape.has_norms {
            normed(shape.dtype, x, &given.norms[which], given.eps[which])
        } else {
            x.to_vec()
        };
        rotated(shape, &x, f64::from(given.positions[sequence]), given)
    };
    let q = (0..sequences).flat_map(|s| (0..heads).map(move |h| (s, h)));
    let q: Vec<f32> = q.flat_map(|(s, h)| turned(s, head(s, h), 0)).collect();
    let [mut k, mut v] = given.pages.clone();
    for sequence in 0..sequences {
        for kv_head in 0..kv_heads {
            let at = ((sequence * kv_heads + kv_head) * page + given.filled) * dim;
            k[at..at + dim].copy_from_slice(&turned(sequence, head(sequence, heads + kv_head), 1));
            v[at..at + dim].copy_from_slice(head(sequence, heads + kv_heads + kv_head));
        }
    }
    vec![q, k, v]
}

fn normed(dtype: Dtype, x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let factor = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
    x.iter().zip(weight).map(|(x, w)| dtype.round(dtype.round(x * factor) * w)).collect()
}

fn rotated(shape: &Shape, x: &[f32], position: f64, given: &Numbers) -> Vec<f32> {
    let mut out = x.to_vec();
    let half = shape.rotated / 2;
    for pair in 0..half {
        let (a, b) = if shape.is_interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
        let (sine, cosine) = (position / f64::from(given.periods[pair])).sin_cos();
        let (x, y) = (f64::from(x[a]) * f64::from(given.factor), f64::from(x[b]) * f64::from(given.factor));
        out[a] = shape.dtype.round((x * cosine - y * sine) as f32);
        out[b] = shape.dtype.round((x * sine + y * cosine) as f32);
    }
    out
}

fn cases() -> Vec<Case> {
    let base = Shape {
        sequences: 1,
        heads: 4,
        kv_heads: 2,
        dim: 64,
        rotated: 64,
        page: 8,
        is_interleaved: false,
        has_norms: false,
        dtype: Dtype::Bf16,
    };
    let shapes = [
        ("halves", base, 0, 1.0),
        ("neighbours", Shape { is_interleaved: true, ..base }, 3, 1.0),
        ("part of a head", Shape { rotated: 32, dim: 96, ..base }, 7, 1.3),
        ("norms", Shape { has_norms: true, dim: 128, rotated: 128, ..base }, 2, 1.0),
        ("three sequences", Shape { sequences: 3, has_norms: true, ..base }, 1, 1.0),
        ("an odd number of heads", Shape { heads: 9, kv_heads: 3, page: 16, ..base }, 5, 1.0),
        ("half", Shape { dtype: Dtype::F16, ..base }, 4, 1.0),
        ("float32", Shape { dtype: Dtype::F32, has_norms: true, ..base }, 4, 1.0),
    ];
    shapes.into_iter().map(|(name, shape, filled, factor)| case(name, shape, filled, factor)).collect()
}

fn case(name: &str, shape: Shape, filled: usize, factor: f32) -> Case {
    let mut random = Random(65);
    let Shape { sequences, heads, kv_heads, dim, rotated, page, dtype, .. } = shape;
    let n_heads = heads + 2 * kv_heads;
    let qkv = Data::floats(&[sequences, n_heads * dim], dtype, &random.units(sequences * n_heads * dim, 1.0));
    let page_shape = [sequences, kv_heads, page, dim];
    let n_page = page_shape.iter().product();
    let mut pages = || Data::floats(&page_shape, dtype, &random.units(n_page, 1.0));
    let (k_page, v_page) = (pages(), pages());
    let mut norms = || Data::floats(&[dim], dtype, &random.units(dim, 1.0));
    let (q_norm, k_norm) = (norms(), norms());
    let periods: Vec<f32> =
        (0..rotated / 2).map(|i| 100.0_f32.powf(2.0 * i as f32 / rotated as f32)).collect();
    let positions: Vec<i32> = (0..sequences).map(|s| 17 + 5 * s as i32).collect();
    let mut place = vec![40, filled as i32, 256];
    place.extend(&positions);
    place.extend(vec![0; sequences]);
    let eps = [1e-5, 1e-6];
    let given = Numbers {
        qkv: qkv.numbers(),
        pages: [k_page.numbers(), v_page.numbers()],
        periods: periods.clone(),
        norms: [q_norm.numbers(), k_norm.numbers()],
        eps,
        factor,
        filled,
        positions,
    };
    let expected = plain(&shape, &given);
    let largest_angle = f64::from(*given.positions.iter().max().unwrap_or(&0));
    Case {
        name: name.to_owned(),
        inputs: vec![
            ("qkv", qkv),
            ("k_page", k_page),
            ("v_page", v_page),
            ("periods", Data::floats(&[rotated / 2], Dtype::F32, &periods)),
            ("q_norm", q_norm),
            ("k_norm", k_norm),
            ("place", Data::ints(&[place.len()], &place)),
        ],
        launches: vec![shape.launch(eps, factor)],
        expected,
        // The angle is off by two roundings of float32 (1 / period, the product); sine and cosine by as much,
        // and they meet two numbers below 1. A norm's factor may tip two roundings of each of the two numbers;
        // the result rounds once.
        tolerance: 4.0 * (2.0 * largest_angle + 2.0) * 2.0_f64.powi(-24)
            + (if shape.has_norms { 5.0 } else { 1.0 }) * 2.0 * dtype.rounding(),
    }
}
