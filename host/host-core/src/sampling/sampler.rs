//! Every native sampler with its parameters: one link of a chain.
//!
//! The types are data. What each computes stands beside its implementation, and in the documents that its line
//! names.

use serde::{Deserialize, Serialize};

use super::SamplingError;
use super::range::Ranges;

/// One link of a chain. In TOML: `{ sampler = "top_p", p = 0.9 }`.
///
/// Every parameter is named; none has a default. Samplers act on what the ones before them left: each sees the
/// probabilities among the tokens that remain, under the temperatures that came before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "sampler", rename_all = "snake_case", deny_unknown_fields)]
pub enum Sampler {
    /// Add a number to the logits of some tokens.
    LogitBias {
        /// Pairs of token id and number; negative infinity excludes the token.
        bias: Vec<(u32, f32)>,
    },
    /// Divide (positive) or multiply (negative) the logits of tokens already seen, once each (Keskar et al.,
    /// 2019).
    Repetition {
        /// The factor; 0 and 1 change nothing.
        penalty: f32,
        /// How many of the last tokens (prompt included) it looks at; 0 looks at all.
        context_tokens: u32,
    },
    /// Subtract a number once from the logits of tokens already seen.
    Presence {
        /// The number; 0 changes nothing.
        penalty: f32,
        /// How many of the last tokens (prompt included) it looks at; 0 looks at all.
        context_tokens: u32,
    },
    /// Subtract a number from the logits of tokens already seen, for each time.
    Frequency {
        /// The number; 0 changes nothing.
        penalty: f32,
        /// How many of the last tokens (prompt included) it looks at; 0 looks at all.
        context_tokens: u32,
    },
    /// "Don't repeat yourself": subtract `multiplier * base^(n - allowed_length)` from the logit of a token that
    /// would lengthen a repetition of `n` tokens (as llama.cpp does).
    Dry {
        /// The penalty at the allowed length; 0 changes nothing.
        multiplier: f32,
        /// How the penalty grows with each token; at least 1.
        base: f32,
        /// Repetitions shorter than this cost nothing; at least 1.
        allowed_length: u32,
        /// How many of the last tokens (prompt included) it looks at; 0 looks at all.
        context_tokens: u32,
        /// Repetitions neither cross these nor are continued by them.
        sequence_breakers: Vec<Breaker>,
    },
    /// Keep the k most likely tokens.
    TopK {
        /// 0 keeps all.
        k: u32,
    },
    /// Keep the smallest set of most likely tokens whose probabilities sum to at least `p`.
    TopP {
        /// Above 0; 1 keeps all.
        p: f32,
    },
    /// Drop tokens less likely than a share of the most likely one.
    MinP {
        /// The share; 0 keeps all.
        p: f32,
        /// Keep at least so many; at least 1.
        min_keep: u32,
    },
    /// Keep the tokens whose surprise is closest to the entropy, up to a probability of `p` (Meister et al., 2022).
    TypicalP {
        /// Above 0; 1 keeps all.
        p: f32,
    },
    /// With some probability, drop all tokens above a threshold but the least likely of them.
    Xtc {
        /// How often; 0 never.
        probability: f32,
        /// From 0 to 0.5.
        threshold: f32,
    },
    /// Drop tokens whose logit lies more than n standard deviations below the largest (Tang et al., 2024).
    TopNSigma {
        /// 0 keeps all.
        n: f32,
    },
    /// Divide logits by it; 0 keeps the most likely token alone.
    Temperature {
        /// 0 or more.
        temperature: f32,
    },
    /// A temperature within `temperature ± range` that follows the entropy (as llama.cpp does).
    DynamicTemperature {
        /// The middle of the range.
        temperature: f32,
        /// How far it may go up and down; below 0 the temperature ends at 0.
        range: f32,
        /// The power of the entropy's share of its maximum.
        exponent: f32,
    },
    /// Keeps the surprise near `tau` by the estimated Zipf exponent (Basu et al., 2021).
    MirostatV1 {
        /// The surprise aimed at, in bits.
        tau: f32,
        /// How fast it is corrected.
        eta: f32,
        /// How many tokens the estimate looks at.
        m: u32,
    },
    /// Keeps the surprise near `tau` by dropping tokens with more of it (Basu et al., 2021, second algorithm).
    MirostatV2 {
        /// The surprise aimed at, in bits.
        tau: f32,
        /// How fast it is corrected.
        eta: f32,
    },
    /// A tone curve with a straight middle, a shoulder and a toe.
    Hlg {
        /// Slope of the middle.
        gain: f32,
        /// Half the width of the middle, in nats; above 0.
        width: f32,
        /// How soft the shoulder is, in nats; above 0.
        shoulder: f32,
        /// How soft the toe is, in nats; above 0.
        toe: f32,
        /// What the middle hangs on.
        pivot: Pivot,
        /// How far below the pivot the middle lies, in nats.
        offset: f32,
    },
    /// The opto-electrical transfer function of hybrid log-gamma.
    // A form with fields, of which there are none: one without would let any parameter pass.
    HlgOetf {},
    /// Its inverse with the system's gamma for a display.
    HlgEotf {
        /// Peak luminance of the display.
        peak_luminance: f32,
    },
    /// Both in turn.
    HlgPipeline {
        /// Scale at the end.
        alpha: f32,
        /// Peak luminance of the display.
        peak_luminance: f32,
    },
    /// A shaped curve over a window below the most likely token.
    HlgShaper(Shaper),
    /// Maps log-probabilities by a curve through points.
    Curve {
        /// At least two (x, y), both in per cent of probability.
        points: Vec<(f32, f32)>,
    },
}

/// What the middle of [`Sampler::Hlg`] hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pivot {
    /// The largest log-probability.
    Top,
    /// The mean log-probability.
    Entropy,
    /// The log-probability at which half of the mass is reached.
    Median,
}

/// The parameters of [`Sampler::HlgShaper`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shaper {
    /// The window below the most likely token, in nats; above 0.
    pub window: f32,
    /// Where the straight part ends.
    pub x_mid: f32,
    /// Its height there.
    pub y_mid: f32,
    /// Where the toe begins; above 0 and below `x_mid`.
    pub x_foot: f32,
    /// Its height there.
    pub y_foot: f32,
    /// Power of the part between.
    pub power: f32,
    /// Slope of the straight part; above 0.
    pub slope: f32,
    /// How soft the shoulder is; above 0.
    pub shoulder: f32,
    /// Peak luminance of the display.
    pub peak_luminance: f32,
    /// Logits between the most likely token and one 4 nats below it.
    pub target_gap: f32,
}

/// What a repetition does not cross: a token, or every token whose text holds this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Breaker {
    /// A token.
    Id(u32),
    /// A text, before a tokenizer resolved it.
    Text(String),
}

impl Sampler {
    /// The name that the chain knows it by: `top_p`.
    pub fn name(&self) -> &'static str {
        match self {
            Sampler::LogitBias { .. } => "logit_bias",
            Sampler::Repetition { .. } => "repetition",
            Sampler::Presence { .. } => "presence",
            Sampler::Frequency { .. } => "frequency",
            Sampler::Dry { .. } => "dry",
            Sampler::TopK { .. } => "top_k",
            Sampler::TopP { .. } => "top_p",
            Sampler::MinP { .. } => "min_p",
            Sampler::TypicalP { .. } => "typical_p",
            Sampler::Xtc { .. } => "xtc",
            Sampler::TopNSigma { .. } => "top_n_sigma",
            Sampler::Temperature { .. } => "temperature",
            Sampler::DynamicTemperature { .. } => "dynamic_temperature",
            Sampler::MirostatV1 { .. } => "mirostat_v1",
            Sampler::MirostatV2 { .. } => "mirostat_v2",
            Sampler::Hlg { .. } => "hlg",
            Sampler::HlgOetf {} => "hlg_oetf",
            Sampler::HlgEotf { .. } => "hlg_eotf",
            Sampler::HlgPipeline { .. } => "hlg_pipeline",
            Sampler::HlgShaper(_) => "hlg_shaper",
            Sampler::Curve { .. } => "curve",
        }
    }

    /// Whether it only changes single logits: log-probabilities are taken after those that lead a chain.
    pub fn is_penalty(&self) -> bool {
        matches!(
            self,
            Sampler::LogitBias { .. }
                | Sampler::Repetition { .. }
                | Sampler::Presence { .. }
                | Sampler::Frequency { .. }
                | Sampler::Dry { .. }
        )
    }

    /// Whether it carries something from one token to the next that the tokens alone do not tell.
    pub fn is_stateful(&self) -> bool {
        matches!(self, Sampler::MirostatV1 { .. } | Sampler::MirostatV2 { .. })
    }

    /// Checks every range.
    ///
    /// # Errors
    /// [`SamplingError`] names the sampler and the first parameter outside its range.
    pub fn check(&self) -> Result<(), SamplingError> {
        let ranges = Ranges(self.name());
        match self {
            Sampler::LogitBias { bias } => bias.iter().try_for_each(|(_, number)| {
                let holds = *number < f32::INFINITY;
                ranges.holds("bias", holds, "finite numbers or negative infinity", number)
            }),
            Sampler::Repetition { penalty, .. }
            | Sampler::Presence { penalty, .. }
            | Sampler::Frequency { penalty, .. } => ranges.number("penalty", *penalty),
            Sampler::Dry { multiplier, base, allowed_length, .. } => {
                ranges.number("multiplier", *multiplier)?;
                ranges.number("base", *base)?;
                ranges.count("allowed_length", *allowed_length)
            }
            Sampler::TopK { .. } | Sampler::HlgOetf {} => Ok(()),
            Sampler::TopP { p } | Sampler::TypicalP { p } => ranges.number("p", *p),
            Sampler::MinP { p, min_keep } => {
                ranges.number("p", *p)?;
                ranges.count("min_keep", *min_keep)
            }
            Sampler::Xtc { probability, threshold } => {
                ranges.number("probability", *probability)?;
                ranges.number("threshold", *threshold)
            }
            Sampler::TopNSigma { n } => ranges.number("n", *n),
            Sampler::Temperature { temperature } => ranges.number("temperature", *temperature),
            Sampler::DynamicTemperature { temperature, range, exponent } => {
                ranges.number("temperature", *temperature)?;
                ranges.number("range", *range)?;
                ranges.number("exponent", *exponent)
            }
            Sampler::MirostatV1 { tau, eta, m } => {
                ranges.number("tau", *tau)?;
                ranges.number("eta", *eta)?;
                ranges.count("m", *m)
            }
            Sampler::MirostatV2 { tau, eta } => {
                ranges.number("tau", *tau)?;
                ranges.number("eta", *eta)
            }
            Sampler::Hlg { gain, width, shoulder, toe, offset, .. } => {
                ranges.number("gain", *gain)?;
                ranges.number("width", *width)?;
                ranges.number("shoulder", *shoulder)?;
                ranges.number("toe", *toe)?;
                ranges.number("offset", *offset)
            }
            Sampler::HlgEotf { peak_luminance } => ranges.number("peak_luminance", *peak_luminance),
            Sampler::HlgPipeline { alpha, peak_luminance } => {
                ranges.number("alpha", *alpha)?;
                ranges.number("peak_luminance", *peak_luminance)
            }
            Sampler::HlgShaper(shaper) => ranges.shaper(shaper),
            Sampler::Curve { points } => ranges.points(points),
        }
    }
}
