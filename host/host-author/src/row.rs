//! Logits without a model: a formula of (seed, position, token).

use host_device::{Logits, argmax, top};
use host_sampling::random_u32;

/// The largest logit that the formula gives, and the smallest with its sign turned.
const REACH: f32 = 8.0;

/// One row of logits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row(Vec<f32>);

impl Row {
    /// Token i of position p has the logit `16 * u / 2^32 - 8`, where u is the i-th random number of (seed, p) that a
    /// policy with that seed would draw.
    pub(crate) fn of_formula(seed: u64, position: u64, n_vocab: u32) -> Self {
        let logit = |id| (random_u32(seed, position, id) as f32 / 4_294_967_296.0 - 0.5) * 2.0 * REACH;
        Row((0..n_vocab).map(logit).collect())
    }

    /// These logits, and `-20` for every other token.
    pub(crate) fn of_some(n_vocab: u32, some: &[(u32, f32)]) -> Self {
        let mut row = vec![-20.0; n_vocab as usize];
        for (id, logit) in some {
            row[*id as usize] = *logit;
        }
        Row(row)
    }
}

impl Logits for Row {
    fn n_rows(&self) -> usize {
        1
    }

    fn n_vocab(&self) -> usize {
        self.0.len()
    }

    fn read(&self, _: usize, out: &mut Vec<f32>) {
        out.clone_from(&self.0);
    }

    fn argmax(&self, _: usize) -> Option<u32> {
        argmax(&self.0)
    }

    fn top(&self, _: usize, n: usize) -> Vec<(u32, f32)> {
        top(&self.0, n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_function_of_seed_and_position() {
        let row = |seed, position| Row::of_formula(seed, position, 32);
        assert_eq!(row(1, 2), row(1, 2));
        assert_ne!(row(1, 2), row(1, 3));
        assert_ne!(row(1, 2), row(2, 2));
        assert!(row(1, 2).0.iter().all(|logit| (-REACH..=REACH).contains(logit)));
        assert_eq!(Row::of_some(3, &[(1, 2.0)]).0, [-20.0, 2.0, -20.0]);
    }
}
