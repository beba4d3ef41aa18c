//! No n-gram comes twice: a token that would complete one that was there, in the prompt or since, is excluded.
//!
//! Params: `ngram`, its length in tokens; 1 lets no token come twice.

use plugin_sdk::sampling::{SamplingPolicy, Step, Traits, Vocabulary};
use plugin_sdk::{Config, Error, register_sampling_policy};

struct NoRepeat {
    /// Tokens before the one that is judged.
    n_before: usize,
    history: Vec<u32>,
}

register_sampling_policy!(NoRepeat);

impl SamplingPolicy for NoRepeat {
    fn describe() -> Traits {
        let needs = plugin_sdk::sampling::Needs::MaskOnly;
        Traits { needs, argmax_invariant: false, supports_rollback: true, supports_fork: true }
    }

    fn open(params: &Config, _: &Vocabulary) -> Result<Self, Error> {
        params.refuse_unknown(&["ngram"])?;
        let n_before = params.usize("ngram")?.checked_sub(1).ok_or(params.invalid("ngram", "at least 1"))?;
        Ok(NoRepeat { n_before, history: Vec::new() })
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        self.history.extend(step.accepted());
        let banned = banned(&self.history, self.n_before);
        step.bias(&banned, &vec![f32::NEG_INFINITY; banned.len()])
    }

    fn rollback(&mut self, n: u32) -> Result<(), Error> {
        self.history.truncate(self.history.len().saturating_sub(n as usize));
        Ok(())
    }

    fn fork(&self) -> Result<Self, Error> {
        Ok(NoRepeat { n_before: self.n_before, history: self.history.clone() })
    }
}

/// Every token that followed the last `n_before` tokens before, each once.
fn banned(history: &[u32], n_before: usize) -> Vec<u32> {
    let Some(start) = history.len().checked_sub(n_before) else { return Vec::new() };
    let last = &history[start..];
    let followed = history.windows(n_before + 1).filter(|window| window[..n_before] == *last);
    let mut banned: Vec<u32> = followed.map(|window| window[n_before]).collect();
    banned.sort_unstable();
    banned.dedup();
    banned
}

#[cfg(test)]
mod tests {
    use super::banned;

    #[test]
    fn what_followed_before_is_banned_once() {
        for (history, n_before, expected) in [
            (&[1, 2, 3, 1, 2, 4, 1, 2][..], 2, &[3, 4][..]),
            (&[5, 5, 5], 1, &[5]),
            (&[7, 8, 7], 0, &[7, 8]),
            (&[1], 2, &[]),
            (&[], 0, &[]),
        ] {
            assert_eq!(banned(history, n_before), expected, "{history:?}");
        }
    }
}
