//! How fast the memory can be read just now.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Far larger than any cache.
const BUFFER_BYTES: usize = 256 << 20;
const PASSES: usize = 4;

/// Gigabytes (10⁹ bytes) a second that `threads` read together: the best of a few passes over 256 MiB.
pub(super) fn read_gb_per_s(threads: u32) -> f64 {
    let n_threads = threads.max(1) as usize;
    let words = BUFFER_BYTES / size_of::<u64>() / n_threads;
    let barrier = Barrier::new(n_threads);
    let pass = |part: &[u64]| {
        barrier.wait();
        let start = Instant::now();
        black_box(sum(black_box(part)));
        start.elapsed()
    };
    // Each thread fills its own part, so that the pages lie near it; a pass takes as long as its slowest thread.
    let run = || {
        let part: Vec<u64> = (0..words as u64).collect();
        (0..PASSES).map(|_| pass(&part)).collect::<Vec<Duration>>()
    };
    let times: Vec<Vec<Duration>> = thread::scope(|scope| {
        let handles: Vec<_> = (0..n_threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().map(|handle| handle.join().expect("a pass only adds numbers")).collect()
    });
    let slowest = |pass_idx: usize| times.iter().map(|times| times[pass_idx]).max().unwrap_or_default();
    let best = (0..PASSES).map(slowest).min().unwrap_or_default();
    (words * n_threads * size_of::<u64>()) as f64 / best.as_secs_f64().max(1e-9) / 1e9
}

/// Sixteen running sums: enough loads in flight to keep the memory busy.
fn sum(part: &[u64]) -> u64 {
    let mut sums = [0_u64; 16];
    for chunk in part.chunks_exact(16) {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |total, sum| total.wrapping_add(*sum))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_word_is_read() {
        let part: Vec<u64> = (0..1600).collect();
        assert_eq!(super::sum(&part), 1599 * 1600 / 2);
    }
}
