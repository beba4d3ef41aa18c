//! A sampler as it runs: its parameters compiled, with what it remembers of one request.

use host_core::{Breaker, Sampler, SamplingError, Shaper};

use crate::candidates::Candidates;
use crate::dry::Dry;
use crate::error::SampleError;
use crate::filters;
use crate::mirostat::{Mirostat, Version};
use crate::penalties::{Window, repetition};
use crate::random::Key;
use crate::tone::{self, Curve, Hlg};

/// One link of a running chain.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    Bias(Vec<(u32, f32)>),
    Repetition(f32, Window),
    Presence(f32, Window),
    Frequency(f32, Window),
    Dry(Dry),
    TopK(usize),
    TopP(f32),
    MinP(f32, usize),
    TypicalP(f32),
    Xtc { probability: f32, threshold: f32 },
    TopNSigma(f32),
    Temperature(f32),
    DynamicTemperature { temperature: f32, range: f32, exponent: f32 },
    Mirostat(Mirostat),
    Hlg(Hlg),
    HlgOetf,
    HlgEotf(f32),
    HlgPipeline { alpha: f32, peak_luminance: f32 },
    HlgShaper(Box<Shaper>),
    Curve(Curve),
}

/// What a link may look at beside the candidates.
pub(crate) struct Surroundings<'a> {
    pub(crate) history: &'a [u32],
    /// Ids that XTC never drops.
    pub(crate) special_ids: &'a [u32],
    /// The key of the random numbers that are still to be drawn.
    pub(crate) key: &'a mut Key,
}

impl Link {
    /// # Errors
    /// [`SamplingError`] names a parameter outside its range, or a breaker that is still a text.
    pub(crate) fn new(sampler: &Sampler) -> Result<Self, SamplingError> {
        sampler.check()?;
        Ok(match sampler {
            Sampler::LogitBias { bias } => Link::Bias(summed(bias)),
            Sampler::Repetition { penalty, context_tokens } => {
                // 0 is off, as 1 is.
                let penalty = if *penalty == 0.0 { 1.0 } else { *penalty };
                Link::Repetition(penalty, Window::new(*context_tokens))
            }
            Sampler::Presence { penalty, context_tokens } => {
                Link::Presence(*penalty, Window::new(*context_tokens))
            }
            Sampler::Frequency { penalty, context_tokens } => {
                Link::Frequency(*penalty, Window::new(*context_tokens))
            }
            Sampler::Dry { multiplier, base, allowed_length, context_tokens, sequence_breakers } => {
                Link::Dry(Dry {
                    multiplier: *multiplier,
                    base: *base,
                    allowed_length: *allowed_length as usize,
                    context_tokens: *context_tokens as usize,
                    breakers: breaker_ids(sequence_breakers)?,
                })
            }
            Sampler::TopK { k } => Link::TopK(*k as usize),
            Sampler::TopP { p } => Link::TopP(*p),
            Sampler::MinP { p, min_keep } => Link::MinP(*p, *min_keep as usize),
            Sampler::TypicalP { p } => Link::TypicalP(*p),
            Sampler::Xtc { probability, threshold } => {
                Link::Xtc { probability: *probability, threshold: *threshold }
            }
            Sampler::TopNSigma { n } => Link::TopNSigma(*n),
            Sampler::Temperature { temperature } => Link::Temperature(*temperature),
            Sampler::DynamicTemperature { temperature, range, exponent } => {
                Link::DynamicTemperature { temperature: *temperature, range: *range, exponent: *exponent }
            }
            Sampler::MirostatV1 { tau, eta, m } => {
                Link::Mirostat(Mirostat::new(Version::V1 { m: *m as usize }, *tau, *eta))
            }
            Sampler::MirostatV2 { tau, eta } => Link::Mirostat(Mirostat::new(Version::V2, *tau, *eta)),
            Sampler::Hlg { gain, width, shoulder, toe, pivot, offset } => {
                let [gain, width, shoulder, toe, offset] =
                    [gain, width, shoulder, toe, offset].map(|x| f64::from(*x));
                Link::Hlg(Hlg { gain, width, shoulder, toe, pivot: *pivot, offset })
            }
            Sampler::HlgOetf {} => Link::HlgOetf,
            Sampler::HlgEotf { peak_luminance } => Link::HlgEotf(*peak_luminance),
            Sampler::HlgPipeline { alpha, peak_luminance } => {
                Link::HlgPipeline { alpha: *alpha, peak_luminance: *peak_luminance }
            }
            Sampler::HlgShaper(shaper) => Link::HlgShaper(Box::new(shaper.clone())),
            Sampler::Curve { points } => Link::Curve(Curve::new(points)),
        })
    }

    /// Whether it only changes single logits.
    pub(crate) fn is_penalty(&self) -> bool {
        matches!(
            self,
            Link::Bias(_) | Link::Repetition(..) | Link::Presence(..) | Link::Frequency(..) | Link::Dry(_)
        )
    }

    pub(crate) fn apply(
        &mut self,
        candidates: &mut Candidates<'_>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), SampleError> {
        match self {
            Link::Bias(bias) => bias_by(candidates, bias)?,
            Link::Repetition(penalty, window) if *penalty != 1.0 => {
                let penalty = *penalty;
                candidates.change(&window.counts(around.history), |_, logit| repetition(penalty, logit));
            }
            Link::Repetition(..) => {}
            Link::Presence(penalty, window) => {
                let penalty = *penalty;
                candidates.change(&window.counts(around.history), |_, logit| logit - penalty);
            }
            Link::Frequency(penalty, window) => {
                let penalty = *penalty;
                let less = |count: u32, logit: f32| logit - penalty * count as f32;
                candidates.change(&window.counts(around.history), less);
            }
            Link::Dry(dry) => {
                candidates.change(&dry.penalties(around.history), |penalty, logit| logit - penalty)
            }
            Link::TopK(0) => {}
            Link::TopK(k) => candidates.keep_top(*k),
            Link::TopP(p) if *p >= 1.0 => {}
            Link::TopP(p) => candidates.keep_mass(*p)?,
            Link::MinP(p, min_keep) => filters::min_p(candidates, *p, *min_keep)?,
            Link::TypicalP(p) => filters::typical_p(candidates, *p)?,
            Link::Xtc { probability, threshold } if *probability > 0.0 => {
                let (own, rest) = around.key.split();
                *around.key = rest;
                if own.uniform() <= *probability {
                    filters::xtc(candidates, *threshold, around.special_ids)?;
                }
            }
            Link::Xtc { .. } => {}
            Link::TopNSigma(n) => filters::top_n_sigma(candidates, *n)?,
            Link::Temperature(temperature) => candidates.scale(*temperature)?,
            Link::DynamicTemperature { temperature, range, exponent } => {
                filters::dynamic_temperature(candidates, *temperature, *range, *exponent)?;
            }
            Link::Mirostat(mirostat) => mirostat.apply(candidates)?,
            Link::Hlg(hlg) => hlg.apply(candidates)?,
            Link::HlgOetf => tone::oetf(candidates)?,
            Link::HlgEotf(peak_luminance) => tone::eotf(candidates, *peak_luminance)?,
            Link::HlgPipeline { alpha, peak_luminance } => {
                tone::pipeline(candidates, *alpha, *peak_luminance)?;
            }
            Link::HlgShaper(shaper) => tone::shaper(candidates, shaper)?,
            Link::Curve(curve) => curve.apply(candidates)?,
        }
        Ok(())
    }

    /// A token was chosen.
    pub(crate) fn chosen(&mut self, token: u32) {
        if let Link::Mirostat(mirostat) = self {
            mirostat.chosen(token);
        }
    }

    /// Goes back by `n` tokens.
    pub(crate) fn rollback(&mut self, n: usize) {
        match self {
            Link::Repetition(_, window) | Link::Presence(_, window) | Link::Frequency(_, window) => {
                window.reset();
            }
            Link::Mirostat(mirostat) => mirostat.rollback(n),
            _ => {}
        }
    }
}

/// Adds numbers to logits; `bias` is sorted by id.
pub(crate) fn bias_by(candidates: &mut Candidates<'_>, bias: &[(u32, f32)]) -> Result<(), SampleError> {
    let n_vocab = candidates.n_vocab();
    if let Some((token, _)) = bias.last().filter(|(token, _)| *token as usize >= n_vocab) {
        return Err(SampleError::UnknownToken { token: *token, n_vocab });
    }
    candidates.change(bias, |number, logit| logit + number);
    Ok(())
}

/// One number for each id, sorted by id.
pub(crate) fn summed(bias: &[(u32, f32)]) -> Vec<(u32, f32)> {
    let mut sorted = bias.to_vec();
    sorted.sort_by_key(|(id, _)| *id);
    sorted.dedup_by(|later, kept| {
        let is_same = later.0 == kept.0;
        if is_same {
            kept.1 += later.1;
        }
        is_same
    });
    sorted
}

fn breaker_ids(breakers: &[Breaker]) -> Result<Vec<u32>, SamplingError> {
    let id = |breaker: &Breaker| match breaker {
        Breaker::Id(id) => Ok(*id),
        Breaker::Text(text) => Err(SamplingError {
            name: "sequence_breakers",
            sampler: Some("dry"),
            expected: "token ids, to which a tokenizer resolves texts",
            found: format!("{text:?}"),
        }),
    };
    let mut ids = breakers.iter().map(id).collect::<Result<Vec<u32>, _>>()?;
    ids.sort_unstable();
    Ok(ids)
}
