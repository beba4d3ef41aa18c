//! What ends a command, and the errors that only the program itself can make.

use std::io;
use std::path::PathBuf;

use host_core::{Report, Reported};

/// Why a command ended; the first report decides the exit code.
pub(crate) use host_service::Failure;

/// An error of the program itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("there is no prompt")]
    NoPrompt,
    #[error("the prompt is not UTF-8")]
    PromptEncoding,
    #[error("`{flag}` is {found}")]
    Value { flag: &'static str, expected: &'static str, found: String },
    #[error("`{flag}` has nothing to act on: the profile gives a sampling chain")]
    FlagBesideChain { flag: &'static str },
    #[error("there is no policy to record")]
    NothingToRecord,
    #[error("a folder of {what} is not there")]
    NoFolder { what: &'static str, path: PathBuf, flag: &'static str, variable: &'static str },
    #[error("`{path}` cannot be {act}", path = .path.display())]
    File { act: &'static str, path: PathBuf, source: io::Error },
    #[error("`{path}` cannot become a new folder", path = .path.display())]
    OutTaken { path: PathBuf },
    #[error("`{path}` holds another graph", path = .path.display())]
    GraphTaken { path: PathBuf },
    #[error("the standard {stream} failed")]
    Stream { stream: &'static str, source: io::Error },
    #[error("the terminal failed")]
    Terminal { source: rustyline::error::ReadlineError },
    #[error("the folder of this program is not known")]
    NoProgramFolder { source: io::Error },
    #[error("the engine does not start")]
    Engine { source: io::Error },
    #[error("no folder of profiles has the budget of pipelines")]
    NoBudget { folders: Vec<PathBuf> },
    #[error("Ctrl-C cannot be watched for")]
    Signals { source: ctrlc::Error },
}

impl Reported for CliError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            CliError::FlagBesideChain { flag } => Report::new("usage.flag-beside-chain", text)
                .expected("a profile with the flat keys under [sampling]")
                .found(*flag)
                .mend("leave the flag out, or change the chain in the profile"),
            CliError::NothingToRecord => Report::new("usage.no-policy", text)
                .expected("a policy in what is composed, beside --record-policy")
                .mend("name one with --policy, or a profile with `policy` under [sampling]"),
            CliError::NoPrompt => Report::new("usage.no-prompt", text)
                .expected("a prompt as the last argument, on standard input, or --prompt-ids")
                .mend("tenon generate --model SOURCE \"What is a tenon?\""),
            CliError::PromptEncoding => Report::new("usage.prompt-encoding", text)
                .expected("UTF-8 on standard input")
                .mend("convert it, or give token ids with --prompt-ids"),
            CliError::Value { expected, found, .. } => {
                Report::new("usage.value", text).expected(*expected).found(found).mend("give another value")
            }
            CliError::NoFolder { path, flag, variable, .. } => Report::new("usage.no-folder", text)
                .expected("a folder")
                .found(format!("nothing at {}", path.display()))
                .mend(format!(
                    "build the plugins with `cargo xtask plugins`, or name a folder with {flag} or {variable}"
                )),
            CliError::File { source, .. } => Report::new("cli.file", text).found(source.to_string()),
            CliError::OutTaken { .. } => Report::new("usage.out-taken", text)
                .expected("a name that is free")
                .mend("remove what stands there, or choose another name"),
            CliError::GraphTaken { .. } => Report::new("usage.graph-taken", text)
                .expected("a name that is free, or the same graph")
                .mend("choose another name with --out, or pass --replace: profiles that pin the old one will refuse it"),
            CliError::Stream { source, .. } => Report::new("cli.stream", text)
                .expected("a stream that stays open and, for output, has room behind it")
                .found(source.to_string())
                .mend("free some space where it leads, or lead it elsewhere"),
            CliError::Terminal { source } => Report::new("cli.terminal", text).found(source.to_string()),
            CliError::NoProgramFolder { source } => Report::new("cli.program-folder", text)
                .found(source.to_string())
                .mend("name the folders with --plugins and --profiles"),
            CliError::Engine { source } => Report::new("cli.engine", text).found(source.to_string()),
            CliError::NoBudget { folders } => {
                let shown: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
                Report::new("usage.no-budget", text)
                    .expected("pipelines/budget.toml in a folder of profiles, or --budget FILE")
                    .found(shown.join(", "))
                    .mend("copy profiles/pipelines/budget.toml, or name a file with --budget")
            }
            CliError::Signals { source } => Report::new("cli.signals", text).found(source.to_string()),
        }
    }
}

impl CliError {
    /// For `map_err` on reading and writing files.
    pub(crate) fn file(act: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> CliError {
        let path = path.to_owned();
        move |source| CliError::File { act, path, source }
    }
}
