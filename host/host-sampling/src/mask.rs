//! Which tokens may follow: one bit a token.

/// A set of token ids below `n_vocab`, packed 32 to a word, lowest id in the lowest bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMask {
    n_vocab: usize,
    /// Bits at `n_vocab` and above are 0.
    words: Vec<u32>,
}

impl TokenMask {
    /// No token.
    pub fn none(n_vocab: usize) -> Self {
        TokenMask { n_vocab, words: vec![0; n_vocab.div_ceil(32)] }
    }

    /// Every token.
    pub fn all(n_vocab: usize) -> Self {
        Self::from_words(n_vocab, vec![u32::MAX; n_vocab.div_ceil(32)])
    }

    /// The tokens of runs `start..end`, in any order. What lies beyond the vocabulary is nobody's and falls away.
    pub fn from_runs(n_vocab: usize, runs: &[(u32, u32)]) -> Self {
        let mut mask = Self::none(n_vocab);
        for (start, end) in runs {
            mask.set_run(*start as usize, (*end as usize).min(n_vocab));
        }
        mask
    }

    /// The tokens whose bits are set; missing words are 0, bits beyond the vocabulary fall away.
    pub fn from_words(n_vocab: usize, mut words: Vec<u32>) -> Self {
        words.resize(n_vocab.div_ceil(32), 0);
        if let (Some(last), n @ 1..) = (words.last_mut(), n_vocab % 32) {
            *last &= (1 << n) - 1;
        }
        TokenMask { n_vocab, words }
    }

    fn set_run(&mut self, start: usize, end: usize) {
        let mut id = start;
        while id < end {
            let last = (id / 32 * 32 + 32).min(end);
            let ones = u32::MAX >> (32 - (last - id));
            self.words[id / 32] |= ones << (id % 32);
            id = last;
        }
    }

    /// Entries of the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// The packed bits.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Adds a token; one beyond the vocabulary is nobody's.
    pub fn insert(&mut self, id: u32) {
        if (id as usize) < self.n_vocab {
            self.words[id as usize / 32] |= 1 << (id % 32);
        }
    }

    /// Whether a token is in the set.
    pub fn contains(&self, id: u32) -> bool {
        self.words.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)
    }

    /// How many tokens there are.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Keeps what is in both sets. Of vocabularies of different sizes, ids beyond the smaller are in neither.
    pub fn intersect(&mut self, other: &TokenMask) {
        for (i, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(i).copied().unwrap_or(0);
        }
    }

    /// The tokens in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(i as u32 * 32 + bit)
            })
        })
    }
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
            TokenMask::from_runs(40, &[(38, 99), (50, 60), (5, 3)]).iter().collect::<Vec<_>>(),
            [38, 39]
        );
        assert_eq!(TokenMask::all(0).count(), 0);
    }

    proptest! {
        #[test]
        fn runs_words_and_intersections_are_those_of_sets(
            n in 1_usize..200,
            runs in prop::collection::vec((0_u32..220, 0_u32..220), 0..6),
            words in prop::collection::vec(any::<u32>(), 0..8),
        ) {
            let by_runs = TokenMask::from_runs(n, &runs);
            let by_words = TokenMask::from_words(n, words.clone());
            let in_runs = |id: u32| runs.iter().any(|(start, end)| (*start..*end).contains(&id));
            let in_words = |id: u32| words.get(id as usize / 32).is_some_and(|word| word & (1 << (id % 32)) != 0);
            let mut both = by_runs.clone();
            both.intersect(&by_words);
            for id in 0..n as u32 {
                prop_assert_eq!(by_runs.contains(id), in_runs(id));
                prop_assert_eq!(by_words.contains(id), in_words(id));
                prop_assert_eq!(both.contains(id), in_runs(id) && in_words(id));
            }
            prop_assert!(!both.contains(n as u32));
            prop_assert_eq!(both.iter().count(), both.count());
            prop_assert!(both.iter().all(|id| both.contains(id)));
        }
    }
}
