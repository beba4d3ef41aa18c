//! Row kernels: norms and elementwise functions.
#![expect(unsafe_code, reason = "kernels work on raw parts of shared buffers")]

use host_graph::{Activation, BinaryOp, UnaryOp};

use crate::kernels::entry;
use crate::lanes::{LANES, Lanes, exp, silu, tanh};

/// A norm over rows of `width`, `n_rows` of them, packed one after another.
#[derive(Clone, Copy)]
pub(crate) struct Norm {
    pub(crate) x: *const f32,
    pub(crate) out: *mut f32,
    pub(crate) n_rows: usize,
    pub(crate) width: usize,
    /// `[width]`, or null for 1.
    pub(crate) weight: *const f32,
    /// `[width]`, or null for 0.
    pub(crate) bias: *const f32,
    pub(crate) eps: f32,
    /// Whether the mean is taken away first (layer norm).
    pub(crate) is_centred: bool,
}

entry! {
    /// Normalises rows.
    ///
    /// # Safety
    /// Pointers are valid for the shapes told.
    norm_rows = norm(p: &Norm)
}

#[inline(always)]
unsafe fn norm<V: Lanes>(p: &Norm) {
    unsafe {
        for row in 0..p.n_rows {
            let x = p.x.add(row * p.width);
            let out = p.out.add(row * p.width);
            let n = p.width as f32;
            let mean = if p.is_centred { sum::<V>(x, p.width, |v| v) / n } else { 0.0 };
            let centre = V::splat(mean);
            let mut squares = V::splat(0.0);
            let mut i = 0;
            while i < p.width {
                let left = (p.width - i).min(LANES);
                let v = V::keep(V::sub(V::load_n(x.add(i), left), centre), 0, left, 0.0);
                squares = V::fma(v, v, squares);
                i += LANES;
            }
            let factor = V::splat(1.0 / (V::reduce_add(squares) / n + p.eps).sqrt());
            let mut i = 0;
            while i < p.width {
                let left = (p.width - i).min(LANES);
                let mut v = V::mul(V::sub(V::load_n(x.add(i), left), centre), factor);
                if !p.weight.is_null() {
                    v = V::mul(v, V::load_n(p.weight.add(i), left));
                }
                if !p.bias.is_null() {
                    v = V::add(v, V::load_n(p.bias.add(i), left));
                }
                V::store_n(out.add(i), v, left);
                i += LANES;
            }
        }
    }
}

#[inline(always)]
unsafe fn sum<V: Lanes>(x: *const f32, n: usize, map: impl Fn(V::F) -> V::F) -> f32 {
    unsafe {
        let mut total = V::splat(0.0);
        let mut i = 0;
        while i < n {
            total = V::add(total, map(V::load_n(x.add(i), (n - i).min(LANES))));
            i += LANES;
        }
        V::reduce_add(total)
    }
}

entry! {
    /// `out = activation(gate) * up`, elementwise over `n`.
    ///
    /// # Safety
    /// Pointers are valid for `n` floats.
    glu = glu_kernel(activation: Activation, gate: *const f32, up: *const f32, out: *mut f32, n: usize)
}

#[inline(always)]
unsafe fn glu_kernel<V: Lanes>(
    activation: Activation,
    gate: *const f32,
    up: *const f32,
    out: *mut f32,
    n: usize,
) {
    unsafe {
        let mut i = 0;
        while i < n {
            let left = (n - i).min(LANES);
            let (g, u) = (V::load_n(gate.add(i), left), V::load_n(up.add(i), left));
            let a = match activation {
                Activation::Silu => silu::<V>(g),
                Activation::GeluTanh => gelu_tanh::<V>(g),
                Activation::Gelu => lane_by_lane::<V>(g, gelu_erf),
            };
            V::store_n(out.add(i), V::mul(a, u), left);
            i += LANES;
        }
    }
}

entry! {
    /// `out = op(x)`, elementwise over `n`.
    ///
    /// # Safety
    /// Pointers are valid for `n` floats.
    unary = unary_kernel(op: UnaryOp, x: *const f32, out: *mut f32, n: usize)
}

#[inline(always)]
unsafe fn unary_kernel<V: Lanes>(op: UnaryOp, x: *const f32, out: *mut f32, n: usize) {
    unsafe {
        let mut i = 0;
        while i < n {
            let left = (n - i).min(LANES);
            let v = V::load_n(x.add(i), left);
            let zero = V::splat(0.0);
            let y = match op {
                UnaryOp::Silu => silu::<V>(v),
                UnaryOp::GeluTanh => gelu_tanh::<V>(v),
                UnaryOp::Gelu => lane_by_lane::<V>(v, gelu_erf),
                // The number to try stands second: what is no number passes through.
                UnaryOp::Relu => V::max(zero, v),
                UnaryOp::Relu2 => {
                    let r = V::max(zero, v);
                    V::mul(r, r)
                }
                UnaryOp::Sigmoid => V::div(V::splat(1.0), V::add(V::splat(1.0), exp::<V>(V::sub(zero, v)))),
                UnaryOp::Tanh => tanh::<V>(v),
                UnaryOp::Neg => V::sub(zero, v),
                UnaryOp::Abs => V::abs(v),
                UnaryOp::Softplus => lane_by_lane::<V>(v, softplus),
                UnaryOp::Exp => lane_by_lane::<V>(v, f32::exp),
                UnaryOp::Log => lane_by_lane::<V>(v, f32::ln),
                UnaryOp::Sqrt => lane_by_lane::<V>(v, f32::sqrt),
                UnaryOp::Rsqrt => lane_by_lane::<V>(v, |x| 1.0 / x.sqrt()),
                UnaryOp::Sin => lane_by_lane::<V>(v, f32::sin),
                UnaryOp::Cos => lane_by_lane::<V>(v, f32::cos),
                UnaryOp::Floor => lane_by_lane::<V>(v, f32::floor),
                UnaryOp::Not => lane_by_lane::<V>(v, |x| if x == 0.0 { 1.0 } else { 0.0 }),
            };
            V::store_n(out.add(i), y, left);
            i += LANES;
        }
    }
}

entry! {
    /// Writes `n` floats as IEEE halves, rounded to nearest even.
    ///
    /// # Safety
    /// Pointers are valid for `n` numbers.
    narrow = narrow_kernel(x: *const f32, to: *mut u16, n: usize)
}

#[inline(always)]
unsafe fn narrow_kernel<V: Lanes>(x: *const f32, to: *mut u16, n: usize) {
    unsafe {
        let whole = n / LANES * LANES;
        for i in (0..whole).step_by(LANES) {
            V::store_f16(to.add(i), V::load(x.add(i)));
        }
        for i in whole..n {
            *to.add(i) = half::f16::from_f32(*x.add(i)).to_bits();
        }
    }
}

#[inline(always)]
unsafe fn lane_by_lane<V: Lanes>(v: V::F, f: impl Fn(f32) -> f32) -> V::F {
    unsafe {
        let mut lanes = [0.0_f32; LANES];
        V::store(lanes.as_mut_ptr(), v);
        for lane in &mut lanes {
            *lane = f(*lane);
        }
        V::load(lanes.as_ptr())
    }
}

/// `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
#[inline(always)]
unsafe fn gelu_tanh<V: Lanes>(x: V::F) -> V::F {
    unsafe {
        let cube = V::mul(V::mul(x, x), x);
        let inner = V::mul(V::fma(cube, V::splat(0.044_715), x), V::splat(0.797_884_6));
        V::mul(V::mul(x, V::splat(0.5)), V::add(V::splat(1.0), tanh::<V>(inner)))
    }
}

/// `x (1 + erf(x / sqrt 2)) / 2`.
fn gelu_erf(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))) as f32
}

/// The error function to about 1e-15: its Taylor series, and a continued fraction of its complement.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a < 2.5 {
        let (mut term, mut sum) = (a, a);
        for n in 1..60 {
            let n = f64::from(n);
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        return (2.0 / std::f64::consts::PI.sqrt() * sum).copysign(x);
    }
    let fraction = (1..=60).rev().fold(0.0, |tail, k| f64::from(k) / 2.0 / (a + tail));
    (1.0 - (-a * a).exp() / (std::f64::consts::PI.sqrt() * (a + fraction))).copysign(x)
}

fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// One elementwise function of two numbers; comparisons and truth values are 0 and 1.
pub(crate) fn binary(op: BinaryOp, a: f32, b: f32) -> f32 {
    let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Equal => truth(a == b),
        BinaryOp::Less => truth(a < b),
        BinaryOp::LessEqual => truth(a <= b),
        BinaryOp::And => truth(a != 0.0 && b != 0.0),
        BinaryOp::Or => truth(a != 0.0 || b != 0.0),
    }
}
