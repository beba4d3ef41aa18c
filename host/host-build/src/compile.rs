//! One run of cargo over a plugin's crate.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::BuildError;
use crate::target::TARGET;

/// The cargo to run: the one that runs this program, else the one on the PATH.
pub fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Compiles the crate in `folder` for [`TARGET`] and gives the core module that it makes.
///
/// `arguments` choose profile and package: `["--release"]`. Cargo's messages go to standard error as they are.
///
/// # Errors
/// [`BuildError::NotStarted`], [`BuildError::Compile`], [`BuildError::NoModule`], [`BuildError::Read`].
pub fn compile(folder: &Path, arguments: &[&str]) -> Result<Vec<u8>, BuildError> {
    let mut command = Command::new(cargo());
    command
        .current_dir(folder)
        .args(["build", "--target", TARGET, "--message-format", "json-render-diagnostics"])
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output();
    let output = output.map_err(|source| BuildError::NotStarted { program: "cargo".to_owned(), source })?;
    if !output.status.success() {
        return Err(BuildError::Compile { folder: folder.to_owned() });
    }
    let module = last_module(&String::from_utf8_lossy(&output.stdout));
    let path = module.ok_or_else(|| BuildError::NoModule { folder: folder.to_owned() })?;
    fs::read(&path).map_err(|source| BuildError::Read { path, source })
}

/// The module among cargo's messages. The crate that was asked for is compiled last.
pub(crate) fn last_module(messages: &str) -> Option<PathBuf> {
    messages.lines().rev().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_artifact = message["reason"] == "compiler-artifact";
        let kinds = message["target"]["kind"].as_array().filter(|_| is_artifact)?;
        kinds.iter().find(|kind| *kind == "cdylib")?;
        let files = message["filenames"].as_array()?.iter().filter_map(Value::as_str);
        files.filter(|file| file.ends_with(".wasm")).map(PathBuf::from).next()
    })
}
