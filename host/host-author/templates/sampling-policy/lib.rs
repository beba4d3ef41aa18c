//! A token is less likely right after itself.
//!
//! Params: `penalty`, which is subtracted from the logit of the token that came last.

use plugin_sdk::sampling::{Needs, SamplingPolicy, Step, Traits, Vocabulary};
use plugin_sdk::{Config, Error, register_sampling_policy};

struct Policy {
    penalty: f32,
    /// The prompt and what was generated.
    history: Vec<u32>,
}

register_sampling_policy!(Policy);

impl SamplingPolicy for Policy {
    fn describe() -> Traits {
        Traits {
            needs: Needs::MaskOnly,
            argmax_invariant: false,
            supports_rollback: true,
            supports_fork: true,
        }
    }

    fn open(params: &Config, _vocabulary: &Vocabulary) -> Result<Self, Error> {
        params.refuse_unknown(&["penalty"])?;
        let penalty = params.number("penalty")? as f32;
        Ok(Policy { penalty, history: Vec::new() })
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        self.history.extend(step.accepted());
        let Some(last) = self.history.last().copied() else { return Ok(()) };
        step.bias(&[last], &[-self.penalty])
    }

    fn rollback(&mut self, n: u32) -> Result<(), Error> {
        self.history.truncate(self.history.len().saturating_sub(n as usize));
        Ok(())
    }

    fn fork(&self) -> Result<Self, Error> {
        Ok(Policy { penalty: self.penalty, history: self.history.clone() })
    }
}
