//! `tenon models`: what lies in the cache.

use host_core::{Report, Reported as _};
use host_models::{LocalModel, ModelSource, ModelStore};
use serde_json::json;

use super::{print, print_json};
use crate::args::{FolderArgs, ModelsArgs, ModelsCommand};
use crate::draw::{Style, drawn};
use crate::error::Failure;
use crate::exit::Exit;
use crate::open::{fetch, profiles};

pub(crate) fn run(folders: &FolderArgs, args: &ModelsArgs) -> Result<Exit, Failure> {
    match &args.command {
        ModelsCommand::List { json } => list(*json),
        ModelsCommand::Get { source, json } => get(folders, source, *json),
        ModelsCommand::Remove { source } => remove(source),
    }
}

fn list(as_json: bool) -> Result<Exit, Failure> {
    let store = ModelStore::open(None)?;
    let listing = store.list()?;
    let damaged: Vec<Report> = listing.damaged.iter().map(|error| error.report()).collect();
    if as_json {
        return print_json(&json!({
            "folder": store.folder(),
            "models": listing.models,
            "damaged": damaged,
        }));
    }
    for report in &damaged {
        eprint!("{}", drawn(report, Style::for_stderr()));
    }
    if listing.models.is_empty() {
        eprintln!("no models in {}", store.folder().display());
    }
    let line = |model: &LocalModel| format!("{:>9}  {}\n", bytes(model.size_bytes()), model.source);
    print(&listing.models.iter().map(line).collect::<String>())
}

fn get(folders: &FolderArgs, source: &str, as_json: bool) -> Result<Exit, Failure> {
    let source: ModelSource = source.parse()?;
    let model = fetch(&ModelStore::open(None)?, &profiles(folders)?, &source)?;
    match as_json {
        true => print_json(&json!(model)),
        false => print(&format!("{}\n", model.path.display())),
    }
}

fn remove(source: &str) -> Result<Exit, Failure> {
    let source: ModelSource = source.parse()?;
    let freed = ModelStore::open(None)?.remove(&source)?;
    print(&format!("{} freed\n", bytes(freed)))
}

/// A number of bytes for people.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_read_well() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (98 << 20, "98.0 MiB"),
            (u64::MAX, "16777216.0 TiB"),
        ];
        for (n, expected) in cases {
            assert_eq!(bytes(n), expected);
        }
    }
}
