//! `cargo xtask try`: from a fresh clone to an answer in one command.

use std::process::Command;

use crate::plugins;
use crate::workspace::{self, Outcome, Workspace, say};

const PROFILE: &str = "smollm2-135m";
const QUESTION: &str = "Explain in three sentences why the sky is blue.";

/// Build the program and the plugins, fetch a small model, and let it answer.
///
/// Builds `tenon` (a few minutes the first time) and the plugins, then runs it with the profile smollm2-135m:
/// it fetches SmolLM2-135M-Instruct (94 MiB, once, with a progress bar; pip does it, so Python 3 is needed)
/// and streams an answer. Models lie in the platform's cache folder, or where TENON_CACHE says.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Open a chat instead of asking one question
    #[arg(long, conflicts_with_all = ["question", "max_tokens"])]
    chat: bool,
    /// Stop the answer after this many tokens
    #[arg(long, default_value_t = 96, value_name = "N")]
    max_tokens: u32,
    /// What to ask
    #[arg(default_value = QUESTION)]
    question: String,
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Outcome {
    say("try: this builds tenon and its plugins, fetches SmolLM2-135M-Instruct (94 MiB) and runs it");
    workspace.build_tenon()?;
    plugins::build(workspace)?;
    let mut tenon = Command::new(workspace.tenon());
    if arguments.chat {
        say("chat: type a message; end with /quit or Ctrl-D");
        return workspace::run(tenon.args(["chat", "--profile", PROFILE]));
    }
    say(format!("asking: {}", arguments.question));
    let max_tokens = arguments.max_tokens.to_string();
    workspace::run(tenon.args([
        "generate",
        "--profile",
        PROFILE,
        "--max-tokens",
        &max_tokens,
        &arguments.question,
    ]))?;
    eprintln!(
        "\nNext: `cargo xtask try --chat`, `{} --help`, `cargo xtask test`.",
        workspace.tenon().display()
    );
    Ok(())
}
