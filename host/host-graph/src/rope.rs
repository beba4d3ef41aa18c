//! Rotary position embeddings: what to rotate, and the frequencies of each published variant.
//!
//! Tables are built with float32 operations, as the reference implementations do: rounding a double-precision
//! table differs in the last place in about a quarter of the entries.

use std::f64::consts::PI;

/// Which elements form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// Pairs `(i, i + d/2)`; the published llama, qwen and gemma checkpoints.
    SplitHalves,
    /// Pairs `(2i, 2i + 1)`.
    Interleaved,
}

/// How the rotation frequencies follow from the base.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeFrequencies {
    /// `theta^(-2i/d)`.
    Default,
    /// The default divided by `factor` (position interpolation).
    Linear {
        /// Context extension.
        factor: f32,
    },
    /// Llama 3.1: long wavelengths are divided by `factor`, short ones kept, those between blended.
    Llama3 {
        /// Context extension.
        factor: f32,
        /// Wavelengths above `original / low_freq_factor` are divided.
        low_freq_factor: f32,
        /// Wavelengths below `original / high_freq_factor` are kept.
        high_freq_factor: f32,
        /// Context length of the original training.
        original_max_position_embeddings: f32,
    },
    /// YaRN (Peng et al. 2023).
    Yarn {
        /// Context extension.
        factor: f32,
        /// Rotations above which a frequency is kept (32).
        beta_fast: f32,
        /// Rotations below which a frequency is divided (1).
        beta_slow: f32,
        /// Context length of the original training.
        original_max_position_embeddings: f32,
        /// Whether the bounds of the blend are rounded to whole pairs (as published; gpt-oss does not).
        truncate: bool,
    },
    /// LongRoPE: each frequency divided by its own factor.
    LongRope {
        /// One factor a pair, `dims / 2` of them.
        factors: Vec<f32>,
    },
    /// Gemma 4: the exponent divides by the full head width although only `dims` are rotated.
    Proportional {
        /// Context extension.
        factor: f32,
        /// The head's full width.
        full_dims: usize,
    },
}

/// A complete description of one rotation.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// How many leading dimensions of a head are rotated; even, at most the head's width.
    pub dims: usize,
    /// The base of the frequencies.
    pub theta: f32,
    /// Which elements form a pair.
    pub layout: RopeLayout,
    /// How the frequencies follow from the base.
    pub frequencies: RopeFrequencies,
    /// What cosine and sine are multiplied with (YaRN and LongRoPE); 1 otherwise.
    pub attention_factor: f32,
    /// Multimodal rotation: pairs taken from the temporal, height and width positions; empty for text.
    pub mrope_section: Vec<usize>,
}

impl RopeSpec {
    /// Plain rotation of all `dims` in split halves.
    pub fn new(dims: usize, theta: f32) -> Self {
        RopeSpec {
            dims,
            theta,
            layout: RopeLayout::SplitHalves,
            frequencies: RopeFrequencies::Default,
            attention_factor: 1.0,
            mrope_section: Vec::new(),
        }
    }

    /// Radians a position, one a pair: `[dims / 2]`.
    pub fn inverse_frequencies(&self) -> Vec<f32> {
        let divisor = match self.frequencies {
            RopeFrequencies::Proportional { full_dims, .. } => full_dims,
            _ => self.dims,
        };
        // theta^(2i/d): how many positions one radian takes.
        let radian = |i: usize| self.theta.powf((2 * i) as f32 / divisor as f32);
        let pairs = 0..self.dims / 2;
        match &self.frequencies {
            RopeFrequencies::Default => pairs.map(|i| 1.0 / radian(i)).collect(),
            RopeFrequencies::Linear { factor } | RopeFrequencies::Proportional { factor, .. } => {
                pairs.map(|i| 1.0 / radian(i) / factor).collect()
            }
            RopeFrequencies::LongRope { factors } => {
                pairs.zip(factors).map(|(i, factor)| 1.0 / (factor * radian(i))).collect()
            }
            RopeFrequencies::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => pairs.map(|i| llama3(1.0 / radian(i), *factor, *low, *high, *original)).collect(),
            RopeFrequencies::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_max_position_embeddings: original,
                truncate,
            } => {
                let (low, width) = self.yarn_blend([*beta_fast, *beta_slow], *original, *truncate);
                pairs.map(|i| yarn(radian(i), *factor, (i as f32 - low) / width)).collect()
            }
        }
    }

    /// The first pair of the blend and the number of pairs it spans.
    ///
    /// The references compute both in double precision; only the ramp itself is float32.
    fn yarn_blend(&self, betas: [f32; 2], original: f32, truncate: bool) -> (f32, f32) {
        let d = self.dims as f64;
        let [low, high] = betas.map(|rotations| {
            let ratio = f64::from(original) / (f64::from(rotations) * 2.0 * PI);
            d * ratio.ln() / (2.0 * f64::from(self.theta).ln())
        });
        let (low, high) = if truncate { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(d - 1.0));
        let width = if low == high { 0.001 } else { high - low };
        (low as f32, width as f32)
    }
}

fn llama3(f: f32, factor: f32, low: f32, high: f32, original: f32) -> f32 {
    let wavelength = 2.0 * PI as f32 / f;
    if wavelength > original / low {
        f / factor
    } else if wavelength < original / high {
        f
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        (1.0 - smooth) * f / factor + smooth * f
    }
}

fn yarn(radian: f32, factor: f32, ramp: f32) -> f32 {
    let extrapolated = 1.0 - ramp.clamp(0.0, 1.0);
    1.0 / (factor * radian) * (1.0 - extrapolated) + 1.0 / radian * extrapolated
}
