//! What a compiled model holds, in bytes, and what the process has held at most.

use serde::Serialize;

/// Bytes by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// Repacked weights.
    pub weights_bytes: u64,
    /// State of all sequences at full length.
    pub state_bytes: u64,
    /// Activations, scratch and logits.
    pub activation_bytes: u64,
}

impl MemoryPlan {
    /// All of it.
    pub fn total_bytes(&self) -> u64 {
        self.weights_bytes + self.state_bytes + self.activation_bytes
    }
}

/// The largest resident size of this process so far; `None` where the system does not tell.
pub fn process_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
