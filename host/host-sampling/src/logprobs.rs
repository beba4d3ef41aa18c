//! Log-probabilities: the log-softmax of logits after the penalties that lead a chain, before any filter or
//! temperature.

/// The log-probability of a chosen token and of the most likely ones.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Of the token that was chosen, in nats.
    pub logprob: f32,
    /// The most likely tokens with theirs, most likely first, lower id first on ties.
    pub top: Vec<(u32, f32)>,
}

/// The log-probabilities of `token_id` and of the `n` most likely tokens of one row of logits.
///
/// `row` is `[V]` and `token_id` lies below V.
pub fn token_logprobs(row: &[f32], token_id: u32, n: usize) -> TokenLogprobs {
    let lse = log_sum_exp(row);
    let logprob = |logit: f32| (f64::from(logit) - lse) as f32;
    TokenLogprobs {
        logprob: logprob(row[token_id as usize]),
        top: host_device::top(row, n).into_iter().map(|(id, logit)| (id, logprob(logit))).collect(),
    }
}

/// `ln(sum(exp(row)))`, summed in f64.
pub(crate) fn log_sum_exp(row: &[f32]) -> f64 {
    scaled_log_sum_exp(row.iter().copied(), 1.0)
}

/// `ln(sum(exp(x / temperature)))`, summed in f64.
pub(crate) fn scaled_log_sum_exp(row: impl Iterator<Item = f32> + Clone, temperature: f32) -> f64 {
    let largest = row.clone().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = match temperature {
        1.0 => row.map(|logit| f64::from((logit - largest).exp())).sum(),
        _ => row.map(|logit| f64::from(((logit - largest) / temperature).exp())).sum(),
    };
    f64::from(largest) / f64::from(temperature) + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_a_small_row() {
        let row = [1.0, 3.0, 2.0, 3.0_f32];
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        let expected = |logit: f32| (f64::from(logit) - sum.ln()) as f32;
        let found = token_logprobs(&row, 2, 3);
        assert!((found.logprob - expected(2.0)).abs() < 1e-6);
        let ids: Vec<u32> = found.top.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [1, 3, 2]);
        assert!((found.top[0].1 - expected(3.0)).abs() < 1e-6);
    }

    #[test]
    fn large_logits_and_excluded_tokens_stay_finite() {
        let found = token_logprobs(&[3.0e4, f32::NEG_INFINITY, 3.0e4], 0, 3);
        assert!((found.logprob + std::f32::consts::LN_2).abs() < 1e-6);
        assert_eq!(found.top[2], (1, f32::NEG_INFINITY));
    }
}
