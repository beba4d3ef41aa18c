//! Models that the user put on disk: looked at where they lie, never copied.

use std::fs;
use std::path::{Path, PathBuf};

use crate::choice::is_model_file;
use crate::error::ModelsError;
use crate::files::{self, DoingAt};
use crate::pins::Pins;
use crate::progress::Progress;
use crate::record::{FileRecord, LocalModel};
use crate::source::ModelSource;

/// A local GGUF file; hashed only when a pin names it.
pub(crate) fn open_file(
    path: &Path,
    source: &ModelSource,
    pins: &Pins,
    progress: &mut dyn Progress,
) -> Result<LocalModel, ModelsError> {
    if files::size_bytes(path)?.is_none() {
        return Err(absent(path, "a GGUF file"));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let records = vec![look_at(path, name, pins, progress)?];
    finish(path.to_path_buf(), source, records, pins)
}

/// A local folder with `config.json` and safetensors; files are hashed only when a pin names them.
pub(crate) fn open_folder(
    path: &Path,
    source: &ModelSource,
    pins: &Pins,
    progress: &mut dyn Progress,
) -> Result<LocalModel, ModelsError> {
    if !path.is_dir() {
        return Err(absent(path, "a folder with config.json, or a GGUF file"));
    }
    let mut names: Vec<String> = fs::read_dir(path)
        .doing_at("list", path)?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_model_file(name))
        .collect();
    names.sort();
    let holds = |wanted: &dyn Fn(&str) -> bool| names.iter().any(|name| wanted(name));
    if !holds(&|name| name == "config.json") || !holds(&|name| name.ends_with(".safetensors")) {
        return Err(ModelsError::NotAModelFolder { path: path.to_path_buf(), found: names });
    }
    let mut records = Vec::new();
    for name in names {
        records.push(look_at(&path.join(&name), name, pins, progress)?);
    }
    finish(path.to_path_buf(), source, records, pins)
}

fn look_at(
    path: &Path,
    name: String,
    pins: &Pins,
    progress: &mut dyn Progress,
) -> Result<FileRecord, ModelsError> {
    if pins.get(&name).is_some() {
        return files::hash(path, &name, progress);
    }
    let size_bytes = fs::metadata(path).doing_at("look at", path)?.len();
    Ok(FileRecord { name, size_bytes, sha256: None })
}

fn finish(
    path: PathBuf,
    source: &ModelSource,
    files: Vec<FileRecord>,
    pins: &Pins,
) -> Result<LocalModel, ModelsError> {
    let model = LocalModel { path, source: source.clone(), revision: None, files };
    model.check_pins(pins)?;
    Ok(model)
}

fn absent(path: &Path, expected: &'static str) -> ModelsError {
    ModelsError::Absent { path: path.to_path_buf(), expected }
}
