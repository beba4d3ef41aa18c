//! The author's tools through the built program: new plugins of every kind in every language pass everything as they
//! are, and what is wrong is refused under its code.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;
use tests::places::target;
use tests::program::{Ended, Tenon};

const KINDS: [&str; 3] = ["sampling-policy", "model-graph", "quant-profile"];

/// The program in an author's folder. Its crates share the workspace's target folder, where the dependencies of the
/// first-party plugins lie compiled.
struct Author {
    tenon: Tenon,
    folder: TempDir,
}

impl Author {
    fn find() -> Option<Author> {
        Some(Author { tenon: Tenon::find()?, folder: tempfile::tempdir().unwrap() })
    }

    /// `tenon plugin LINE --json`.
    fn run(&self, line: &str) -> Ended {
        let mut command = self.tenon.command();
        command.current_dir(self.folder.path()).arg("plugin").args(line.split(' ')).arg("--json");
        command.env("CARGO_TARGET_DIR", target());
        Ended::of(command.output().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new plugin, by its kind and language.
    fn new_plugin(&self, kind: &str, lang: &str) -> String {
        let name = format!("my-{kind}-{lang}");
        let made = self.run(&format!("new {name} --kind {kind} --lang {lang}")).json();
        assert_eq!(made["folder"], *name);
        name
    }

    fn alter(&self, file: &str, from: &str, to: &str) {
        let path = self.path(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(&path, text.replace(from, to)).unwrap();
    }
}

/// Build, check, test, fuzz and bench of a plugin as it is.
fn passes_everything(author: &Author, name: &str, kind: &str) {
    let built = author.run(&format!("build {name}")).json();
    assert!(built["bytes"].as_u64().unwrap() > 0);
    let checked = author.run(&format!("check {name}")).json();
    assert_eq!((&checked["id"], &checked["kind"]), (&Value::from(name), &Value::from(kind)));
    let tested = author.run(&format!("test {name}")).json();
    assert_eq!(tested["failed"], 0, "{tested:#}");
    assert!(tested["cases"].as_array().unwrap().len() >= 2);
    let fuzzed = author.run(&format!("fuzz {name} --seconds 0.3 --seed 3")).json();
    assert!(fuzzed["steps"].as_u64().unwrap() > 0 && fuzzed["finding"].is_null());
    let measured = author.run(&format!("bench {name} --seconds 0.3")).json();
    assert!(measured["p50_us"].as_f64().unwrap() > 0.0);
}

#[test]
fn new_plugins_in_lua_pass_everything_as_they_are() {
    let Some(author) = Author::find() else { return };
    for kind in KINDS {
        let name = author.new_plugin(kind, "lua");
        passes_everything(&author, &name, kind);
        assert!(author.path(&name).join("tenon.d.luau").is_file());
    }
}

#[test]
fn new_plugins_in_rust_pass_everything_as_they_are() {
    let Some(author) = Author::find() else { return };
    for kind in KINDS {
        let name = author.new_plugin(kind, "rust");
        assert_eq!(author.run(&format!("test {name}")).error(1)["code"], "author.not-built");
        passes_everything(&author, &name, kind);
    }
    broken_crates_are_told(&author, "my-sampling-policy-rust");
    altered_components_are_refused(&author, "my-sampling-policy-rust");
}

/// On a plugin that was built before, so that only its own crate is compiled again.
fn broken_crates_are_told(author: &Author, name: &str) {
    let source = format!("{name}/src/lib.rs");
    let good = fs::read_to_string(author.path(&source)).unwrap();
    author.alter(&source, "step.bias(", "step.bios(");
    assert_eq!(author.run(&format!("check {name}")).error(1)["code"], "author.stale-build");
    let ended = author.run(&format!("build {name}"));
    assert!(ended.stderr.contains("no method named `bios`"), "{ended:?}");
    assert_eq!(ended.error(1)["code"], "build.compile");

    let foreign =
        "#[link(wasm_import_module = \"env\")]\nunsafe extern \"C\" {\n    safe fn now() -> u64;\n}\n";
    let calls = good.replace("&[-self.penalty]", "&[-self.penalty - now() as f32]");
    fs::write(author.path(&source), calls + foreign).unwrap();
    let error = author.run(&format!("build {name}")).error(1);
    assert_eq!(error["code"], "build.no-component");
    assert!(error["message"].as_str().unwrap().contains("env"), "{error}");
    fs::write(author.path(&source), good).unwrap();
    author.run(&format!("build {name}")).done();
}

/// Components that another tool made: what a host would refuse is refused here, with the same words.
fn altered_components_are_refused(author: &Author, name: &str) {
    let entry = author.path(name).join("plugin.wasm");
    let good = fs::read(&entry).unwrap();
    let code = |component: &[u8]| {
        fs::write(&entry, component).unwrap();
        author.run(&format!("check {name}")).error(3)
    };
    let section = b"tenon:api";
    let at = good.windows(section.len()).position(|bytes| bytes == section).unwrap() + section.len();
    let mut later = good.clone();
    later[at + 1] = 9;
    assert_eq!(code(&later)["code"], "plugin.contract-version");
    assert_eq!(code(&good[..good.len() / 2])["code"], "plugin.invalid-binary");
    let api = wat_string(&good[at..at + 21]);
    let empty = wat::parse_str(format!("(component (@custom \"tenon:api\" {api}))")).unwrap();
    assert_eq!(code(&empty)["code"], "plugin.missing-export");
    let import = "(import \"wasi:clocks/monotonic-clock@0.2.0\" (instance))";
    let clock = wat::parse_str(format!("(component (@custom \"tenon:api\" {api}) {import})")).unwrap();
    let error = code(&clock);
    assert_eq!(error["code"], "plugin.foreign-import");
    assert_eq!(error["found"], "wasi:clocks/monotonic-clock@0.2.0");
    let _ = code(b"no component");
    fs::write(&entry, good).unwrap();
    author.run(&format!("check {name}")).done();
}

fn wat_string(bytes: &[u8]) -> String {
    let escaped: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
    format!("\"{escaped}\"")
}

#[test]
fn what_is_wrong_is_refused_under_its_code() {
    let Some(author) = Author::find() else { return };
    let name = author.new_plugin("sampling-policy", "lua");
    let script = format!("{name}/{name}.lua");
    for (line, code, exit) in [
        ("new My-Sampler --kind sampling-policy --lang lua", "author.name", 2),
        ("new fn --kind model-graph --lang rust", "author.name", 2),
        ("new my-sampling-policy-lua --kind model-graph --lang lua", "author.folder-taken", 2),
        ("check nowhere", "author.no-plugin", 2),
        ("replay nowhere.json my-sampling-policy-lua", "author.file", 1),
    ] {
        assert_eq!(author.run(line).error(exit)["code"], code, "{line}");
    }
    author.alter(&script, "local Policy = {}", "local Policy = {");
    for command in ["build", "check", "test", "fuzz", "bench"] {
        let error = author.run(&format!("{command} {name}")).error(3);
        assert_eq!(error["code"], "plugin.syntax", "{command}");
        assert_eq!(error["place"]["file"], format!("plugins/{name}/{name}.lua"));
    }
    author.alter(&script, "local Policy = {", "local Policy = {}");
    author.alter(&format!("{name}/plugin.toml"), "sdk = \"", "sdk = \"9");
    assert_eq!(author.run(&format!("check {name}")).error(3)["code"], "plugin.contract-version");
}

#[test]
fn what_is_found_is_told_kept_and_found_again() {
    let Some(author) = Author::find() else { return };
    let name = author.new_plugin("sampling-policy", "lua");
    author.alter(&format!("{name}/{name}.lua"), "table.remove(self.history)", "local _ = self");
    let tested = author.run(&format!("test {name}"));
    assert_eq!(tested.code, Some(1), "{tested:?}");
    let fuzzed = author.run(&format!("fuzz {name} --seconds 20"));
    assert_eq!(fuzzed.code, Some(1), "{fuzzed:?}");
    let fuzzed: Value = serde_json::from_str(&fuzzed.stdout).unwrap();
    let trace = fuzzed["finding"]["trace"].as_str().unwrap();
    let replayed = author.run(&format!("replay {trace} {name}"));
    assert_eq!(replayed.code, Some(1), "{replayed:?}");
    let replayed: Value = serde_json::from_str(&replayed.stdout).unwrap();
    assert_eq!(replayed["finding"]["code"], fuzzed["finding"]["report"]["code"]);
    assert!(replayed["difference"].is_null());
    let slow = author.run(&format!("bench {name} --seconds 0.1 --max-p50-us 0"));
    assert_eq!(slow.code, Some(1), "{slow:?}");
    assert!(slow.stdout.contains("author.over-budget"));
}

#[test]
fn the_doctor_runs_a_shipped_plugin_of_each_kind_and_runtime() {
    let Some(author) = Author::find() else { return };
    let findings = author.run("doctor").json();
    let smoke = findings["smoke"].as_array().unwrap();
    assert_eq!(smoke.len(), 6);
    assert!(smoke.iter().all(|plugin| plugin["failures"].as_array().unwrap().is_empty()), "{findings:#}");
}
