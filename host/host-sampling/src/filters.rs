//! Samplers that drop tokens by their probabilities, and the temperature that follows the entropy.

use crate::candidates::Candidates;
use crate::error::SampleError;

/// Drops tokens less likely than the share `p` of the most likely one, but keeps `min_keep`.
///
/// A ratio of probabilities is a difference of logits. Source: Nguyen et al. (2024).
pub(crate) fn min_p(candidates: &mut Candidates<'_>, p: f32, min_keep: usize) -> Result<(), SampleError> {
    if p == 0.0 {
        return Ok(());
    }
    let mut lowest = candidates.largest()? + p.ln() * candidates.temperature();
    if min_keep > 1 {
        let sorted = candidates.sorted();
        let kept = sorted.get(min_keep - 1).or(sorted.last());
        lowest = kept.map_or(lowest, |(_, logit)| lowest.min(*logit));
    }
    candidates.keep_from(lowest);
    Ok(())
}

/// Drops all tokens more likely than `threshold` but the least likely of them; `special` ids stay.
///
/// Source: p-e-w (2024). `candidates` are the tokens whose probability lies above the threshold.
pub(crate) fn xtc(
    candidates: &mut Candidates<'_>,
    threshold: f32,
    special: &[u32],
) -> Result<(), SampleError> {
    let cut = (candidates.log_sum_exp()? + f64::from(threshold).ln()) * f64::from(candidates.temperature());
    let entries = candidates.entries();
    let above = entries.iter().map(|(_, logit)| *logit).filter(|logit| f64::from(*logit) > cut);
    if let Some(least) = above.reduce(f32::min) {
        entries.retain(|(id, logit)| *logit <= least || special.contains(id));
    }
    Ok(())
}

/// Keeps the tokens whose surprise is closest to the entropy, up to a probability of `p`.
///
/// Source: Meister et al. (2022).
pub(crate) fn typical_p(candidates: &mut Candidates<'_>, p: f32) -> Result<(), SampleError> {
    if p >= 1.0 {
        return Ok(());
    }
    let lse = candidates.log_sum_exp()?;
    let temperature = f64::from(candidates.temperature());
    let logprob = |logit: f32| f64::from(logit) / temperature - lse;
    let entropy = entropy(candidates, lse);
    let distance = |logit: f32| (-logprob(logit) - entropy).abs();
    let entries = candidates.sorted();
    let mut ranked: Vec<usize> = (0..entries.len()).collect();
    ranked.sort_by(|a, b| distance(entries[*a].1).total_cmp(&distance(entries[*b].1)));
    let mut mass = 0.0;
    let mut n = 0;
    for i in &ranked {
        mass += logprob(entries[*i].1).exp();
        n += 1;
        if mass > f64::from(p) {
            break;
        }
    }
    ranked.truncate(n);
    ranked.sort_unstable();
    let kept: Vec<(u32, f32)> = ranked.into_iter().map(|i| entries[i]).collect();
    *entries = kept;
    Ok(())
}

/// Drops tokens whose logit lies more than `n` standard deviations below the largest.
///
/// The deviation is that of the tokens left, divided by their number. Source: Tang et al. (2024).
pub(crate) fn top_n_sigma(candidates: &mut Candidates<'_>, n: f32) -> Result<(), SampleError> {
    if n == 0.0 {
        return Ok(());
    }
    let largest = candidates.largest()?;
    let entries = candidates.entries();
    let count = entries.len() as f64;
    let mean = entries.iter().map(|(_, logit)| f64::from(*logit)).sum::<f64>() / count;
    let variance = entries.iter().map(|(_, logit)| (f64::from(*logit) - mean).powi(2)).sum::<f64>() / count;
    candidates.keep_from((f64::from(largest) - f64::from(n) * variance.sqrt()) as f32);
    Ok(())
}

/// A temperature between `temperature - range` (at least 0) and `temperature + range`: the entropy's share of the
/// largest possible one, to the power `exponent`, says where. As llama.cpp has it.
pub(crate) fn dynamic_temperature(
    candidates: &mut Candidates<'_>,
    temperature: f32,
    range: f32,
    exponent: f32,
) -> Result<(), SampleError> {
    if range == 0.0 {
        return candidates.scale(temperature);
    }
    let lse = candidates.log_sum_exp()?;
    let count = candidates.entries().len();
    if count < 2 {
        return Ok(());
    }
    let share = (entropy(candidates, lse) / (count as f64).ln()).clamp(0.0, 1.0);
    let (low, high) = (f64::from(temperature - range).max(0.0), f64::from(temperature + range));
    candidates.scale((low + (high - low) * share.powf(f64::from(exponent))) as f32)
}

/// The entropy of the tokens left, in nats.
fn entropy(candidates: &mut Candidates<'_>, lse: f64) -> f64 {
    let temperature = f64::from(candidates.temperature());
    let term = |(_, logit): &(u32, f32)| {
        let lp = f64::from(*logit) / temperature - lse;
        -lp.exp() * lp
    };
    candidates.entries().iter().map(term).sum()
}
