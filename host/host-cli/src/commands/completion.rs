//! `tenon completion`: the script for a shell.

use clap::CommandFactory as _;

use super::print;
use crate::args::{Cli, CompletionArgs};
use crate::error::Failure;
use crate::exit::Exit;

pub(crate) fn run(args: &CompletionArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenon", &mut script);
    print(&String::from_utf8_lossy(&script))
}
