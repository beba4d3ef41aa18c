//! The native samplers, as flat settings: penalty, top-p, min-p, XTC, top-k, temperature, in this order.
//!
//! Params, each of which leaves out its sampler when it is absent: `repetition_penalty` with
//! `repetition_context_tokens`, `top_p`, `min_p`, `xtc_probability` with `xtc_threshold`, `top_k`, `temperature`.

use plugin_sdk::sampling::{MinP, Needs, Penalty, Sampler, SamplingPolicy, Step, Traits, Vocabulary, Xtc};
use plugin_sdk::{Config, Error, register_sampling_policy};

#[derive(Clone)]
struct Standard(Vec<Sampler>);

register_sampling_policy!(Standard);

const KNOWN: [&str; 8] = [
    "repetition_penalty",
    "repetition_context_tokens",
    "top_p",
    "min_p",
    "xtc_probability",
    "xtc_threshold",
    "top_k",
    "temperature",
];

impl SamplingPolicy for Standard {
    fn describe() -> Traits {
        let needs = Needs::MaskOnly;
        Traits { needs, argmax_invariant: false, supports_rollback: true, supports_fork: true }
    }

    fn open(params: &Config, _: &Vocabulary) -> Result<Self, Error> {
        params.refuse_unknown(&KNOWN)?;
        let mut samplers = Vec::new();
        if let Some(penalty) = params.optional_number("repetition_penalty")? {
            let context_tokens = params.usize("repetition_context_tokens")? as u32;
            samplers.push(Sampler::Repetition(Penalty { penalty: penalty as f32, context_tokens }));
        }
        if let Some(p) = params.optional_number("top_p")? {
            samplers.push(Sampler::TopP(p as f32));
        }
        if let Some(p) = params.optional_number("min_p")? {
            samplers.push(Sampler::MinP(MinP { p: p as f32, min_keep: 1 }));
        }
        if let Some(probability) = params.optional_number("xtc_probability")? {
            let threshold = params.number("xtc_threshold")? as f32;
            samplers.push(Sampler::Xtc(Xtc { probability: probability as f32, threshold }));
        }
        if let Some(k) = params.optional_usize("top_k")? {
            samplers.push(Sampler::TopK(k as u32));
        }
        if let Some(temperature) = params.optional_number("temperature")? {
            samplers.push(Sampler::Temperature(temperature as f32));
        }
        Ok(Standard(samplers))
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        self.0.iter().try_for_each(|sampler| step.apply(sampler.clone()))
    }

    fn rollback(&mut self, _: u32) -> Result<(), Error> {
        Ok(())
    }

    fn fork(&self) -> Result<Self, Error> {
        Ok(self.clone())
    }
}
