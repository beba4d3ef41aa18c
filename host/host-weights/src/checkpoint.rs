//! An opened checkpoint: headers read and checked, tensors mapped when they are taken.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use host_core::quant::{Scheme, TensorFacts};
use host_core::{DType, Vocabulary};

use crate::catalogue::{Catalogue, Format, TensorInfo};
use crate::config::{ModelConfig, ModelPath, read_config};
use crate::encode::{Coded, coded_bytes, encode, encoding_of};
use crate::error::WeightsError;
use crate::gguf;
use crate::mapping::MappedFile;
use crate::safetensors;
use crate::stored::{Contents, Stored, view_of_coded};
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
    /// Whether a quantisation was applied after reading.
    is_recoded: bool,
    /// The tensor that was encoded last, by its place in the catalogue.
    made: Mutex<Option<(usize, Arc<Coded>)>>,
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
        let catalogue = Catalogue::new(infos);
        let (is_recoded, made) = (false, Mutex::default());
        Checkpoint { config, format, vocabulary, files, catalogue, stored, is_recoded, made }
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
        let at = self.catalogue.position(name).ok_or_else(|| self.no_tensor(name))?;
        let info = &self.catalogue.tensors()[at];
        match &self.stored[at] {
            Stored::Recoded { from, dtype } => {
                Ok(view_of_coded(info, &*self.coded(at, info, (&from.0, &from.1), *dtype)?))
            }
            stored => stored.view(info, &self.files),
        }
    }

    /// The same checkpoint with some tensors quantised, one scheme a tensor in the catalogue's order.
    ///
    /// A tensor is encoded when it is taken, as MLX's own `quantize` does it, and the codes of the one taken last
    /// are kept until another is taken or it is released. What is kept stays as it is stored. Schemes that were
    /// given before are forgotten.
    ///
    /// # Errors
    /// [`WeightsError::Scheme`] names the first tensor that cannot take its scheme.
    ///
    /// # Panics
    /// When `schemes` has not one entry a tensor.
    pub fn quantised(mut self, schemes: &[Scheme]) -> Result<Checkpoint, WeightsError> {
        assert_eq!(schemes.len(), self.catalogue.len(), "one scheme a tensor");
        let mut infos = self.catalogue.tensors().to_vec();
        self.is_recoded = false;
        for ((info, stored), scheme) in infos.iter_mut().zip(&mut self.stored).zip(schemes) {
            if let Stored::Recoded { from, .. } = stored {
                (*info, *stored) = (**from).clone();
            }
            let dtype = info.number_dtype();
            let facts = TensorFacts::unused(info.name.clone(), info.shape.clone(), dtype);
            scheme.check(&facts)?;
            let Some(encoding) = encoding_of(*scheme, dtype) else { continue };
            let bytes = coded_bytes(encoding, &info.shape);
            let coded = TensorInfo { encoding, bytes, ..info.clone() };
            let from = Box::new((std::mem::replace(info, coded), stored.clone()));
            *stored = Stored::Recoded { from, dtype };
            self.is_recoded = true;
        }
        self.catalogue = Catalogue::new(infos);
        self.made = Mutex::default();
        Ok(self)
    }

    /// Whether [`Checkpoint::quantised`] changed a tensor.
    pub fn is_recoded(&self) -> bool {
        self.is_recoded
    }

    /// The encoded form of a tensor, made now unless it was the last one made.
    fn coded(
        &self,
        at: usize,
        info: &TensorInfo,
        (from, stored): (&TensorInfo, &Stored),
        dtype: DType,
    ) -> Result<Arc<Coded>, WeightsError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, coded)) = &*made
            && *last == at
        {
            return Ok(coded.clone());
        }
        // The memory of the last one is free before the next one needs some.
        *made = None;
        let tensor = stored.view(from, &self.files)?;
        let coded = Arc::new(encode(&tensor, info, dtype, &|rows| self.release_rows(&info.name, rows))?);
        *made = Some((at, coded.clone()));
        Ok(coded)
    }

    fn no_tensor(&self, name: &str) -> WeightsError {
        WeightsError::NoTensor { name: name.to_owned(), nearest: self.catalogue.nearest(name) }
    }

    /// Tells the system that the tensor's pages are not needed for now, so that they stop counting as resident
    /// memory. Does nothing for an unknown name; a later read brings the pages back.
    pub fn release(&self, name: &str) {
        if let Some((_, stored)) = self.find(name) {
            stored.extents().for_each(|at| self.files[at.file].release(at.range()));
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.take_if(|(last, _)| self.catalogue.tensors()[*last].name == name);
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
