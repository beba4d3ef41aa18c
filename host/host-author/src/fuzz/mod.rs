//! `plugin fuzz`: what cases do not think of. Everything is drawn from one seed; what is found becomes a trace.

mod graph;
mod policy;
mod quant;
mod rng;

pub(crate) use graph::judge_build;
pub(crate) use policy::outcome as step_outcome;
pub(crate) use quant::judge_plan;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use host_core::Report;
use host_plugins::{Kind, PluginPackage};
use serde::Serialize;

use crate::error::AuthorError;
use crate::project::Project;
use crate::tools::Tools;
use crate::trace::{Body, Trace};

/// How long, and from which seed.
#[derive(Clone, Copy, Debug)]
pub struct FuzzOptions {
    /// The run ends when this has passed, or at the first finding.
    pub time: Duration,
    /// Everything that is drawn follows from it.
    pub seed: u64,
}

/// What a run did.
#[derive(Debug, Serialize)]
pub struct Fuzzed {
    /// The seed.
    pub seed: u64,
    /// Sequences of steps, builds or plans.
    pub sequences: u64,
    /// Steps of a policy, counted over all sequences; as many as sequences for other kinds.
    pub steps: u64,
    /// What was found, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<Finding>,
}

/// What does not hold, and the trace that shows it.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// What does not hold.
    pub report: Report,
    /// The trace, in the folder `traces` of the plugin's.
    pub trace: PathBuf,
}

/// One sequence: how many steps it had, and what was found with everything that led there.
struct Sequence {
    steps: u64,
    finding: Option<(Report, Body)>,
}

impl Project {
    /// Fuzzes the plugin; `progress` hears the share of the time that has passed and the steps so far.
    ///
    /// # Errors
    /// [`AuthorError`] for a plugin that cannot be opened, cases that cannot be read, a trace that cannot be written.
    pub fn fuzz(
        &self,
        tools: &Tools,
        options: FuzzOptions,
        progress: &mut dyn FnMut(f64, u64),
    ) -> Result<Fuzzed, AuthorError> {
        let package = self.package()?;
        let run = |sequence: &dyn Fn(u64) -> Sequence, progress: &mut dyn FnMut(f64, u64)| {
            self.run_sequences(&package, options, sequence, progress)
        };
        match self.manifest().kind {
            Kind::SamplingPolicy => {
                let subject = policy::Subject::new(self, tools, &package)?;
                run(&|n| subject.sequence(options.seed, n), progress)
            }
            Kind::ModelGraph => {
                let subject = graph::Subject::new(self, tools, &package)?;
                run(&|n| subject.sequence(options.seed, n), progress)
            }
            Kind::QuantProfile => {
                let subject = quant::Subject::new(self, tools, &package)?;
                run(&|n| subject.sequence(options.seed, n), progress)
            }
            Kind::Pipeline => unreachable!("no manifest of this kind is read"),
        }
    }

    fn run_sequences(
        &self,
        package: &PluginPackage,
        options: FuzzOptions,
        sequence: &dyn Fn(u64) -> Sequence,
        progress: &mut dyn FnMut(f64, u64),
    ) -> Result<Fuzzed, AuthorError> {
        let started = Instant::now();
        let mut fuzzed = Fuzzed { seed: options.seed, sequences: 0, steps: 0, finding: None };
        // At least one sequence, however short the time.
        while fuzzed.sequences == 0 || started.elapsed() < options.time {
            let Sequence { steps, finding } = sequence(fuzzed.sequences);
            fuzzed.sequences += 1;
            fuzzed.steps += steps;
            progress(started.elapsed().as_secs_f64() / options.time.as_secs_f64().max(1e-9), fuzzed.steps);
            if let Some((report, body)) = finding {
                let trace = self.keep(package, &report, body, options.seed)?;
                fuzzed.finding = Some(Finding { report, trace });
                break;
            }
        }
        Ok(fuzzed)
    }

    fn keep(
        &self,
        package: &PluginPackage,
        report: &Report,
        body: Body,
        seed: u64,
    ) -> Result<PathBuf, AuthorError> {
        let path = self.folder().join("traces").join(format!("fuzz-{seed}.json"));
        Trace::new(package, Some(report), body).write(&path)?;
        Ok(path)
    }
}
