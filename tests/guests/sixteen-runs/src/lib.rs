//! A policy whose step is a mask of sixteen runs, for measuring what a step costs.

use plugin_sdk::sampling::{Run, SamplingPolicy, Step, Vocabulary};
use plugin_sdk::{Config, Error, register_sampling_policy};

struct SixteenRuns {
    /// The length of a run and of the gap after it.
    width: u32,
}

register_sampling_policy!(SixteenRuns);

impl SamplingPolicy for SixteenRuns {
    fn open(params: &Config, vocabulary: &Vocabulary) -> Result<Self, Error> {
        params.refuse_unknown(&[])?;
        Ok(SixteenRuns { width: vocabulary.n_vocab / 32 })
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        let runs: [Run; 16] = std::array::from_fn(|i| {
            let start = 2 * i as u32 * self.width;
            Run { start, end: start + self.width }
        });
        step.allow_runs(&runs)
    }
}
