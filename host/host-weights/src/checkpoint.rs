//! An opened checkpoint: headers read and checked, tensors mapped when they are taken.

use std::ops::Range;
use std::path::Path;

use host_core::Vocabulary;

use crate::catalogue::{Catalogue, Format, TensorInfo};
use crate::config::{ModelConfig, ModelPath, read_config};
use crate::error::WeightsError;
use crate::gguf;
use crate::mapping::MappedFile;
use crate::safetensors;
use crate::stored::{Contents, Stored};
use crate::tensor::{Tensor, rows_and_cols};

/// A checkpoint, by name.
#[derive(Debug)]
pub struct Checkpoint {
    config: ModelConfig,
    format: Format,
    vocabulary: Option<Vocabulary>,
    files: Vec<MappedFile>,
    catalogue: Catalogue,
    /// Where each tensor lies, in the catalogue's order.
    stored: Vec<Stored>,
}

impl Checkpoint {
    /// Opens a model folder (`model.safetensors`, or shards named by `model.safetensors.index.json`) or a GGUF
    /// file, and checks every header. The bytes of safetensors files are not mapped yet.
    ///
    /// # Errors
    /// [`WeightsError`] with the file and what is wrong with it.
    pub fn open(path: &Path) -> Result<Checkpoint, WeightsError> {
        match ModelPath::of(path)? {
            ModelPath::Folder => {
                let config = read_config(path)?;
                let contents = safetensors::open_folder(path, config.quantization()?.as_ref())?;
                Ok(Checkpoint::new(config, Format::Safetensors, None, contents))
            }
            ModelPath::Gguf => {
                let (config, vocabulary, contents) = gguf::open(path)?;
                Ok(Checkpoint::new(config, Format::Gguf, Some(vocabulary), contents))
            }
        }
    }

    fn new(config: ModelConfig, format: Format, vocabulary: Option<Vocabulary>, contents: Contents) -> Self {
        let Contents { files, mut tensors } = contents;
        // The same order as the catalogue's; the readers have refused equal names.
        tensors.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        let (infos, stored) = tensors.into_iter().unzip();
        Checkpoint { config, format, vocabulary, files, catalogue: Catalogue::new(infos), stored }
    }

    /// The configuration, as [`read_config`] gives it.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// How the checkpoint is stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The tensors: names, logical shapes, encodings, sizes.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The tokenizer's vocabulary, which only a GGUF file carries.
    pub fn vocabulary(&self) -> Option<&Vocabulary> {
        self.vocabulary.as_ref()
    }

    /// A view of the tensor; maps its file on first use.
    ///
    /// # Errors
    /// [`WeightsError::NoTensor`] for an unknown name, and the errors of mapping the file.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, WeightsError> {
        let (info, stored) = self.find(name).ok_or_else(|| WeightsError::NoTensor {
            name: name.to_owned(),
            nearest: self.catalogue.nearest(name),
        })?;
        stored.view(info, &self.files)
    }

    /// Tells the system that the tensor's pages are not needed for now, so that they stop counting as resident
    /// memory. Does nothing for an unknown name; a later read brings the pages back.
    pub fn release(&self, name: &str) {
        if let Some((_, stored)) = self.find(name) {
            stored.extents().for_each(|at| self.files[at.file].release(at.range()));
        }
    }

    /// As [`Checkpoint::release`], for some rows, so that a large tensor need not be resident as a whole while it
    /// is repacked. Rows that the tensor does not have are ignored.
    pub fn release_rows(&self, name: &str, rows: Range<usize>) {
        let Some((info, stored)) = self.find(name) else { return };
        let (n_rows, _) = rows_and_cols(&info.shape);
        let rows = rows.start.min(n_rows)..rows.end.min(n_rows);
        for at in stored.extents() {
            let row_bytes = at.bytes / n_rows;
            let begin = at.begin + rows.start * row_bytes;
            self.files[at.file].release(begin..begin + rows.len() * row_bytes);
        }
    }

    fn find(&self, name: &str) -> Option<(&TensorInfo, &Stored)> {
        let at = self.catalogue.position(name)?;
        Some((self.catalogue.get(name)?, &self.stored[at]))
    }
}
