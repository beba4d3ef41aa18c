//! Shares a budget of bits out among groups of tensors: the group that gains most for each byte is widened first.

use host_core::quant::AFFINE_BITS;

/// What is known of one group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// Weights in it.
    pub(super) weights: u64,
    /// Divergence with the group alone at the narrowest width.
    pub(super) kl: f64,
}

/// A width for each group, such that all groups together have at most `budget_bytes`.
///
/// `values_bits` are the bits a weight that scales and biases take whatever the width. Rounding errors of a code
/// halve with each bit, and the divergence grows with their square: a bit more divides it by four.
///
/// `None` where even the narrowest width is too much.
pub(super) fn assign(groups: &[Group], low_bits: u8, values_bits: f64, budget_bytes: f64) -> Option<Vec<u8>> {
    let bytes = |group: &Group, bits: u8| group.weights as f64 * (f64::from(bits) + values_bits) / 8.0;
    let kl = |group: &Group, bits: u8| group.kl * 0.25_f64.powi(i32::from(bits) - i32::from(low_bits));
    let wider = |bits: u8| AFFINE_BITS.into_iter().find(|next| *next > bits);
    let mut widths = vec![low_bits; groups.len()];
    let mut left = budget_bytes - groups.iter().map(|group| bytes(group, low_bits)).sum::<f64>();
    if left < 0.0 {
        return None;
    }
    loop {
        let steps = groups.iter().enumerate().filter_map(|(at, group)| {
            let (from, to) = (widths[at], wider(widths[at])?);
            let cost = bytes(group, to) - bytes(group, from);
            (cost <= left).then(|| (at, to, cost, (kl(group, from) - kl(group, to)) / cost))
        });
        // Of equal gains the first group's counts, so that the same numbers give the same widths.
        let best = steps.reduce(|best, step| if step.3 > best.3 { step } else { best });
        let Some((at, to, cost, _)) = best else { return Some(widths) };
        widths[at] = to;
        left -= cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(weights: u64, kl: f64) -> Group {
        Group { weights, kl }
    }

    /// Bytes at 0.5 bits a weight for scales and biases.
    fn spent(groups: &[Group], widths: &[u8]) -> f64 {
        groups
            .iter()
            .zip(widths)
            .map(|(group, bits)| group.weights as f64 * (f64::from(*bits) + 0.5) / 8.0)
            .sum()
    }

    #[test]
    fn sensitive_groups_are_widened_first() {
        let groups = [group(800, 0.001), group(800, 1.0), group(800, 0.05)];
        for (bits_a_weight, expected) in [
            (3.5, Some(vec![3, 3, 3])),
            (3.4, None),
            (3.9, Some(vec![3, 4, 3])),
            // The second step of the middle group gains 0.1875, the first of the last 0.0375.
            (4.2, Some(vec![3, 5, 3])),
            // Then 0.0469 beside 0.0375.
            (4.6, Some(vec![3, 6, 3])),
            // From 6 the next width is 8, at twice the cost: 0.0073 for each bit.
            (4.9, Some(vec![3, 6, 4])),
            (100.0, Some(vec![8, 8, 8])),
        ] {
            let budget = 2400.0 * bits_a_weight / 8.0;
            let widths = assign(&groups, 3, 0.5, budget);
            assert_eq!(widths, expected, "{bits_a_weight} bits a weight");
            if let Some(widths) = widths {
                assert!(spent(&groups, &widths) <= budget);
            }
        }
    }

    #[test]
    fn a_large_group_waits_for_small_ones_that_gain_more_for_each_byte() {
        let groups = [group(80_000, 1.0), group(80, 0.01)];
        let budget = spent(&groups, &[2, 4]);
        assert_eq!(assign(&groups, 2, 0.5, budget), Some(vec![2, 4]));
    }
}
