//! What a plugin may spend in one hook.

use host_graph::Limits;
use host_sampling::Budget as GrammarBudget;

/// Bounds on one call of a hook. Reaching one ends the call with a typed error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Wall-clock milliseconds from entry to return.
    pub time_ms: u64,
    /// Bytes of guest memory.
    pub memory_bytes: usize,
    /// Bytes of log text.
    pub log_bytes: usize,
    /// Bytes of `config.json`, and of a profile's `params`.
    pub config_bytes: usize,
    /// Nodes, slots and names of the graph.
    pub graph: Limits,
    /// What a sampling policy may spend in a step.
    pub step: StepBudget,
    /// Constraints that the policy of a request, with its forks, may hold at once.
    pub constraints: usize,
    /// What compiling one of them, and a mask of it, may cost.
    pub grammar: GrammarBudget,
}

/// Bounds on one step of a sampling policy, and on its `rollback` and `fork`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBudget {
    /// Wall-clock milliseconds from entry to return.
    pub time_ms: u64,
    /// Calls on the step.
    pub calls: usize,
    /// Entries of all lists of one kind that a step is given: runs, biases, forced tokens.
    pub list_entries: usize,
    /// Bytes of a text that a policy has encoded, or of a finish reason.
    pub text_bytes: usize,
}

impl Budget {
    /// The wall-clock milliseconds of a hook: those of a step for what runs once a token.
    pub fn time_ms(&self, hook: &str) -> u64 {
        match hook {
            "step" | "rollback" | "fork" | "drop" => self.step.time_ms,
            _ => self.time_ms,
        }
    }
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
            step: StepBudget::default(),
            constraints: 16,
            grammar: GrammarBudget::default(),
        }
    }
}

impl Default for StepBudget {
    /// Fifty milliseconds, where a component needs microseconds and a script over a wide vocabulary some milliseconds.
    fn default() -> Self {
        StepBudget { time_ms: 50, calls: 10_000, list_entries: 1 << 19, text_bytes: 4_096 }
    }
}
