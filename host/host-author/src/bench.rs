//! `plugin bench`: what the plugin costs, against what it may cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use host_core::Report;
use host_plugins::{Budget, Kind, PluginPackage};
use serde::Serialize;

use crate::case::graph::{Expected, GraphCase};
use crate::case::policy::PolicyCase;
use crate::case::quant::QuantCase;
use crate::case::{self, Placed};
use crate::error::AuthorError;
use crate::judge::{self, Next};
use crate::life::Stage;
use crate::project::{CASES, Project};
use crate::test::graph::build;
use crate::test::quant::{QuantInput, plan};
use crate::tools::Tools;
use crate::vocabulary::FakeVocabulary;

/// Width of the logits while a policy is measured: that of a small model.
const N_VOCAB: u32 = 49_152;
/// Steps of one request, after which another is opened.
const REQUEST_STEPS: usize = 64;
/// Rows of logits that steps take turns with.
const N_ROWS: u64 = 8;
/// What runs before the clock counts.
const WARM_UP: usize = 20;

/// How much is measured, and what the author allows.
#[derive(Clone, Copy, Debug)]
pub struct BenchOptions {
    /// The measurement ends when this has passed, or with `calls`.
    pub time: Duration,
    /// Calls at most.
    pub calls: usize,
    /// The most that the median may take.
    pub max_p50_us: Option<f64>,
    /// The most that 99 of 100 calls may take.
    pub max_p99_us: Option<f64>,
}

/// What a plugin costs. Times are in microseconds.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// What was measured: `step`, `build` or `plan`.
    pub hook: &'static str,
    /// How often.
    pub calls: usize,
    /// The median.
    pub p50_us: f64,
    /// 99 of 100 calls take no longer.
    pub p99_us: f64,
    /// 999 of 1000 calls take no longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// The median of opening: an instance for a request; of other kinds, everything from bytes to ready.
    pub open_us: f64,
    /// What the host allows one call.
    pub budget_us: f64,
    /// What goes beyond its bound; empty for a plugin that keeps them all.
    pub over: Vec<Report>,
}

impl Project {
    /// Measures the plugin with the input of its first case that is not refused.
    ///
    /// # Errors
    /// [`AuthorError`] for a plugin that cannot be opened or that fails on its own case, and for cases that cannot be
    /// read.
    pub fn bench(&self, tools: &Tools, options: BenchOptions) -> Result<Measured, AuthorError> {
        let package = self.package()?;
        let budget = Budget::default();
        let (hook, times) = match self.manifest().kind {
            Kind::SamplingPolicy => ("step", self.bench_policy(tools, &package, options)?),
            Kind::ModelGraph => ("build", self.bench_graph(tools, &package, options)?),
            Kind::QuantProfile => ("plan", self.bench_quant(tools, &package, options)?),
            Kind::Pipeline => unreachable!("no manifest of this kind is read"),
        };
        Ok(times.measured(hook, budget.time_ms(hook) as f64 * 1e3, options))
    }

    fn no_cases(&self) -> AuthorError {
        AuthorError::NoCases { folder: self.folder().join(CASES) }
    }

    fn bench_policy(
        &self,
        tools: &Tools,
        package: &PluginPackage,
        options: BenchOptions,
    ) -> Result<Times, AuthorError> {
        let policy = tools.policy(package, Budget::default())?;
        let cases = case::read_all::<PolicyCase>(self.folder())?;
        let placed =
            cases.iter().find(|placed| placed.case.refused.is_none()).ok_or_else(|| self.no_cases())?;
        let family = *placed.case.vocabularies.first().ok_or_else(|| self.no_cases())?;
        let vocabulary = FakeVocabulary::new(family).padded_to(N_VOCAB);
        let prompt = placed.prompt(&vocabulary)?;
        let stage = Stage {
            policy: &*policy,
            vocabulary: Arc::new(vocabulary),
            params: placed.case.params_text(),
            grants: placed.case.grants(),
            seed: placed.case.seed,
        };
        let rows: Vec<_> = (0..N_ROWS)
            .map(|position| judge::row_at(placed.case.logits_seed, position as usize, N_VOCAB))
            .collect();
        let mut times = Times::new(options);
        while times.goes_on() {
            let began = Instant::now();
            let mut actor = stage.open(prompt.len())?;
            times.open.push(began.elapsed());
            let mut accepted = prompt.clone();
            for row in rows.iter().cycle().take(REQUEST_STEPS) {
                let (edits, took) = actor.timed_step(&accepted, row);
                times.calls.push(took);
                let life = actor.life();
                match judge::next(&edits?, &[], life.position(), row, true) {
                    Ok(Next::Tokens(tokens)) => accepted = tokens,
                    _ => break,
                }
            }
        }
        Ok(times)
    }

    fn bench_graph(
        &self,
        tools: &Tools,
        package: &PluginPackage,
        options: BenchOptions,
    ) -> Result<Times, AuthorError> {
        let cases: Vec<Placed<GraphCase>> = case::read_all(self.folder())?;
        let mut input = None;
        for placed in &cases {
            if matches!(placed.expected()?, Expected::Graph { .. }) {
                input = input.or(Some(placed.case.input()));
            }
        }
        let input = input.ok_or_else(|| self.no_cases())?;
        let mut times = Times::new(options);
        while times.goes_on() {
            let began = Instant::now();
            let plugin = tools.graph(package, Budget::default())?;
            times.open.push(began.elapsed());
            for _ in 0..REQUEST_STEPS {
                let began = Instant::now();
                build(&*plugin, &input)?;
                times.calls.push(began.elapsed());
            }
        }
        Ok(times)
    }

    fn bench_quant(
        &self,
        tools: &Tools,
        package: &PluginPackage,
        options: BenchOptions,
    ) -> Result<Times, AuthorError> {
        let cases = case::read_all::<QuantCase>(self.folder())?;
        let placed =
            cases.iter().find(|placed| placed.case.refused.is_none()).ok_or_else(|| self.no_cases())?;
        let tensors: Vec<_> = placed.tensors()?.into_iter().map(|(tensor, _)| tensor).collect();
        let input = QuantInput { config: &placed.case.config, params: &placed.case.params };
        let mut times = Times::new(options);
        while times.goes_on() {
            let began = Instant::now();
            let plugin = tools.quant(package, Budget::default())?;
            times.open.push(began.elapsed());
            for _ in 0..REQUEST_STEPS {
                let began = Instant::now();
                plan(&*plugin, input, &tensors)?;
                times.calls.push(began.elapsed());
            }
        }
        Ok(times)
    }
}

/// What was measured so far.
struct Times {
    options: BenchOptions,
    started: Instant,
    calls: Vec<Duration>,
    open: Vec<Duration>,
}

impl Times {
    fn new(options: BenchOptions) -> Self {
        Times { options, started: Instant::now(), calls: Vec::new(), open: Vec::new() }
    }

    /// At least one round runs, however short the time.
    fn goes_on(&self) -> bool {
        self.calls.len() < self.options.calls + WARM_UP
            && (self.calls.is_empty() || self.started.elapsed() < self.options.time)
    }

    fn measured(mut self, hook: &'static str, budget_us: f64, options: BenchOptions) -> Measured {
        let warm_up = WARM_UP.min(self.calls.len() / 2);
        let mut calls = self.calls.split_off(warm_up);
        calls.sort_unstable();
        self.open.sort_unstable();
        let at = |sorted: &[Duration], share: f64| {
            let i = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len());
            sorted[i - 1].as_secs_f64() * 1e6
        };
        let mut measured = Measured {
            hook,
            calls: calls.len(),
            p50_us: at(&calls, 0.5),
            p99_us: at(&calls, 0.99),
            p999_us: at(&calls, 0.999),
            max_us: at(&calls, 1.0),
            open_us: at(&self.open, 0.5),
            budget_us,
            over: Vec::new(),
        };
        let bounds = [
            ("p50", measured.p50_us, options.max_p50_us),
            ("p99", measured.p99_us, options.max_p99_us),
            ("p99.9", measured.p999_us, Some(budget_us)),
        ];
        for (name, found, bound) in bounds {
            if let Some(bound) = bound.filter(|bound| found > *bound) {
                measured.over.push(
                    Report::new("author.over-budget", format!("{name} of `{hook}` is over its bound"))
                        .expected(format!("at most {bound:.1} us"))
                        .found(format!("{found:.1} us"))
                        .mend("do less in each call, or ask for less of the logits"),
                );
            }
        }
        measured
    }
}
