//! A step's edits in a form that files hold and people read.

use host_core::{FinishReason, Sampler};
use host_sampling::{Edits, TokenMask};
use serde::{Deserialize, Serialize};

/// What a policy did to one step. Two steps whose records are equal choose alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditsRecord {
    /// The runs `[start, end)` of tokens that may follow; `None` allows all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<(u32, u32)>>,
    /// Numbers added to logits, by ascending id; `null` excludes the token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bias: Vec<(u32, Option<f32>)>,
    /// Samplers before the chain, as a profile writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samplers: Vec<Sampler>,
    /// Tokens that follow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<u32>,
    /// The reason with which the request ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
}

impl EditsRecord {
    /// The record of edits: several numbers for one token are summed in their order, as the host does.
    pub fn of(edits: &Edits) -> Self {
        let Edits { allowed, bias, samplers, forced, finish } = edits;
        EditsRecord {
            allowed: allowed.as_ref().map(runs),
            bias: summed(bias),
            samplers: samplers.clone(),
            forced: forced.clone(),
            finish: finish.as_ref().map(|reason| match reason {
                FinishReason::Policy(text) => text.clone(),
                other => format!("{other:?}"),
            }),
        }
    }

    /// One line a part, for people.
    pub fn told(&self) -> String {
        let mut parts = Vec::new();
        if let Some(runs) = &self.allowed {
            let shown: Vec<_> = runs.iter().take(8).map(|(start, end)| run_text(*start, *end)).collect();
            let more =
                if runs.len() > 8 { format!(" and {} runs more", runs.len() - 8) } else { String::new() };
            parts.push(format!(
                "allowed {}{more}",
                if shown.is_empty() { "nothing".into() } else { shown.join(" ") }
            ));
        }
        if !self.bias.is_empty() {
            let shown = self.bias.iter().take(8).map(|(id, value)| match value {
                Some(value) => format!("{id}: {value:+}"),
                None => format!("{id}: -inf"),
            });
            let more = self.bias.len().saturating_sub(8);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("bias {}{more}", shown.collect::<Vec<_>>().join(", ")));
        }
        if !self.samplers.is_empty() {
            let text = |sampler| serde_json::to_string(sampler).unwrap_or_default();
            parts.push(format!("samplers {}", self.samplers.iter().map(text).collect::<Vec<_>>().join(", ")));
        }
        if !self.forced.is_empty() {
            parts.push(format!("forced {:?}", self.forced));
        }
        if let Some(reason) = &self.finish {
            parts.push(format!("finish {reason:?}"));
        }
        if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
    }
}

fn run_text(start: u32, end: u32) -> String {
    if end == start + 1 { start.to_string() } else { format!("{start}..{end}") }
}

fn summed(bias: &[(u32, f32)]) -> Vec<(u32, Option<f32>)> {
    let mut sorted = bias.to_vec();
    sorted.sort_by_key(|(id, _)| *id);
    sorted.dedup_by(|later, kept| {
        let is_same = later.0 == kept.0;
        if is_same {
            kept.1 += later.1;
        }
        is_same
    });
    sorted.into_iter().map(|(id, value)| (id, value.is_finite().then_some(value))).collect()
}

/// The runs of a mask, ascending and as long as they can be.
pub(crate) fn runs(mask: &TokenMask) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for id in mask.iter() {
        match runs.last_mut() {
            Some((_, end)) if *end == id => *end += 1,
            _ => runs.push((id, id + 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_all_edits_and_comes_back_from_json() {
        let mut edits = Edits::none();
        assert_eq!(EditsRecord::of(&edits).told(), "nothing");
        edits.allow(TokenMask::from_runs(40, [(30, 35), (3, 4), (35, 36)]));
        edits.bias = vec![(9, 1.5), (2, f32::NEG_INFINITY), (9, -0.25)];
        edits.forced = vec![4];
        edits.samplers = vec![Sampler::TopK { k: 3 }];
        edits.finish = Some(FinishReason::Policy("enough".to_owned()));
        let record = EditsRecord::of(&edits);
        assert_eq!(
            record.told(),
            "allowed 3 30..36; bias 2: -inf, 9: +1.25; samplers {\"sampler\":\"top_k\",\"k\":3}; forced [4]; \
             finish \"enough\""
        );
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<EditsRecord>(&text).unwrap(), record);
    }
}
