//! Where things lie in the workspace, and running programs there in plain sight.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use host_core::Reported as _;
use serde_json::Value;

/// Why a command stopped, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    mend: Option<String>,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), mend: None }
    }

    pub(crate) fn mend(mut self, mend: impl Into<String>) -> Failure {
        self.mend = Some(mend.into());
        self
    }

    /// An input-output error at a path; `action` is a verb.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::new(format!("cannot {action} {}: {error}", path.display()))
    }
}

impl From<host_build::BuildError> for Failure {
    fn from(error: host_build::BuildError) -> Failure {
        let report = error.report();
        let found = report.found.map_or(String::new(), |found| format!(": {found}"));
        let failure = Failure::new(format!("{}{found}", report.message));
        match report.mend {
            Some(mend) => failure.mend(mend),
            None => failure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.mend {
            Some(mend) => write!(f, "\n  mend  {mend}"),
            None => Ok(()),
        }
    }
}

/// The workspace's folders.
pub(crate) struct Workspace {
    /// The folder of the root manifest.
    pub(crate) root: PathBuf,
    /// Cargo's target folder, wherever it was put.
    pub(crate) target: PathBuf,
    cargo: PathBuf,
}

impl Workspace {
    /// Asks cargo, so that a target folder set by the environment or a configuration is respected.
    pub(crate) fn find() -> Outcome<Workspace> {
        let cargo = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let mut command = Command::new(&cargo);
        command
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
            .arg(manifest);
        let metadata = json(&captured(&mut command)?)?;
        let path = |key: &str| metadata[key].as_str().map(PathBuf::from);
        match (path("workspace_root"), path("target_directory")) {
            (Some(root), Some(target)) => Ok(Workspace { root, target, cargo }),
            _ => Err(Failure::new("cargo metadata tells no workspace_root or target_directory")),
        }
    }

    /// The cargo that runs this program, in the root.
    pub(crate) fn cargo<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(&self.root).args(arguments);
        // Cargo sets these for this program; a build inside must not see them change from run to run.
        let is_own = |name: &OsString| {
            let name = name.to_string_lossy();
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        };
        for name in std::env::vars_os().map(|(name, _)| name).filter(is_own) {
            command.env_remove(name);
        }
        command
    }

    /// The built `tenon`.
    pub(crate) fn tenon(&self) -> PathBuf {
        self.target.join("release").join(format!("tenon{}", std::env::consts::EXE_SUFFIX))
    }

    /// Builds `tenon`; cargo shows its own progress.
    ///
    /// The whole workspace takes part, so that the tests later find every dependency built with the same
    /// features.
    pub(crate) fn build_tenon(&self) -> Outcome {
        run(&mut self.cargo(["build", "--release", "--workspace", "--bins"]))
    }
}

/// Says what comes next.
pub(crate) fn say(text: impl fmt::Display) {
    eprintln!("\n== {text}");
}

/// Runs a program with its output shown; the command line is said first.
pub(crate) fn run(command: &mut Command) -> Outcome {
    eprintln!("   $ {}", shown(command));
    let status = command.status().map_err(|error| not_started(command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("`{}` ended with {status}", shown(command))))
    }
}

/// Runs a program and gives its standard output; what it says on standard error is shown only if it fails.
pub(crate) fn captured(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| not_started(command, &error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!(
            "`{}` ended with {}: {}",
            shown(command),
            output.status,
            said.trim()
        )));
    }
    String::from_utf8(output.stdout).map_err(|_| Failure::new(format!("`{}` wrote no UTF-8", shown(command))))
}

/// Whether a program can be started and ends well.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|it| it.success())
}

pub(crate) fn not_started(command: &Command, error: &io::Error) -> Failure {
    let program = Path::new(command.get_program()).display();
    Failure::new(format!("cannot start `{program}`: {error}"))
        .mend(format!("install {program}, or put it on the PATH"))
}

/// A command line as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args()).map(|word| quoted(&word.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

pub(crate) fn json(text: &str) -> Outcome<Value> {
    serde_json::from_str(text).map_err(|error| Failure::new(format!("unreadable JSON: {error}")))
}

pub(crate) fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| Failure::io("read", path, &error))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Outcome {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| Failure::io("create", folder, &error))?;
    }
    fs::write(path, bytes).map_err(|error| Failure::io("write", path, &error))
}

pub(crate) fn read_toml(path: &Path) -> Outcome<toml::Table> {
    read(path)?.parse().map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// The entries of a folder by name.
pub(crate) fn entries(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let listed = fs::read_dir(folder).map_err(|error| Failure::io("list", folder, &error))?;
    let mut paths: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_shown_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["build", "a b", "", "it's"]);
        assert_eq!(shown(&command), "cargo build 'a b' '' 'it'\\''s'");
    }

    #[test]
    fn a_failure_shows_its_mend() {
        let failure = captured(&mut Command::new("there-is-no-such-program")).unwrap_err();
        assert!(failure.to_string().contains("mend  install there-is-no-such-program"), "{failure}");
    }
}
