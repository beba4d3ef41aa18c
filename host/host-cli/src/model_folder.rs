//! Writes a model folder: weights, configuration and tokenizer, under a hidden name until all of it is there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use host_text::Tokenizer;
use host_weights::{Checkpoint, write_model_folder};

use crate::error::{CliError, Failure};
use crate::progress::BytesProgress;

/// What a folder's tokenizer may consist of; copied as it is.
const TOKENIZER_FILES: [&str; 8] = [
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Writes `checkpoint`, which was opened from `model`, as the new folder `out`, with `more` files of texts.
///
/// # Errors
/// `out` is taken, something cannot be read or written; nothing is left behind then.
pub(crate) fn write_folder(
    checkpoint: &Checkpoint,
    model: &Path,
    out: &Path,
    more: &[(&str, &str)],
) -> Result<(), Failure> {
    let staging = Staging::beside(out)?;
    let mut progress = BytesProgress::new("writing weights");
    write_model_folder(checkpoint, &staging.0, &mut |done, total| progress.set(done, total))?;
    drop(progress);
    write_tokenizer(model, checkpoint, &staging.0)?;
    more.iter().try_for_each(|(name, text)| write(&staging.0, name, text))?;
    Ok(staging.publish(out)?)
}

/// Refuses a target that is taken, before any work is done for it.
///
/// # Errors
/// As [`write_folder`].
pub(crate) fn check_free(out: &Path) -> Result<(), CliError> {
    Staging::beside(out).map(drop)
}

/// Copies the tokenizer's files, or writes what a GGUF file holds of them.
fn write_tokenizer(model: &Path, checkpoint: &Checkpoint, folder: &Path) -> Result<(), Failure> {
    let Some(vocabulary) = checkpoint.vocabulary() else {
        for name in TOKENIZER_FILES {
            let from = model.join(name);
            if from.is_file() {
                fs::copy(&from, folder.join(name)).map_err(CliError::file("copied", &from))?;
            }
        }
        return Ok(());
    };
    let tokenizer = Tokenizer::from_vocabulary(vocabulary)?;
    write(folder, "tokenizer.json", &tokenizer.to_tokenizer_json()?)?;
    write(folder, "tokenizer_config.json", &tokenizer.tokenizer_config_json())?;
    write(folder, "generation_config.json", &tokenizer.generation_config_json())?;
    if let Some(template) = &vocabulary.chat_template {
        write(folder, "chat_template.jinja", template)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), CliError> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(CliError::file("written", &path))
}

/// A folder under a hidden name; removed again unless it is published.
struct Staging(PathBuf);

impl Staging {
    fn beside(out: &Path) -> Result<Self, CliError> {
        let taken = || CliError::OutTaken { path: out.to_owned() };
        if out.symlink_metadata().is_ok() {
            return Err(taken());
        }
        let name = out.file_name().ok_or_else(taken)?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".new-{}", std::process::id()));
        Ok(Staging(out.with_file_name(hidden)))
    }

    fn publish(self, out: &Path) -> Result<(), CliError> {
        fs::rename(&self.0, out).map_err(CliError::file("written", out))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After publishing there is nothing of that name.
        let _ = fs::remove_dir_all(&self.0);
    }
}
