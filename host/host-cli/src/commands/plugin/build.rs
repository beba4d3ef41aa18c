//! `tenon plugin build`.

use host_author::Project;
use serde_json::json;

use super::tools;
use crate::args::{FolderOnly, plugin_folder};
use crate::commands::{print, print_json};
use crate::error::Failure;
use crate::exit::Exit;

pub(crate) fn run(args: &FolderOnly) -> Result<Exit, Failure> {
    let project = Project::open(&plugin_folder(&args.dir))?;
    let built = project.build(&tools()?, &mut |line| eprintln!("{line}"))?;
    let (entry, bytes) = (built.entry.display().to_string(), built.bytes);
    if args.json {
        return print_json(&json!({ "entry": entry, "bytes": bytes }));
    }
    print(&format!("built {entry} ({:.1} KiB)\n", bytes as f64 / 1024.0))
}
