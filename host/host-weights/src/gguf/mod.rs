//! GGUF, versions 2 and 3: a whole model in one file.
//!
//! The metadata gives what `config.json` would say, the vocabulary what the tokenizer needs, and the tensors the
//! weights under the names of the published checkpoint. What the file leaves to its reader (the order of query
//! and key rows, norm weights stored plus one) is known per architecture and undone here.

mod architecture;
mod config;
mod cursor;
mod fault;
mod ggml_type;
mod header;
mod metadata;
mod rope;
mod tokenizer;
mod vocabulary;

use std::path::Path;

use host_core::Vocabulary;
use serde_json::{Map, Value as Json};

use crate::catalogue::TensorInfo;
use crate::config::{ConfigOrigin, ModelConfig};
use crate::error::WeightsError;
use crate::mapping::{Extent, MappedFile};
use crate::stored::{Contents, Stored};
use crate::tensor::{RowOrder, Shift, Tensor};

pub use fault::GgufFault;
pub use ggml_type::GgmlType;
pub use header::{Header, HeaderTensor};
pub use metadata::{Array, Metadata, Value, ValueType};
pub use tokenizer::tokenizer_facts;

use architecture::{Architecture, Place};

/// A GGUF file's bytes, checked and put under the names of the published checkpoint.
#[derive(Debug)]
pub struct Model<'a> {
    file: &'a [u8],
    config: Map<String, Json>,
    vocabulary: Vocabulary,
    tensors: Vec<(TensorInfo, Stored)>,
}

impl<'a> Model<'a> {
    /// Parses a whole file; `path` only names it in the catalogue.
    ///
    /// # Errors
    /// A [`GgufFault`] names the first thing that is wrong.
    pub fn parse(file: &'a [u8], path: &Path) -> Result<Model<'a>, GgufFault> {
        let header = Header::parse(file)?;
        let (architecture, config) = config::config_json(&header, file)?;
        let vocabulary = vocabulary::read(&header.metadata)?;
        config::check_vocabulary(&config, vocabulary.tokens.len())?;
        let tensors = tensors(&header, architecture, &config, path)?;
        Ok(Model { file, config, vocabulary, tensors })
    }

    /// The configuration, with the keys of `config.json`.
    pub fn config(&self) -> &Map<String, Json> {
        &self.config
    }

    /// The tokenizer's vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Views of all tensors, by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&TensorInfo, Tensor<'_>)> {
        self.tensors.iter().map(|(info, stored)| (info, stored.view_in(info, self.file)))
    }
}

/// Reads the configuration from a file's metadata. Tensor data is not read, except for the short table
/// `rope_freqs.weight`, in which the format keeps what `rope_scaling` says.
pub(crate) fn read_config(path: &Path) -> Result<ModelConfig, WeightsError> {
    let file = MappedFile::open(path)?;
    let bytes = file.bytes()?;
    let json =
        Header::parse(bytes).and_then(|header| config::config_json(&header, bytes)).map(|(_, json)| json);
    let json = json.map_err(|source| WeightsError::Gguf { file: path.to_owned(), source })?;
    Ok(model_config(json, path))
}

/// Opens a file: configuration, vocabulary and tensor table.
pub(crate) fn open(path: &Path) -> Result<(ModelConfig, Vocabulary, Contents), WeightsError> {
    let file = MappedFile::open(path)?;
    let Model { config, vocabulary, tensors, .. } = Model::parse(file.bytes()?, path)
        .map_err(|source| WeightsError::Gguf { file: path.to_owned(), source })?;
    Ok((model_config(config, path), vocabulary, Contents { files: vec![file], tensors }))
}

fn model_config(json: Map<String, Json>, path: &Path) -> ModelConfig {
    ModelConfig { json, origin: ConfigOrigin::GgufMetadata(path.to_owned()) }
}

/// The tensor table under published names, in their order.
fn tensors(
    header: &Header<'_>,
    architecture: Architecture,
    config: &Map<String, Json>,
    path: &Path,
) -> Result<Vec<(TensorInfo, Stored)>, GgufFault> {
    let count = |key: &str| config.get(key).and_then(Json::as_u64).map_or(0, |count| count as usize);
    let n_layers = count("num_hidden_layers");
    let mut tensors = Vec::with_capacity(header.tensors.len());
    for tensor in header.tensors.iter().filter(|tensor| tensor.name != rope::TABLE) {
        let (name, place) = architecture.published(tensor.name, n_layers)?;
        let (order, shift) = match place {
            Place::AsStored => (RowOrder::Published, Shift::None),
            Place::QueryRows => (rotary_pairs(tensor, count("num_attention_heads"))?, Shift::None),
            Place::KeyRows => (rotary_pairs(tensor, count("num_key_value_heads"))?, Shift::None),
            Place::NormPlusOne => (RowOrder::Published, plus_one(tensor)?),
        };
        let at = Extent { file: 0, begin: tensor.begin, bytes: tensor.bytes };
        let stored = match tensor.ggml_type {
            GgmlType::Dense(_) => Stored::Dense { at, order, shift },
            GgmlType::Blocks(kind) => Stored::Blocks { at, kind, order },
        };
        let info = TensorInfo {
            name,
            shape: tensor.shape.clone(),
            encoding: tensor.ggml_type.encoding(),
            bytes: tensor.bytes as u64,
            file: path.to_owned(),
        };
        tensors.push((info, stored));
    }
    tensors.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    Ok(tensors)
}

/// The stored order of query and key rows: one head after the other, each of an even number of rows.
fn rotary_pairs(tensor: &HeaderTensor<'_>, heads: usize) -> Result<RowOrder, GgufFault> {
    let rows = tensor.shape[0];
    let head_dim = rows.checked_div(heads).filter(|width| width.is_multiple_of(2) && width * heads == rows);
    // A vector's elements move one by one, which blocks cannot.
    match head_dim.filter(|_| tensor.shape.len() > 1 || !is_blocks(tensor)) {
        Some(head_dim) => Ok(RowOrder::RotaryPairs { head_dim }),
        None => {
            let (tensor, found) = (tensor.name.to_owned(), tensor.shape.clone());
            Err(GgufFault::HeadRows { tensor, heads, found })
        }
    }
}

fn is_blocks(tensor: &HeaderTensor<'_>) -> bool {
    matches!(tensor.ggml_type, GgmlType::Blocks(_))
}

fn plus_one(tensor: &HeaderTensor<'_>) -> Result<Shift, GgufFault> {
    match tensor.ggml_type {
        GgmlType::Dense(host_core::DType::F32) => Ok(Shift::PlusOne),
        found => {
            Err(GgufFault::NormType { tensor: tensor.name.to_owned(), found: found.encoding().to_string() })
        }
    }
}
