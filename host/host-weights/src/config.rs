//! A model's configuration, read before a composition is resolved: no tensor is touched.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::WeightsError;
use crate::gguf;
use crate::json::{self, JSON_LIMIT_BYTES, JsonFault};
use crate::quantization::Quantization;

/// A model's configuration with the keys of a published `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The keys, in the file's order.
    pub json: Map<String, Value>,
    /// Where they come from.
    pub origin: ConfigOrigin,
}

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// This `config.json`.
    ConfigJson(PathBuf),
    /// The metadata of this GGUF file, under the names of `config.json`.
    GgufMetadata(PathBuf),
}

impl ConfigOrigin {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            ConfigOrigin::ConfigJson(path) | ConfigOrigin::GgufMetadata(path) => path,
        }
    }
}

impl ModelConfig {
    /// The `quantization` block, checked; `None` where the model is not quantised.
    ///
    /// # Errors
    /// [`WeightsError::Quantization`] for a block with unknown keys, modes or widths.
    pub fn quantization(&self) -> Result<Option<Quantization>, WeightsError> {
        Quantization::from_config(&self.json)
            .map_err(|source| WeightsError::Quantization { file: self.origin.path().to_owned(), source })
    }
}

/// Reads the configuration of a model: `config.json` of a folder, or the metadata of a GGUF file.
///
/// The quantisation block is checked as well. No safetensors file is opened, and of a GGUF file only the header.
///
/// # Errors
/// [`WeightsError::NotAModel`] for anything else, and the errors of the file that is read.
pub fn read_config(path: &Path) -> Result<ModelConfig, WeightsError> {
    match ModelPath::of(path)? {
        ModelPath::Folder => read_config_json(path),
        ModelPath::Gguf => gguf::read_config(path),
    }
}

/// What a model's path points at.
pub(crate) enum ModelPath {
    /// A folder with `config.json`.
    Folder,
    /// A file, to be read as GGUF.
    Gguf,
}

impl ModelPath {
    pub(crate) fn of(path: &Path) -> Result<ModelPath, WeightsError> {
        let not_a_model =
            |found: &str| WeightsError::NotAModel { path: path.to_owned(), found: found.to_owned() };
        let kind = fs::metadata(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => not_a_model("nothing at that path"),
            _ => WeightsError::Io { act: "open", path: path.to_owned(), source },
        })?;
        if kind.is_dir() {
            let found = path.join("config.json").is_file();
            return if found {
                Ok(ModelPath::Folder)
            } else {
                Err(not_a_model("a folder without config.json"))
            };
        }
        if !kind.is_file() {
            return Err(not_a_model("neither a file nor a folder"));
        }
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
            return Ok(ModelPath::Gguf);
        }
        Err(not_a_model("a file whose name does not end in .gguf"))
    }
}

fn read_config_json(folder: &Path) -> Result<ModelConfig, WeightsError> {
    let path = folder.join("config.json");
    let json = read_json_object(&path)?;
    let config = ModelConfig { json, origin: ConfigOrigin::ConfigJson(path) };
    config.quantization()?;
    Ok(config)
}

/// Reads a JSON file that holds one object.
pub(crate) fn read_json_object(path: &Path) -> Result<Map<String, Value>, WeightsError> {
    let io = |source| WeightsError::Io { act: "read", path: path.to_owned(), source };
    let fault = |source| WeightsError::Json { file: path.to_owned(), source };
    let found = fs::metadata(path).map_err(io)?.len();
    if found > JSON_LIMIT_BYTES {
        return Err(fault(JsonFault::TooLarge { limit: JSON_LIMIT_BYTES, found }));
    }
    json::parse_object(&fs::read(path).map_err(io)?).map_err(fault)
}
