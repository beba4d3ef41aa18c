//! The command line of the author's tools.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use host_author::Language;
use host_plugins::Kind;

pub(crate) const PLUGIN_EXAMPLES: &str = "\
Examples:
  tenon plugin new my-sampler --kind sampling-policy --lang rust
  cd my-sampler
  tenon plugin build && tenon plugin check && tenon plugin test
  tenon generate --plugins .. --policy my-sampler --policy-params '{\"penalty\": 2}' --profile smollm2-135m \"Hello\"

plugin-sdk/README.md is the author's guide; a new plugin in Rust has it as sdk/README.md.

Exit codes: 0 it holds, 1 something failed or a test found something, 2 the command line is wrong,
3 a host would refuse the plugin.";

#[derive(Args, Debug)]
pub(crate) struct PluginArgs {
    #[command(subcommand)]
    pub(crate) command: PluginCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Write the folder of a new plugin, which builds and passes its tests as it is
    #[command(after_help = NEW_EXAMPLES)]
    New(NewArgs),
    /// Compile a plugin in Rust to a component, or parse one in Lua
    #[command(after_help = BUILD_EXAMPLES)]
    Build(FolderOnly),
    /// Look at everything that a host looks at before it runs a plugin
    #[command(after_help = CHECK_EXAMPLES)]
    Check(FolderOnly),
    /// Run the cases in the plugin's folder `tests`, without a model
    #[command(after_help = TEST_EXAMPLES)]
    Test(FolderOnly),
    /// Look for sequences of steps that break a promise, and keep what is found as a trace
    #[command(after_help = FUZZ_EXAMPLES)]
    Fuzz(FuzzArgs),
    /// Measure what the plugin costs, against what it may cost
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(PluginBenchArgs),
    /// Run a trace or a recorded run again and compare
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Run a shipped plugin of each kind and runtime, and tell what this machine lacks
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(PluginDoctorArgs),
}

impl PluginCommand {
    /// Whether errors, too, are to be one JSON object.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            PluginCommand::New(args) => args.json,
            PluginCommand::Fuzz(args) => args.json,
            PluginCommand::Bench(args) => args.json,
            PluginCommand::Replay(args) => args.json,
            PluginCommand::Doctor(args) => args.json,
            PluginCommand::Build(args) | PluginCommand::Check(args) | PluginCommand::Test(args) => args.json,
        }
    }
}

const NEW_EXAMPLES: &str = "\
Examples:
  tenon plugin new my-sampler --kind sampling-policy --lang rust
  tenon plugin new my-sampler --kind sampling-policy --lang lua --dir plugins

A plugin in Rust gets a copy of the SDK (sdk/), the versions it was tested with (Cargo.lock) and the compiler
(rust-toolchain.toml); one in Lua gets types for editors (tenon.d.luau). Both get cases in tests/.";

#[derive(Args, Debug)]
pub(crate) struct NewArgs {
    /// Its id and the name of its folder: lower-case letters, digits and hyphens
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What it is for
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: KindArg,
    /// The language
    #[arg(long, value_name = "LANG")]
    pub(crate) lang: LanguageArg,
    /// Where the new folder goes [default: here]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The kinds that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// Takes part in the choice of each token
    SamplingPolicy,
    /// Says what a model is
    ModelGraph,
    /// Decides how each tensor is stored
    QuantProfile,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Kind {
        match kind {
            KindArg::SamplingPolicy => Kind::SamplingPolicy,
            KindArg::ModelGraph => Kind::ModelGraph,
            KindArg::QuantProfile => Kind::QuantProfile,
        }
    }
}

/// The languages that have a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LanguageArg {
    /// Compiled to a WebAssembly component
    Rust,
    /// No compiler needed
    Lua,
}

impl From<LanguageArg> for Language {
    fn from(language: LanguageArg) -> Language {
        match language {
            LanguageArg::Rust => Language::Rust,
            LanguageArg::Lua => Language::Lua,
        }
    }
}

const BUILD_EXAMPLES: &str = "\
Examples:
  tenon plugin build
  tenon plugin build my-sampler --json

Cargo compiles the crate for wasm32-unknown-unknown; rustup adds that target where it is missing. The component goes
into the file that plugin.toml names. A script is only parsed.";

const CHECK_EXAMPLES: &str = "\
Examples:
  tenon plugin check
  tenon plugin check my-sampler --json

The manifest, sizes, the whole binary, the contract's version and world, imports, exports; a script's syntax; what a
policy says that it needs. The first thing that a host would refuse is reported, and the exit code is 3.";

const TEST_EXAMPLES: &str = "\
Examples:
  tenon plugin test
  tenon plugin test my-sampler --json

Cases are TOML files in the plugin's folder tests/. Beside what they expect, each shows that the plugin does the same
in every instance, that a fork and a rollback keep their promise, and that a call which the host refuses ends in a
clean error.";

const FUZZ_EXAMPLES: &str = "\
Examples:
  tenon plugin fuzz --seconds 30
  tenon plugin fuzz my-sampler --seed 7 --json

A policy gets sequences of steps with forks and tokens taken back, and with the params of its cases. At each step a
token must be able to follow, the claim `argmax_invariant` must hold, and a fresh instance that saw the same tokens
must do the same. Graphs and quantisation profiles get models near those of their cases, which must give a result or
a clean refusal. A finding is written into the plugin's folder traces/, and the exit code is 1.";

#[derive(Args, Debug)]
pub(crate) struct FuzzArgs {
    /// The plugin's folder [default: here]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// How long
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Everything that is drawn follows from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    number.ok_or_else(|| "expected seconds, from 0 to 86400".to_owned())
}

const BENCH_EXAMPLES: &str = "\
Examples:
  tenon plugin bench
  tenon plugin bench my-sampler --max-p50-us 5 --max-p99-us 20 --json

The input is that of the plugin's first case that is not refused; a policy's logits have the width of a small model's,
49152. Times are those of one call: a policy's step, a build, a plan. The exit code is 1 when 1 of 1000 calls takes
longer than a host allows, or a bound of yours is passed.";

#[derive(Args, Debug)]
pub(crate) struct PluginBenchArgs {
    /// The plugin's folder [default: here]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// How long at most
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Calls at most
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) calls: usize,
    /// Fail when the median takes longer
    #[arg(long, value_name = "US")]
    pub(crate) max_p50_us: Option<f64>,
    /// Fail when 1 of 100 calls takes longer
    #[arg(long, value_name = "US")]
    pub(crate) max_p99_us: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  tenon plugin replay traces/fuzz-1.json
  tenon plugin replay traces/fuzz-1.json my-sampler --json
  tenon generate --model model.gguf --policy my-sampler --record-policy run.jsonl \"Once upon a time\"
  tenon plugin replay run.jsonl my-sampler

Every act of a trace is repeated and compared with what was recorded; every step is judged as `tenon plugin fuzz` does.
The record of a run is repeated without its model, up to the first step that comes out otherwise. The exit code is 1 when
something came out otherwise or a promise is still broken.";

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// The trace, or the record that `tenon generate --record-policy` wrote
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// The plugin's folder [default: here]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  tenon plugin doctor
  tenon plugin doctor --json

The exit code is 1 when a shipped plugin does not work. What only plugins in Rust need is told and no more.";

#[derive(Args, Debug)]
pub(crate) struct PluginDoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct FolderOnly {
    /// The plugin's folder [default: here]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The folder of a plugin: the one that is named, or this one.
pub(crate) fn plugin_folder(dir: &Option<PathBuf>) -> PathBuf {
    dir.clone().unwrap_or_else(|| PathBuf::from("."))
}
