//! What a policy may look at in one row of logits.

use std::cell::OnceCell;

use host_device::{Logits, top};

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

    /// Copies the row into `copy`, keeping what that has allocated.
    pub fn copy_into(&self, copy: &mut RowCopy) {
        match self.values.get() {
            Some(values) => copy.0.clone_from(values),
            None => self.logits.read(self.row, &mut copy.0),
        }
    }

    /// The entropy of the softmax, in nats; NaN for broken logits.
    pub fn entropy(&self) -> f64 {
        entropy(self.values())
    }
}

/// A row of logits of its own, for whoever cannot borrow the device's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowCopy(Vec<f32>);

impl RowCopy {
    /// The `n` most likely tokens with their logits, as [`RowView::top`].
    pub fn top(&self, n: usize) -> Vec<(u32, f32)> {
        top(&self.0, n)
    }

    /// The logit of a token; `None` beyond the vocabulary.
    pub fn get(&self, id: u32) -> Option<f32> {
        self.0.get(id as usize).copied()
    }

    /// The entropy of the softmax, as [`RowView::entropy`].
    pub fn entropy(&self) -> f64 {
        entropy(&self.0)
    }
}

fn entropy(values: &[f32]) -> f64 {
    let lse = log_sum_exp(values);
    let term = |logit: &f32| match f64::from(*logit) - lse {
        lp if lp == f64::NEG_INFINITY => 0.0,
        lp => -lp.exp() * lp,
    };
    values.iter().map(term).sum()
}
