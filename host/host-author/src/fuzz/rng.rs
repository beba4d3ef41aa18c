//! The choices of a fuzz run: a function of seed and sequence, so that each sequence can be made again.

use host_sampling::random_u32;

/// Choices of one sequence.
pub(super) struct Rng {
    seed: u64,
    sequence: u64,
    n: u32,
}

impl Rng {
    pub(super) fn new(seed: u64, sequence: u64) -> Self {
        Rng { seed, sequence, n: 0 }
    }

    fn word(&mut self) -> u32 {
        self.n += 1;
        random_u32(self.seed, self.sequence, self.n)
    }

    /// A number below `n`, which is at least 1.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.word()) * n as u64) >> 32) as usize
    }

    /// True once in `n` times.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// 64 bits.
    pub(super) fn seed(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }
}
