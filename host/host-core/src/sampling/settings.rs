//! The flat settings of profiles and flags, and the chain that they stand for.

use serde::{Deserialize, Serialize};

use super::parameters::FLAT_KEYS;
use super::{Breaker, Sampler, SamplingError};

/// The sampling settings of one request, with the field's names.
///
/// Order of application: logit bias; repetition, presence and frequency penalty; DRY; then temperature 0 takes
/// the most likely token, else top-p, min-p, XTC, top-k, temperature and the draw, whose random numbers are a
/// function of (seed, position).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingSettings {
    /// 0 takes the most likely token; otherwise logits are divided by it.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set whose probabilities sum to at least this; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most likely one; 0 keeps all.
    pub min_p: f32,
    /// How often XTC drops the most likely tokens; 0 never.
    pub xtc_probability: f32,
    /// Which tokens XTC takes for likely, from 0 to 0.5.
    pub xtc_threshold: f32,
    /// Divide (positive) or multiply (negative) the logits of tokens already seen; 1 changes nothing.
    pub repetition_penalty: f32,
    /// How many of the last tokens (prompt included) the penalty looks at; 0 looks at all.
    pub repetition_context_tokens: u32,
    /// Subtract from the logits of tokens already seen, once; 0 changes nothing.
    pub presence_penalty: f32,
    /// How many of the last tokens (prompt included) the penalty looks at; 0 looks at all.
    pub presence_context_tokens: u32,
    /// Subtract from the logits of tokens already seen, for each time; 0 changes nothing.
    pub frequency_penalty: f32,
    /// How many of the last tokens (prompt included) the penalty looks at; 0 looks at all.
    pub frequency_context_tokens: u32,
    /// Subtract from the logits of tokens that would lengthen a repetition; 0 changes nothing.
    pub dry_multiplier: f32,
    /// How that grows with each token of the repetition; at least 1.
    pub dry_base: f32,
    /// Repetitions shorter than this cost nothing; at least 1.
    pub dry_allowed_length: u32,
    /// How many of the last tokens (prompt included) DRY looks at; 0 looks at all.
    pub dry_context_tokens: u32,
    /// What a repetition does not cross.
    pub dry_sequence_breakers: Vec<Breaker>,
    /// Added to the logits of single tokens; negative infinity excludes a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws. The same seed gives the same tokens.
    pub seed: u64,
}

/// Samplers in the order in which they act, with the seed of the draws: what an engine runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingChain {
    /// In order.
    pub samplers: Vec<Sampler>,
    /// Tokens that XTC never drops: those that end a generation or a line.
    pub special_ids: Vec<u32>,
    /// Seed of the draws. The same seed gives the same tokens.
    pub seed: u64,
}

impl SamplingSettings {
    /// Greedy decoding: the most likely token at each position.
    pub const GREEDY: SamplingSettings = SamplingSettings {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        xtc_probability: 0.0,
        xtc_threshold: 0.0,
        repetition_penalty: 1.0,
        repetition_context_tokens: 0,
        presence_penalty: 0.0,
        presence_context_tokens: 0,
        frequency_penalty: 0.0,
        frequency_context_tokens: 0,
        dry_multiplier: 0.0,
        dry_base: 1.0,
        dry_allowed_length: 1,
        dry_context_tokens: 0,
        dry_sequence_breakers: Vec::new(),
        logit_bias: Vec::new(),
        seed: 0,
    };

    /// Checks every range.
    ///
    /// # Errors
    /// [`SamplingError`] names the first setting outside its range.
    pub fn check(&self) -> Result<(), SamplingError> {
        self.every_sampler().iter().try_for_each(|(sampler, _)| {
            sampler.check().map_err(|error| SamplingError {
                name: flat_name(sampler.name(), error.name),
                sampler: None,
                ..error
            })
        })
    }

    /// The chain that these settings stand for; what changes nothing has no link.
    pub fn samplers(&self) -> Vec<Sampler> {
        let acting = self.every_sampler().into_iter().filter(|(_, is_on)| *is_on);
        let is_greedy = self.temperature == 0.0;
        // Temperature 0 takes the most likely token before any of these could drop one.
        acting
            .map(|(sampler, _)| sampler)
            .filter(|sampler| {
                !is_greedy || sampler.is_penalty() || matches!(sampler, Sampler::Temperature { .. })
            })
            .collect()
    }

    /// Every sampler and whether it changes anything, in order.
    fn every_sampler(&self) -> [(Sampler, bool); 10] {
        let repetition = Sampler::Repetition {
            penalty: self.repetition_penalty,
            context_tokens: self.repetition_context_tokens,
        };
        let presence = Sampler::Presence {
            penalty: self.presence_penalty,
            context_tokens: self.presence_context_tokens,
        };
        let frequency = Sampler::Frequency {
            penalty: self.frequency_penalty,
            context_tokens: self.frequency_context_tokens,
        };
        let dry = Sampler::Dry {
            multiplier: self.dry_multiplier,
            base: self.dry_base,
            allowed_length: self.dry_allowed_length,
            context_tokens: self.dry_context_tokens,
            sequence_breakers: self.dry_sequence_breakers.clone(),
        };
        let xtc = Sampler::Xtc { probability: self.xtc_probability, threshold: self.xtc_threshold };
        let is_repetition_on = self.repetition_penalty != 0.0 && self.repetition_penalty != 1.0;
        [
            (Sampler::LogitBias { bias: self.logit_bias.clone() }, !self.logit_bias.is_empty()),
            (repetition, is_repetition_on),
            (presence, self.presence_penalty != 0.0),
            (frequency, self.frequency_penalty != 0.0),
            (dry, self.dry_multiplier != 0.0),
            (Sampler::TopP { p: self.top_p }, self.top_p < 1.0),
            (Sampler::MinP { p: self.min_p, min_keep: 1 }, self.min_p > 0.0),
            (xtc, self.xtc_probability > 0.0),
            (Sampler::TopK { k: self.top_k }, self.top_k > 0),
            (Sampler::Temperature { temperature: self.temperature }, self.temperature != 1.0),
        ]
    }
}

/// The flat setting that a sampler's parameter comes from; the logit bias has its sampler's name.
fn flat_name(sampler: &'static str, parameter: &'static str) -> &'static str {
    let flat = FLAT_KEYS.iter().find(|(_, of, named)| *of == sampler && *named == parameter);
    flat.map_or(sampler, |(flat, ..)| flat)
}

impl SamplingChain {
    /// Checks every range.
    ///
    /// # Errors
    /// [`SamplingError`] names the first sampler and parameter outside its range.
    pub fn check(&self) -> Result<(), SamplingError> {
        self.samplers.iter().try_for_each(Sampler::check)
    }

    /// Puts token ids in the place of texts: `ids` gives every token whose text holds a given one.
    pub fn resolve(&mut self, mut ids: impl FnMut(&str) -> Vec<u32>) {
        for sampler in &mut self.samplers {
            if let Sampler::Dry { sequence_breakers, .. } = sampler {
                let resolved =
                    std::mem::take(sequence_breakers).into_iter().flat_map(|breaker| match breaker {
                        Breaker::Id(id) => vec![id],
                        Breaker::Text(text) => ids(&text),
                    });
                let mut resolved: Vec<u32> = resolved.collect();
                resolved.sort_unstable();
                resolved.dedup();
                *sequence_breakers = resolved.into_iter().map(Breaker::Id).collect();
            }
        }
    }
}

/// The chain of the settings; texts among sequence breakers are still to be resolved.
impl From<SamplingSettings> for SamplingChain {
    fn from(settings: SamplingSettings) -> Self {
        SamplingChain { samplers: settings.samplers(), special_ids: Vec::new(), seed: settings.seed }
    }
}
