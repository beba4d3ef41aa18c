//! Mixed precision within a budget: every group of tensors starts at the narrowest width, and the one that gains most
//! for each byte is widened until the budget is spent.
//!
//! A group is the attention or the feed-forward part of one layer, the embedding, or the head. How much a group counts
//! was measured by the host (`tenon quantize --measure TEXT --plugin quant-mixed …`): the mean Kullback-Leibler
//! divergence of the next-token distribution, in nats, with that group alone at `bits`. Rounding errors of a code halve
//! with each bit, and the divergence grows with their square: a bit more divides it by four.
//!
//! Params:
//! - `budget_bits_per_weight`: bytes of all tensors, scales and biases too, over all weights; a tensor that is kept
//!   counts as dense numbers of its dtype;
//! - `bits`: the narrowest width (2, 3, 4, 5, 6 or 8), and `group_size` (32, 64 or 128);
//! - `kl`: `{ embedding = 0.02, head = 0.03, attention = [0.01, …], mlp = [0.02, …] }`, lists by layer.

use plugin_sdk::quant::{Affine, QuantProfile, Role, Scheme, TensorFacts};
use plugin_sdk::{Config, Error, register_quant_profile};

struct Mixed;

register_quant_profile!(Mixed);

const WIDTHS: [u32; 6] = [2, 3, 4, 5, 6, 8];

impl QuantProfile for Mixed {
    fn plan(_: &Config, params: &Config, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, Error> {
        params.refuse_unknown(&["budget_bits_per_weight", "bits", "group_size", "kl"])?;
        let (bits, group_size) = (params.usize("bits")? as u32, params.usize("group_size")? as u32);
        if !WIDTHS.contains(&bits) {
            return Err(params.invalid("bits", "2, 3, 4, 5, 6 or 8"));
        }
        if ![32, 64, 128].contains(&group_size) {
            return Err(params.invalid("group_size", "32, 64 or 128"));
        }
        let low = Affine { bits, group_size };
        let groups = groups(params, tensors, low)?;
        let widths = assign(&groups, low, &Budget::of(params, tensors, &groups, low)?);
        let mut schemes = vec![Scheme::Keep; tensors.len()];
        for (group, bits) in groups.iter().zip(widths) {
            for at in &group.tensors {
                schemes[*at] = Scheme::Affine(Affine { bits, group_size });
            }
        }
        Ok(schemes)
    }
}

/// Tensors that get one width.
struct Group {
    /// Its place among the groups: those of no layer first, then by layer; attention before the feed-forward part.
    order: (Option<u32>, u32),
    tensors: Vec<usize>,
    weights: f64,
    /// Divergence with this group alone at the narrowest width.
    kl: f64,
}

/// The part of a layer, or of the whole model, that a role belongs to.
fn part(role: Role) -> Option<(&'static str, u32)> {
    match role {
        Role::Embedding => Some(("embedding", 0)),
        Role::AttentionQ | Role::AttentionK | Role::AttentionV | Role::AttentionO => Some(("attention", 1)),
        Role::MlpGate | Role::MlpUp | Role::MlpDown | Role::Expert => Some(("mlp", 2)),
        Role::Head => Some(("head", 3)),
        _ => None,
    }
}

/// The groups of all tensors that can take the scheme.
fn groups(params: &Config, tensors: &[TensorFacts], low: Affine) -> Result<Vec<Group>, Error> {
    let kl =
        params.object("kl")?.ok_or_else(|| params.invalid("kl", "the divergence of each part, by layer"))?;
    kl.refuse_unknown(&["embedding", "head", "attention", "mlp"])?;
    let mut groups: Vec<Group> = Vec::new();
    for (at, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| tensor.can_be(Scheme::Affine(low))) {
        let Some((part, rank)) = part(tensor.role) else { continue };
        let order = (tensor.layer, rank);
        let index = match groups.binary_search_by_key(&order, |group| group.order) {
            Ok(index) => index,
            Err(index) => {
                let kl = divergence(&kl, part, tensor.layer)?;
                groups.insert(index, Group { order, tensors: Vec::new(), weights: 0.0, kl });
                index
            }
        };
        groups[index].tensors.push(at);
        groups[index].weights += elements(tensor);
    }
    Ok(groups)
}

fn divergence(kl: &Config, part: &str, layer: Option<u32>) -> Result<f64, Error> {
    let found = match layer {
        None => kl.number(part)?,
        Some(layer) => {
            let by_layer = kl.numbers(part)?.unwrap_or_default();
            let found = by_layer.get(layer as usize).copied();
            found.ok_or_else(|| kl.invalid(part, &format!("a number for each layer, {layer} among them")))?
        }
    };
    if found >= 0.0 { Ok(found) } else { Err(kl.invalid(part, "numbers of at least 0")) }
}

fn elements(tensor: &TensorFacts) -> f64 {
    tensor.shape.iter().map(|n| f64::from(*n)).product()
}

/// Bytes of one number; eight for a dtype of another name, so that the budget is rather not spent.
fn dtype_bytes(dtype: &str) -> f64 {
    match dtype {
        "BOOL" | "U8" | "I8" => 1.0,
        "U16" | "I16" | "F16" | "BF16" => 2.0,
        "U32" | "I32" | "F32" => 4.0,
        _ => 8.0,
    }
}

/// What may be spent on the groups.
struct Budget {
    bytes: f64,
    /// Bits a weight that scales and biases take whatever the width.
    values_bits: f64,
}

impl Budget {
    fn of(params: &Config, tensors: &[TensorFacts], groups: &[Group], low: Affine) -> Result<Self, Error> {
        let (mut kept, mut weights, mut widest) = (0.0, 0.0, 0.0);
        for (at, tensor) in tensors.iter().enumerate() {
            let (n, bytes) = (elements(tensor), dtype_bytes(&tensor.dtype));
            weights += n;
            if groups.iter().any(|group| group.tensors.contains(&at)) {
                widest = f64::max(widest, bytes);
            } else {
                kept += n * bytes;
            }
        }
        let key = "budget_bits_per_weight";
        let asked = params.number(key)?;
        if !(asked > 0.0 && asked <= 32.0) {
            return Err(params.invalid(key, "a number above 0 and at most 32"));
        }
        let values_bits = 16.0 * widest / f64::from(low.group_size);
        let budget = Budget { bytes: asked * weights / 8.0 - kept, values_bits };
        let least: f64 = groups.iter().map(|group| budget.bytes_of(group, low.bits)).sum();
        if least > budget.bytes {
            let needed = (least + kept) * 8.0 / weights;
            return Err(params.invalid(key, &format!("at least {needed:.3}, which {} bits need", low.bits)));
        }
        Ok(budget)
    }

    fn bytes_of(&self, group: &Group, bits: u32) -> f64 {
        group.weights * (f64::from(bits) + self.values_bits) / 8.0
    }
}

/// A width for each group.
fn assign(groups: &[Group], low: Affine, budget: &Budget) -> Vec<u32> {
    let kl = |group: &Group, bits: u32| (low.bits..bits).fold(group.kl, |kl, _| kl * 0.25);
    let mut widths = vec![low.bits; groups.len()];
    let mut left = budget.bytes - groups.iter().map(|group| budget.bytes_of(group, low.bits)).sum::<f64>();
    loop {
        // Of equal gains the first group's counts.
        let mut best: Option<(usize, u32, f64, f64)> = None;
        for (at, group) in groups.iter().enumerate() {
            let from = widths[at];
            let Some(to) = WIDTHS.into_iter().find(|wider| *wider > from) else { continue };
            let cost = budget.bytes_of(group, to) - budget.bytes_of(group, from);
            let gain = (kl(group, from) - kl(group, to)) / cost;
            if cost <= left && best.is_none_or(|(_, _, _, most)| gain > most) {
                best = Some((at, to, cost, gain));
            }
        }
        let Some((at, to, cost, _)) = best else { return widths };
        widths[at] = to;
        left -= cost;
    }
}
