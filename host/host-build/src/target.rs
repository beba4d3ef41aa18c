//! The standard library that plugins are compiled against.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::BuildError;

/// What plugins are compiled for: no system interface comes with it.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Whether the standard library of a target is installed, for the toolchain that counts in `folder`.
///
/// # Errors
/// [`BuildError::NotStarted`] without rustc, [`BuildError::Tool`] when it does not know the target.
pub fn has_target(folder: &Path, target: &str) -> Result<bool, BuildError> {
    let printed = captured(folder, "rustc", &["--print", "target-libdir", "--target", target])?;
    Ok(PathBuf::from(printed.trim()).is_dir())
}

/// The version line of the compiler that counts in `folder`.
///
/// # Errors
/// As [`has_target`].
pub fn rustc_version(folder: &Path) -> Result<String, BuildError> {
    Ok(captured(folder, "rustc", &["--version"])?.trim().to_owned())
}

/// Lets rustup install the standard library of a target; rustup shows its own progress.
///
/// # Errors
/// [`BuildError::Target`].
pub fn add_target(folder: &Path, target: &str) -> Result<(), BuildError> {
    let failed = |said: String| BuildError::Target { target: target.to_owned(), said };
    // Its output is for people; a script reads this program's own.
    let status = Command::new("rustup")
        .current_dir(folder)
        .args(["target", "add", target])
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(format!("rustup ended with {status}"))),
        Err(error) => Err(failed(format!("rustup cannot be started: {error}"))),
    }
}

fn captured(folder: &Path, program: &str, arguments: &[&str]) -> Result<String, BuildError> {
    let output = Command::new(program).current_dir(folder).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|source| BuildError::NotStarted { program: program.to_owned(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(BuildError::Tool {
        command: format!("{program} {}", arguments.join(" ")),
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
