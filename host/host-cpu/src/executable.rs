//! A compiled model with its sequences: checks a step, sets up its frame, and runs the plan.
#![expect(unsafe_code, reason = "hands parts of its own regions to the plan's instructions")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use host_device::{
    CompileOptions, DeviceError, Executable, KvStorage, Logits, LogitsFor, MemoryPlan, PlanRuns, RunError,
    SequenceId, TokenRun, argmax, top,
};

use crate::device::region;
use crate::exec::{Frame, KvNumbers, RunView};
use crate::features::Simd;
use crate::kernels::attention::MAX_ROWS;
use crate::lanes::LANES;
use crate::matrix::Number;
use crate::memory::Region;
use crate::plan::{Plan, StatePlace, WeightsPlan};
use crate::pool::Pool;

/// One sequence: its state, how that is stored, and how many tokens it holds.
struct Sequence {
    state: Region,
    number: Number,
    /// The identity of each slot's storage; the plan's own where it is stored as planned.
    signatures: Arc<[String]>,
    len: usize,
}

/// The model, compiled for this processor.
pub(crate) struct CpuExecutable {
    simd: Simd,
    plan: Plan,
    pool: Pool,
    weights: Region,
    constants: Region,
    arena: Region,
    logits: Region,
    scores: Region,
    counters: Vec<AtomicUsize>,
    /// Free places are `None`; a [`SequenceId`] is an index here.
    sequences: Vec<Option<Sequence>>,
    n_logit_rows: usize,
    /// How the plan stores keys and values, and the signatures that a sequence must have for it.
    kv: KvStorage,
    /// Its elements.
    kv_number: Number,
    signatures: Arc<[String]>,
    plan_runs: PlanRuns,
    memory: MemoryPlan,
    context_tokens: usize,
    max_step_tokens: usize,
}

impl CpuExecutable {
    pub(crate) fn new(
        simd: Simd,
        plan: Plan,
        pool: Pool,
        weights: Region,
        constants: Region,
        memory: MemoryPlan,
        options: &CompileOptions,
    ) -> Result<Self, DeviceError> {
        let capacity = options.context_tokens.next_multiple_of(LANES);
        let signatures = plan.signatures.clone().into();
        let executable = CpuExecutable {
            simd,
            arena: region(arena_bytes(&plan, options), true)?,
            logits: region(plan.n_vocab * options.max_step_tokens * 4, false)?,
            scores: region(options.n_threads.max(1) * MAX_ROWS * capacity * 4, false)?,
            counters: (0..plan.n_counters).map(|_| AtomicUsize::new(0)).collect(),
            sequences: (0..options.max_sequences).map(|_| None).collect(),
            plan,
            pool,
            weights,
            constants,
            n_logit_rows: 0,
            kv: options.kv,
            kv_number: number_of(options.kv)?,
            signatures,
            plan_runs: PlanRuns::default(),
            memory,
            context_tokens: options.context_tokens,
            max_step_tokens: options.max_step_tokens,
        };
        let frame = executable.frame(KvNumbers::PerRun, 0, &[], &[]);
        executable.pool.run(&|worker| {
            if worker.index == 0 {
                frame.run_once(&worker.alone());
            }
        });
        Ok(executable)
    }

    /// Bytes at full use. Pages that were never touched take no memory.
    pub(crate) fn memory_plan(plan: &Plan, sources: &WeightsPlan, options: &CompileOptions) -> MemoryPlan {
        let capacity = options.context_tokens.next_multiple_of(LANES);
        let scores = options.n_threads.max(1) * MAX_ROWS * capacity * 4;
        let logits = plan.n_vocab * options.max_sequences.min(options.max_step_tokens) * 4;
        MemoryPlan {
            weights_bytes: (sources.matrix_bytes + sources.constant_bytes) as u64,
            state_bytes: (plan.state_bytes * options.max_sequences) as u64,
            activation_bytes: (arena_bytes(plan, options) + scores + logits) as u64,
        }
    }

    fn frame<'a>(
        &'a self,
        kv: KvNumbers,
        n_tokens: usize,
        logit_tokens: &'a [usize],
        runs: &'a [RunView],
    ) -> Frame<'a> {
        Frame {
            plan: &self.plan,
            simd: self.simd,
            weights: self.weights.ptr(),
            constants: self.constants.ptr(),
            arena: self.arena.ptr(),
            logits: self.logits.ptr(),
            scores: self.scores.ptr().cast(),
            capacity: self.context_tokens.next_multiple_of(LANES),
            kv,
            n_tokens,
            logit_tokens,
            runs,
            counters: &self.counters,
        }
    }

    fn sequence(&self, id: SequenceId) -> Result<&Sequence, DeviceError> {
        self.sequences.get(id.0 as usize).and_then(Option::as_ref).ok_or(DeviceError::UnknownSequence(id.0))
    }

    fn start(&mut self, number: Number, signatures: Arc<[String]>) -> Result<SequenceId, DeviceError> {
        let place = self.free_place()?;
        let state = region(self.plan.state_bytes, false)?;
        self.sequences[place] = Some(Sequence { state, number, signatures, len: 0 });
        Ok(SequenceId(place as u32))
    }

    /// The guard of the plan's specialised form: whether every slot is stored as it was made for.
    fn is_planned(&self, sequence: &Sequence) -> bool {
        Arc::ptr_eq(&sequence.signatures, &self.signatures) || sequence.signatures == self.signatures
    }

    fn free_place(&self) -> Result<usize, DeviceError> {
        let limit = self.sequences.len();
        self.sequences.iter().position(Option::is_none).ok_or(DeviceError::TooManySequences { limit })
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
        let len = self.sequence(run.sequence).map_err(|_| RunError::UnknownSequence(id))?.len;
        if !seen.insert(run.sequence) {
            return Err(RunError::Twice(id));
        }
        let (new, limit, n_vocab) = (run.tokens.len(), self.context_tokens, self.plan.n_vocab);
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

    /// Writes token ids and positions where the plan expects them.
    fn write_inputs(&mut self, runs: &[TokenRun<'_>], views: &[RunView]) {
        let (tokens, positions) = (self.plan.tokens, self.plan.positions);
        let offsets = [tokens, positions].map(|id| self.plan.buffers[id.0].offset);
        for (run, view) in runs.iter().zip(views) {
            for (i, token) in run.tokens.iter().enumerate() {
                let at = 4 * (view.first + i);
                let values = [*token as f32, (view.past + i) as f32];
                for (offset, value) in offsets.into_iter().zip(values) {
                    self.arena.bytes_mut(offset + at, 4).copy_from_slice(&value.to_ne_bytes());
                }
            }
        }
    }
}

impl Executable for CpuExecutable {
    fn n_vocab(&self) -> usize {
        self.plan.n_vocab
    }

    fn signatures(&self) -> Vec<String> {
        self.plan.signatures.clone()
    }

    fn memory(&self) -> MemoryPlan {
        self.memory
    }

    fn new_sequence(&mut self) -> Result<SequenceId, DeviceError> {
        self.start(self.kv_number, Arc::clone(&self.signatures))
    }

    fn new_sequence_stored(&mut self, kv: KvStorage) -> Result<SequenceId, DeviceError> {
        // Slots have the plan's places whatever is in them, so smaller elements fit and larger ones do not.
        let number = number_of(kv)?;
        let (size, room) = (number.bytes(), self.kv_number.bytes());
        if size > room {
            return Err(DeviceError::Unsupported {
                device: crate::DEVICE_ID,
                what: format!(
                    "a sequence stored as {} in a plan for {}",
                    kv.signature(),
                    self.kv.signature()
                ),
                has: format!("room for elements of at most {room} bytes"),
            });
        }
        let planned = self.kv.signature();
        let stored = self.signatures.iter().map(|slot| if slot == planned { kv.signature() } else { slot });
        let signatures = stored.map(str::to_owned).collect();
        self.start(number, signatures)
    }

    fn sequence_signatures(&self, sequence: SequenceId) -> Result<Vec<String>, DeviceError> {
        Ok(self.sequence(sequence)?.signatures.to_vec())
    }

    fn plan_runs(&self) -> PlanRuns {
        self.plan_runs
    }

    fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, DeviceError> {
        let place = self.free_place()?;
        let source = self.sequence(sequence)?;
        let Sequence { number, len, .. } = *source;
        let state = region(self.plan.state_bytes, false)?;
        self.plan.copy_state(&source.state, &state, len, self.context_tokens, number);
        let signatures = Arc::clone(&source.signatures);
        self.sequences[place] = Some(Sequence { state, number, signatures, len });
        Ok(SequenceId(place as u32))
    }

    fn trim(&mut self, sequence: SequenceId, n_tokens: usize) -> Result<(), DeviceError> {
        let len = self.sequence(sequence)?.len;
        let refuse = |why| Err(DeviceError::Trim { len, n_tokens, why });
        if n_tokens > len {
            return refuse("it does not hold that many");
        }
        if !self.plan.can_trim && n_tokens > 0 && n_tokens < len {
            return refuse("it keeps a state that can only go back to the beginning");
        }
        if let Some(Some(sequence)) = self.sequences.get_mut(sequence.0 as usize) {
            sequence.len -= n_tokens;
            if sequence.len == 0 {
                self.plan.clear_state(&mut sequence.state);
            }
        }
        Ok(())
    }

    fn release(&mut self, sequence: SequenceId) {
        if let Some(place) = self.sequences.get_mut(sequence.0 as usize) {
            *place = None;
        }
    }

    fn len(&self, sequence: SequenceId) -> Result<usize, DeviceError> {
        Ok(self.sequence(sequence)?.len)
    }

    fn step(&mut self, runs: &[TokenRun<'_>]) -> Result<&dyn Logits, DeviceError> {
        self.check(runs)?;
        let mut views = Vec::with_capacity(runs.len());
        let mut logit_tokens = Vec::new();
        let mut is_planned = true;
        let mut first = 0;
        for run in runs {
            let sequence = self.sequence(run.sequence)?;
            let len = run.tokens.len();
            let (state, number, past) = (sequence.state.ptr(), sequence.number, sequence.len);
            views.push(RunView { state, number, past, first, len });
            is_planned &= self.is_planned(sequence);
            match run.logits {
                LogitsFor::None => {}
                LogitsFor::Last => logit_tokens.push(first + len - 1),
                LogitsFor::All => logit_tokens.extend(first..first + len),
            }
            first += len;
        }
        self.write_inputs(runs, &views);
        for counter in &self.counters {
            counter.store(0, Ordering::Relaxed);
        }
        let kv = if is_planned { KvNumbers::AsPlanned(self.kv_number) } else { KvNumbers::PerRun };
        let frame = self.frame(kv, first, &logit_tokens, &views);
        self.pool.run(&|worker| frame.run(worker));
        let runs_so_far = &mut self.plan_runs;
        *(if is_planned { &mut runs_so_far.specialised } else { &mut runs_so_far.general }) += 1;
        self.n_logit_rows = logit_tokens.len();
        for run in runs {
            if let Some(Some(sequence)) = self.sequences.get_mut(run.sequence.0 as usize) {
                sequence.len += run.tokens.len();
            }
        }
        Ok(self)
    }
}

impl CpuExecutable {
    fn row(&self, row: usize) -> &[f32] {
        assert!(row < self.n_logit_rows, "a row of the last step's logits");
        self.logits.floats(4 * row * self.plan.n_vocab, self.plan.n_vocab)
    }
}

impl Logits for CpuExecutable {
    fn n_rows(&self) -> usize {
        self.n_logit_rows
    }

    fn n_vocab(&self) -> usize {
        self.plan.n_vocab
    }

    fn read(&self, row: usize, out: &mut Vec<f32>) {
        out.clear();
        out.extend_from_slice(self.row(row));
    }

    fn argmax(&self, row: usize) -> Option<u32> {
        argmax(self.row(row))
    }

    fn top(&self, row: usize, n: usize) -> Vec<(u32, f32)> {
        top(self.row(row), n)
    }
}

/// The elements of keys and values.
///
/// # Errors
/// [`DeviceError::Unsupported`] for codes.
pub(crate) fn number_of(kv: KvStorage) -> Result<Number, DeviceError> {
    match kv {
        KvStorage::PlainF32 => Ok(Number::F32),
        KvStorage::PlainF16 => Ok(Number::F16),
        KvStorage::PlainBf16 => Ok(Number::Bf16),
        KvStorage::Quantised(_) => Err(DeviceError::Unsupported {
            device: crate::DEVICE_ID,
            what: format!("keys and values stored as {}", kv.signature()),
            has: "plain ones, in f32, f16 or bf16".to_owned(),
        }),
    }
}

/// Buffers of a step, then the threads' scratch for scans.
fn arena_bytes(plan: &Plan, options: &CompileOptions) -> usize {
    plan.arena_bytes + options.n_threads.max(1) * plan.scan_bytes
}

impl Plan {
    /// Copies what a sequence of `len` tokens holds, slot by slot.
    fn copy_state(&self, from: &Region, to: &Region, len: usize, context_tokens: usize, number: Number) {
        let capacity = context_tokens.next_multiple_of(LANES);
        let len = len.next_multiple_of(LANES);
        let element = number.bytes();
        let copy = |at: usize, bytes: usize| {
            // SAFETY: both regions hold a whole state, and they are distinct.
            unsafe { std::ptr::copy_nonoverlapping(from.ptr().add(at), to.ptr().add(at), bytes) }
        };
        for place in &self.places {
            match place {
                StatePlace::Kv(place) => {
                    for head in 0..place.heads {
                        for (start, dim) in [(place.keys, place.dim_k), (place.values, place.dim_v)] {
                            copy(start + head * capacity * dim * element, len * dim * element);
                        }
                    }
                }
                StatePlace::IndexKeys(place) => copy(place.keys, len * place.dim * 4),
                StatePlace::Moving { offset, len } => copy(*offset, 4 * len),
            }
        }
    }

    /// Takes a state back to the beginning: what positions do not mark as absent becomes 0.
    fn clear_state(&self, state: &mut Region) {
        for place in &self.places {
            if let StatePlace::Moving { offset, len } = place {
                state.bytes_mut(*offset, 4 * len).fill(0);
            }
        }
    }
}
