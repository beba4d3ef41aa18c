//! `cargo xtask ci`: all that a merge asks for, in the order that fails soonest.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::workspace::{self, Failure, Outcome, Workspace, say};
use crate::{deny, mlx, plugins, tests_run};

const APPLE: &str = "aarch64-apple-darwin";

/// Do all that a merge asks for: format, lints, dependencies, the Apple build, tests.
///
/// 1. `cargo fmt --check`.
/// 2. Clippy over the whole workspace, all targets, warnings denied.
/// 3. `deny.toml`: licences, sources, duplicates; by cargo-deny where it is installed.
/// 4. `cargo check` for aarch64-apple-darwin of every crate that builds no C code.
/// 5. `cargo xtask test`.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Leave out step 5
    #[arg(long)]
    no_test: bool,
    /// Do not fetch the models: tests that need them are skipped, aloud
    #[arg(long, conflicts_with = "no_test")]
    no_models: bool,
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Outcome {
    say("format");
    workspace::run(&mut workspace.cargo(["fmt", "--all", "--check"]))
        .map_err(|failure| failure.mend("run `cargo fmt --all`"))?;
    say("lints: clippy, warnings denied");
    let clippy = ["clippy", "--release", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    workspace::run(&mut workspace.cargo(clippy))?;
    deny::run(workspace)?;
    check_apple(workspace)?;
    if arguments.no_test {
        say("all checks passed; tests were left out");
        return Ok(());
    }
    tests_run::run(workspace, &tests_run::Arguments { no_models: arguments.no_models, filter: None })?;
    say("all checks and tests passed");
    Ok(())
}

/// Type-checks for Apple what can be: C code needs Apple's compiler.
fn check_apple(workspace: &Workspace) -> Outcome {
    say(format!("the Apple build: type-checking for {APPLE}"));
    plugins::need_target(workspace, APPLE)?;
    let mut command =
        workspace.cargo(["metadata", "--locked", "--format-version", "1", "--filter-platform", APPLE]);
    let metadata = workspace::json(&workspace::captured(&mut command)?)?;
    let Split { plain, with_c } = split_by_c_code(&metadata)?;
    for (name, because) in &with_c {
        eprintln!("   left out: {name}, for {} builds C code", because.join(", "));
    }
    let mut check = workspace.cargo(["check", "--release", "--target", APPLE]);
    workspace::run(check.args(plain.iter().flat_map(|name| ["--package", name])))?;
    mlx::apple_check(workspace)
}

/// The crates of the workspace, by whether a C compiler takes part in building them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Split {
    plain: Vec<String>,
    /// With the packages that bring the C code.
    with_c: BTreeMap<String, Vec<String>>,
}

fn split_by_c_code(metadata: &Value) -> Outcome<Split> {
    let strange = || Failure::new("cargo metadata has another shape than expected");
    let list = |value: &'_ Value| value.as_array().cloned().ok_or_else(strange);
    let mut names = BTreeMap::new();
    for package in list(&metadata["packages"])? {
        let (Some(id), Some(name)) = (package["id"].as_str(), package["name"].as_str()) else {
            return Err(strange());
        };
        names.insert(id.to_owned(), name.to_owned());
    }
    let graph = read_graph(&list(&metadata["resolve"]["nodes"])?, &names);
    let mut split = Split::default();
    for member in list(&metadata["workspace_members"])? {
        let id = member.as_str().ok_or_else(strange)?;
        let name = names.get(id).ok_or_else(strange)?.clone();
        let mut seen = BTreeSet::new();
        graph.reach(id, &mut seen);
        let because: Vec<String> = seen
            .iter()
            .filter(|id| graph.builds_c.contains(*id))
            .filter_map(|id| names.get(id))
            .cloned()
            .collect();
        if because.is_empty() {
            split.plain.push(name);
        } else {
            split.with_c.insert(name, because);
        }
    }
    Ok(split)
}

/// Who depends on whom, development dependencies apart.
#[derive(Default)]
struct Graph {
    edges: BTreeMap<String, Vec<String>>,
    /// Packages whose build script uses a C compiler.
    builds_c: BTreeSet<String>,
}

fn read_graph(nodes: &[Value], names: &BTreeMap<String, String>) -> Graph {
    let mut graph = Graph::default();
    for node in nodes {
        let id = node["id"].as_str().unwrap_or_default().to_owned();
        for dep in node["deps"].as_array().into_iter().flatten() {
            let to = dep["pkg"].as_str().unwrap_or_default().to_owned();
            let kinds = dep["dep_kinds"].as_array().into_iter().flatten();
            let kinds: Vec<&str> = kinds.map(|kind| kind["kind"].as_str().unwrap_or("normal")).collect();
            let is_compiler = matches!(names.get(&to).map(String::as_str), Some("cc" | "cmake"));
            if is_compiler && kinds.contains(&"build") {
                graph.builds_c.insert(id.clone());
            }
            // What only a build script uses is built for this machine.
            if kinds.contains(&"normal") {
                graph.edges.entry(id.clone()).or_default().push(to);
            }
        }
    }
    graph
}

impl Graph {
    fn reach(&self, id: &str, seen: &mut BTreeSet<String>) {
        if seen.insert(id.to_owned()) {
            self.edges.get(id).into_iter().flatten().for_each(|to| self.reach(to, seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn crates_that_reach_a_c_compiler_are_left_out() {
        let dep = |pkg: &str, kind: Option<&str>| json!({ "pkg": pkg, "dep_kinds": [{ "kind": kind }] });
        let node = |id: &str, deps: &[Value]| json!({ "id": id, "deps": deps });
        let ids = ["plain", "uses-c", "only-tests-use-c", "ring", "cc"];
        let metadata = json!({
            "packages": ids.map(|id| json!({ "id": id, "name": id })),
            "workspace_members": ids[..3],
            "resolve": { "nodes": [
                node("plain", &[]),
                node("uses-c", &[dep("ring", None)]),
                node("only-tests-use-c", &[dep("ring", Some("dev"))]),
                node("ring", &[dep("cc", Some("build"))]),
                node("cc", &[]),
            ] },
        });
        let Split { plain, with_c } = split_by_c_code(&metadata).unwrap();
        assert_eq!(plain, ["plain", "only-tests-use-c"]);
        assert_eq!(with_c, BTreeMap::from([("uses-c".to_owned(), vec!["ring".to_owned()])]));
        assert!(split_by_c_code(&json!({})).is_err());
    }
}
