//! `tenon import`: any model as a folder of safetensors with its tokenizer.
//!
//! Weights and tokenizer are written to a hidden folder beside the target, which gets its name when it is whole.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use host_models::{ModelSource, ModelStore};
use host_text::Tokenizer;
use host_weights::{Checkpoint, write_model_folder};

use super::print;
use crate::args::{FolderArgs, ImportArgs};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::host::profiles;
use crate::open::fetch;
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

pub(crate) fn run(folders: &FolderArgs, args: &ImportArgs) -> Result<Exit, Failure> {
    let source: ModelSource = args.source.parse()?;
    let model = fetch(&ModelStore::open(None)?, &profiles(folders)?, &source)?;
    let checkpoint = Checkpoint::open(&model.path)?;
    let staging = Staging::beside(&args.out)?;
    let mut progress = BytesProgress::new("writing weights");
    write_model_folder(&checkpoint, &staging.0, &mut |done, total| progress.set(done, total))?;
    drop(progress);
    write_tokenizer(&model.path, &checkpoint, &staging.0)?;
    staging.publish(&args.out)?;
    print(&format!("{}\n", args.out.display()))
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
        hidden.push(format!(".import-{}", std::process::id()));
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
