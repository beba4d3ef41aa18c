//! Norms and elementwise functions against their formulas in double precision, in every form.
#![expect(unsafe_code, reason = "calls kernels over buffers made here")]

use host_graph::{Activation, BinaryOp, UnaryOp};

use super::oracle;
use super::support::Random;
use crate::features::Simd;
use crate::kernels::rows::{Norm, binary, glu, norm_rows, unary};

const WIDTHS: [usize; 8] = [1, 2, 15, 16, 17, 32, 100, 576];

#[test]
fn norms_follow_their_formula_in_every_form() {
    let mut random = Random::new(1);
    for width in WIDTHS {
        for (is_centred, has_weight, has_bias) in
            [(false, true, false), (false, false, false), (true, true, true), (true, false, false)]
        {
            let n_rows = 3;
            let mut x = random.units(n_rows * width);
            x[..width].iter_mut().for_each(|x| *x *= 1000.0);
            let (weight, bias) = (random.units(width), random.units(width));
            let mut first: Option<Vec<u32>> = None;
            for simd in Simd::available() {
                let mut out = vec![f32::NAN; n_rows * width];
                let task = Norm {
                    x: x.as_ptr(),
                    out: out.as_mut_ptr(),
                    n_rows,
                    width,
                    weight: if has_weight { weight.as_ptr() } else { std::ptr::null() },
                    bias: if has_bias { bias.as_ptr() } else { std::ptr::null() },
                    eps: 1e-5,
                    is_centred,
                };
                // SAFETY: all buffers are as large as told.
                unsafe { norm_rows(simd, &task) };
                for (row, (x, y)) in x.chunks(width).zip(out.chunks(width)).enumerate() {
                    let n = width as f64;
                    let mean =
                        if is_centred { x.iter().map(|x| f64::from(*x)).sum::<f64>() / n } else { 0.0 };
                    let square = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n;
                    let root = (square + f64::from(1e-5_f32)).sqrt();
                    let top = x.iter().fold(0.0_f64, |top, x| top.max(f64::from(x.abs())));
                    for i in 0..width {
                        let w = if has_weight { f64::from(weight[i]) } else { 1.0 };
                        let b = if has_bias { f64::from(bias[i]) } else { 0.0 };
                        let expected = (f64::from(x[i]) - mean) / root * w + b;
                        // Sums of `width` terms in 16 lanes: width / 16 + 4 additions, each 2^-24 of the sum;
                        // a centred row of one element is the difference of equals, hence `top`.
                        let steps = width as f64 / 16.0 + 12.0;
                        let bound =
                            steps * 2.0_f64.powi(-24) * (top / root * w.abs() + b.abs() + expected.abs());
                        let found = f64::from(y[i]);
                        assert!(
                            (found - expected).abs() <= bound,
                            "{simd}, width {width}, centred {is_centred}, row {row}, {i}: {found}, not {expected}"
                        );
                    }
                }
                let bits: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
                assert_eq!(*first.get_or_insert_with(|| bits.clone()), bits, "{simd}, width {width}");
            }
        }
    }
}

#[test]
fn elementwise_functions_follow_their_formula_in_every_form() {
    let inputs = |op: UnaryOp| -> Vec<f32> {
        let all = (-400..=400).map(|i| i as f32 * 0.04 + 0.003);
        match op {
            UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt => all.filter(|x| *x > 0.0).collect(),
            UnaryOp::Not => vec![0.0, 1.0, 0.0, 0.0, 1.0],
            _ => all.collect(),
        }
    };
    for (op, name) in UnaryOp::ALL {
        let x = inputs(op);
        let mut first: Option<Vec<u32>> = None;
        for simd in Simd::available() {
            let mut out = vec![f32::NAN; x.len()];
            // SAFETY: both buffers have `x.len()` floats.
            unsafe { unary(simd, op, x.as_ptr(), out.as_mut_ptr(), x.len()) };
            for (x, y) in x.iter().zip(&out) {
                let expected = oracle::unary(op, f64::from(*x));
                // `exp` is good to two units in the last place; the few operations around it add one each. Far
                // out, gelu is the small difference of 1 and a number near it, times x.
                let cancelled = match op {
                    UnaryOp::GeluTanh => f64::from(x.abs()),
                    // This one in double precision on both sides.
                    UnaryOp::Gelu => f64::from(x.abs()) * 2.0_f64.powi(-20),
                    _ => 0.0,
                };
                let bound = 8.0 * 2.0_f64.powi(-24) * (expected.abs() + cancelled) + 1e-37;
                assert!(
                    (f64::from(*y) - expected).abs() <= bound,
                    "{simd}, {name}({x}): {y}, not {expected}"
                );
            }
            let bits: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
            assert_eq!(*first.get_or_insert_with(|| bits.clone()), bits, "{simd}, {name}");
        }
    }
}

#[test]
fn what_is_no_number_stays_visible() {
    let x = [f32::NAN; 17];
    for (op, name) in UnaryOp::ALL {
        if op == UnaryOp::Not {
            continue;
        }
        for simd in Simd::available() {
            let mut out = [0.0; 17];
            // SAFETY: both buffers have 17 floats.
            unsafe { unary(simd, op, x.as_ptr(), out.as_mut_ptr(), 17) };
            assert!(out.iter().all(|y| y.is_nan()), "{simd}, {name}: {out:?}");
        }
    }
}

#[test]
fn gated_units_follow_their_formula_in_every_form() {
    let mut random = Random::new(3);
    for n in WIDTHS {
        let gate: Vec<f32> = random.units(n).iter().map(|x| 6.0 * x).collect();
        let up = random.units(n);
        for (activation, name) in Activation::ALL {
            let op = match activation {
                Activation::Silu => UnaryOp::Silu,
                Activation::Gelu => UnaryOp::Gelu,
                Activation::GeluTanh => UnaryOp::GeluTanh,
            };
            let mut first: Option<Vec<u32>> = None;
            for simd in Simd::available() {
                let mut out = vec![f32::NAN; n];
                // SAFETY: all buffers have `n` floats.
                unsafe { glu(simd, activation, gate.as_ptr(), up.as_ptr(), out.as_mut_ptr(), n) };
                for i in 0..n {
                    let (g, u) = (f64::from(gate[i]), f64::from(up[i]));
                    let expected = oracle::unary(op, g) * u;
                    let bound = 9.0 * 2.0_f64.powi(-24) * (expected.abs() + (g * u).abs());
                    assert!((f64::from(out[i]) - expected).abs() <= bound, "{simd}, {name}, {n}: {i}");
                }
                let bits: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
                assert_eq!(*first.get_or_insert_with(|| bits.clone()), bits, "{simd}, {name}, {n}");
            }
        }
    }
}

#[test]
fn functions_of_two_numbers_follow_their_formula() {
    let numbers = [-2.5_f32, -1.0, 0.0, 0.5, 1.0, 3.0];
    for (op, name) in BinaryOp::ALL {
        for a in numbers {
            for b in numbers {
                let expected = oracle::binary(op, f64::from(a), f64::from(b)) as f32;
                let found = binary(op, a, b);
                let is_same = found == expected
                    || (found.is_nan() && expected.is_nan())
                    || (found - expected).abs() <= expected.abs() * 2.0 * f32::EPSILON;
                assert!(is_same, "{name}({a}, {b}): {found}, not {expected}");
            }
        }
    }
}
