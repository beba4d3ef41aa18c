//! Chains over small rows.

mod draws;
mod edits;
mod plain;

use host_core::SamplingChain;
use host_device::Logits;

use crate::chain::{Chain, StepInput};
use crate::edits::Edits;
use crate::error::SampleError;

/// One row of logits on the host.
struct OneRow<'a>(&'a [f32]);

impl Logits for OneRow<'_> {
    fn n_rows(&self) -> usize {
        1
    }

    fn n_vocab(&self) -> usize {
        self.0.len()
    }

    fn read(&self, _row: usize, out: &mut Vec<f32>) {
        out.clear();
        out.extend_from_slice(self.0);
    }

    fn argmax(&self, _row: usize) -> Option<u32> {
        host_device::argmax(self.0)
    }

    fn top(&self, _row: usize, n: usize) -> Vec<(u32, f32)> {
        host_device::top(self.0, n)
    }
}

fn at<'a>(logits: &'a dyn Logits, history: &'a [u32], step: u64) -> StepInput<'a> {
    StepInput { logits, row: 0, history, step, logprobs: None }
}

/// The token that a new chain chooses.
fn choose(
    chain: impl Into<SamplingChain>,
    row: &[f32],
    history: &[u32],
    step: u64,
) -> Result<u32, SampleError> {
    let mut chain = Chain::new(&chain.into()).expect("settings in range");
    chain.choose(&at(&OneRow(row), history, step), &Edits::none()).map(|choice| choice.token_id)
}
