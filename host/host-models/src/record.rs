//! What lies in a source's folder: sizes and checksums, checked once at the fetch and kept beside the files.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ModelsError;
use crate::files::{self, DoingAt};
use crate::pins::{Pins, sha256_digits};
use crate::source::ModelSource;

/// A model on this machine's disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocalModel {
    /// The GGUF file, or the folder with `config.json` and safetensors.
    pub path: PathBuf,
    /// Where it came from.
    pub source: ModelSource,
    /// The commit of the hub's repository that was fetched; `None` for other sources.
    pub revision: Option<String>,
    /// Every file of the model, by name.
    pub files: Vec<FileRecord>,
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Path relative to the model's folder, with `/`.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// SHA-256 in lower-case hexadecimal; `None` for a local file that no pin asked to hash.
    pub sha256: Option<String>,
}

impl LocalModel {
    /// The size of all files in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    /// Compares recorded checksums with pins; reads no file.
    pub(crate) fn check_pins(&self, pins: &Pins) -> Result<(), ModelsError> {
        for (name, expected) in pins.iter() {
            let Some(file) = self.files.iter().find(|file| file.name == name) else {
                return Err(ModelsError::PinUnknown {
                    file: name.to_owned(),
                    source_text: self.source.to_string(),
                    files: self.files.iter().map(|file| file.name.clone()).collect(),
                });
            };
            let found = file.sha256.as_deref().unwrap_or("not computed");
            if found != expected {
                return Err(ModelsError::Checksum {
                    file: name.to_owned(),
                    source_text: self.source.to_string(),
                    expected: expected.to_owned(),
                    found: found.to_owned(),
                    asked_by: "the profile's pin",
                });
            }
        }
        Ok(())
    }
}

/// The file `source.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceJson {
    schema: u32,
    source: ModelSource,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    revision: Option<String>,
    /// The model's path relative to `model/`; absent when it is that folder.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    main: Option<String>,
    files: Vec<FileRecord>,
}

const SCHEMA: u32 = 1;
const RECORD: &str = "source.json";
/// The subfolder that holds the model's own files, so that none of them can be taken for the record.
pub(crate) const MODEL: &str = "model";

/// Writes the record into a source's folder; `main` is the GGUF file's name, or `None` for a folder model.
pub(crate) fn write(
    folder: &Path,
    source: &ModelSource,
    revision: Option<String>,
    main: Option<String>,
    files: Vec<FileRecord>,
) -> Result<(), ModelsError> {
    let record = SourceJson { schema: SCHEMA, source: source.clone(), revision, main, files };
    let path = folder.join(RECORD);
    let text = serde_json::to_string_pretty(&record).expect("strings and numbers always serialise");
    fs::write(&path, text + "\n").doing_at("write", &path)
}

/// Whether a folder of the cache has a record, that is, whether a fetch into it was completed.
pub(crate) fn exists(folder: &Path) -> bool {
    folder.join(RECORD).exists()
}

/// Reads a source's folder and compares the size of every file; computes no checksum.
pub(crate) fn read(folder: &Path) -> Result<LocalModel, ModelsError> {
    let path = folder.join(RECORD);
    let text = fs::read_to_string(&path).doing_at("read", &path)?;
    let broken = |detail: String| ModelsError::Record { path: path.clone(), detail };
    let record: SourceJson = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    if record.schema != SCHEMA {
        return Err(broken(format!("schema is {}, expected {SCHEMA}", record.schema)));
    }
    let model = folder.join(MODEL);
    for file in &record.files {
        if !files::stays_inside(&file.name) {
            return Err(broken(format!("`{}` lies outside the folder", file.name)));
        }
        if file.sha256.as_deref().and_then(sha256_digits).is_none() {
            return Err(broken(format!("`{}` has no SHA-256", file.name)));
        }
        let found = files::size_bytes(&model.join(&file.name))?;
        if found != Some(file.size_bytes) {
            return Err(ModelsError::Altered {
                path: model.join(&file.name),
                source_text: record.source.to_string(),
                expected_bytes: file.size_bytes,
                found_bytes: found,
            });
        }
    }
    let path = match &record.main {
        None => model,
        Some(main) if record.files.iter().any(|file| file.name == *main) => model.join(main),
        Some(main) => return Err(broken(format!("`{main}` is not among its files"))),
    };
    Ok(LocalModel { path, source: record.source, revision: record.revision, files: record.files })
}
