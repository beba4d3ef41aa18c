//! `tenon plugin check`.

use host_author::{Checked, Project};
use serde_json::json;

use super::tools;
use crate::args::{FolderOnly, plugin_folder};
use crate::commands::{print, print_json};
use crate::error::Failure;
use crate::exit::Exit;

pub(crate) fn run(args: &FolderOnly) -> Result<Exit, Failure> {
    let checked = Project::open(&plugin_folder(&args.dir))?.check(&tools()?)?;
    if args.json { print_json(&json!(checked)) } else { print(&told(&checked)) }
}

fn told(checked: &Checked) -> String {
    let Checked { id, version, kind, runtime, contract, entry, bytes, digest, .. } = checked;
    let mut lines = vec![
        format!("plugin     {id} {version}"),
        format!("kind       {kind} ({runtime})"),
        format!("contract   {contract}"),
        format!("entry      {entry} ({:.1} KiB) {}", *bytes as f64 / 1024.0, &digest[..16]),
    ];
    lines.extend(checked.needs.iter().map(|needs| format!("needs      {needs}")));
    let list =
        |name: &str, items: &[&str]| (!items.is_empty()).then(|| format!("{name:<10} {}", items.join(", ")));
    lines.extend(list("offers", &checked.offers));
    lines.extend(list("rights", &checked.rights));
    lines.push("ok         a host takes it\n".to_owned());
    lines.join("\n")
}
