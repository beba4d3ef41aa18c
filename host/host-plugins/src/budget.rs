//! What a plugin may spend in one hook.

use host_graph::Limits;

/// Bounds on one call of a hook. Reaching one ends the call with a typed error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Wall-clock milliseconds from entry to return.
    pub time_ms: u64,
    /// Bytes of guest memory.
    pub memory_bytes: usize,
    /// Bytes of log text.
    pub log_bytes: usize,
    /// Bytes of `config.json`.
    pub config_bytes: usize,
    /// Nodes, slots and names of the graph.
    pub graph: Limits,
}

impl Default for Budget {
    /// Two seconds and 64 MiB: a graph of a hundred layers needs a few milliseconds and under 2 MiB.
    fn default() -> Self {
        Budget {
            time_ms: 2_000,
            memory_bytes: 64 << 20,
            log_bytes: 64 << 10,
            config_bytes: 4 << 20,
            graph: Limits::default(),
        }
    }
}
