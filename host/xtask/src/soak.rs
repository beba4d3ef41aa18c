//! `cargo xtask soak`: profiles and plugins that change under load, for as long as it takes to believe it.

use crate::plugins;
use crate::workspace::{self, Outcome, Workspace, say};

/// Serve 10,000 short generations, 8 at a time, while profiles and plugins change every 100 ms.
///
/// Good, broken, slow, trapping, truncated, deleted and renamed ones among them, scripts and components. Every answer
/// must be that of the generation whose id it carries; none may fail or be cut but by its own policy; memory must be
/// bounded, a swap take at most 1 ms, and a save be live within 150 ms with 100 profiles and 20 plugins. Then
/// `tenon profiles watch` is killed again and again while it reloads. A minute on two cores once all is built; the tests
/// have a short form.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(workspace: &Workspace, _arguments: &Arguments) -> Outcome {
    plugins::build(workspace)?;
    say("tenon: building the program");
    workspace.build_tenon()?;
    say("soak: 10,000 generations under reload, then a program that is killed");
    let test = ["test", "--release", "--workspace", "--test", "hot_reload", "--", "--ignored", "--nocapture"];
    let mut command = workspace.cargo(test);
    command.args(["--test-threads", "1", "in_full"]).env("TENON_TEST_PREFIX", &workspace.target);
    workspace::run(&mut command)
}
