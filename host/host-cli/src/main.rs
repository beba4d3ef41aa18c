//! `tenon`: the program that wires everything together.
//!
//! Only here are flags parsed, errors drawn and bars shown. The order of opening a model stands in `host-service`;
//! each command is a module of its own.

mod answer;
mod args;
mod commands;
mod constraint;
mod draw;
mod error;
mod exit;
mod folders;
mod interrupt;
mod model_folder;
mod open;
mod pipeline_host;
mod progress;
mod prompt;
mod recording;
mod sampling;
mod service;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let started = Instant::now();
    let cli = Cli::parse();
    let wants_json = cli.command.wants_json();
    let outcome = match cli.command {
        Command::Generate(args) => commands::generate::run(&cli.folders, &args, started),
        Command::Chat(args) => commands::chat::run(&cli.folders, &args),
        Command::Run(args) => commands::run::run(&cli.folders, &args),
        Command::Explain(args) => commands::explain::run(&cli.folders, &args),
        Command::Graph(args) => commands::graph::run(&cli.folders, &args),
        Command::Models(args) => commands::models::run(&cli.folders, &args),
        Command::Profiles(args) => commands::profiles::run(&cli.folders, &args),
        Command::Import(args) => commands::import::run(&cli.folders, &args),
        Command::Quantize(args) => commands::quantize::run(&cli.folders, &args),
        Command::Plugin(args) => commands::plugin::run(&cli.folders, &args),
        Command::Doctor(args) => commands::doctor::run(&cli.folders, &args),
        Command::Bench(args) => commands::bench::run(&cli.folders, &args, started),
        Command::Completion(args) => commands::completion::run(&args),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => draw::fail(&failure, wants_json).into(),
    }
}
