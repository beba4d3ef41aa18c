//! Writes a checkpoint as a safetensors model folder that MLX reads too.
//!
//! Quantised tensors become packed triples with the very codes, scales and biases that the checkpoint holds, so
//! that reading the folder back gives the same numbers bit for bit. The folder appears at its name when it is
//! whole, never before. Tokenizer files are not weights and are written by whoever has them.

mod config;
mod plan;
mod writer;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use host_core::{Report, Reported};

use crate::checkpoint::Checkpoint;
use crate::error::WeightsError;

/// Why a model folder cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportFault {
    /// Something has that name already.
    #[error("something has that name already")]
    TargetExists,
    /// The path has no last part, or no folder to stand in.
    #[error("this is no name for a new folder")]
    NoName,
    /// No space is left.
    #[error("no space is left")]
    DiskFull {
        /// Bytes of weights to write.
        needed: u64,
        /// What the system says.
        source: io::Error,
    },
    /// A quantised tensor that packed triples cannot hold.
    #[error("tensor `{tensor}` is quantised, but is no matrix named `….weight`")]
    NotAWeight {
        /// The tensor.
        tensor: String,
    },
}

impl Reported for ExportFault {
    fn report(&self) -> Report {
        let message = self.to_string();
        match self {
            ExportFault::TargetExists => Report::new("weights.target-exists", message)
                .expected("a name that is free")
                .mend("remove what stands there, or choose another name"),
            ExportFault::NoName => Report::new("weights.target-name", message)
                .expected("the path of a new folder in a folder that exists")
                .mend("choose another path"),
            ExportFault::DiskFull { needed, source } => Report::new("weights.disk-full", message)
                .expected(format!("room for {needed} bytes"))
                .found(source.to_string())
                .mend("free some space, or choose another disk; nothing was left behind"),
            ExportFault::NotAWeight { .. } => Report::new("weights.not-a-weight", message)
                .mend("this checkpoint cannot be written as a safetensors folder"),
        }
    }
}

/// Writes `checkpoint` as the new folder `out`: `config.json` and safetensors files.
///
/// `progress` hears of bytes written and bytes to write. Everything goes to a hidden folder beside `out`, which
/// is renamed at the end, or removed after an error.
///
/// # Errors
/// [`WeightsError::Export`] where `out` exists, is no name, or no space is left; else the errors of reading the
/// checkpoint and writing files.
pub fn write_model_folder(
    checkpoint: &Checkpoint,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), WeightsError> {
    let fault = |source| WeightsError::Export { folder: out.to_owned(), source };
    if out.symlink_metadata().is_ok() {
        return Err(fault(ExportFault::TargetExists));
    }
    let hidden = hidden_beside(out).ok_or_else(|| fault(ExportFault::NoName))?;
    let plan = plan::plan(checkpoint).map_err(|error| error.at(out))?;
    let needed = plan.iter().map(plan::PlannedTensor::bytes).sum();
    let write = || {
        let partial = Partial::create(hidden)?;
        writer::write_shards(checkpoint, &plan, &partial.path, progress)?;
        config::write(checkpoint, &partial.path)?;
        fs::rename(&partial.path, out).map_err(|source| io_error("create", out, source))
    };
    write().map_err(|error| match error {
        WeightsError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            fault(ExportFault::DiskFull { needed, source })
        }
        other => other,
    })
}

fn io_error(act: &'static str, path: &Path, source: io::Error) -> WeightsError {
    WeightsError::Io { act, path: path.to_owned(), source }
}

/// A name for the folder while it is written; `None` where `out` has no name or no folder to stand in.
fn hidden_beside(out: &Path) -> Option<PathBuf> {
    let name = out.file_name()?;
    let parent = out.parent()?;
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".partial-{}", std::process::id()));
    parent.is_dir().then(|| parent.join(hidden))
}

/// The hidden folder that is written; what is left of it goes when it is dropped.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn create(path: PathBuf) -> Result<Partial, WeightsError> {
        fs::create_dir(&path).map_err(|source| io_error("create", &path, source))?;
        Ok(Partial { path })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After the rename there is nothing here; after an error there is nobody left to tell.
        let _ = fs::remove_dir_all(&self.path);
    }
}
