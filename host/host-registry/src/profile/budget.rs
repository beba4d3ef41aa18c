//! `[plugins.ID]` of a profile: what one plugin may spend in a hook, where that differs from the host's own bounds.

use host_plugins::{Budget, StepBudget};
use serde::{Deserialize, Serialize};

use super::Bytes;

/// Bounds on one plugin. A key that is absent leaves the host's bound; none goes beyond the host's ceiling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginBudget {
    /// Wall-clock milliseconds of a hook that runs once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// Guest memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Bytes>,
    /// Log text of one hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<Bytes>,
    /// Nodes of a graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph_nodes: Option<u64>,
    /// Wall-clock milliseconds of a policy's step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time_ms: Option<u64>,
    /// Calls on one step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_calls: Option<u64>,
    /// Entries of all lists of one kind that a step is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_list_entries: Option<u64>,
    /// Constraints that a request's policy holds at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<u64>,
}

/// The most that a profile may give: (key, number).
pub(super) const CEILINGS: [(&str, u64); 8] = [
    ("time_ms", 60_000),
    ("memory_bytes", 1 << 30),
    ("log_bytes", 16 << 20),
    ("graph_nodes", 1_000_000),
    ("step_time_ms", 1_000),
    ("step_calls", 1_000_000),
    ("step_list_entries", 1 << 22),
    ("constraints", 256),
];

impl PluginBudget {
    /// Each key that is there, with its number, in the order of the fields.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
        let values = [
            self.time_ms,
            bytes(self.memory_bytes),
            bytes(self.log_bytes),
            self.graph_nodes,
            self.step_time_ms,
            self.step_calls,
            self.step_list_entries,
            self.constraints,
        ];
        CEILINGS.into_iter().zip(values).filter_map(|((key, _), value)| Some((key, value?)))
    }

    /// Each number outside what a profile may give: (key, ceiling, number).
    pub(crate) fn out_of_range(&self) -> Vec<(&'static str, u64, u64)> {
        let ceiling =
            |key: &str| CEILINGS.iter().find(|(known, _)| *known == key).map_or(0, |(_, most)| *most);
        let judged = self.numbers().map(|(key, number)| (key, ceiling(key), number));
        judged.filter(|(_, most, number)| *number == 0 || number > most).collect()
    }

    /// The host's bounds with these in their place.
    pub fn over(&self, host: Budget) -> Budget {
        let mut graph = host.graph;
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        graph.max_nodes = self.graph_nodes.map_or(graph.max_nodes, count);
        let step = StepBudget {
            time_ms: self.step_time_ms.unwrap_or(host.step.time_ms),
            calls: self.step_calls.map_or(host.step.calls, count),
            list_entries: self.step_list_entries.map_or(host.step.list_entries, count),
            ..host.step
        };
        Budget {
            time_ms: self.time_ms.unwrap_or(host.time_ms),
            memory_bytes: self.memory_bytes.map_or(host.memory_bytes, |bytes| count(bytes.0)),
            log_bytes: self.log_bytes.map_or(host.log_bytes, |bytes| count(bytes.0)),
            constraints: self.constraints.map_or(host.constraints, count),
            graph,
            step,
            ..host
        }
    }
}
