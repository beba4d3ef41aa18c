//! Products of every format against sums in double precision; every form gives the bits of the plain one, and a
//! token the same bits alone and in a batch.
#![expect(unsafe_code, reason = "calls kernels over buffers made here")]

use super::packing::{packed, read_row, zoo};
use super::support::Random;
use crate::features::Simd;
use crate::kernels::product::{Input, Product, multiply};
use crate::kernels::quantise::{BlockMeta, quantise_row};
use crate::matrix::{BLOCK, Format, Matrix};
use crate::memory::Region;

/// Tokens of one product, as floats and as 8-bit codes.
struct Tokens {
    n: usize,
    floats: Vec<f32>,
    codes: Vec<i8>,
    metas: Vec<BlockMeta>,
    stride: usize,
}

impl Tokens {
    fn new(n: usize, n_in: usize, random: &mut Random) -> Self {
        let stride = n_in.next_multiple_of(BLOCK);
        let mut floats = random.units(n * n_in);
        // A block of nothing but 0, and one that is large.
        floats[..n_in.min(32)].fill(0.0);
        let last = floats.len() - 1;
        floats[last] = 40.0;
        let mut codes = vec![0; n * stride];
        let mut metas = vec![BlockMeta::default(); n * stride / BLOCK];
        for token in 0..n {
            // SAFETY: the parts of one row.
            unsafe {
                quantise_row(
                    Simd::Portable,
                    floats.as_ptr().add(token * n_in),
                    n_in,
                    codes.as_mut_ptr().add(token * stride),
                    metas.as_mut_ptr().add(token * stride / BLOCK),
                );
            }
        }
        Tokens { n, floats, codes, metas, stride }
    }

    /// What the quantised product sees of one token.
    fn rounded(&self, token: usize, n_in: usize) -> Vec<f64> {
        let value = |k: usize| {
            let meta = &self.metas[(token * self.stride + k) / BLOCK];
            f64::from(self.codes[token * self.stride + k]) * f64::from(meta.scale)
        };
        (0..n_in).map(value).collect()
    }

    fn input(&self, matrix: &Matrix, is_quantised: bool, first: usize) -> Input {
        // SAFETY: pointers to rows of these vectors.
        unsafe {
            if is_quantised {
                let codes = self.codes.as_ptr().add(first * self.stride);
                let meta = self.metas.as_ptr().add(first * self.stride / BLOCK);
                Input::Quantised { codes, meta, stride: self.stride }
            } else {
                Input::Float { x: self.floats.as_ptr().add(first * matrix.n_in), stride: matrix.n_in }
            }
        }
    }
}

/// What a product adds.
struct Added {
    bias: Vec<f32>,
    residual: Vec<f32>,
}

fn product(
    simd: Simd,
    (matrix, region): (&Matrix, &Region),
    tokens: &Tokens,
    part: std::ops::Range<usize>,
    is_quantised: bool,
    added: Option<&Added>,
) -> Vec<f32> {
    let mut out = vec![f32::NAN; part.len() * matrix.n_out];
    let n_panels = matrix.n_panels();
    // Two parts, as two threads would take them.
    for panels in [0..n_panels / 2, n_panels / 2..n_panels] {
        let residual = added.map(|added| added.residual[part.start * matrix.n_out..].as_ptr());
        let task = Product {
            matrix,
            weights: region.ptr(),
            panels,
            input: tokens.input(matrix, is_quantised, part.start),
            n_tokens: part.len(),
            out: out.as_mut_ptr(),
            out_stride: matrix.n_out,
            bias: added.map(|added| added.bias.as_ptr()),
            residual: residual.map(|residual| (residual, matrix.n_out)),
        };
        // SAFETY: all buffers are as large as told.
        unsafe { multiply(simd, &task) };
    }
    out
}

/// The largest error of a sum whose terms are `terms`, in units of the sum of their absolute values: each of up
/// to `n_steps` additions, and the few operations that make a term, round by 2^-24.
fn bound(n_steps: usize, magnitude: f64) -> f64 {
    (n_steps + 4) as f64 * f64::from(f32::EPSILON) / 2.0 * magnitude + 1e-30
}

#[test]
fn products_are_right_in_every_format_form_and_batch() {
    let mut random = Random::new(1);
    for (n_out, n_in) in [(1, 48), (17, 64), (40, 96), (70, 256)] {
        for (model, names) in zoo(n_out, n_in) {
            for name in names {
                let (matrix, region) = packed(&model, &name);
                let tokens = Tokens::new(17, n_in, &mut random);
                let added = Added { bias: random.units(n_out), residual: random.units(n_out * tokens.n) };
                for is_quantised in [false, true] {
                    if is_quantised && !matrix.takes_quantised() {
                        continue;
                    }
                    let name = format!("{name} [{n_out},{n_in}], quantised {is_quantised}");
                    check_product(&name, (&matrix, &region), &tokens, is_quantised, &added);
                }
            }
        }
    }
}

fn check_product(
    name: &str,
    weights: (&Matrix, &Region),
    tokens: &Tokens,
    is_quantised: bool,
    added: &Added,
) {
    let (matrix, region) = weights;
    let (n_in, n_out) = (matrix.n_in, matrix.n_out);
    let all = product(Simd::Portable, weights, tokens, 0..tokens.n, is_quantised, Some(added));
    for token in 0..tokens.n {
        let x: Vec<f64> = if is_quantised {
            tokens.rounded(token, n_in)
        } else {
            tokens.floats[token * n_in..][..n_in].iter().copied().map(f64::from).collect()
        };
        for row in 0..n_out {
            let w = read_row(matrix, region, row);
            let plus = [added.bias[row], added.residual[token * n_out + row]].map(f64::from);
            let terms: Vec<f64> = w.iter().zip(&x).map(|(w, x)| f64::from(*w) * x).chain(plus).collect();
            let expected: f64 = terms.iter().sum();
            // A biased weight is the difference of two larger numbers, each with its own rounding.
            let largest = largest_part(matrix, &w);
            let magnitude: f64 = x.iter().map(|x| largest * x.abs()).chain(plus.map(f64::abs)).sum();
            let found = f64::from(all[token * n_out + row]);
            let bound = bound(n_in, magnitude);
            assert!(
                (found - expected).abs() <= bound,
                "{name}, token {token}, row {row}: {found}, not {expected}"
            );
        }
    }
    for simd in Simd::available() {
        let same = |part: std::ops::Range<usize>| {
            let found = product(simd, weights, tokens, part.clone(), is_quantised, Some(added));
            let expected = &all[part.start * n_out..part.end * n_out];
            let is_same = found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(is_same, "{name}: {simd} over tokens {part:?}");
        };
        (1..=tokens.n).for_each(|n| same(0..n));
        (0..tokens.n).for_each(|token| same(token..token + 1));
        same(3..12);
    }
}

/// The largest of what a weight is made of.
fn largest_part(matrix: &Matrix, weights: &[f32]) -> f64 {
    let top = weights.iter().fold(0.0_f64, |top, w| top.max(f64::from(w.abs())));
    match matrix.format {
        Format::Dense(_) => top,
        // A code counts from its zero point or bias only after it is multiplied: up to 255 units, where the
        // largest weight is at least half of that away from one end.
        Format::Grouped { .. } => 4.0 * top,
    }
}

#[test]
fn quantised_rows_are_within_half_a_step() {
    let mut random = Random::new(2);
    for n in [1, 15, 16, 17, 31, 32, 33, 64, 100] {
        let x = random.units(n);
        let stride = n.next_multiple_of(BLOCK);
        let mut expected = None;
        for simd in Simd::available() {
            let (mut codes, mut metas) = (vec![99_i8; stride], vec![BlockMeta::default(); stride / BLOCK]);
            // SAFETY: the buffers are as long as the kernel asks.
            unsafe { quantise_row(simd, x.as_ptr(), n, codes.as_mut_ptr(), metas.as_mut_ptr()) };
            for (block, meta) in metas.iter().enumerate() {
                let part = &x[block * BLOCK..n.min((block + 1) * BLOCK)];
                let codes = &codes[block * BLOCK..][..BLOCK];
                let top = part.iter().fold(0.0_f32, |top, x| top.max(x.abs()));
                for (x, code) in part.iter().zip(codes) {
                    // Half a step, and the roundings of the step itself, of the product and of the quotient.
                    let bound = top / 254.0 * (1.0 + 1e-5);
                    assert!((x - f32::from(*code) * meta.scale).abs() <= bound, "{simd}, {n}: {x} as {code}");
                }
                assert!(codes[part.len()..].iter().all(|code| *code == 0), "{simd}, {n}: the tail is 0");
                let sums: Vec<i32> =
                    codes.chunks(16).map(|half| half.iter().map(|code| i32::from(*code)).sum()).collect();
                assert_eq!(meta.halves.to_vec(), sums, "{simd}, {n}: sums of halves");
                assert_eq!(meta.sum, meta.scale * (sums[0] + sums[1]) as f32, "{simd}, {n}: the sum");
            }
            let bits: Vec<_> = metas.iter().map(|meta| (meta.scale.to_bits(), meta.halves)).collect();
            let expected = expected.get_or_insert_with(|| (codes.clone(), bits.clone()));
            assert_eq!(*expected, (codes, bits), "{simd}, {n}: the same as the first form");
        }
    }
}

#[test]
fn rows_too_small_for_a_step_are_zero() {
    let x = [1e-42_f32; 32];
    let (mut codes, mut metas) = ([5_i8; 32], [BlockMeta::default(); 1]);
    for simd in Simd::available() {
        // SAFETY: one whole block.
        unsafe { quantise_row(simd, x.as_ptr(), 32, codes.as_mut_ptr(), metas.as_mut_ptr()) };
        assert_eq!((codes, metas[0].scale, metas[0].sum), ([0; 32], 0.0, 0.0), "{simd}");
    }
}
