//! What thirty-two requests with a policy each add to a step of the engine.
//!
//! The device is one that takes two milliseconds and computes nothing, as one does whose work is elsewhere: policies
//! that read no logits are asked meanwhile. Engines with and without policies step in turn, and what is told is the
//! difference within a turn.

use std::time::{Duration, Instant};

use guests::measure::Times;
use guests::{Row, numbers};
use host_core::SamplingSettings;
use host_device::{DeviceError, Executable, KvStorage, Logits, MemoryPlan, PlanRuns, SequenceId, TokenRun};
use host_engine::{Engine, EngineOptions, Outcome, Request};
use host_plugins::{Grants, SamplingPolicy};

use crate::figure::{Figure, Report};
use crate::policies::{N_VOCAB, Twins};

const ROWS: usize = 32;
const TURNS: usize = 1_000;
/// The first steps warm caches.
const WARM: usize = 50;
const STEP: Duration = Duration::from_millis(2);
/// What thirty-two requests may add.
const TARGET_US: f64 = 30.0;

pub(crate) fn measure(title: &str, twins: &Twins, report: &mut Report) {
    for (runtime, policy) in twins.both() {
        let mut engines = [decoding(None), decoding(Some(policy))];
        let mut added = Vec::with_capacity(TURNS);
        // Differences go both ways; they are kept above zero while they are sorted.
        let shift = Duration::from_secs(10);
        for turn in 0..TURNS {
            let mut times = [Duration::ZERO; 2];
            for at in [turn % 2, 1 - turn % 2] {
                let begun = Instant::now();
                let events = engines[at].step();
                times[at] = begun.elapsed();
                assert!(
                    events.iter().all(|event| !matches!(event.outcome, Outcome::Failed(_))),
                    "{events:?}"
                );
            }
            added.push((shift + times[1]).saturating_sub(times[0]));
        }
        let times = Times::new(added.split_off(WARM));
        let figure = Figure::new(title, runtime, &times, &[("p50", TARGET_US)]);
        report.add(figure.less(shift.as_secs_f64() * 1e6));
    }
}

fn decoding(policy: Option<&dyn SamplingPolicy>) -> Engine {
    let options = EngineOptions { context_tokens: 2 * TURNS, max_step_tokens: ROWS };
    let mut engine = Engine::new(Box::new(Elsewhere::new()), options);
    for _ in 0..ROWS {
        let policy = policy.map(|policy| policy.open("{}", numbers(N_VOCAB), &Grants::default()).unwrap());
        let request = Request { policy, ..Request::new(vec![1], 2 * TURNS, SamplingSettings::GREEDY) };
        engine.submit(request).unwrap();
    }
    engine
}

/// A device that takes its time elsewhere; every row of its logits is the one.
struct Elsewhere {
    logits: Row,
    n_sequences: u32,
}

impl Elsewhere {
    fn new() -> Self {
        let row = (0..N_VOCAB).map(|id| (id % 251) as f32).collect();
        Elsewhere { logits: Row(row), n_sequences: 0 }
    }
}

impl Executable for Elsewhere {
    fn n_vocab(&self) -> usize {
        N_VOCAB as usize
    }

    fn signatures(&self) -> Vec<String> {
        Vec::new()
    }

    fn memory(&self) -> MemoryPlan {
        MemoryPlan::default()
    }

    fn new_sequence(&mut self) -> Result<SequenceId, DeviceError> {
        self.n_sequences += 1;
        Ok(SequenceId(self.n_sequences))
    }

    fn new_sequence_stored(&mut self, _: KvStorage) -> Result<SequenceId, DeviceError> {
        self.new_sequence()
    }

    fn sequence_signatures(&self, _: SequenceId) -> Result<Vec<String>, DeviceError> {
        Ok(Vec::new())
    }

    fn plan_runs(&self) -> PlanRuns {
        PlanRuns::default()
    }

    fn fork(&mut self, _: SequenceId) -> Result<SequenceId, DeviceError> {
        self.new_sequence()
    }

    fn trim(&mut self, _: SequenceId, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn release(&mut self, _: SequenceId) {}

    fn len(&self, _: SequenceId) -> Result<usize, DeviceError> {
        Ok(0)
    }

    fn step(&mut self, _: &[TokenRun<'_>]) -> Result<&dyn Logits, DeviceError> {
        let begun = Instant::now();
        while begun.elapsed() < STEP {
            std::hint::spin_loop();
        }
        Ok(&self.logits)
    }
}
