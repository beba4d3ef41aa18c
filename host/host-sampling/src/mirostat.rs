//! Mirostat: the surprise of the chosen tokens is kept near a target by feedback.
//!
//! Source: Basu et al. (2021), with the constants of llama.cpp: the first target is twice `tau`, surprise is
//! counted in bits.

use crate::candidates::Candidates;
use crate::error::SampleError;

/// Which of the two algorithms.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Version {
    /// Estimates the Zipf exponent from the `m` most likely tokens and keeps the k most likely.
    V1 { m: usize },
    /// Keeps the tokens whose surprise is at most the target.
    V2,
}

/// One of both with what it remembers of a request.
#[derive(Clone, Debug)]
pub(crate) struct Mirostat {
    version: Version,
    tau: f32,
    eta: f32,
    /// The target before each token, in bits; the last is the one that holds.
    mu: Vec<f32>,
    /// The tokens that were kept in this step with their log-probabilities.
    kept: Vec<(u32, f64)>,
}

impl Mirostat {
    pub(crate) fn new(version: Version, tau: f32, eta: f32) -> Self {
        Mirostat { version, tau, eta, mu: vec![2.0 * tau], kept: Vec::new() }
    }

    fn mu(&self) -> f64 {
        self.mu.last().copied().map_or(0.0, f64::from)
    }

    pub(crate) fn apply(&mut self, candidates: &mut Candidates<'_>) -> Result<(), SampleError> {
        let lse = candidates.log_sum_exp()?;
        let temperature = f64::from(candidates.temperature());
        match self.version {
            Version::V1 { m } => {
                let n_vocab = candidates.n_vocab();
                let k = zipf_k(candidates.sorted(), temperature, m, n_vocab, self.mu());
                candidates.keep_top(k);
            }
            Version::V2 => {
                let largest = candidates.largest()?;
                let lowest = (lse - self.mu() * std::f64::consts::LN_2) * temperature;
                candidates.keep_from((lowest as f32).min(largest));
            }
        }
        let lse = candidates.log_sum_exp()?;
        let logprob = |(id, logit): &(u32, f32)| (*id, f64::from(*logit) / temperature - lse);
        self.kept.clear();
        self.kept.extend(candidates.entries().iter().map(logprob));
        Ok(())
    }

    /// A token was chosen; one that was not drawn (a forced one) leaves the target where it is.
    pub(crate) fn chosen(&mut self, token: u32) {
        let of_token = self.kept.iter().find(|(id, _)| *id == token);
        let error = of_token.map_or(0.0, |(_, lp)| -lp / std::f64::consts::LN_2 - f64::from(self.tau));
        self.kept.clear();
        self.mu.push((self.mu() - f64::from(self.eta) * error) as f32);
    }

    /// Goes back by `n` tokens.
    pub(crate) fn rollback(&mut self, n: usize) {
        self.mu.truncate(self.mu.len().saturating_sub(n).max(1));
    }
}

/// How many tokens of a Zipf distribution give the surprise `mu`; its exponent is fitted to the `m` most likely.
fn zipf_k(sorted: &[(u32, f32)], temperature: f64, m: usize, n_vocab: usize, mu: f64) -> usize {
    let (mut ti_bi, mut ti_ti) = (0.0, 0.0);
    for (i, pair) in sorted.windows(2).take(m - 1).enumerate() {
        let t = ((i + 2) as f64 / (i + 1) as f64).ln();
        let b = (f64::from(pair[0].1) - f64::from(pair[1].1)) / temperature;
        ti_bi += t * b;
        ti_ti += t * t;
    }
    let exponent = ti_bi / ti_ti;
    let epsilon = exponent - 1.0;
    let n = n_vocab as f64;
    // The limit of epsilon / (1 - n^-epsilon) at an exponent of 1.
    let slope = if epsilon.abs() < 1e-9 { 1.0 / n.ln() } else { epsilon / (1.0 - n.powf(-epsilon)) };
    let k = (slope * mu.exp2()).powf(1.0 / exponent);
    (k as usize).max(1)
}
