//! The built `tenon`, run as a user would: arguments, standard input, what it writes and how it ends.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::skip;

/// The program with a cache folder of its own.
#[derive(Debug)]
pub struct Tenon {
    path: PathBuf,
    cache: TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Tenon {
    /// The program beside its plugins and profiles. `None` has been said aloud.
    pub fn find() -> Option<Tenon> {
        let path = skip::program()?;
        skip::wasm_plugins()?;
        Some(Tenon { path, cache: tempfile::tempdir().expect("a temporary folder") })
    }

    /// The folder of fetched models; empty at first.
    pub fn cache(&self) -> &Path {
        self.cache.path()
    }

    /// Starts it with every stream a pipe.
    pub fn start<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Child {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    /// The program with its cache folder and without the variables of whoever runs the tests.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.env("TENON_CACHE", self.cache());
        for name in ["TENON_PLUGINS", "TENON_PROFILES"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs it to its end with `input` on standard input.
    pub fn run_with<S: AsRef<OsStr>>(&self, arguments: &[S], input: &[u8]) -> Ended {
        let mut child = self.start(arguments);
        let mut stdin = child.stdin.take().expect("a pipe");
        let output = thread::scope(|scope| {
            // A program that does not read leaves the pipe broken, which is its right.
            scope.spawn(move || drop(stdin.write_all(input)));
            child.wait_with_output().expect("a program ends")
        });
        Ended::of(output)
    }

    /// Runs it to its end with nothing on standard input.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Ended {
        self.run_with(arguments, b"")
    }
}

impl Ended {
    /// What a finished program left.
    pub fn of(output: Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        let ended =
            Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
        ended
    }

    /// What it wrote, after checking that it ended well.
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The JSON object that it wrote, after checking that it ended well.
    pub fn json(self) -> Value {
        let text = self.done();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The report of an error that it wrote as JSON, after checking how it ended.
    pub fn error(self, code: i32) -> Value {
        assert_eq!(self.code, Some(code), "{self:?}");
        let object: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        object["error"].clone()
    }
}
