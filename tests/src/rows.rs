//! Sequences run through an executable, and the logits of every position.

use host_device::{Executable, LogitsFor, SequenceId, TokenRun};

use crate::model::told;

/// The logits of each position of one sequence.
pub type Rows = Vec<Vec<f32>>;

/// One step in which `runs` are appended; gives the rows of each run, every position.
pub fn step(executable: &mut dyn Executable, runs: &[(SequenceId, &[u32])]) -> Vec<Rows> {
    let asked: Vec<TokenRun<'_>> = runs
        .iter()
        .map(|(sequence, tokens)| TokenRun { sequence: *sequence, tokens, logits: LogitsFor::All })
        .collect();
    let logits = told(executable.step(&asked));
    assert_eq!(logits.n_rows(), runs.iter().map(|(_, tokens)| tokens.len()).sum::<usize>());
    let mut next = 0..logits.n_rows();
    let mut row = || {
        let mut row = Vec::new();
        logits.read(next.next().expect("a row a token"), &mut row);
        row
    };
    runs.iter().map(|(_, tokens)| tokens.iter().map(|_| row()).collect()).collect()
}

/// One sequence alone, whole, and released.
pub fn alone(executable: &mut dyn Executable, tokens: &[u32]) -> Rows {
    let sequence = told(executable.new_sequence());
    let rows = step(executable, &[(sequence, tokens)]).remove(0);
    executable.release(sequence);
    rows
}

/// Where two lists of rows first differ in a bit: (position, token).
pub fn first_difference(found: &Rows, expected: &Rows) -> Option<(usize, usize)> {
    assert_eq!(found.len(), expected.len(), "as many positions");
    let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
    let at = |(found, expected): (&Vec<f32>, &Vec<f32>)| found.iter().zip(expected).position(differs);
    found.iter().zip(expected).map(at).enumerate().find_map(|(position, token)| Some((position, token?)))
}

/// The largest difference of two rows; NaN where either holds one.
pub fn largest_difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len(), "as many logits");
    let difference = |(a, b): (&f32, &f32)| (a - b).abs();
    found.iter().zip(expected).map(difference).fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a })
}

/// Token ids that look like no pattern, the same in every run.
pub fn mixed_ids(n: usize, n_vocab: usize, seed: u32) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % n_vocab as u32
    };
    (0..n).map(next).collect()
}
