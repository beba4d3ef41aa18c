//! Which tokens may follow.

use std::cmp::Ordering;

/// A set of token ids below `n_vocab`.
#[derive(Clone, Debug)]
pub struct TokenMask {
    n_vocab: usize,
    form: Form,
}

/// A set in the form in which it came: few runs are a hundredth of the bits, and are applied as they are.
#[derive(Clone, Debug)]
enum Form {
    /// Runs `start..end`, none empty, in order, none touching the next.
    Runs(Vec<(u32, u32)>),
    /// One bit a token, 32 to a word, lowest id in the lowest bit; those at `n_vocab` and above are 0.
    Words(Vec<u32>),
}

impl TokenMask {
    /// No token.
    pub fn none(n_vocab: usize) -> Self {
        TokenMask { n_vocab, form: Form::Runs(Vec::new()) }
    }

    /// Every token.
    pub fn all(n_vocab: usize) -> Self {
        Self::from_runs(n_vocab, [(0, u32::MAX)])
    }

    /// The tokens of runs `start..end`, in any order. What lies beyond the vocabulary is nobody's and falls away.
    pub fn from_runs(n_vocab: usize, runs: impl IntoIterator<Item = (u32, u32)>) -> Self {
        // What comes as a list stays in its place.
        let mut runs: Vec<(u32, u32)> = runs.into_iter().collect();
        let most = u32::try_from(n_vocab).unwrap_or(u32::MAX);
        let (mut last, mut are_in_order) = (None, true);
        runs.retain_mut(|(start, end)| {
            *end = most.min(*end);
            if *start >= *end {
                return false;
            }
            are_in_order &= last.replace(*end).is_none_or(|last| last < *start);
            true
        });
        if !are_in_order {
            runs = joined(runs);
        }
        TokenMask { n_vocab, form: Form::Runs(runs) }
    }

    /// The tokens whose bits are set, 32 to a word, lowest id in the lowest bit; missing words are 0, bits beyond the
    /// vocabulary fall away.
    pub fn from_words(n_vocab: usize, mut words: Vec<u32>) -> Self {
        words.resize(n_vocab.div_ceil(32), 0);
        if let (Some(last), n @ 1..) = (words.last_mut(), n_vocab % 32) {
            *last &= (1 << n) - 1;
        }
        TokenMask { n_vocab, form: Form::Words(words) }
    }

    /// Entries of the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// Whether a token is in the set.
    pub fn contains(&self, id: u32) -> bool {
        match &self.form {
            Form::Runs(runs) => {
                let place = runs.binary_search_by(|(start, end)| match (*start <= id, id < *end) {
                    (true, true) => Ordering::Equal,
                    (true, false) => Ordering::Less,
                    (false, _) => Ordering::Greater,
                });
                place.is_ok()
            }
            Form::Words(words) => words.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1),
        }
    }

    /// How many tokens there are.
    pub fn count(&self) -> usize {
        match &self.form {
            Form::Runs(runs) => runs.iter().map(|(start, end)| (end - start) as usize).sum(),
            Form::Words(words) => words.iter().map(|word| word.count_ones() as usize).sum(),
        }
    }

    /// Keeps what is in both sets. Of vocabularies of different sizes, ids beyond the smaller are in neither.
    pub fn intersect(&mut self, other: &TokenMask) {
        self.form = match (&self.form, &other.form) {
            (Form::Runs(a), Form::Runs(b)) => Form::Runs(in_both(a, b)),
            _ => {
                let (mut words, others) = (self.to_words(), other.to_words());
                for (i, word) in words.iter_mut().enumerate() {
                    *word &= others.get(i).copied().unwrap_or(0);
                }
                Form::Words(words)
            }
        };
    }

    /// The tokens in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let (runs, words) = match &self.form {
            Form::Runs(runs) => (runs.as_slice(), [].as_slice()),
            Form::Words(words) => ([].as_slice(), words.as_slice()),
        };
        let of_words = words.iter().enumerate().flat_map(|(i, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(i as u32 * 32 + bit)
            })
        });
        runs.iter().flat_map(|(start, end)| *start..*end).chain(of_words)
    }

    /// Sets what belongs to tokens outside the set to negative infinity; `logits` has one number a token.
    pub(crate) fn exclude_others(&self, logits: &mut [f32]) {
        match &self.form {
            Form::Runs(runs) => {
                let mut after = 0;
                for (start, end) in runs {
                    logits[after..*start as usize].fill(f32::NEG_INFINITY);
                    after = *end as usize;
                }
                logits[after..].fill(f32::NEG_INFINITY);
            }
            Form::Words(words) => {
                for (logits, word) in logits.chunks_mut(32).zip(words) {
                    exclude_bits(logits, *word);
                }
            }
        }
    }

    fn to_words(&self) -> Vec<u32> {
        match &self.form {
            Form::Words(words) => words.clone(),
            Form::Runs(_) => {
                let mut words = vec![0; self.n_vocab.div_ceil(32)];
                self.iter().for_each(|id| words[id as usize / 32] |= 1 << (id % 32));
                words
            }
        }
    }
}

/// Equal are sets of the same tokens, in whatever form.
impl PartialEq for TokenMask {
    fn eq(&self, other: &Self) -> bool {
        self.n_vocab == other.n_vocab && self.iter().eq(other.iter())
    }
}

impl Eq for TokenMask {}

fn exclude_bits(logits: &mut [f32], word: u32) {
    match word {
        0 => logits.fill(f32::NEG_INFINITY),
        u32::MAX => {}
        word => {
            for (bit, logit) in logits.iter_mut().enumerate() {
                *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
            }
        }
    }
}

/// The same tokens in order, as few runs as can be.
fn joined(mut runs: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    runs.sort_unstable();
    runs.dedup_by(|(start, end), (_, last)| {
        let is_joined = *start <= *last;
        if is_joined {
            *last = (*last).max(*end);
        }
        is_joined
    });
    runs
}

fn in_both(a: &[(u32, u32)], b: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Vec::new();
    while let (Some((a_start, a_end)), Some((b_start, b_end))) = (a.peek(), b.peek()) {
        let (start, end) = (*a_start.max(b_start), *a_end.min(b_end));
        if start < end {
            both.push((start, end));
        }
        // The run that ends first has nothing more to meet.
        if a_end <= b_end {
            a.next();
        } else {
            b.next();
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bits_beyond_the_vocabulary_fall_away() {
        assert_eq!(TokenMask::all(33).count(), 33);
        assert_eq!(TokenMask::from_words(3, vec![u32::MAX, 7]).iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(
            TokenMask::from_runs(40, [(38, 99), (50, 60), (5, 3)]).iter().collect::<Vec<_>>(),
            [38, 39]
        );
        assert_eq!(TokenMask::all(0).count(), 0);
    }

    proptest! {
        #[test]
        fn runs_words_and_intersections_are_those_of_sets(
            n in 1_usize..200,
            runs in prop::collection::vec((0_u32..220, 0_u32..220), 0..6),
            others in prop::collection::vec((0_u32..220, 0_u32..220), 0..6),
            words in prop::collection::vec(any::<u32>(), 0..8),
        ) {
            let by_runs = TokenMask::from_runs(n, runs.iter().copied());
            let by_other_runs = TokenMask::from_runs(n, others.iter().copied());
            let by_words = TokenMask::from_words(n, words.clone());
            let in_runs = |id: u32| runs.iter().any(|(start, end)| (*start..*end).contains(&id));
            let in_words = |id: u32| words.get(id as usize / 32).is_some_and(|word| word & (1 << (id % 32)) != 0);
            let in_others = |id: u32| others.iter().any(|(start, end)| (*start..*end).contains(&id));
            let both = |a: &TokenMask, b: &TokenMask| {
                let mut both = a.clone();
                both.intersect(b);
                both
            };
            let (mixed, runs_alone) = (both(&by_runs, &by_words), both(&by_runs, &by_other_runs));
            for id in 0..n as u32 {
                prop_assert_eq!(by_runs.contains(id), in_runs(id));
                prop_assert_eq!(by_words.contains(id), in_words(id));
                prop_assert_eq!(mixed.contains(id), in_runs(id) && in_words(id));
                prop_assert_eq!(runs_alone.contains(id), in_runs(id) && in_others(id));
            }
            for mask in [&by_runs, &by_words, &mixed, &runs_alone] {
                prop_assert!(!mask.contains(n as u32));
                prop_assert_eq!(mask.iter().count(), mask.count());
                prop_assert!(mask.iter().all(|id| mask.contains(id)));
                prop_assert!(mask.iter().is_sorted());
                prop_assert_eq!(mask, &TokenMask::from_words(n, mask.to_words()));
                let mut logits = vec![1.0; n];
                mask.exclude_others(&mut logits);
                for (id, logit) in logits.into_iter().enumerate() {
                    prop_assert_eq!(logit == 1.0, mask.contains(id as u32));
                }
            }
        }
    }
}
