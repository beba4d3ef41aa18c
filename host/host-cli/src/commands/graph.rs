//! `tenon graph`: the graph of a model as text, frozen into a file, checked, compared.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use host_graph::Graph;
use host_registry::{Composition, FrozenFile, FrozenGraph, Overrides};
use host_service::{Host, Located, ModelName, decide, describe, freeze, resolve, tensors};
use serde_json::{Value, json};

use super::{print, print_json};
use crate::args::{CheckArgs, DiffArgs, FolderArgs, FreezeArgs, GraphArgs, GraphCommand, ShowArgs};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::open::{load_host, locate};

/// The end of a frozen graph's file name.
const EXTENSION: &str = "graph";
/// How many differing lines are told of.
const SHOWN_LINES: usize = 20;

pub(crate) fn run(folders: &FolderArgs, args: &GraphArgs) -> Result<Exit, Failure> {
    match &args.command {
        GraphCommand::Show(args) => show(folders, args),
        GraphCommand::Freeze(args) => write_frozen(folders, args),
        GraphCommand::Check(args) => check(folders, args),
        GraphCommand::Diff(args) => diff(folders, args),
    }
}

fn show(folders: &FolderArgs, args: &ShowArgs) -> Result<Exit, Failure> {
    let graph = graph_of(folders, &args.model, args.profile.as_deref())?;
    match (args.json, args.fingerprint) {
        (true, _) => print_json(&facts_of(&graph)),
        (false, true) => print(&format!("{}\n", graph.fingerprint().as_hex())),
        (false, false) => print(&graph.text()),
    }
}

fn write_frozen(folders: &FolderArgs, args: &FreezeArgs) -> Result<Exit, Failure> {
    let host = load_host(folders)?;
    let (located, composition) = composed(&host, &args.model, args.profile.as_deref())?;
    let path = match &args.out {
        Some(path) => path.clone(),
        None => place_beside_profiles(&host, &composition)?,
    };
    let name = name_of(&path)?;
    let text = freeze(&host, &located, &composition)?;
    write_whole(&path, &text, args.replace)?;
    let frozen = FrozenGraph::parse(&name, &path.display().to_string(), &text)?;
    let line = format!("graph = {{ frozen = \"{name}\", digest = \"{}\" }}", frozen.digest());
    if args.json {
        let mut found = facts_of_file(&frozen, &frozen.open(&frozen.tensors())?);
        found["file"] = path.display().to_string().into();
        found["profile_line"] = line.into();
        return print_json(&found);
    }
    print(&format!("{}\n\n[compose]\n{line}\n", path.display()))
}

fn check(folders: &FolderArgs, args: &CheckArgs) -> Result<Exit, Failure> {
    let frozen = read(&args.file)?;
    let graph = frozen.open(&frozen.tensors())?;
    if let Some(model) = &args.model {
        let host = load_host(folders)?;
        let located = locate(&host, ModelName { model: Some(model), profile: None })?;
        frozen.check_model(located.subject()).map_err(|fault| *fault)?;
        frozen.open(&tensors(&located)?)?;
    }
    if args.json {
        let mut found = facts_of_file(&frozen, &graph);
        found["model"] = args.model.clone().into();
        return print_json(&found);
    }
    let header = frozen.header();
    let plugin = &header.plugin;
    let fits = args.model.as_ref().map_or(String::new(), |model| format!("fits         {model}\n"));
    print(&format!(
        "frozen graph {} {}\nconfig       {}\nfingerprint  {} ({} layers, {} operations, {} tensors)\n\
         built by     {} {} {} {} (contract {})\n{fits}",
        frozen.name(),
        frozen.digest(),
        header.config.fingerprint,
        graph.fingerprint(),
        graph.n_layers(),
        graph.nodes().len(),
        header.tensors.len(),
        plugin.id,
        plugin.version,
        plugin.runtime,
        plugin.digest.short(),
        plugin.contract,
    ))
}

fn diff(folders: &FolderArgs, args: &DiffArgs) -> Result<Exit, Failure> {
    let [one, other] = [&args.one, &args.other].map(|name| graph_of(folders, name, None));
    let (one, other) = (one?.text(), other?.text());
    let lines = differing(&one, &other);
    if args.json {
        print_json(&json!({ "equal": lines.is_empty(), "differences": lines }))?;
    } else {
        let shown = lines.iter().take(SHOWN_LINES).map(|line| format!("{line}\n"));
        let more = match lines.len().saturating_sub(SHOWN_LINES) {
            0 => String::new(),
            n => format!("and {n} lines more\n"),
        };
        print(&(shown.collect::<String>() + &more))?;
    }
    Ok(if lines.is_empty() { Exit::Done } else { Exit::Failed })
}

/// The lines that only one has, `- ` before those of the first, `+ ` before those of the second. Graphs of one
/// length are compared line by line; otherwise everything between the first difference and the last differs.
fn differing(one: &str, other: &str) -> Vec<String> {
    let (mut one, mut other): (Vec<&str>, Vec<&str>) = (one.lines().collect(), other.lines().collect());
    let removed = |line: &&str| format!("- {line}");
    let added = |line: &&str| format!("+ {line}");
    if one.len() == other.len() {
        let pairs = one.iter().zip(&other).filter(|(one, other)| one != other);
        return pairs.flat_map(|(one, other)| [removed(one), added(other)]).collect();
    }
    let same = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    one.drain(..same);
    other.drain(..same);
    while !one.is_empty() && one.last() == other.last() {
        one.pop();
        other.pop();
    }
    one.iter().map(removed).chain(other.iter().map(added)).collect()
}

/// The graph of a frozen file, or the one that the profile of a model gives.
fn graph_of(folders: &FolderArgs, name: &str, profile: Option<&str>) -> Result<Graph, Failure> {
    let path = Path::new(name);
    if path.extension().is_some_and(|end| end == EXTENSION) && path.is_file() {
        let frozen = read(path)?;
        return Ok(frozen.open(&frozen.tensors())?);
    }
    let host = load_host(folders)?;
    let (located, composition) = composed(&host, name, profile)?;
    Ok(describe(&host, &located, &composition)?.graph)
}

fn composed(host: &Host, model: &str, profile: Option<&str>) -> Result<(Located, Composition), Failure> {
    let located = locate(host, ModelName { model: Some(model), profile })?;
    let decision = decide(host, &located, profile)?;
    let composition = resolve(host, &located, &decision, &Overrides::default())?;
    Ok((located, composition))
}

fn read(path: &Path) -> Result<FrozenGraph, Failure> {
    let file = FrozenFile::read(path);
    Ok((*file.content.map_err(Failure::from)?).clone())
}

fn place_beside_profiles(host: &Host, composition: &Composition) -> Result<PathBuf, CliError> {
    let folder = host.folders().profiles.first().expect("a host has a folder of profiles").join("graphs");
    fs::create_dir_all(&folder).map_err(CliError::file("made", &folder))?;
    Ok(folder.join(format!("{}.{EXTENSION}", composition.profile_id())))
}

/// The name under which profiles know the file.
fn name_of(path: &Path) -> Result<String, CliError> {
    let is_part = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '.' | '-' | '_');
    let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(&format!(".{EXTENSION}")));
    let is_good =
        |name: &&str| name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_part);
    name.filter(is_good).map(str::to_owned).ok_or_else(|| CliError::Value {
        flag: "--out",
        expected: "FILE.graph, its name of lower-case letters, digits, `.`, `-` and `_`",
        found: path.display().to_string(),
    })
}

/// Writes beside the place and moves there, so that a reader sees the old file or the new one, never a part.
fn write_whole(path: &Path, text: &str, replace: bool) -> Result<(), CliError> {
    match fs::read(path) {
        Ok(there) if there == text.as_bytes() => return Ok(()),
        Ok(_) if !replace => return Err(CliError::GraphTaken { path: path.to_owned() }),
        _ => {}
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&beside, path)).map_err(|source| {
        // What could not be finished is taken away; the error told is the first.
        let _ = fs::remove_file(&beside);
        CliError::file("written", path)(source)
    })
}

fn facts_of(graph: &Graph) -> Value {
    json!({
        "fingerprint": graph.fingerprint().as_hex(),
        "n_layers": graph.n_layers(),
        "n_nodes": graph.nodes().len(),
        "n_vocab": graph.n_vocab(),
        "text": graph.text(),
    })
}

fn facts_of_file(frozen: &FrozenGraph, graph: &Graph) -> Value {
    let header = frozen.header();
    let plugin = &header.plugin;
    json!({
        "name": frozen.name(),
        "digest": frozen.digest().to_string(),
        "config": {
            "fingerprint": header.config.fingerprint.to_string(),
            "digest": header.config.digest.to_string(),
        },
        "graph": {
            "fingerprint": graph.fingerprint().as_hex(),
            "n_layers": graph.n_layers(),
            "n_nodes": graph.nodes().len(),
            "n_vocab": graph.n_vocab(),
        },
        "plugin": {
            "id": plugin.id,
            "version": plugin.version.to_string(),
            "runtime": plugin.runtime,
            "contract": plugin.contract,
            "digest": plugin.digest.to_string(),
        },
        "n_tensors": header.tensors.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_texts() {
        let check = |one: &str, other: &str, expected: &[&str]| assert_eq!(differing(one, other), expected);
        check("a\nb\nc\n", "a\nb\nc\n", &[]);
        check("a\nb\nc\n", "a\nx\nc\n", &["- b", "+ x"]);
        check("a\nb\nc\n", "a\nc\n", &["- b"]);
        check("a\nc\n", "a\nb\nb\nc\n", &["+ b", "+ b"]);
        check("", "a\n", &["+ a"]);
    }

    #[test]
    fn names_of_files() {
        let good = |path: &str| name_of(Path::new(path)).ok();
        assert_eq!(good("profiles/graphs/my-model.1.graph").as_deref(), Some("my-model.1"));
        for bad in ["x", ".graph", "X.graph", "a b.graph", "-.graph", "graphs/", "x.graph/.."] {
            assert_eq!(good(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_file_is_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.graph");
        write_whole(&path, "one", false).expect("nothing stands there");
        write_whole(&path, "one", false).expect("the same stands there");
        assert!(matches!(write_whole(&path, "two", false), Err(CliError::GraphTaken { .. })));
        assert_eq!(fs::read_to_string(&path).expect("a file"), "one");
        write_whole(&path, "two", true).expect("it may be replaced");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "two");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        let absent = folder.path().join("absent").join("x.graph");
        assert!(matches!(write_whole(&absent, "one", false), Err(CliError::File { .. })));
    }
}
