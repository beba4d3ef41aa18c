//! `tenon plugin new`.

use std::path::Path;

use host_author::{Language, NewPlugin, create};
use serde_json::json;

use crate::args::NewArgs;
use crate::commands::{print, print_json};
use crate::error::Failure;
use crate::exit::Exit;

pub(crate) fn run(args: &NewArgs) -> Result<Exit, Failure> {
    let plugin = NewPlugin { name: &args.name, kind: args.kind.into(), language: args.lang.into() };
    let folder = create(args.dir.as_deref().unwrap_or(Path::new("")), plugin)?;
    if args.json {
        return print_json(&json!({ "folder": folder.display().to_string() }));
    }
    print(&told(&folder, plugin.language))
}

fn told(folder: &Path, language: Language) -> String {
    let (shown, steps) = (folder.display(), ["build", "check", "test"]);
    let first = usize::from(language == Language::Lua);
    let commands: Vec<_> =
        steps[first..].iter().map(|step| format!("  tenon plugin {step} {shown}\n")).collect();
    format!("made {shown}; next:\n{}", commands.concat())
}
