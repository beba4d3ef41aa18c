//! The kernels, one module each: predicate, launches, plain form and cases.

pub mod decode_attention;
pub mod gated_delta;
pub mod page_attention;
pub mod rope_page;
pub mod row_linear;
pub mod swiglu;

use crate::case::{Data, Dtype};

/// A stream of numbers that is the same everywhere (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Numbers from `-size` to `size`.
    pub(crate) fn units(&mut self, n: usize, size: f32) -> Vec<f32> {
        (0..n).map(|_| size * ((self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0)).collect()
    }

    pub(crate) fn words(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.bits() as u32).collect()
    }
}

/// Rows of affine codes with their scales and biases, as MLX packs them.
pub(crate) struct Affine {
    pub(crate) codes: Data,
    pub(crate) scales: Data,
    pub(crate) biases: Data,
    bits: usize,
    group: usize,
}

impl Affine {
    /// Random codes of a shape whose last dimension is `cols`; numbers reach about `size`.
    pub(crate) fn random(
        random: &mut Random,
        leading: &[usize],
        cols: usize,
        [bits, group]: [usize; 2],
        dtype: Dtype,
        size: f32,
    ) -> Affine {
        let rows: usize = leading.iter().product();
        let shape = |last: usize| [leading, &[last]].concat();
        let codes = random.words(rows * cols * bits / 32);
        let step = 2.0 * size / ((1_u32 << bits) - 1) as f32;
        let groups = rows * cols / group;
        let scales: Vec<f32> = random.units(groups, 0.3).iter().map(|x| step * (1.0 + x)).collect();
        let biases: Vec<f32> = random.units(groups, 0.3).iter().map(|x| -size * (1.0 + x)).collect();
        Affine {
            codes: Data::words(&shape(cols * bits / 32), &codes),
            scales: Data::floats(&shape(cols / group), dtype, &scales),
            biases: Data::floats(&shape(cols / group), dtype, &biases),
            bits,
            group,
        }
    }

    /// The numbers of all rows, in double precision.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let per_word = 32 / self.bits;
        let mask = (1_u32 << self.bits) - 1;
        let (scales, biases) = (self.scales.numbers(), self.biases.numbers());
        let words = self.codes.bytes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four));
        let codes = words.flat_map(|word| (0..per_word).map(move |c| word >> (c * self.bits) & mask));
        codes
            .enumerate()
            .map(|(i, code)| {
                let group = i / self.group;
                f64::from(scales[group]) * f64::from(code) + f64::from(biases[group])
            })
            .collect()
    }
}
