//! The random numbers of a draw: a function of (seed, position, token), never of what was drawn before.
//!
//! A draw has one 32-bit word for each entry of the vocabulary, each from one Threefry-2x32-20 block, so that
//! the word of a single token costs one block and not the whole vocabulary's.
//!
//! Source: Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3"; the layout of counters and the
//! conversion to floats are those of MLX 0.31.

/// Spreads positions over the 64-bit keys: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The largest float below 1, where `u` is capped so that its Gumbel value stays finite.
const BELOW_ONE: f32 = 1.0 - f32::EPSILON / 2.0;

/// No Gumbel value exceeds this: it is the value at [`BELOW_ONE`], rounded up.
pub(crate) const GUMBEL_LIMIT: f32 = 16.636;

/// The key of random numbers: a function of (seed, position), and of how often it was split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key([u32; 2]);

impl Key {
    /// The key of a row's token number `step` (its first generated token is 0).
    pub(crate) fn new(seed: u64, step: u64) -> Self {
        let key = seed ^ step.wrapping_add(1).wrapping_mul(GOLDEN);
        Key([(key >> 32) as u32, key as u32])
    }

    /// Two keys of their own: words 0 and 1, and words 2 and 3, of a draw over four.
    pub(crate) fn split(self) -> (Key, Key) {
        let draw = Draw::new(self, 4);
        (Key([draw.word(0), draw.word(1)]), Key([draw.word(2), draw.word(3)]))
    }

    /// One number in [0, 1).
    pub(crate) fn uniform(self) -> f32 {
        uniform(Draw::new(self, 1).word(0))
    }
}

/// Counters of a draw end below the vocabulary's size, so that these words are nobody else's.
const BESIDE_DRAWS: u32 = u32::MAX;

/// The random word number `draw` of a position, for whoever chooses beside the chain.
///
/// A function of its arguments alone, and of none of the words that draws of the same seed use.
pub fn random_u32(seed: u64, step: u64, draw: u32) -> u32 {
    threefry(Key::new(seed, step).0, [draw, BESIDE_DRAWS])[0]
}

/// The words of one draw over `n` entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    key: Key,
    /// Entries: one word each.
    n: u32,
}

impl Draw {
    /// The draw of this key over `n` entries.
    pub(crate) fn new(key: Key, n: u32) -> Self {
        Draw { key, n }
    }

    /// The word of entry `i`.
    ///
    /// With `h = n / 2` and `o = n mod 2`, the block at counter `(j, j + h + o)` gives the words of `j` and
    /// `j + h + o`; the middle one of an odd `n` comes from the counter `(h, 0)`.
    pub(crate) fn word(&self, i: u32) -> u32 {
        let half = self.n / 2;
        let upper = half + self.n % 2;
        if i < half {
            threefry(self.key.0, [i, i + upper])[0]
        } else if i < upper {
            threefry(self.key.0, [i, 0])[0]
        } else {
            threefry(self.key.0, [i - upper, i])[1]
        }
    }
}

/// A word as a number in [0, 1).
pub(crate) fn uniform(word: u32) -> f32 {
    (word as f32 / u32::MAX as f32).min(BELOW_ONE)
}

/// A word as a draw from the standard Gumbel distribution: `-ln(-ln u)`.
pub(crate) fn gumbel(word: u32) -> f32 {
    -(-uniform(word).ln()).ln()
}

/// An upper bound of [`gumbel`] that costs no logarithm.
///
/// With `e = 1 - u`, `-ln u >= e`, hence the value is at most `-ln e`; and `e` is at least two to the minus
/// (leading ones of the word + 1). The margin of 0.001 covers the roundings of `u` and both logarithms for
/// words with up to 16 leading ones; beyond them the bound is the constant [`GUMBEL_LIMIT`].
pub(crate) fn gumbel_bound(word: u32) -> f32 {
    let ones = word.leading_ones();
    if ones > 16 { GUMBEL_LIMIT } else { (ones + 1) as f32 * std::f32::consts::LN_2 + 0.001 }
}

/// One block of Threefry-2x32 with 20 rounds.
fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    let mut x = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for group in 0..5 {
        for rotation in ROTATIONS[group % 2] {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(rotation) ^ x[0];
        }
        x[0] = x[0].wrapping_add(keys[(group + 1) % 3]);
        x[1] = x[1].wrapping_add(keys[(group + 2) % 3]).wrapping_add(group as u32 + 1);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_the_golden_sequence() {
        let cases = [
            ((0, 0), 0x9e37_79b9_7f4a_7c15),
            ((0, 1), 0x3c6e_f372_fe94_f82a),
            ((1, 0), 0x9e37_79b9_7f4a_7c14),
            ((1234, 7), 0xf1bb_cdcb_fa53_e47a_u64),
        ];
        for ((seed, step), expected) in cases {
            let Key([high, low]) = Key::new(seed, step);
            assert_eq!(u64::from(high) << 32 | u64::from(low), expected, "seed {seed}, step {step}");
        }
    }

    #[test]
    fn the_first_uniforms_are_those_of_mlx() {
        let draw = Draw::new(Key::new(0, 0), 4);
        let expected = [0.253_124, 0.986_508, 0.685_088, 0.627_734];
        for (i, expected) in expected.into_iter().enumerate() {
            let found = uniform(draw.word(i as u32));
            assert!((found - expected).abs() < 1e-6, "word {i}: {found}, expected {expected}");
        }
    }

    /// Known answers of the reference implementation (Random123, `kat_vectors`).
    #[test]
    fn threefry_gives_the_known_answers() {
        let cases = [
            ([0, 0], [0, 0], [0x6b20_0159, 0x99ba_4efe]),
            ([u32::MAX; 2], [u32::MAX; 2], [0x1cb9_96fc, 0xbb00_2be7]),
            ([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3], [0xc492_3a9c, 0x483d_f7a0_u32]),
        ];
        for (key, counter, expected) in cases {
            assert_eq!(threefry(key, counter), expected);
        }
    }

    #[test]
    fn the_bound_is_never_below_the_value() {
        let edges = (0..=32).flat_map(|ones: u32| {
            let lowest = !(u32::MAX.checked_shr(ones).unwrap_or(0));
            let highest = lowest | u32::MAX.checked_shr(ones + 1).unwrap_or(0);
            [lowest, highest, lowest / 2 + highest / 2]
        });
        let spread = (0..200_000_u32).map(|i| i.wrapping_mul(0x9E37_79B1));
        for word in edges.chain(spread) {
            assert!(gumbel(word) <= gumbel_bound(word), "word {word:#x}");
        }
        assert!(gumbel(u32::MAX).is_finite() && gumbel(u32::MAX) < GUMBEL_LIMIT);
        assert_eq!(gumbel(0), f32::NEG_INFINITY);
    }
}
