//! A watermark that a statistic finds and a reader does not: at each step the previous token seeds a choice of green
//! tokens, whose logits get a little more. Whoever knows the key counts more green tokens than chance has.
//!
//! Params: `gamma`, the share of green tokens; `delta`, what is added to their logits; `key`, the secret, below
//! 2147483647.
//!
//! Source: Kirchenbauer et al. (2023), "A watermark for large language models", the soft red list. The choice is drawn
//! with the generator of Park and Miller (1988), whose products fit the doubles of every language.

use plugin_sdk::sampling::{Needs, SamplingPolicy, Step, Traits, Vocabulary};
use plugin_sdk::{Config, Error, register_sampling_policy};

/// The generator's modulus, a Mersenne prime, and its multiplier.
const P: u64 = 2_147_483_647;
const A: u64 = 16_807;

#[derive(Clone)]
struct Watermark {
    n_vocab: u32,
    /// A draw below this is green.
    green_below: f64,
    delta: f32,
    key: u64,
    history: Vec<u32>,
}

register_sampling_policy!(Watermark);

impl SamplingPolicy for Watermark {
    fn describe() -> Traits {
        let needs = Needs::MaskOnly;
        Traits { needs, argmax_invariant: false, supports_rollback: true, supports_fork: true }
    }

    fn open(params: &Config, vocabulary: &Vocabulary) -> Result<Self, Error> {
        params.refuse_unknown(&["gamma", "delta", "key"])?;
        let (gamma, delta) = (params.number("gamma")?, params.number("delta")?);
        if !(gamma > 0.0 && gamma < 1.0) {
            return Err(params.invalid("gamma", "above 0 and below 1"));
        }
        let key = params.usize("key")? as u64;
        if key >= P {
            return Err(params.invalid("key", "below 2147483647"));
        }
        let (n_vocab, green_below) = (vocabulary.n_vocab, gamma * P as f64);
        Ok(Watermark { n_vocab, green_below, delta: delta as f32, key, history: Vec::new() })
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        self.history.extend(step.accepted());
        let Some(previous) = self.history.last() else { return Ok(()) };
        let mut draw = seed(self.key, *previous);
        let mut green = Vec::with_capacity(self.n_vocab as usize / 2);
        for id in 0..self.n_vocab {
            draw = draw * A % P;
            if (draw as f64) < self.green_below {
                green.push(id);
            }
        }
        step.bias(&green, &vec![self.delta; green.len()])
    }

    fn rollback(&mut self, n: u32) -> Result<(), Error> {
        self.history.truncate(self.history.len().saturating_sub(n as usize));
        Ok(())
    }

    fn fork(&self) -> Result<Self, Error> {
        Ok(self.clone())
    }
}

/// Where the generator begins after a token: `x³ + key x + 1`, so that no two tokens' draws are multiples of each
/// other; never 0.
fn seed(key: u64, previous: u32) -> u64 {
    let x = (u64::from(previous) + key + 1) % P;
    let seed = (x * ((x * x + key) % P) + 1) % P;
    if seed == 0 { 1 } else { seed }
}
