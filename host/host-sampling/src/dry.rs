//! DRY, "don't repeat yourself": which tokens would lengthen a repetition, and of how many tokens.
//!
//! Source: p-e-w (2024), as llama.cpp has it, with sequence breakers of one token each.

use crate::penalties::last;

/// The parameters of the sampler, its breakers resolved and sorted.
#[derive(Clone, Debug)]
pub(crate) struct Dry {
    pub(crate) multiplier: f32,
    pub(crate) base: f32,
    pub(crate) allowed_length: usize,
    pub(crate) context_tokens: usize,
    pub(crate) breakers: Vec<u32>,
}

impl Dry {
    /// What is subtracted from the logits of which tokens, sorted by token.
    pub(crate) fn penalties(&self, history: &[u32]) -> Vec<(u32, f32)> {
        let window = &history[last(history, self.context_tokens)];
        let is_breaker = |token: &u32| self.breakers.binary_search(token).is_ok();
        // No repetition reaches back over the last breaker.
        let n_free = window.iter().rev().position(is_breaker).unwrap_or(window.len());
        if n_free < self.allowed_length {
            return Vec::new();
        }
        let mut longest: Vec<(u32, usize)> = repetitions(window)
            .map(|(token, length)| (token, length.min(n_free)))
            .filter(|(token, length)| *length >= self.allowed_length && !is_breaker(token))
            .collect();
        longest.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        longest.dedup_by_key(|(token, _)| *token);
        longest.into_iter().map(|(token, length)| (token, self.penalty(length))).collect()
    }

    /// Grows exponentially, up to where floats end.
    fn penalty(&self, length: usize) -> f32 {
        const LN_MAX: f32 = 88.722_84;
        let excess = (length - self.allowed_length) as f32;
        let most = if self.base > 1.000_001 { LN_MAX / self.base.ln() } else { f32::INFINITY };
        (self.multiplier * self.base.powf(excess.min(most.floor()))).min(f32::MAX)
    }
}

/// For each token of the window but the first: how many tokens before it are also the window's last ones.
///
/// The Z-algorithm over the reversed window, linear in its length.
fn repetitions(window: &[u32]) -> impl Iterator<Item = (u32, usize)> + '_ {
    let n = window.len();
    let at = |i: usize| window[n - 1 - i];
    let mut z = vec![0_usize; n];
    let (mut left, mut right) = (0, 0);
    for k in 1..n {
        let mut length = if k < right { z[k - left].min(right - k) } else { 0 };
        while k + length < n && at(length) == at(k + length) {
            length += 1;
        }
        if k + length > right {
            (left, right) = (k, k + length);
        }
        z[k] = length;
    }
    (1..n).map(move |k| (window[n - k], z[k]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dry(allowed_length: usize, breakers: &[u32]) -> Dry {
        Dry { multiplier: 0.8, base: 1.75, allowed_length, context_tokens: 0, breakers: breakers.to_vec() }
    }

    #[test]
    fn penalties_of_small_histories() {
        let (a, b, c, x) = (1, 2, 3, 9);
        let power = |n: i32| 0.8 * 1.75_f32.powi(n);
        let cases = [
            ("nothing repeats", dry(2, &[]), &[a, b, c][..], vec![]),
            ("a b was followed by c", dry(2, &[]), &[a, b, c, x, a, b], vec![(c, power(0))]),
            ("one token is too short", dry(2, &[]), &[b, c, x, b], vec![]),
            ("one token longer", dry(1, &[]), &[a, b, c, x, a, b], vec![(c, power(1))]),
            ("the longest counts", dry(1, &[]), &[b, c, a, b, c, a, b], vec![(c, power(3))]),
            ("a breaker cuts", dry(2, &[a]), &[a, b, c, x, a, b], vec![]),
            ("a breaker is never penalised", dry(2, &[c]), &[a, b, c, x, a, b], vec![]),
        ];
        for (name, dry, history, expected) in cases {
            assert_eq!(dry.penalties(history), expected, "{name}");
        }
        let windowed = Dry { context_tokens: 3, ..dry(2, &[]) };
        assert_eq!(windowed.penalties(&[a, b, c, x, a, b]), [], "what left the window is forgotten");
        assert!(dry(1, &[]).penalties(&vec![a; 4000])[0].1.is_finite(), "long repetitions stay finite");
    }

    /// By comparing every pair of ends; slow and plain.
    fn plainly(dry: &Dry, history: &[u32]) -> Vec<(u32, usize)> {
        let mut found: Vec<(u32, usize)> = Vec::new();
        for next in 1..history.len() {
            let mut length = 0;
            while length < next
                && history[next - 1 - length] == history[history.len() - 1 - length]
                && !dry.breakers.contains(&history[next - 1 - length])
            {
                length += 1;
            }
            let token = history[next];
            if length < dry.allowed_length || dry.breakers.contains(&token) {
                continue;
            }
            match found.iter_mut().find(|(other, _)| *other == token) {
                Some((_, longest)) => *longest = length.max(*longest),
                None => found.push((token, length)),
            }
        }
        found.sort_unstable();
        found
    }

    proptest! {
        #[test]
        fn repetitions_are_those_of_the_plain_search(
            history in prop::collection::vec(0_u32..4, 0..40),
            allowed in 1_usize..4,
            breaker in prop::option::of(0_u32..4),
        ) {
            let dry = dry(allowed, &breaker.into_iter().collect::<Vec<_>>());
            let expected: Vec<(u32, f32)> =
                plainly(&dry, &history).into_iter().map(|(token, n)| (token, dry.penalty(n))).collect();
            prop_assert_eq!(dry.penalties(&history), expected);
        }
    }
}
