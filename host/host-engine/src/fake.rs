//! An executable that computes nothing a person would call a model, but keeps the interface's promises: the
//! logits are a function of the sequence's tokens alone, every check is made before anything is appended, and
//! faults can be planted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use host_device::{
    DeviceError, Executable, KvStorage, Logits, LogitsFor, MemoryPlan, PlanRuns, RunError, SequenceId,
    TokenRun, argmax, top,
};

/// Limits and planted faults.
#[derive(Clone, Debug)]
pub(crate) struct Toy {
    pub(crate) n_vocab: usize,
    pub(crate) max_sequences: usize,
    pub(crate) context_tokens: usize,
    pub(crate) max_step_tokens: usize,
    /// A run with this token is refused.
    pub(crate) refused_token: Option<u32>,
    /// A sequence that ends with this token has NaN logits.
    pub(crate) nan_after: Option<u32>,
    /// The step with this number (from 0) fails for all.
    pub(crate) failing_step: Option<usize>,
    /// Sequences cannot be cut back.
    pub(crate) is_append_only: bool,
}

impl Default for Toy {
    fn default() -> Self {
        Toy {
            n_vocab: 61,
            max_sequences: 8,
            context_tokens: 256,
            max_step_tokens: 64,
            refused_token: None,
            nan_after: None,
            failing_step: None,
            is_append_only: false,
        }
    }
}

impl Toy {
    /// The token that follows `tokens` when greedy: a function of their sum.
    pub(crate) fn next(&self, tokens: &[u32]) -> u32 {
        let sum: usize = tokens.iter().map(|token| *token as usize).sum();
        ((sum * 31 + 7) % self.n_vocab) as u32
    }

    /// Greedy continuation of `prompt`.
    pub(crate) fn continue_greedily(&self, prompt: &[u32], n: usize) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        for _ in 0..n {
            tokens.push(self.next(&tokens));
        }
        tokens.split_off(prompt.len())
    }

    fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        let peak = self.next(tokens) as usize;
        let logit = |i: usize| -(((i + self.n_vocab - peak) % self.n_vocab) as f32) * 0.25;
        let is_broken = tokens.last().copied() == self.nan_after && self.nan_after.is_some();
        (0..self.n_vocab).map(|i| if is_broken { f32::NAN } else { logit(i) }).collect()
    }
}

/// For each step that succeeded, the runs' lengths in order.
pub(crate) type StepLog = Arc<Mutex<Vec<Vec<usize>>>>;

pub(crate) struct FakeExecutable {
    toy: Toy,
    sequences: BTreeMap<SequenceId, Vec<u32>>,
    n_opened: u32,
    n_steps: usize,
    logits: FakeLogits,
    log: StepLog,
    /// What a step does beside computing.
    pub(crate) meanwhile: Box<dyn FnMut() + Send>,
}

impl FakeExecutable {
    pub(crate) fn new(toy: Toy) -> (Box<Self>, StepLog) {
        let log = StepLog::default();
        let logits = FakeLogits { n_vocab: toy.n_vocab, rows: Vec::new() };
        let sequences = BTreeMap::new();
        let executable = FakeExecutable {
            toy,
            sequences,
            n_opened: 0,
            n_steps: 0,
            logits,
            log: log.clone(),
            meanwhile: Box::new(|| ()),
        };
        (Box::new(executable), log)
    }

    fn check(&self, run: &TokenRun<'_>) -> Result<(), RunError> {
        let held = self.sequences.get(&run.sequence).ok_or(RunError::UnknownSequence(run.sequence.0))?;
        if run.tokens.is_empty() {
            return Err(RunError::Empty);
        }
        if let Some(token) = run.tokens.iter().find(|token| Some(**token) == self.toy.refused_token) {
            return Err(RunError::Token { token: *token, n_vocab: self.toy.n_vocab });
        }
        let (len, new, limit) = (held.len(), run.tokens.len(), self.toy.context_tokens);
        if len + new > limit { Err(RunError::Context { len, new, limit }) } else { Ok(()) }
    }
}

impl Executable for FakeExecutable {
    fn n_vocab(&self) -> usize {
        self.toy.n_vocab
    }

    fn signatures(&self) -> Vec<String> {
        Vec::new()
    }

    fn memory(&self) -> MemoryPlan {
        MemoryPlan { state_bytes: self.sequences.len() as u64, ..MemoryPlan::default() }
    }

    fn new_sequence(&mut self) -> Result<SequenceId, DeviceError> {
        if self.sequences.len() == self.toy.max_sequences {
            return Err(DeviceError::TooManySequences { limit: self.toy.max_sequences });
        }
        self.n_opened += 1;
        self.sequences.insert(SequenceId(self.n_opened), Vec::new());
        Ok(SequenceId(self.n_opened))
    }

    fn new_sequence_stored(&mut self, _: KvStorage) -> Result<SequenceId, DeviceError> {
        self.new_sequence()
    }

    fn sequence_signatures(&self, sequence: SequenceId) -> Result<Vec<String>, DeviceError> {
        self.len(sequence).map(|_| Vec::new())
    }

    fn plan_runs(&self) -> PlanRuns {
        PlanRuns { specialised: self.n_steps as u64, general: 0 }
    }

    fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, DeviceError> {
        let tokens =
            self.sequences.get(&sequence).cloned().ok_or(DeviceError::UnknownSequence(sequence.0))?;
        let forked = self.new_sequence()?;
        self.sequences.insert(forked, tokens);
        Ok(forked)
    }

    fn trim(&mut self, sequence: SequenceId, n_tokens: usize) -> Result<(), DeviceError> {
        let tokens = self.sequences.get_mut(&sequence).ok_or(DeviceError::UnknownSequence(sequence.0))?;
        if self.toy.is_append_only || n_tokens > tokens.len() {
            return Err(DeviceError::Trim { len: tokens.len(), n_tokens, why: "planted" });
        }
        tokens.truncate(tokens.len() - n_tokens);
        Ok(())
    }

    fn release(&mut self, sequence: SequenceId) {
        self.sequences.remove(&sequence);
    }

    fn len(&self, sequence: SequenceId) -> Result<usize, DeviceError> {
        self.sequences.get(&sequence).map(Vec::len).ok_or(DeviceError::UnknownSequence(sequence.0))
    }

    fn step(&mut self, runs: &[TokenRun<'_>]) -> Result<&dyn Logits, DeviceError> {
        let (found, limit) = (runs.iter().map(|run| run.tokens.len()).sum(), self.toy.max_step_tokens);
        if found > limit {
            return Err(DeviceError::StepTooLarge { found, limit });
        }
        for (index, run) in runs.iter().enumerate() {
            self.check(run).map_err(|kind| DeviceError::Run { index, kind })?;
        }
        (self.meanwhile)();
        self.n_steps += 1;
        if self.toy.failing_step == Some(self.n_steps - 1) {
            return Err(DeviceError::Memory { needed: 2, limit: 1, detail: "planted".to_owned() });
        }
        self.logits.rows.clear();
        for run in runs {
            let tokens = self.sequences.get_mut(&run.sequence).expect("checked");
            tokens.extend_from_slice(run.tokens);
            assert_ne!(run.logits, LogitsFor::All, "the engine never asks for that");
            if run.logits == LogitsFor::Last {
                self.logits.rows.push(self.toy.logits(tokens));
            }
        }
        self.log
            .lock()
            .expect("no test panics with it")
            .push(runs.iter().map(|run| run.tokens.len()).collect());
        Ok(&self.logits)
    }
}

/// Rows of logits on the host.
pub(crate) struct FakeLogits {
    pub(crate) n_vocab: usize,
    pub(crate) rows: Vec<Vec<f32>>,
}

impl Logits for FakeLogits {
    fn n_rows(&self) -> usize {
        self.rows.len()
    }

    fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    fn read(&self, row: usize, out: &mut Vec<f32>) {
        out.clone_from(&self.rows[row]);
    }

    fn argmax(&self, row: usize) -> Option<u32> {
        argmax(&self.rows[row])
    }

    fn top(&self, row: usize, n: usize) -> Vec<(u32, f32)> {
        top(&self.rows[row], n)
    }
}
