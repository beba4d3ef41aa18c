//! A policy that does nothing, for measuring what having one costs.

use plugin_sdk::sampling::{SamplingPolicy, Step, Vocabulary};
use plugin_sdk::{Config, Error, register_sampling_policy};

struct PassThrough;

register_sampling_policy!(PassThrough);

impl SamplingPolicy for PassThrough {
    fn open(params: &Config, _: &Vocabulary) -> Result<Self, Error> {
        params.refuse_unknown(&[])?;
        Ok(PassThrough)
    }

    fn step(&mut self, _: &Step) -> Result<(), Error> {
        Ok(())
    }
}
