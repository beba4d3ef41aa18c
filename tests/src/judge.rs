//! Generation with the oracle's tokens, and the judge of each step.

use host_device::{Executable, Logits, LogitsFor, SequenceId, TokenRun, argmax};

use crate::golden::{Generation, Prompt, Tensors, log_sum_exp};
use crate::model::told;
use crate::places::fixture;
use crate::rows::largest_difference;

/// How near two logits of the oracle must be for their order not to matter.
const NEAR: f32 = 0.01;

/// Feeds each prompt whole, then all answers token by token together.
///
/// # Panics
/// Where the device refuses a step.
pub fn generate<'a>(
    golden: &'a Generation,
    prompts: &[&'a Prompt],
    fixture_name: &str,
    executable: &mut dyn Executable,
    tolerance: f32,
) -> Judge<'a> {
    let first = Tensors::read(&fixture(fixture_name).join("first_position_logits.safetensors"));
    let mut judge = Judge::new(golden, tolerance);
    let mut sequences: Vec<(SequenceId, &'a Prompt)> = Vec::new();
    let mut n_whole = 0;
    for prompt in prompts.iter().copied() {
        let sequence = told(executable.new_sequence());
        let run = TokenRun { sequence, tokens: &prompt.prompt_ids, logits: LogitsFor::Last };
        let logits = told(executable.step(&[run]));
        judge.step(prompt, 0, logits, 0);
        if first.names().any(|name| name == prompt.name) {
            judge.whole_row(prompt, &first.f32s(&prompt.name));
            n_whole += 1;
        }
        sequences.push((sequence, prompt));
    }
    assert!(judge.n_whole_rows == n_whole && n_whole > 0, "every whole row was judged");
    for t in 1..golden.n_steps {
        let run = |(sequence, prompt): &(SequenceId, &'a Prompt)| TokenRun {
            sequence: *sequence,
            tokens: &prompt.output_ids[t - 1..t],
            logits: LogitsFor::Last,
        };
        let runs: Vec<TokenRun<'a>> = sequences.iter().map(run).collect();
        let logits = told(executable.step(&runs));
        for (row, (_, prompt)) in sequences.iter().enumerate() {
            judge.step(prompt, t, logits, row);
        }
    }
    judge
}

/// What was compared, and what differs.
#[derive(Debug)]
pub struct Judge<'a> {
    golden: &'a Generation,
    tolerance: f32,
    row: Vec<f32>,
    /// The largest difference of a logit.
    pub logits: f32,
    /// The largest difference of a log-probability.
    pub logprobs: f32,
    /// Steps that were judged.
    pub n_steps: usize,
    n_whole_rows: usize,
    /// Steps that chose another of two near tokens.
    pub n_near: usize,
    /// What differs too much.
    pub faults: Vec<String>,
}

impl<'a> Judge<'a> {
    fn new(golden: &'a Generation, tolerance: f32) -> Self {
        Judge {
            golden,
            tolerance,
            row: Vec::new(),
            logits: 0.0,
            logprobs: 0.0,
            n_steps: 0,
            n_whole_rows: 0,
            n_near: 0,
            faults: Vec::new(),
        }
    }

    /// Compares one step of one prompt: the most likely token, the best five logits and their log-probabilities.
    fn step(&mut self, prompt: &Prompt, t: usize, logits: &dyn Logits, row: usize) {
        logits.read(row, &mut self.row);
        assert_eq!(self.row.len(), self.golden.vocab_size);
        self.n_steps += 1;
        self.check_choice(prompt, t, argmax(&self.row));
        let normaliser = log_sum_exp(&self.row);
        let found = prompt.top_ids[t].map(|id| self.row[id as usize]);
        let difference = largest_difference(&found, &prompt.top_logits[t]);
        self.within(&format!("{} step {t}: logits", prompt.name), difference);
        self.logits = self.logits.max(difference);
        let found = found.map(|logit| (f64::from(logit) - normaliser) as f32);
        let difference = largest_difference(&found, &prompt.top_logprobs[t]);
        self.within(&format!("{} step {t}: log-probabilities", prompt.name), difference);
        self.logprobs = self.logprobs.max(difference);
    }

    fn check_choice(&mut self, prompt: &Prompt, t: usize, found: Option<u32>) {
        let expected = prompt.output_ids[t];
        if found == Some(expected) {
            return;
        }
        let [best, ..] = prompt.top_logits[t];
        let mut near =
            prompt.top_ids[t].iter().zip(prompt.top_logits[t]).filter(|(_, logit)| best - logit < NEAR);
        if near.any(|(id, _)| Some(*id) == found) && prompt.argmax_margin[t] < NEAR {
            self.n_near += 1;
            return;
        }
        let margin = prompt.argmax_margin[t];
        self.faults
            .push(format!("{} step {t}: {found:?} in place of {expected}, margin {margin}", prompt.name));
    }

    /// Compares every logit of the row that was read last.
    fn whole_row(&mut self, prompt: &Prompt, expected: &[f32]) {
        let difference = largest_difference(&self.row, expected);
        self.within(&format!("{}: the whole first row", prompt.name), difference);
        self.logits = self.logits.max(difference);
        self.n_whole_rows += 1;
    }

    fn within(&mut self, what: &str, difference: f32) {
        let is_within = difference <= self.tolerance;
        if !is_within {
            self.faults.push(format!("{what} differ by {difference:e}"));
        }
    }
}
