//! Products of one row with what stands around them in a layer: the norm before, and the residual or the gate
//! behind; see `row_linear/README.md`.

use super::{Affine, Random};
use crate::case::{Case, Data, Dtype, Launch, Template};
use crate::{Kernel, Stage};

/// One kernel of the family, put together from its parts.
macro_rules! kernel {
    ($name:literal, $function:literal, $about:literal, $cases:ident, $inputs:expr, $($part:literal),*) => {
        Kernel {
            name: $name,
            about: $about,
            stages: &[Stage {
                name: $function,
                inputs: &$inputs,
                outputs: &["out"],
                body: concat!($(include_str!(concat!("../../row_linear/", $part, ".metal"))),*),
            }],
            cases: $cases,
        }
    };
}

/// `norm(x) W^T`, dense.
pub const NORM_LINEAR: Kernel = kernel!(
    "norm-linear",
    "tenon_norm_linear",
    "RMS norm and a product of one row, dense",
    norm_linear,
    ["x", "norm", "w"],
    "dense",
    "norm",
    "split",
    "dense_dot",
    "join",
    "store"
);

/// `norm(x) W^T`, affine codes.
pub const NORM_LINEAR_AFFINE: Kernel = kernel!(
    "norm-linear",
    "tenon_norm_linear_affine",
    "RMS norm and a product of one row, affine codes",
    norm_linear_affine,
    ["x", "norm", "codes", "scales", "biases"],
    "affine",
    "norm",
    "split",
    "affine_dot",
    "join",
    "store"
);

/// `x W^T + residual`, dense.
pub const LINEAR_ADD: Kernel = kernel!(
    "linear-add",
    "tenon_linear_add",
    "a product of one row and the residual, dense",
    linear_add,
    ["x", "residual", "w"],
    "dense",
    "copy",
    "split",
    "dense_dot",
    "join",
    "store_add"
);

/// `x W^T + residual`, affine codes.
pub const LINEAR_ADD_AFFINE: Kernel = kernel!(
    "linear-add",
    "tenon_linear_add_affine",
    "a product of one row and the residual, affine codes",
    linear_add_affine,
    ["x", "residual", "codes", "scales", "biases"],
    "affine",
    "copy",
    "split",
    "affine_dot",
    "join",
    "store_add"
);

/// `silu(norm(x) Wg^T) * (norm(x) Wu^T)`, dense.
pub const NORM_SWIGLU: Kernel = kernel!(
    "norm-swiglu",
    "tenon_norm_swiglu",
    "RMS norm and a gated product of one row, dense",
    norm_swiglu,
    ["x", "norm", "w"],
    "dense",
    "norm",
    "split",
    "dense_dot",
    "join",
    "store_gated"
);

/// `silu(norm(x) Wg^T) * (norm(x) Wu^T)`, affine codes.
pub const NORM_SWIGLU_AFFINE: Kernel = kernel!(
    "norm-swiglu",
    "tenon_norm_swiglu_affine",
    "RMS norm and a gated product of one row, affine codes",
    norm_swiglu_affine,
    ["x", "norm", "codes", "scales", "biases"],
    "affine",
    "norm",
    "split",
    "affine_dot",
    "join",
    "store_gated"
);

/// What stands around the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The norm before it.
    NormLinear,
    /// The residual behind it.
    LinearAdd,
    /// The norm before it, and the gate behind it: the matrix holds the gate's rows, then those that it gates.
    NormSwiglu,
}

/// Sizes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// What stands around the product.
    pub form: Form,
    /// Width of x.
    pub width: usize,
    /// Width of the result.
    pub columns: usize,
    /// Bits of a code, and elements that share a scale; `None` for a dense matrix.
    pub affine: Option<[usize; 2]>,
    /// The element type of x, norm, residual, dense matrix, scales, biases and result.
    pub dtype: Dtype,
}

/// SIMD groups of a thread group.
const UNITS: usize = 8;
/// Bytes of threadgroup memory that every GPU has, without the few of the norm.
const MOST_ROW_BYTES: usize = 32 * 1024 - 512;
/// SIMD groups that keep a large GPU busy, and so many that more do not help.
const ENOUGH: usize = 2048;
const PLENTY: usize = 4096;

/// Who does what in one call.
#[derive(Clone, Copy, Debug)]
struct Split {
    /// Neighbouring columns of one team of SIMD groups.
    step: usize,
    /// SIMD groups of a team: they share the row.
    parts: usize,
}

impl Shape {
    /// Why the kernel does not support these sizes; `None` when it does.
    pub fn refusal(&self) -> Option<&'static str> {
        let rows = if self.form == Form::NormSwiglu { 2 * self.columns } else { self.columns };
        match self {
            Shape { dtype: Dtype::U32 | Dtype::I32, .. } => Some("x must be of a float type"),
            Shape { width, .. } if width % 32 != 0 || *width == 0 => {
                Some("the width must be a multiple of 32")
            }
            Shape { width, dtype, .. } if width * dtype.size_bytes() > MOST_ROW_BYTES => {
                Some("a row must fit into threadgroup memory")
            }
            Shape { columns, .. } if columns % UNITS != 0 || *columns == 0 => {
                Some("the columns must be a multiple of 8")
            }
            Shape { width, .. } if rows * width > i32::MAX as usize => Some("the matrix is too large"),
            Shape { affine: Some([bits, _]), .. } if ![2, 4, 8].contains(bits) => {
                Some("codes must have 2, 4 or 8 bits")
            }
            Shape { affine: Some([_, group]), .. } if ![32, 64, 128].contains(group) => {
                Some("groups must be 32, 64 or 128")
            }
            Shape { width, affine: Some([_, group]), .. } if width % group != 0 => {
                Some("the width must be whole groups")
            }
            _ => None,
        }
    }

    /// The kernel for this form and matrix.
    pub fn kernel(&self) -> &'static Kernel {
        match (self.form, self.affine.is_some()) {
            (Form::NormLinear, false) => &NORM_LINEAR,
            (Form::NormLinear, true) => &NORM_LINEAR_AFFINE,
            (Form::LinearAdd, false) => &LINEAR_ADD,
            (Form::LinearAdd, true) => &LINEAR_ADD_AFFINE,
            (Form::NormSwiglu, false) => &NORM_SWIGLU,
            (Form::NormSwiglu, true) => &NORM_SWIGLU_AFFINE,
        }
    }

    /// How it is launched. `eps` is the norm's; linear-add has none.
    pub fn launch(&self, eps: f32) -> Launch {
        self.launch_split(eps, self.split())
    }

    /// Elements that a lane takes at once: four, or codes of 16 bytes that share a scale.
    fn chunk(&self) -> usize {
        self.affine.map_or(4, |[bits, group]| (128 / bits).min(group))
    }

    /// More columns a team read the row less often; more SIMD groups a team leave each fewer turns, and memory more
    /// to do at once. Both as far as there are SIMD groups enough.
    fn split(&self) -> Split {
        const TURNS: usize = 3;
        let most = if self.form == Form::NormSwiglu { 2 } else { 4 };
        let is_enough =
            |n: &usize| *n <= most && self.columns.is_multiple_of(n * UNITS) && self.columns / n >= ENOUGH;
        let step = [4, 2].into_iter().find(is_enough).unwrap_or(1);
        let mut parts = 1;
        while parts < UNITS
            && self.width > TURNS * parts * 32 * self.chunk()
            && self.columns / step * parts < PLENTY
        {
            parts *= 2;
        }
        Split { step, parts }
    }

    fn launch_split(&self, eps: f32, Split { step, parts }: Split) -> Launch {
        let is_gated = self.form == Form::NormSwiglu;
        let int = |n: usize| Template::Int(n as i32);
        let mut templates = vec![
            ("T", Template::Type(self.dtype)),
            ("K", int(self.width)),
            ("UNITS", int(UNITS)),
            ("PARTS", int(parts)),
            ("COLS", int(if is_gated { 2 * step } else { step })),
            ("STEP", int(step)),
            ("STRIDE", int(self.columns)),
        ];
        if self.form != Form::LinearAdd {
            templates.push(("EPS", Template::float(eps)));
        }
        if let Some([bits, group]) = self.affine {
            templates.extend([("BITS", int(bits)), ("GROUP", int(group))]);
        }
        Launch {
            grid: [32, self.columns / step * parts, 1],
            group: [32, UNITS, 1],
            templates,
            outputs: vec![(vec![1, self.columns], self.dtype)],
        }
    }
}

/// The plain form, rounding where separate operations would. `norm` and `residual` are empty where unused.
fn plain(shape: &Shape, x: &[f32], norm: &[f32], eps: f32, residual: &[f32], w: &[f64]) -> Vec<f32> {
    let round = |x: f32| shape.dtype.round(x);
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let factor = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
    let row: Vec<f32> = match shape.form {
        Form::LinearAdd => x.to_vec(),
        _ => x.iter().zip(norm).map(|(x, norm)| round(round(x * factor) * norm)).collect(),
    };
    let dot = |column: usize| {
        let w = &w[column * shape.width..(column + 1) * shape.width];
        round(row.iter().zip(w).map(|(x, w)| f64::from(*x) * w).sum::<f64>() as f32)
    };
    let of = |column: usize| match shape.form {
        Form::NormLinear => dot(column),
        Form::LinearAdd => round(dot(column) + residual[column]),
        Form::NormSwiglu => {
            let (gate, up) = (dot(column), dot(column + shape.columns));
            round(round(gate * round(1.0 / (1.0 + (-gate).exp()))) * up)
        }
    };
    (0..shape.columns).map(of).collect()
}

fn norm_linear() -> Vec<Case> {
    cases(Form::NormLinear, None)
}

fn norm_linear_affine() -> Vec<Case> {
    cases(Form::NormLinear, Some([4, 64]))
}

fn linear_add() -> Vec<Case> {
    cases(Form::LinearAdd, None)
}

fn linear_add_affine() -> Vec<Case> {
    cases(Form::LinearAdd, Some([4, 64]))
}

fn norm_swiglu() -> Vec<Case> {
    cases(Form::NormSwiglu, None)
}

fn norm_swiglu_affine() -> Vec<Case> {
    cases(Form::NormSwiglu, Some([4, 64]))
}

fn cases(form: Form, affine: Option<[usize; 2]>) -> Vec<Case> {
    let base = Shape { form, width: 128, columns: 16, affine, dtype: Dtype::Bf16 };
    // Just beyond what one SIMD group takes in three turns.
    let long = if affine.is_some() { 3136 } else { 416 };
    let mut shapes = vec![
        ("bfloat16", base),
        ("half", Shape { dtype: Dtype::F16, ..base }),
        ("float32", Shape { dtype: Dtype::F32, ..base }),
        ("chunks that are no whole SIMD group", Shape { width: 576, columns: 8, ..base }),
        ("several turns, shared by SIMD groups", Shape { width: long, columns: 8, ..base }),
    ];
    if affine.is_some() {
        shapes.push(("8 bits", Shape { affine: Some([8, 32]), ..base }));
        shapes.push(("2 bits", Shape { affine: Some([2, 128]), ..base }));
        shapes.push(("a scale for two words", Shape { affine: Some([2, 32]), width: 96, ..base }));
    }
    let mut cases: Vec<Case> = shapes.into_iter().map(|(name, shape)| case(name, shape)).collect();
    let wide = Shape { columns: 32, ..base };
    let split = Split { step: 2, parts: 2 };
    cases.push(Case {
        launches: vec![wide.launch_split(EPS, split)],
        ..case("two columns for two SIMD groups", wide)
    });
    if affine.is_some() {
        cases.iter_mut().for_each(|case| case.name = format!("affine, {}", case.name));
    }
    cases
}

/// Of the cases' norms.
const EPS: f32 = 1e-5;

fn case(name: &str, shape: Shape) -> Case {
    let mut random = Random(64);
    let Shape { form, width, columns, affine, dtype } = shape;
    let rows = if form == Form::NormSwiglu { 2 * columns } else { columns };
    let x = Data::floats(&[1, width], dtype, &random.units(width, 1.0));
    let norm = Data::floats(&[width], dtype, &random.units(width, 1.0));
    let residual = Data::floats(&[1, columns], dtype, &random.units(columns, 1.0));
    let size = (3.0 / width as f32).sqrt();
    let (matrix, w) = match affine {
        None => {
            let w = Data::floats(&[rows, width], dtype, &random.units(rows * width, size));
            let numbers = w.numbers().into_iter().map(f64::from).collect();
            (vec![("w", w)], numbers)
        }
        Some(of) => {
            let w = Affine::random(&mut random, &[rows], width, of, dtype, size);
            let numbers: Vec<f64> = w.numbers();
            (vec![("codes", w.codes), ("scales", w.scales), ("biases", w.biases)], numbers)
        }
    };
    let expected = plain(&shape, &x.numbers(), &norm.numbers(), EPS, &residual.numbers(), &w);
    let mut inputs = vec![("x", x)];
    if form == Form::LinearAdd {
        inputs.push(("residual", residual));
    } else {
        inputs.push(("norm", norm));
    }
    inputs.extend(matrix);
    Case {
        name: name.to_owned(),
        inputs,
        launches: vec![shape.launch(EPS)],
        expected: vec![expected],
        tolerance: tolerance(&shape),
    }
}

/// A float32 sum in another order may tip a rounding: of the normed row's elements (two roundings, each off by a
/// step of 2 * rounding on numbers up to about 1, which the product averages by its random signs to below one
/// step), of the product, and of what follows; and it is itself off by `width` roundings.
fn tolerance(shape: &Shape) -> f64 {
    let n_roundings = match shape.form {
        Form::NormLinear => 3.0,
        Form::LinearAdd => 2.0,
        Form::NormSwiglu => 6.0,
    };
    n_roundings * 2.0 * shape.dtype.rounding() + shape.width as f64 * 2.0_f64.powi(-24)
}
