//! A compiled model as the host sees it: checks a step, sends it to the worker, and reads what it tells.

use std::collections::HashSet;

use host_device::{
    DeviceError, Executable, KvStorage, Logits, LogitsFor, MemoryPlan, PlanRuns, RunError, SequenceId,
    TokenRun, top,
};

use crate::model::{Model, Run, Told, Wants};
use crate::worker::Worker;

/// See the module.
pub(crate) struct MlxExecutable {
    worker: Worker<Model>,
    n_vocab: usize,
    signatures: Vec<String>,
    memory: MemoryPlan,
    context_tokens: usize,
    max_step_tokens: usize,
    /// Tokens of each sequence; free places are `None`.
    lengths: Vec<Option<usize>>,
    told: Told,
    n_logit_rows: usize,
    n_steps: u64,
}

/// What does not change while it runs.
pub(crate) struct Facts {
    pub(crate) n_vocab: usize,
    pub(crate) signatures: Vec<String>,
    pub(crate) memory: MemoryPlan,
    pub(crate) context_tokens: usize,
    pub(crate) max_step_tokens: usize,
    pub(crate) max_sequences: usize,
}

impl MlxExecutable {
    pub(crate) fn new(model: Model, facts: Facts) -> Result<Self, DeviceError> {
        Ok(MlxExecutable {
            worker: Worker::new(model)?,
            n_vocab: facts.n_vocab,
            signatures: facts.signatures,
            memory: facts.memory,
            context_tokens: facts.context_tokens,
            max_step_tokens: facts.max_step_tokens,
            lengths: vec![None; facts.max_sequences],
            told: Told::default(),
            n_logit_rows: 0,
            n_steps: 0,
        })
    }

    fn length(&self, sequence: SequenceId) -> Result<usize, DeviceError> {
        let found = self.lengths.get(sequence.0 as usize).copied().flatten();
        found.ok_or(DeviceError::UnknownSequence(sequence.0))
    }

    fn free_place(&self) -> Result<usize, DeviceError> {
        let limit = self.lengths.len();
        self.lengths.iter().position(Option::is_none).ok_or(DeviceError::TooManySequences { limit })
    }

    fn check(&self, runs: &[TokenRun<'_>]) -> Result<(), DeviceError> {
        let found = runs.iter().map(|run| run.tokens.len()).sum();
        if found > self.max_step_tokens {
            return Err(DeviceError::StepTooLarge { found, limit: self.max_step_tokens });
        }
        let mut seen = HashSet::new();
        for (index, run) in runs.iter().enumerate() {
            self.check_run(run, &mut seen).map_err(|kind| DeviceError::Run { index, kind })?;
        }
        Ok(())
    }

    fn check_run(&self, run: &TokenRun<'_>, seen: &mut HashSet<SequenceId>) -> Result<(), RunError> {
        let id = run.sequence.0;
        let len = self.length(run.sequence).map_err(|_| RunError::UnknownSequence(id))?;
        if !seen.insert(run.sequence) {
            return Err(RunError::Twice(id));
        }
        let (new, limit, n_vocab) = (run.tokens.len(), self.context_tokens, self.n_vocab);
        if new == 0 {
            return Err(RunError::Empty);
        }
        if len + new > limit {
            return Err(RunError::Context { len, new, limit });
        }
        match run.tokens.iter().find(|token| **token as usize >= n_vocab) {
            Some(token) => Err(RunError::Token { token: *token, n_vocab }),
            None => Ok(()),
        }
    }
}

impl Executable for MlxExecutable {
    fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    fn signatures(&self) -> Vec<String> {
        self.signatures.clone()
    }

    fn memory(&self) -> MemoryPlan {
        self.memory
    }

    fn new_sequence(&mut self) -> Result<SequenceId, DeviceError> {
        let place = self.free_place()?;
        self.worker.call(move |model| model.start(place as u32))??;
        self.lengths[place] = Some(0);
        Ok(SequenceId(place as u32))
    }

    fn new_sequence_stored(&mut self, kv: KvStorage) -> Result<SequenceId, DeviceError> {
        let is_planned = |signature: &String| !is_plain(signature) || signature == kv.signature();
        if self.signatures.iter().all(is_planned) {
            return self.new_sequence();
        }
        Err(DeviceError::Unsupported {
            device: crate::DEVICE_ID,
            what: format!("a sequence stored as {}", kv.signature()),
            has: "one way of storing keys and values for all sequences".to_owned(),
        })
    }

    fn sequence_signatures(&self, sequence: SequenceId) -> Result<Vec<String>, DeviceError> {
        self.length(sequence).map(|_| self.signatures.clone())
    }

    fn plan_runs(&self) -> PlanRuns {
        PlanRuns { specialised: self.n_steps, general: 0 }
    }

    fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, DeviceError> {
        let len = self.length(sequence)?;
        let place = self.free_place()?;
        self.worker.call(move |model| model.fork(sequence.0, place as u32))??;
        self.lengths[place] = Some(len);
        Ok(SequenceId(place as u32))
    }

    fn trim(&mut self, sequence: SequenceId, n_tokens: usize) -> Result<(), DeviceError> {
        let len = self.length(sequence)?;
        let refuse = |why| Err(DeviceError::Trim { len, n_tokens, why });
        let Some(left) = len.checked_sub(n_tokens) else { return refuse("it does not hold that many") };
        if n_tokens == 0 {
            return Ok(());
        }
        if !self.worker.call(move |model| model.trim(sequence.0, left))?? {
            return refuse("it keeps a state that cannot go back so far");
        }
        self.lengths[sequence.0 as usize] = Some(left);
        Ok(())
    }

    fn release(&mut self, sequence: SequenceId) {
        if self.length(sequence).is_ok() {
            self.lengths[sequence.0 as usize] = None;
            // A worker that has ended holds nothing any more.
            let _ = self.worker.call(move |model| model.release(sequence.0));
        }
    }

    fn len(&self, sequence: SequenceId) -> Result<usize, DeviceError> {
        self.length(sequence)
    }

    fn step(&mut self, runs: &[TokenRun<'_>]) -> Result<&dyn Logits, DeviceError> {
        self.check(runs)?;
        let sent: Vec<Run> = runs.iter().map(Run::from).collect();
        self.n_logit_rows = sent
            .iter()
            .map(|run| match run.wants {
                Wants::None => 0,
                Wants::Last => 1,
                Wants::All => run.tokens.len(),
            })
            .sum();
        self.told = if sent.is_empty() {
            Told::default()
        } else {
            self.worker.call(move |model| model.step(&sent))??
        };
        self.n_steps += 1;
        for run in runs {
            if let Some(Some(len)) = self.lengths.get_mut(run.sequence.0 as usize) {
                *len += run.tokens.len();
            }
        }
        Ok(self)
    }
}

/// Whether a signature is that of plain keys and values.
fn is_plain(signature: &str) -> bool {
    KvStorage::PLAIN.iter().any(|(_, known)| *known == signature)
}

impl From<&TokenRun<'_>> for Run {
    fn from(run: &TokenRun<'_>) -> Self {
        let wants = match run.logits {
            LogitsFor::None => Wants::None,
            LogitsFor::Last => Wants::Last,
            LogitsFor::All => Wants::All,
        };
        Run { sequence: run.sequence.0, tokens: run.tokens.to_vec(), wants }
    }
}

impl Logits for MlxExecutable {
    fn n_rows(&self) -> usize {
        self.n_logit_rows
    }

    fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// A row that cannot be read any more is a row of NaN, which every sampler refuses.
    fn read(&self, row: usize, out: &mut Vec<f32>) {
        assert!(row < self.n_logit_rows, "a row of the last step's logits");
        out.clear();
        match self.worker.call(move |model| model.read(row)) {
            Ok(Ok(logits)) => out.extend(logits),
            _ => out.resize(self.n_vocab, f32::NAN),
        }
    }

    fn argmax(&self, row: usize) -> Option<u32> {
        self.told.largest[row]
    }

    fn top(&self, row: usize, n: usize) -> Vec<(u32, f32)> {
        let mut logits = Vec::new();
        self.read(row, &mut logits);
        top(&logits, n)
    }
}
