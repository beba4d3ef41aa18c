//! What a plugin costs: times of many calls, and their quantiles.

use std::time::{Duration, Instant};

use host_plugins::{Grants, PolicyInput, PolicyInstance, SamplingPolicy};
use host_sampling::RowView;

use crate::policies::{Row, numbers};

/// Times of single calls, sorted.
#[derive(Clone, Debug)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Times that somebody else took, in any order; at least one.
    pub fn new(mut times: Vec<Duration>) -> Self {
        assert!(!times.is_empty(), "nothing was timed");
        times.sort_unstable();
        Times(times)
    }

    /// How many there are.
    pub fn n(&self) -> usize {
        self.0.len()
    }

    /// Times `n` calls after a tenth as many that are not counted.
    pub fn of<T>(n: usize, call: impl FnMut() -> T) -> Self {
        Self::apart(Duration::ZERO, n, call)
    }

    /// The same, each call so long after the one before; meanwhile the thread computes, as an engine's would.
    pub fn apart<T>(pause: Duration, n: usize, mut call: impl FnMut() -> T) -> Self {
        (0..n / 10).for_each(|_| drop(call()));
        let timed = (0..n).map(|_| {
            compute_for(pause);
            let (result, time) = timed(&mut call);
            drop(result);
            time
        });
        Times::new(timed.collect())
    }

    /// The time that this share of the calls, from 0 to 1, did not pass.
    pub fn quantile(&self, share: f64) -> Duration {
        self.0[((self.0.len() - 1) as f64 * share).round() as usize]
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| self.quantile(share));
        write!(f, "p50 {p50:9.2?}   p99 {p99:9.2?}   p99.9 {p999:9.2?}   of {}", self.0.len())
    }
}

/// The times from the opening of an instance for a request until it is gone, each so long after the one before.
///
/// # Panics
/// When the policy refuses `params`.
pub fn instance_times(
    policy: &dyn SamplingPolicy,
    params: &str,
    n_vocab: u32,
    n: usize,
    pause: Duration,
) -> Times {
    let (vocabulary, grants) = (numbers(n_vocab), Grants::default());
    Times::apart(pause, n, || {
        drop(policy.open(params, vocabulary.clone(), &grants).expect("the params are good"));
    })
}

/// The same of instances that begin in batches, `width` at once, and end together; each batch so long after the one
/// before.
///
/// # Panics
/// When the policy refuses `params`.
pub fn batch_instance_times(
    policy: &dyn SamplingPolicy,
    params: &str,
    n_vocab: u32,
    n_batches: usize,
    width: usize,
    pause: Duration,
) -> Times {
    let (vocabulary, grants) = (numbers(n_vocab), Grants::default());
    let mut times = Vec::new();
    for batch in 0..n_batches + n_batches / 10 {
        compute_for(pause);
        let open =
            || timed(|| policy.open(params, vocabulary.clone(), &grants).expect("the params are good"));
        let opened: Vec<_> = (0..width).map(|_| open()).collect();
        let gone = opened.into_iter().map(|(instance, opening)| opening + timed(|| drop(instance)).1);
        let of_batch: Vec<_> = gone.collect();
        // The first tenth is not counted.
        if batch >= n_batches / 10 {
            times.extend(of_batch);
        }
    }
    Times::new(times)
}

fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = call();
    (result, start.elapsed())
}

/// Keeps the thread busy, as an engine's would be.
fn compute_for(pause: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < pause {
        std::hint::spin_loop();
    }
}

/// The times of steps of each of `instances`, one after the other, as a batch of requests has them.
///
/// # Panics
/// When a step fails.
pub fn step_times(instances: &mut [Box<dyn PolicyInstance>], n_vocab: u32, n: usize) -> Times {
    let row = Row(vec![0.0; n_vocab as usize]);
    let view = RowView::new(&row, 0);
    Times::of(n, || {
        let input = PolicyInput { row: Some(&view), accepted: &[1], generated: &[1; 64], seed: 1 };
        instances
            .iter_mut()
            .map(|instance| instance.step(&input).expect("the step is good"))
            .collect::<Vec<_>>()
    })
}
