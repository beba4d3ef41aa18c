//! `tenon plugin replay`.

use host_author::{Project, Replayed};
use serde_json::json;

use super::tools;
use crate::args::{ReplayArgs, plugin_folder};
use crate::commands::{print, print_json};
use crate::draw::{Style, drawn};
use crate::error::Failure;
use crate::exit::Exit;

pub(crate) fn run(args: &ReplayArgs) -> Result<Exit, Failure> {
    let replayed = Project::open(&plugin_folder(&args.dir))?.replay(&tools()?, &args.trace)?;
    if args.json {
        print_json(&json!(replayed))?
    } else {
        print(&told(&replayed))?
    };
    Ok(if replayed.is_quiet() { Exit::Done } else { Exit::Failed })
}

fn told(replayed: &Replayed) -> String {
    let style = Style::for_stdout();
    let Replayed { is_same_plugin, acts, is_whole, difference, finding } = replayed;
    let plugin = if *is_same_plugin { "the plugin as it was" } else { "a changed plugin" };
    let told =
        [difference, finding].into_iter().flatten().map(|report| drawn(report, style)).collect::<String>();
    let verdict = match (difference, finding) {
        (None, None) => "all as recorded, nothing found",
        (None, Some(_)) => "all as recorded, and what was found is still there",
        (Some(_), None) => "not as recorded; nothing found",
        (Some(_), Some(_)) => "not as recorded",
    };
    let bound = if *is_whole { "" } else { " (the run went on beyond its record)" };
    format!("{told}{acts} acts with {plugin}: {verdict}{bound}\n")
}
