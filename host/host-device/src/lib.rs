//! What a device is: compile a graph over a checkpoint, then run ragged batches of token runs.
//!
//! The interface names no kernel and no memory layout. It holds two promises that every device keeps: a
//! sequence gets the same logits bit for bit alone or in a batch, whole or in chunks; and a capability that
//! is not there is a refusal before weights are opened, never a slower twin.

mod error;
mod kv;
mod logits;
mod memory;
mod plan_runs;

use host_core::Numeric;
use host_graph::Graph;
use host_weights::{Catalogue, Checkpoint};

pub use error::{DeviceError, RunError};
pub use kv::{KvCodes, KvStorage};
pub use logits::{Logits, argmax, top};
pub use memory::{MemoryPlan, process_peak_bytes};
pub use plan_runs::PlanRuns;

/// What a composition asks of a device. Each value comes from a profile or a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileOptions {
    /// How activations may be rounded.
    pub numeric: Numeric,
    /// How keys and values are stored.
    pub kv: KvStorage,
    /// Worker threads.
    pub n_threads: usize,
    /// Tokens of one sequence: prompt and generated.
    pub context_tokens: usize,
    /// Sequences that live at once.
    pub max_sequences: usize,
    /// New tokens of one step, all sequences together.
    pub max_step_tokens: usize,
    /// Refuse to compile when the memory plan needs more.
    pub memory_bytes: Option<u64>,
    /// The device's own kernels that are to be used, by name. What is not named is not used; what is named and
    /// does not fit is refused.
    pub kernels: Vec<String>,
}

/// One thing a device says of itself, for `doctor` and `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// `simd`, `threads`, …
    pub name: &'static str,
    /// What was found.
    pub value: String,
}

/// A place that runs graphs.
pub trait Device: Send + Sync {
    /// The name that profiles use: `cpu`, `mlx`.
    fn id(&self) -> &'static str;

    /// What this device can do on this machine.
    fn capabilities(&self) -> Vec<Capability>;

    /// Whether it can run the graph with these options, and with how much memory; reads no tensor.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] names the first operation or option that it lacks, [`DeviceError::Memory`]
    /// the plan that is too large.
    fn check(
        &self,
        graph: &Graph,
        catalogue: &Catalogue,
        options: &CompileOptions,
    ) -> Result<MemoryPlan, DeviceError>;

    /// Repacks the weights for this machine and lays out every buffer.
    ///
    /// `progress` gets (bytes of weights done, bytes of weights in all).
    ///
    /// # Errors
    /// What [`Device::check`] refuses, weights that cannot be read, or a plan beyond `memory_bytes`.
    fn compile(
        &self,
        graph: &Graph,
        weights: &Checkpoint,
        options: &CompileOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Executable>, DeviceError>;
}

/// A sequence's handle within one executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u32);

/// Which positions of a run need logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsFor {
    /// None: a chunk of a prompt that goes on.
    None,
    /// The run's last token.
    Last,
    /// Every token of the run.
    All,
}

/// New tokens of one sequence, to be appended in this step.
#[derive(Clone, Copy, Debug)]
pub struct TokenRun<'a> {
    /// Whose tokens.
    pub sequence: SequenceId,
    /// At least one token id.
    pub tokens: &'a [u32],
    /// Which of them need logits.
    pub logits: LogitsFor,
}

/// A compiled model with its sequences.
pub trait Executable: Send {
    /// Entries of the vocabulary.
    fn n_vocab(&self) -> usize;

    /// The identity of each state slot's storage, in slot order.
    fn signatures(&self) -> Vec<String>;

    /// What it holds, in bytes.
    fn memory(&self) -> MemoryPlan;

    /// Starts an empty sequence.
    ///
    /// # Errors
    /// [`DeviceError::TooManySequences`].
    fn new_sequence(&mut self) -> Result<SequenceId, DeviceError>;

    /// Starts an empty sequence whose keys and values are stored in a way of its own. Steps with it run the plan's
    /// general form.
    ///
    /// # Errors
    /// [`DeviceError::TooManySequences`], [`DeviceError::Unsupported`] for a way that the device does not have, or
    /// that needs more room than the plan gives a sequence.
    fn new_sequence_stored(&mut self, kv: KvStorage) -> Result<SequenceId, DeviceError>;

    /// The identity of each state slot's storage in a sequence, in slot order.
    ///
    /// # Errors
    /// [`DeviceError::UnknownSequence`].
    fn sequence_signatures(&self, sequence: SequenceId) -> Result<Vec<String>, DeviceError>;

    /// How often each form of the plan ran, since it was compiled.
    fn plan_runs(&self) -> PlanRuns;

    /// Starts a sequence with the same tokens as another.
    ///
    /// # Errors
    /// [`DeviceError::UnknownSequence`], [`DeviceError::TooManySequences`].
    fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, DeviceError>;

    /// Drops the last `n_tokens` tokens of a sequence.
    ///
    /// # Errors
    /// [`DeviceError::UnknownSequence`], [`DeviceError::Trim`] when fewer tokens are there or a slot's state
    /// cannot go back.
    fn trim(&mut self, sequence: SequenceId, n_tokens: usize) -> Result<(), DeviceError>;

    /// Ends a sequence and frees what it held. An unknown handle is ignored.
    fn release(&mut self, sequence: SequenceId);

    /// How many tokens the sequence holds.
    ///
    /// # Errors
    /// [`DeviceError::UnknownSequence`].
    fn len(&self, sequence: SequenceId) -> Result<usize, DeviceError>;

    /// Appends every run and computes the logits asked for.
    ///
    /// All runs are checked first. An error that concerns one run is [`DeviceError::Run`] with its index;
    /// nothing was appended then, and the step may be repeated without it.
    ///
    /// The logits' rows are those of the runs in order, each run's in token order.
    ///
    /// # Errors
    /// [`DeviceError::Run`], [`DeviceError::StepTooLarge`].
    fn step(&mut self, runs: &[TokenRun<'_>]) -> Result<&dyn Logits, DeviceError>;
}
