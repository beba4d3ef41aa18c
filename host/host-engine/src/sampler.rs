//! The choice of one token from one row of logits.
//!
//! Order: repetition penalty; temperature 0 takes the most likely token; otherwise top-k, top-p and min-p in
//! turn drop tokens, the rest is divided by the temperature, and one is drawn. Each filter sees the
//! probabilities among the tokens that the filter before it kept.
//!
//! The draw is `argmax(logit / temperature + g)` with one Gumbel number `g` per token from (seed, position):
//! which is a draw from the softmax, and lets a token's number be computed alone.

use host_core::{SamplingError, SamplingSettings};
use host_device::Logits;

use crate::logprobs::log_sum_exp;
use crate::random::{Draw, GUMBEL_LIMIT, gumbel, gumbel_bound};

/// Tokens that top-p looks at first; more are taken when they do not hold enough of the mass.
const FIRST_CANDIDATES: usize = 64;

/// Why no token can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// A logit is NaN or positive infinity.
    #[error("the logits hold a value that is not a number")]
    NotANumber,
    /// Every token is excluded.
    #[error("every token is excluded")]
    NothingLeft,
}

/// Chooses the tokens of one request.
#[derive(Clone, Debug)]
pub struct Sampler {
    settings: SamplingSettings,
    /// The row, where it must be read whole.
    logits: Vec<f32>,
    /// The row under the repetition penalty.
    penalised: Vec<f32>,
    /// Ids under the repetition penalty.
    seen: Vec<u32>,
}

impl Sampler {
    /// A sampler for checked settings.
    ///
    /// # Errors
    /// [`SamplingError`] names a setting outside its range.
    pub fn new(settings: SamplingSettings) -> Result<Self, SamplingError> {
        settings.check()?;
        Ok(Sampler { settings, logits: Vec::new(), penalised: Vec::new(), seen: Vec::new() })
    }

    /// Chooses a token from row `row` of `logits`.
    ///
    /// `history` is the prompt and the tokens generated so far, `step` the number of the latter.
    ///
    /// # Errors
    /// [`SampleError::NotANumber`] for a NaN; and, where a token is drawn, also for positive infinity, and
    /// [`SampleError::NothingLeft`] when all logits are negative infinity.
    pub fn sample(
        &mut self,
        logits: &dyn Logits,
        row: usize,
        history: &[u32],
        step: u64,
    ) -> Result<u32, SampleError> {
        if self.settings.repetition_penalty == 1.0 {
            return choose(&self.settings, logits, row, step, &mut self.logits);
        }
        let mut penalised = std::mem::take(&mut self.penalised);
        logits.read(row, &mut penalised);
        self.penalise(&mut penalised, history);
        let chosen = choose(&self.settings, &OneRow(&penalised), 0, step, &mut self.logits);
        self.penalised = penalised;
        chosen
    }

    /// Makes the tokens of the last part of `history` less likely, each once.
    fn penalise(&mut self, row: &mut [f32], history: &[u32]) {
        let window = match self.settings.repetition_context_tokens as usize {
            0 => history.len(),
            n => n.min(history.len()),
        };
        self.seen.clear();
        self.seen.extend_from_slice(&history[history.len() - window..]);
        self.seen.sort_unstable();
        self.seen.dedup();
        let penalty = self.settings.repetition_penalty;
        for id in &self.seen {
            if let Some(logit) = row.get_mut(*id as usize) {
                *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
            }
        }
    }
}

/// The choice after penalties. `scratch` takes the row where it must be read whole.
fn choose(
    settings: &SamplingSettings,
    logits: &dyn Logits,
    row: usize,
    step: u64,
    scratch: &mut Vec<f32>,
) -> Result<u32, SampleError> {
    let most_likely = logits.argmax(row).ok_or(SampleError::NotANumber)?;
    if settings.temperature == 0.0 {
        return Ok(most_likely);
    }
    let draw = Draw::new(settings.seed, step, logits.n_vocab() as u32);
    if settings.top_k == 0 && settings.top_p == 1.0 {
        logits.read(row, scratch);
        let largest = scratch[most_likely as usize];
        check_largest(largest)?;
        let lowest = min_p_threshold(settings, largest);
        return Ok(draw_from_all(scratch, most_likely, lowest, settings.temperature, &draw));
    }
    let mut kept = candidates(settings, logits, row, scratch);
    let (_, largest) = *kept.first().ok_or(SampleError::NothingLeft)?;
    check_largest(largest)?;
    let lowest = min_p_threshold(settings, largest);
    kept.retain(|(_, logit)| *logit >= lowest);
    Ok(draw_from(&kept, settings.temperature, &draw))
}

fn check_largest(largest: f32) -> Result<(), SampleError> {
    match largest {
        f32::NEG_INFINITY => Err(SampleError::NothingLeft),
        f32::INFINITY => Err(SampleError::NotANumber),
        _ => Ok(()),
    }
}

/// The lowest logit that min-p keeps. A ratio of probabilities is a difference of logits.
fn min_p_threshold(settings: &SamplingSettings, largest: f32) -> f32 {
    largest + settings.min_p.ln()
}

/// What top-k and top-p keep, most likely first.
fn candidates(
    settings: &SamplingSettings,
    logits: &dyn Logits,
    row: usize,
    scratch: &mut Vec<f32>,
) -> Vec<(u32, f32)> {
    if settings.top_k > 0 {
        let mut kept = logits.top(row, settings.top_k as usize);
        let values: Vec<f32> = kept.iter().map(|(_, logit)| *logit).collect();
        if let Some(n) = top_p_count(&kept, settings.top_p, log_sum_exp(&values)) {
            kept.truncate(n);
        }
        return kept;
    }
    logits.read(row, scratch);
    let lse = log_sum_exp(scratch);
    let mut n = FIRST_CANDIDATES;
    loop {
        let mut kept = logits.top(row, n);
        if let Some(n) = top_p_count(&kept, settings.top_p, lse) {
            kept.truncate(n);
            return kept;
        }
        if kept.len() >= logits.n_vocab() {
            return kept;
        }
        n *= 8;
    }
}

/// How many of the most likely tokens hold at least `top_p` of the mass; `None` when all of them do not.
fn top_p_count(sorted: &[(u32, f32)], top_p: f32, lse: f64) -> Option<usize> {
    let mut mass = 0.0_f64;
    for (i, (_, logit)) in sorted.iter().enumerate() {
        mass += (f64::from(*logit) - lse).exp();
        if mass >= f64::from(top_p) {
            return Some(i + 1);
        }
    }
    None
}

/// Draws from a few tokens, most likely first.
fn draw_from(kept: &[(u32, f32)], temperature: f32, draw: &Draw) -> u32 {
    let largest = kept[0].1;
    let mut best = Best { id: kept[0].0, score: f32::NEG_INFINITY };
    for (id, logit) in kept {
        best.offer(*id, scaled(*logit, largest, temperature) + gumbel(draw.word(*id)));
    }
    best.id
}

/// Draws from every token whose logit is at least `lowest`.
///
/// The most likely token goes first, so that most of the others are ruled out without a logarithm.
fn draw_from_all(row: &[f32], most_likely: u32, lowest: f32, temperature: f32, draw: &Draw) -> u32 {
    let largest = row[most_likely as usize];
    let mut best = Best { id: most_likely, score: gumbel(draw.word(most_likely)) };
    for (id, logit) in row.iter().enumerate() {
        let score = scaled(*logit, largest, temperature);
        if *logit < lowest || score + GUMBEL_LIMIT < best.score {
            continue;
        }
        let word = draw.word(id as u32);
        if score + gumbel_bound(word) >= best.score {
            best.offer(id as u32, score + gumbel(word));
        }
    }
    best.id
}

/// The logit under the temperature, with the largest at 0.
fn scaled(logit: f32, largest: f32, temperature: f32) -> f32 {
    (logit - largest) / temperature
}

/// The highest score so far; the lowest id on ties.
struct Best {
    id: u32,
    score: f32,
}

impl Best {
    fn offer(&mut self, id: u32, score: f32) {
        if score > self.score || (score == self.score && id < self.id) {
            *self = Best { id, score };
        }
    }
}

/// Logits that were changed on the host.
struct OneRow<'a>(&'a [f32]);

impl Logits for OneRow<'_> {
    fn n_rows(&self) -> usize {
        1
    }

    fn n_vocab(&self) -> usize {
        self.0.len()
    }

    fn read(&self, _row: usize, out: &mut Vec<f32>) {
        out.clear();
        out.extend_from_slice(self.0);
    }

    fn argmax(&self, _row: usize) -> Option<u32> {
        host_device::argmax(self.0)
    }

    fn top(&self, _row: usize, n: usize) -> Vec<(u32, f32)> {
        host_device::top(self.0, n)
    }
}

#[cfg(test)]
mod tests;
