//! The logits of one step, left on the device until somebody asks.

use std::cmp::Ordering;

/// Rows of logits, valid until the next step.
pub trait Logits {
    /// How many rows were asked for.
    fn n_rows(&self) -> usize;

    /// Width of a row.
    fn n_vocab(&self) -> usize;

    /// Copies one row to `out`, which is cleared first.
    fn read(&self, row: usize, out: &mut Vec<f32>);

    /// The largest entry's index, the lowest on ties; `None` when the row holds a NaN.
    fn argmax(&self, row: usize) -> Option<u32>;

    /// The `n` largest entries, largest first, lower index first on ties.
    fn top(&self, row: usize, n: usize) -> Vec<(u32, f32)>;
}

/// The largest entry's index, the lowest on ties; `None` when there is a NaN or nothing.
pub fn argmax(row: &[f32]) -> Option<u32> {
    const LANES: usize = 16;
    let mut best = [f32::NEG_INFINITY; LANES];
    let mut has_nan = [false; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            best[lane] = if chunk[lane] > best[lane] { chunk[lane] } else { best[lane] };
            has_nan[lane] |= chunk[lane].is_nan();
        }
    }
    let largest = best.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    if has_nan.contains(&true) || rest.iter().any(|x| x.is_nan()) {
        return None;
    }
    row.iter().position(|x| *x == largest).map(|i| i as u32)
}

/// The `n` largest entries of a row, largest first, lower index first on ties; NaN counts as smallest.
pub fn top(row: &[f32], n: usize) -> Vec<(u32, f32)> {
    let key = |i: &u32| row[*i as usize];
    let order = |a: &u32, b: &u32| match (key(a).is_nan(), key(b).is_nan()) {
        (false, false) => key(b).total_cmp(&key(a)).then(a.cmp(b)),
        (true, true) => a.cmp(b),
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
    };
    let n = n.min(row.len());
    let mut ids: Vec<u32> = (0..row.len() as u32).collect();
    if n < ids.len() && n > 0 {
        ids.select_nth_unstable_by(n - 1, order);
    }
    ids.truncate(n);
    ids.sort_unstable_by(order);
    ids.into_iter().map(|i| (i, row[i as usize])).collect()
}
