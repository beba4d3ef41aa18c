//! `tenon plugin`: the author's tools. The work is host-author's; here it is started and shown.

mod bench;
mod build;
mod check;
mod doctor;
mod fuzz;
mod new;
mod replay;
mod test;

use host_author::Tools;
use host_models::Settings;
use host_plugins::LogSink;

use crate::args::{FolderArgs, PluginArgs, PluginCommand};
use crate::error::Failure;
use crate::exit::Exit;

pub(crate) fn run(folders: &FolderArgs, args: &PluginArgs) -> Result<Exit, Failure> {
    match &args.command {
        PluginCommand::New(args) => new::run(args),
        PluginCommand::Build(args) => build::run(args),
        PluginCommand::Check(args) => check::run(args),
        PluginCommand::Test(args) => test::run(args),
        PluginCommand::Fuzz(args) => fuzz::run(args),
        PluginCommand::Bench(args) => bench::run(args),
        PluginCommand::Replay(args) => replay::run(args),
        PluginCommand::Doctor(args) => doctor::run(folders, args),
    }
}

/// The runtimes, with the compiled components that a host keeps too.
fn tools() -> Result<Tools, Failure> {
    let cache = Settings::from_environment(None)?.cache.join("plugins");
    let log = LogSink::new(|plugin, line| eprintln!("plugin {plugin}: {line}"));
    Ok(Tools::new(Some(&cache), log)?)
}
