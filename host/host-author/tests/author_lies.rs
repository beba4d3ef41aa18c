//! The tools against plugins that lie: each lie is found, told under its name, and found again in its trace.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use host_author::{
    AuthorError, BenchOptions, FuzzOptions, Fuzzed, Language, NewPlugin, Project, Tools, create,
};
use host_core::Reported;
use host_plugins::{Kind, LogSink};
use tempfile::TempDir;

fn tools() -> Tools {
    Tools::new(None, LogSink::discard()).unwrap()
}

/// A new plugin in Lua, in a folder of its own.
fn new(kind: Kind) -> (TempDir, Project) {
    let parent = tempfile::tempdir().unwrap();
    let folder = create(parent.path(), NewPlugin { name: "mine", kind, language: Language::Lua }).unwrap();
    let project = Project::open(&folder).unwrap();
    (parent, project)
}

/// The same with parts of its script put otherwise.
fn altered(kind: Kind, changes: &[(&str, &str)]) -> (TempDir, Project) {
    let (parent, project) = new(kind);
    let mut script = fs::read_to_string(project.entry()).unwrap();
    for (from, to) in changes {
        assert!(script.contains(from), "the template has no {from:?}");
        script = script.replace(from, to);
    }
    fs::write(project.entry(), script).unwrap();
    (parent, project)
}

fn fuzz(project: &Project, seconds: f64) -> Fuzzed {
    let options = FuzzOptions { time: Duration::from_secs_f64(seconds), seed: 1 };
    project.fuzz(&tools(), options, &mut |_, _| {}).unwrap()
}

/// The codes of what `test` finds.
fn tested(project: &Project) -> Vec<&'static str> {
    let results = project.test(&tools()).unwrap();
    results.iter().flat_map(|result| result.failures.iter().map(|report| report.code)).collect()
}

#[test]
fn new_plugins_in_lua_pass_everything() {
    let bench = BenchOptions { time: Duration::ZERO, calls: 100, max_p50_us: None, max_p99_us: None };
    for kind in [Kind::SamplingPolicy, Kind::ModelGraph, Kind::QuantProfile] {
        let (_parent, project) = new(kind);
        let tools = tools();
        project.build(&tools, &mut |_| {}).unwrap();
        assert_eq!(project.check(&tools).unwrap().kind, kind.name());
        assert_eq!(tested(&project), [""; 0], "{kind:?}");
        let fuzzed = fuzz(&project, 0.05);
        assert!(fuzzed.finding.is_none() && fuzzed.steps > 0, "{fuzzed:?}");
        let measured = project.bench(&tools, bench).unwrap();
        assert!(measured.p50_us > 0.0 && measured.over.is_empty(), "{measured:?}");
    }
}

/// What a policy in Lua promises and does not keep, and under which name it is told.
const LIES: [(&str, &str, &str); 7] = [
    // `rollback` forgets nothing.
    ("table.remove(self.history)", "local _ = self", "author.rollback"),
    // A fork shares its history.
    ("history = table.clone(self.history) }", "history = self.history }", "author.fork"),
    // The bias moves the most likely token.
    ("needs = \"mask-only\"", "needs = \"mask-only\", argmax_invariant = true", "author.argmax"),
    // Nothing may follow.
    ("step:bias({ last }, { -self.penalty })", "step:allow_runs({})", "author.illegal-edits"),
    // State outside of the instance, which a fresh one does not have.
    (
        "step:bias({ last }, { -self.penalty })",
        "self.n = (self.n or 0) + 1\n        step:bias({ last }, { -self.n })",
        "author.rollback",
    ),
    // A script that fails at a later step.
    (
        "step:bias({ last }, { -self.penalty })",
        "step:bias({ self.history[3] + 0 }, { -1 })",
        "plugin.script-error",
    ),
    // A token that the vocabulary does not have.
    ("step:bias({ last }, { -self.penalty })", "step:bias({ last * 1000 }, { -1 })", "policy.unknown-token"),
];

#[test]
fn a_fuzz_run_finds_lies_and_their_traces_show_them_again() {
    for (from, to, code) in LIES {
        let (_parent, project) = altered(Kind::SamplingPolicy, &[(from, to)]);
        let finding = fuzz(&project, 5.0).finding.unwrap_or_else(|| panic!("{to}: nothing found"));
        // After both forks and rollbacks, the fork's lie may show itself under the common name.
        let is_told = finding.report.code == code || finding.report.code == "author.rollback-or-fork";
        assert!(is_told, "{to}: {}", finding.report);
        let replayed = project.replay(&tools(), &finding.trace).unwrap();
        assert!(replayed.is_same_plugin && replayed.difference.is_none(), "{to}: {replayed:?}");
        assert_eq!(replayed.finding.map(|report| report.code), Some(finding.report.code), "{to}");
    }
}

#[test]
fn a_trace_tells_what_a_changed_plugin_does_otherwise() {
    let (_parent, project) =
        altered(Kind::SamplingPolicy, &[("table.remove(self.history)", "local _ = self")]);
    let trace = fuzz(&project, 5.0).finding.unwrap().trace;
    let script = fs::read_to_string(project.entry()).unwrap();
    fs::write(project.entry(), script.replace("local _ = self", "table.remove(self.history)")).unwrap();
    let replayed = project.replay(&tools(), &trace).unwrap();
    assert!(!replayed.is_same_plugin && replayed.finding.is_none(), "{replayed:?}");
    let difference = replayed.difference.unwrap();
    assert_eq!(difference.code, "author.replay-differs");
    assert!(difference.expected.unwrap().starts_with("bias "), "what was recorded");
}

#[test]
fn a_case_tells_expected_and_found() {
    let (_parent, project) = altered(Kind::SamplingPolicy, &[("{ -self.penalty }", "{ -self.penalty - 1 }")]);
    let results = project.test(&tools()).unwrap();
    let report = &results[0].failures[0];
    assert_eq!(
        report.to_string(),
        "error[author.case-failed]: step 1 does something else\n  expected  bias 2: -2.5\n  found     bias 2: -3.5"
    );
    assert!(results.iter().any(|result| result.is_passed()), "a refusal is still one");
}

#[test]
fn tests_hold_policies_to_what_they_claim() {
    let policy = |changes: &[(&str, &str)]| {
        let (_parent, project) = altered(Kind::SamplingPolicy, changes);
        tested(&project)
    };
    assert!(policy(&[("table.remove(self.history)", "local _ = self")]).contains(&"author.case-failed"));
    let found = policy(&[("history = table.clone(self.history) }", "history = {} }")]);
    assert!(found.contains(&"author.rollback-or-fork"), "{found:?}");
    // A refused call that the script takes for granted.
    let unclean = "if not pcall(step.bias, step, { last }, { -self.penalty }) then error({}) end";
    let found = policy(&[("step:bias({ last }, { -self.penalty })", unclean)]);
    assert!(found.contains(&"author.unclean-refusal"), "{found:?}");
}

#[test]
fn tests_hold_graphs_and_plans_to_what_they_claim() {
    let takes_it_for_granted =
        "local n = g:tensor(\"lm_head.weight\").shape[1]\n    local eps = config:number(\"rms_norm_eps\")";
    let eps = "local eps = config:number(\"rms_norm_eps\")";
    let (_parent, project) = altered(Kind::ModelGraph, &[(eps, takes_it_for_granted)]);
    let found = tested(&project);
    assert!(found.contains(&"author.unclean-refusal"), "a head that goes missing: {found:?}");
    assert!(found.contains(&"plugin.script-error"), "a model without one: {found:?}");
    let case = "[[case]]\nabout = \"x\"\nconfig = {}\nlayers = 3\nrefused = \"y\"\n";
    fs::write(project.folder().join("tests/cases.toml"), case).unwrap();
    let error = project.test(&tools()).unwrap_err();
    assert_eq!(error.report().code, "author.case-value", "a graph and a refusal at once");
    // Codes for what takes none.
    let (_parent, project) = altered(Kind::QuantProfile, &[(" or not can_be_codes(tensor)", "")]);
    assert_eq!(tested(&project), ["quant.not-a-matrix"]);
    assert!(fuzz(&project, 5.0).finding.is_some());
}

#[test]
fn names_and_places_that_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let code = |name: &str, language| {
        let plugin = NewPlugin { name, kind: Kind::SamplingPolicy, language };
        create(parent.path(), plugin).err().map(|error| error.report().code)
    };
    for name in ["", "Mine", "1st", "a/b", "..", "a b", "é", &"a".repeat(65)] {
        assert_eq!(code(name, Language::Lua), Some("author.name"), "{name:?}");
    }
    for name in ["fn", "std", "plugin-sdk", "yield"] {
        assert_eq!(code(name, Language::Rust), Some("author.name"), "{name:?}");
    }
    assert_eq!(code("fn", Language::Lua), None);
    assert_eq!(code("fn", Language::Lua), Some("author.folder-taken"));
    let error = Project::open(parent.path()).unwrap_err();
    assert_eq!(error.report().code, "author.no-plugin");
}

#[test]
fn a_crate_must_be_built_and_fresh() {
    let parent = tempfile::tempdir().unwrap();
    let plugin = NewPlugin { name: "mine", kind: Kind::ModelGraph, language: Language::Rust };
    let folder = create(parent.path(), plugin).unwrap();
    let project = Project::open(&folder).unwrap();
    assert!(matches!(project.check(&tools()), Err(AuthorError::NotBuilt { .. })));
    fs::write(project.entry(), b"a component").unwrap();
    assert_eq!(project.check(&tools()).unwrap_err().report().code, "plugin.invalid-binary");
    let later = std::time::SystemTime::now() + Duration::from_secs(60);
    let source = fs::File::options().append(true).open(folder.join("src/lib.rs")).unwrap();
    source.set_modified(later).unwrap();
    assert!(matches!(project.check(&tools()), Err(AuthorError::Stale { .. })));
}

#[test]
fn files_of_cases_are_read_strictly() {
    let (_parent, project) = new(Kind::SamplingPolicy);
    let file = project.folder().join("tests/cases.toml");
    let code = |text: &str| {
        fs::write(&file, text).unwrap();
        project.test(&tools()).unwrap_err().report()
    };
    let report = code("[[case]]\nabout = \"x\"\nprompts = 1\n");
    assert_eq!((report.code, report.place.and_then(|place| place.line)), ("author.case", Some(3)));
    for (text, message) in [
        ("[[case]]\nabout = \"x\"\n", "the steps"),
        ("[[case]]\nabout = \"x\"\n[[case.step]]\n", "the prompt"),
        ("[[case]]\nabout = \"x\"\nprompt = \"É\"\n[[case.step]]\n", "prompt \"É\""),
        ("[[case]]\nabout = \"x\"\nprompt = \"a\"\n[[case.step]]\nforced = [\"ab\"]\n", "\"ab\""),
        (
            "[[case]]\nabout = \"x\"\nprompt = \"a\"\n[[case.step]]\nallowed = []\nexcluded = []\n",
            "`allowed`",
        ),
    ] {
        let report = code(text);
        assert_eq!(report.code, "author.case-value", "{text}: {report}");
        assert!(report.message.contains(message), "{text}: {report}");
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(project.test(&tools()).unwrap_err().report().code, "author.no-cases");
}

#[test]
fn files_that_are_no_traces_are_refused() {
    let (parent, project) = new(Kind::SamplingPolicy);
    let path = parent.path().join("trace.json");
    let code = |text: &str, path: &Path| {
        fs::write(path, text).unwrap();
        project.replay(&tools(), path).unwrap_err().report().code
    };
    assert_eq!(code("", &path), "author.trace");
    let quant = r#"{"quant-profile": {"config": {}, "params": {}, "tensors": [], "outcome": ""}}"#;
    let trace =
        |format: u32| format!(r#"{{"trace": {format}, "plugin": "x 1.0.0", "digest": "", "body": {quant}}}"#);
    assert_eq!(code(&trace(2), &path), "author.trace", "another format");
    assert_eq!(code(&trace(1), &path), "author.trace", "another kind");
    assert_eq!(project.replay(&tools(), Path::new("nowhere")).unwrap_err().report().code, "author.file");
}
