//! Fused SwiGLU over affine-quantised weights: `silu(x Wg^T) * (x Wu^T)`; see `swiglu/README.md`.

use super::{Affine, Random};
use crate::case::{Case, Data, Dtype, Launch, Template};
use crate::{Kernel, Stage};

/// The kernel.
pub const KERNEL: Kernel = Kernel {
    name: "swiglu",
    about: "silu(x gate) * (x up) over affine weights, in one launch",
    stages: &[Stage {
        name: "tenon_swiglu",
        inputs: &["x", "gate_codes", "gate_scales", "gate_biases", "up_codes", "up_scales", "up_biases"],
        outputs: &["out"],
        body: include_str!("../../swiglu/body.metal"),
    }],
    cases,
};

/// Sizes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows of x.
    pub rows: usize,
    /// Width of x.
    pub width: usize,
    /// Columns of the result.
    pub inner: usize,
    /// Bits of a code, of both matrices.
    pub bits: usize,
    /// Elements that share a scale, of both matrices.
    pub group: usize,
    /// The element type of x, scales, biases and result.
    pub dtype: Dtype,
}

/// Rows that one SIMD group takes at once: the weights are read once for all of them.
const MOST_ROWS: usize = 8;

impl Shape {
    /// Why the kernel does not support these sizes; `None` when it does.
    pub fn refusal(&self) -> Option<&'static str> {
        match self {
            Shape { dtype: Dtype::U32 | Dtype::I32, .. } => Some("x must be of a float type"),
            Shape { bits, .. } if ![2, 4, 8].contains(bits) => Some("codes must have 2, 4 or 8 bits"),
            Shape { group, .. } if ![32, 64, 128].contains(group) => Some("groups must be 32, 64 or 128"),
            Shape { width, group, .. } if width % group != 0 => Some("the width must be whole groups"),
            Shape { inner, .. } if inner % 4 != 0 => Some("the columns must be a multiple of 4"),
            Shape { rows: 0, .. } => Some("there must be a row"),
            _ => None,
        }
    }

    /// How it is launched.
    pub fn launch(&self) -> Launch {
        let rows = self.rows.next_power_of_two().min(MOST_ROWS);
        let int = |n: usize| Template::Int(n as i32);
        Launch {
            grid: [32, self.inner, self.rows.div_ceil(rows)],
            group: [32, 4, 1],
            templates: vec![
                ("T", Template::Type(self.dtype)),
                ("BITS", int(self.bits)),
                ("GROUP", int(self.group)),
                ("K", int(self.width)),
                ("I", int(self.inner)),
                ("M", int(self.rows)),
                ("ROWS", int(rows)),
            ],
            outputs: vec![(vec![self.rows, self.inner], self.dtype)],
        }
    }
}

/// The plain form, rounding where separate products and functions would.
fn plain(shape: &Shape, x: &[f32], gate: &[f64], up: &[f64]) -> Vec<f32> {
    let dot = |row: usize, column: usize, w: &[f64]| -> f32 {
        let x = &x[row * shape.width..(row + 1) * shape.width];
        let w = &w[column * shape.width..(column + 1) * shape.width];
        shape.dtype.round(x.iter().zip(w).map(|(x, w)| f64::from(*x) * w).sum::<f64>() as f32)
    };
    let of = |row: usize, column: usize| {
        let round = |x: f32| shape.dtype.round(x);
        let (g, u) = (dot(row, column, gate), dot(row, column, up));
        let sigmoid = round(1.0 / (1.0 + (-g).exp()));
        round(round(g * sigmoid) * u)
    };
    (0..shape.rows).flat_map(|row| (0..shape.inner).map(move |column| of(row, column))).collect()
}

fn cases() -> Vec<Case> {
    let base = Shape { rows: 1, width: 64, inner: 8, bits: 4, group: 32, dtype: Dtype::Bf16 };
    let shapes = [
        ("one row", base),
        ("8 bits", Shape { bits: 8, group: 64, ..base }),
        ("2 bits", Shape { bits: 2, ..base }),
        ("half", Shape { dtype: Dtype::F16, width: 128, group: 128, ..base }),
        ("float32", Shape { dtype: Dtype::F32, ..base }),
        ("two rows", Shape { rows: 2, ..base }),
        ("rows that are no whole tile", Shape { rows: 11, width: 96, ..base }),
        ("words that are no whole SIMD group", Shape { width: 320, inner: 12, group: 64, ..base }),
    ];
    shapes.into_iter().map(|(name, shape)| case(name, shape)).collect()
}

fn case(name: &str, shape: Shape) -> Case {
    let mut random = Random(61);
    let Shape { rows, width, inner, bits, group, dtype } = shape;
    let x = Data::floats(&[rows, width], dtype, &random.units(rows * width, 1.0));
    let size = (3.0 / width as f32).sqrt();
    let mut weights = || Affine::random(&mut random, &[inner], width, [bits, group], dtype, size);
    let (gate, up) = (weights(), weights());
    let expected = vec![plain(&shape, &x.numbers(), &gate.numbers(), &up.numbers())];
    Case {
        name: name.to_owned(),
        expected,
        inputs: vec![
            ("x", x),
            ("gate_codes", gate.codes),
            ("gate_scales", gate.scales),
            ("gate_biases", gate.biases),
            ("up_codes", up.codes),
            ("up_scales", up.scales),
            ("up_biases", up.biases),
        ],
        launches: vec![shape.launch()],
        // A float32 sum of `width` terms may fall on the other side of a rounding of each product, of the
        // sigmoid, of the silu and of the result: one step of the dtype each, on numbers up to 1.
        tolerance: 5.0 * dtype.rounding() * 2.0 + width as f64 * 2.0_f64.powi(-24),
    }
}
