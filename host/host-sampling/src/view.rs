//! What a policy may look at in one row of logits.

use std::cell::OnceCell;

use host_device::Logits;

use crate::logprobs::log_sum_exp;

/// One row of logits, read from the device no earlier than somebody looks.
pub struct RowView<'a> {
    logits: &'a dyn Logits,
    row: usize,
    values: OnceCell<Vec<f32>>,
}

impl<'a> RowView<'a> {
    /// Row `row` of `logits`.
    pub fn new(logits: &'a dyn Logits, row: usize) -> Self {
        RowView { logits, row, values: OnceCell::new() }
    }

    /// Entries of the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.logits.n_vocab()
    }

    /// The `n` most likely tokens with their logits, most likely first, lower id first on ties.
    pub fn top(&self, n: usize) -> Vec<(u32, f32)> {
        self.logits.top(self.row, n)
    }

    /// The logits of `ids`; `None` for an id beyond the vocabulary.
    pub fn get(&self, ids: &[u32]) -> Vec<Option<f32>> {
        let values = self.values();
        ids.iter().map(|id| values.get(*id as usize).copied()).collect()
    }

    /// The whole row, `[V]`.
    pub fn values(&self) -> &[f32] {
        self.values.get_or_init(|| {
            let mut values = Vec::new();
            self.logits.read(self.row, &mut values);
            values
        })
    }

    /// The entropy of the softmax, in nats; NaN for broken logits.
    pub fn entropy(&self) -> f64 {
        let values = self.values();
        let lse = log_sum_exp(values);
        let term = |logit: &f32| match f64::from(*logit) - lse {
            lp if lp == f64::NEG_INFINITY => 0.0,
            lp => -lp.exp() * lp,
        };
        values.iter().map(term).sum()
    }
}
