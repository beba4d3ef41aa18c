//! The flags of `tenon graph`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(super) const GRAPH_EXAMPLES: &str = "\
A plugin builds a model's graph anew each time the model is opened. A frozen graph was built once,
for one config.json, and lies in the folder `graphs` of a folder of profiles. A profile that names
it opens the model without any plugin; for another model, or when the file changed, it is refused,
and no plugin is tried instead.

Examples:
  tenon graph show model.gguf
  tenon graph freeze model.gguf     # writes graphs/PROFILE.graph, prints the line for a profile
  tenon graph freeze ./folder -o profiles/graphs/my-model.graph
  tenon graph check profiles/graphs/my-model.graph model.gguf
  tenon graph diff profiles/graphs/my-model.graph model.gguf

In a profile:
  [compose]
  graph = { frozen = \"my-model\", digest = \"…\" }   # in place of { plugin = …, version = … }";

#[derive(Args, Debug)]
pub(crate) struct GraphArgs {
    #[command(subcommand)]
    pub(crate) command: GraphCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GraphCommand {
    /// Print a graph's canonical text
    Show(ShowArgs),
    /// Write the graph of a model into a file that a profile can name
    Freeze(FreezeArgs),
    /// Prove that a frozen graph is what its file says, and fits a model
    Check(CheckArgs),
    /// Print where two graphs differ; the exit code is 1 when they do
    Diff(DiffArgs),
}

impl GraphCommand {
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            GraphCommand::Show(args) => args.json,
            GraphCommand::Freeze(args) => args.json,
            GraphCommand::Check(args) => args.json,
            GraphCommand::Diff(args) => args.json,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// The model: a folder, a GGUF file, hf:OWNER/NAME or pip:PACKAGE==VERSION; or a frozen graph, FILE.graph
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    /// Use this profile's graph instead of that of the profile that fits
    #[arg(long, short, value_name = "ID")]
    pub(crate) profile: Option<String>,
    /// Print the fingerprint alone
    #[arg(long)]
    pub(crate) fingerprint: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct FreezeArgs {
    /// The model: a folder, a GGUF file, hf:OWNER/NAME or pip:PACKAGE==VERSION
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    /// The file; its name without `.graph` is the graph's [default: `graphs/PROFILE.graph` in the first folder of
    /// profiles]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Use this profile's plugin instead of that of the profile that fits
    #[arg(long, short, value_name = "ID")]
    pub(crate) profile: Option<String>,
    /// Take the place of a file with another graph
    #[arg(long)]
    pub(crate) replace: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// A file that `tenon graph freeze` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The model that it must fit
    #[arg(value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// A model, or a frozen graph, FILE.graph
    #[arg(value_name = "ONE")]
    pub(crate) one: String,
    /// Another
    #[arg(value_name = "OTHER")]
    pub(crate) other: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
