//! `cargo xtask stubs`: the types for editors, as the host declares them.

use crate::workspace::{self, Outcome, Workspace, say};

/// Write the types for editors of plugins and pipelines in Lua: plugin-sdk/lua/*.d.luau.
///
/// They come from what the host declares to scripts, and a test tells when they are stale.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(workspace: &Workspace, _arguments: &Arguments) -> Outcome {
    say("stubs: writing plugin-sdk/lua/*.d.luau");
    let example = ["run", "--release", "--quiet", "--package", "host-lua", "--example", "stubs", "--"];
    workspace::run(workspace.cargo(example).arg(workspace.root.join("plugin-sdk/lua")))
}
