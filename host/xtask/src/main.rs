//! All automation of the workspace: `cargo xtask COMMAND`.
//!
//! Each command says what it does before it does it, runs the same programs that a person would, shows their
//! own output, and ends with one line that tells how it went. No script elsewhere does more than call this.

mod bench;
mod c_policy;
mod ci;
mod deny;
mod mlx;
mod plugins;
mod soak;
mod stubs;
mod tests_run;
mod try_it;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::{Outcome, Workspace};

/// All automation of the Tenon workspace.
///
/// New here? `cargo xtask try` builds everything, fetches a small model and streams an answer.
/// Before a commit: `cargo xtask ci`.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    // Each one's help stands at its arguments.
    Try(try_it::Arguments),
    Test(tests_run::Arguments),
    Ci(ci::Arguments),
    Plugins(plugins::Arguments),
    CPolicy(c_policy::Arguments),
    Deny(deny::Arguments),
    Bench(bench::Arguments),
    Soak(soak::Arguments),
    Stubs(stubs::Arguments),
    Mlx(mlx::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\n{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Outcome {
    let workspace = Workspace::find()?;
    match command {
        Command::Try(arguments) => try_it::run(&workspace, &arguments),
        Command::Test(arguments) => tests_run::run(&workspace, &arguments),
        Command::Ci(arguments) => ci::run(&workspace, &arguments),
        Command::Plugins(arguments) => plugins::run(&workspace, &arguments),
        Command::CPolicy(arguments) => c_policy::run(&workspace, &arguments),
        Command::Deny(_) => deny::run(&workspace),
        Command::Bench(arguments) => bench::run(&workspace, &arguments),
        Command::Soak(arguments) => soak::run(&workspace, &arguments),
        Command::Stubs(arguments) => stubs::run(&workspace, &arguments),
        Command::Mlx(arguments) => mlx::run(&workspace, &arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        super::Arguments::command().debug_assert();
    }
}
