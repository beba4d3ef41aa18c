//! `tenon profiles`: generations of the folders, checked, watched, listed and put back.

use std::thread;

use host_registry::json_schema;
use host_service::reload::{
    ColdStart, Event, Generation, ReloadSettings, Scope, StoredGeneration, Watching, check_folders, restore,
};
use serde_json::{Value, json};

use super::{print, print_json};
use crate::args::{
    ComposeArgs, FolderArgs, ModelArgs, ProfilesArgs, ProfilesCheckArgs, ProfilesCommand, ProfilesWatchArgs,
};
use crate::draw::Style;
use crate::error::Failure;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::open::Bars;
use crate::service::{Asked, told};

pub(crate) fn run(folders: &FolderArgs, args: &ProfilesArgs) -> Result<Exit, Failure> {
    match &args.command {
        ProfilesCommand::Schema => print_json(&json_schema()),
        ProfilesCommand::Check(args) => check(folders, args),
        ProfilesCommand::Watch(args) => watch(folders, args),
        ProfilesCommand::History { json } => history(folders, *json),
        ProfilesCommand::Rollback { id, json } => rollback(folders, id, *json),
    }
}

fn asked<'a>(folders: &'a FolderArgs, model: &'a ModelArgs, compose: &'a ComposeArgs) -> Asked<'a> {
    Asked { folders, model, compose, scope: Scope::Everything, cold_start: ColdStart::Folders }
}

fn check(folders: &FolderArgs, args: &ProfilesCheckArgs) -> Result<Exit, Failure> {
    let (machine, options) = asked(folders, &args.model, &args.compose).options()?;
    let generation = check_folders(&machine, &options, &mut Bars::new())?;
    let found = facts(&generation, &options.settings);
    if args.json {
        return print_json(&found);
    }
    print(&format!(
        "generation {} would serve: {} profiles, {} sets of rules, {} plugins\nnumbers of reloading: {}\n",
        generation.id(),
        found["profiles"],
        found["rules"],
        found["plugins"],
        options.settings.file.display()
    ))
}

fn facts(generation: &Generation, settings: &ReloadSettings) -> Value {
    let host = generation.host();
    json!({
        "generation": generation.id().as_hex(),
        "profiles": host.profiles().iter().count(),
        "rules": host.quants().iter().count(),
        "plugins": host.plugins().packages().count(),
        "settings": settings.file.display().to_string(),
    })
}

fn watch(folders: &FolderArgs, args: &ProfilesWatchArgs) -> Result<Exit, Failure> {
    Interrupt::watch()?;
    let cold_start = if args.last_good { ColdStart::LastGood } else { ColdStart::Folders };
    let as_json = args.json;
    let asked = Asked { cold_start, ..asked(folders, &args.model, &args.compose) };
    let service = asked.start(move |event| show(event, as_json))?;
    let _watching = Watching::start(service)?;
    loop {
        // Ctrl-C ends the program.
        thread::park();
    }
}

/// Prints an event. Where nobody reads any more there is nobody to tell, and the program ends.
fn show(event: &Event, as_json: bool) {
    let text = if as_json { format!("{}\n", event.object()) } else { told(event, Style::for_stdout()) };
    if print(&text).is_err() {
        std::process::exit(Exit::Failed.code().into());
    }
}

fn history(folders: &FolderArgs, as_json: bool) -> Result<Exit, Failure> {
    let (model, compose) = Default::default();
    let (_, options) = asked(folders, &model, &compose).options()?;
    let stored = options.store.list()?;
    if as_json {
        let stored: Vec<Value> = stored.iter().map(object).collect();
        return print_json(&json!({ "folder": options.store.folder(), "generations": stored }));
    }
    if stored.is_empty() {
        eprintln!("no generations in {}", options.store.folder().display());
    }
    let line = |stored: &StoredGeneration| {
        let standing = if stored.is_good { "served" } else { "replaced" };
        let files = stored.n_files();
        format!(
            "{}  {standing:<8}  {}  {files} files, tenon {}\n",
            stored.id,
            since(stored.at_ms),
            stored.host
        )
    };
    print(&stored.iter().map(line).collect::<String>())
}

fn object(stored: &StoredGeneration) -> Value {
    json!({
        "generation": stored.id.as_hex(),
        "number": stored.number,
        "at_ms": stored.at_ms,
        "good": stored.is_good,
        "files": stored.n_files(),
        "host": stored.host,
    })
}

fn rollback(folders: &FolderArgs, id: &str, as_json: bool) -> Result<Exit, Failure> {
    let (model, compose) = Default::default();
    let (machine, options) = asked(folders, &model, &compose).options()?;
    let restored = restore(&machine, &options, id, &mut Bars::new())?;
    let id = restored.generation.id;
    if as_json {
        return print_json(&json!({
            "generation": id.as_hex(),
            "changes": restored.changes,
            "before": restored.before.map(|before| before.as_hex()),
        }));
    }
    match restored.before {
        None => print(&format!("the folders are generation {id} already\n")),
        Some(before) => {
            let changes = restored.changes.join("\n  ");
            print(&format!(
                "the folders are generation {id} again; {before} is what they were\n  {changes}\n"
            ))
        }
    }
}

/// How long ago, for people.
fn since(at_ms: u64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    ago(now.as_secs().saturating_sub(at_ms / 1000))
}

fn ago(seconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "d"), (3_600, "h"), (60, "min")];
    match UNITS.into_iter().find(|(unit, _)| seconds >= *unit) {
        Some((unit, name)) => format!("{:>4} {name} ago", seconds / unit),
        None => format!("{seconds:>4} s ago"),
    }
}

#[cfg(test)]
mod tests {
    use super::ago;

    #[test]
    fn times_read_well() {
        let cases = [(0, "   0 s ago"), (59, "  59 s ago"), (60, "   1 min ago"), (7_200, "   2 h ago")];
        for (seconds, expected) in cases {
            assert_eq!(ago(seconds), expected);
        }
        assert_eq!(ago(3 * 86_400 + 5), "   3 d ago");
    }
}
