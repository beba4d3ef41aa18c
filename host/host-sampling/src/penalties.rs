//! How often each token stands in the last part of the history, kept from step to step.

use std::collections::HashMap;

/// Counts over the last `context_tokens` of a history that grows by appending.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// 0 counts all.
    context_tokens: usize,
    counts: HashMap<u32, u32>,
    /// The part of the history that is counted.
    counted: std::ops::Range<usize>,
}

impl Window {
    pub(crate) fn new(context_tokens: u32) -> Self {
        Window { context_tokens: context_tokens as usize, counts: HashMap::new(), counted: 0..0 }
    }

    /// Forgets all: the history was cut, and is counted anew when it is next seen.
    pub(crate) fn reset(&mut self) {
        self.counts.clear();
        self.counted = 0..0;
    }

    /// Counts what was appended since the last call, and uncounts what left the window.
    ///
    /// Gives (token, count), sorted by token.
    pub(crate) fn counts(&mut self, history: &[u32]) -> Vec<(u32, u32)> {
        let wanted = last(history, self.context_tokens);
        if wanted.start >= self.counted.end
            || wanted.start < self.counted.start
            || wanted.end < self.counted.end
        {
            self.reset();
            self.counted = wanted.start..wanted.start;
        }
        for token in &history[self.counted.end..wanted.end] {
            *self.counts.entry(*token).or_default() += 1;
        }
        for token in &history[self.counted.start..wanted.start] {
            if let Some(count) = self.counts.get_mut(token) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(token);
                }
            }
        }
        self.counted = wanted;
        let mut counts: Vec<(u32, u32)> = self.counts.iter().map(|(token, count)| (*token, *count)).collect();
        counts.sort_unstable_by_key(|(token, _)| *token);
        counts
    }
}

/// The last `n` of a history; 0 is all.
pub(crate) fn last(history: &[u32], n: usize) -> std::ops::Range<usize> {
    let n = if n == 0 { history.len() } else { n.min(history.len()) };
    history.len() - n..history.len()
}

/// Keskar et al. (2019): once for each token, whatever its count.
pub(crate) fn repetition(penalty: f32, logit: f32) -> f32 {
    if logit < 0.0 { logit * penalty } else { logit / penalty }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plainly(history: &[u32], window: usize) -> Vec<(u32, u32)> {
        let start = if window == 0 { 0 } else { history.len().saturating_sub(window) };
        let mut ids = history[start..].to_vec();
        ids.sort_unstable();
        ids.dedup();
        let count = |id: &u32| history[start..].iter().filter(|other| *other == id).count() as u32;
        ids.iter().map(|id| (*id, count(id))).collect()
    }

    proptest! {
        #[test]
        fn counts_kept_are_counts_made_anew(
            history in prop::collection::vec(0_u32..5, 0..60),
            steps in prop::collection::vec((1_usize..6, any::<bool>()), 1..30),
            window in 0_u32..9,
        ) {
            let mut kept = Window::new(window);
            let mut n = 0_usize;
            for (step, is_rollback) in steps {
                if is_rollback {
                    n = n.saturating_sub(step);
                    kept.reset();
                } else {
                    n = (n + step).min(history.len());
                }
                prop_assert_eq!(kept.counts(&history[..n]), plainly(&history[..n], window as usize));
            }
        }
    }
}
