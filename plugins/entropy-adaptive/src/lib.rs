//! A temperature that follows the entropy: near `low` where the model is sure, near `high` where it is not.
//!
//! Params: `low` and `high`, temperatures; `half`, the entropy in nats at which it lies in the middle. The temperature
//! is `low + (high - low) * H / (H + half)`.

use plugin_sdk::sampling::{Needs, Sampler, SamplingPolicy, Step, Traits, Vocabulary};
use plugin_sdk::{Config, Error, register_sampling_policy};

#[derive(Clone, Copy)]
struct EntropyAdaptive {
    low: f64,
    high: f64,
    half: f64,
}

register_sampling_policy!(EntropyAdaptive);

impl SamplingPolicy for EntropyAdaptive {
    fn describe() -> Traits {
        let needs = Needs::FullLogits;
        Traits { needs, argmax_invariant: true, supports_rollback: true, supports_fork: true }
    }

    fn open(params: &Config, _: &Vocabulary) -> Result<Self, Error> {
        params.refuse_unknown(&["low", "high", "half"])?;
        let above_zero = |key| match params.number(key)? {
            number if number > 0.0 => Ok(number),
            _ => Err(params.invalid(key, "above 0")),
        };
        Ok(EntropyAdaptive { low: above_zero("low")?, high: above_zero("high")?, half: above_zero("half")? })
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        let entropy = step.entropy()?;
        let temperature = self.low + (self.high - self.low) * entropy / (entropy + self.half);
        step.apply(Sampler::Temperature(temperature as f32))
    }

    fn rollback(&mut self, _: u32) -> Result<(), Error> {
        Ok(())
    }

    fn fork(&self) -> Result<Self, Error> {
        Ok(*self)
    }
}
