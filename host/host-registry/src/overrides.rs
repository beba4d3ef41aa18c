//! What a command line may set instead of the profile. Each is recorded in the composition.

use host_core::Numeric;

use crate::profile::{Bytes, PolicyRef, Threads};

/// Values that take the place of a profile's; `None` leaves the profile's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// `--device`
    pub device: Option<String>,
    /// `--numeric`
    pub numeric: Option<Numeric>,
    /// `--kv-dtype`
    pub kv_dtype: Option<String>,
    /// `--threads`
    pub n_threads: Option<Threads>,
    /// `--context-tokens`
    pub context_tokens: Option<usize>,
    /// `--max-sequences`
    pub max_sequences: Option<usize>,
    /// `--max-step-tokens`
    pub max_step_tokens: Option<usize>,
    /// `--memory-bytes`
    pub memory_bytes: Option<Bytes>,
    /// `--policy`
    pub policy: Option<PolicyRef>,
}
