//! The errors of this crate: what is wrong, in which file.
//!
//! Parsers work on bytes and know no file, so each has its own enum of faults; [`WeightsError`] adds the file.

use std::io;
use std::path::{Path, PathBuf};

use host_core::quant::QuantError;
use host_core::{DType, Report, Reported};

use crate::export::ExportFault;
use crate::gguf::GgufFault;
use crate::json::JsonFault;
use crate::quantization::QuantizationFault;
use crate::safetensors::{FolderFault, SafetensorsFault};

/// Why a checkpoint could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The system refused to read or write.
    #[error("cannot {act} `{}`", path.display())]
    Io {
        /// What was tried: `open`, `read`, `map`.
        act: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path is neither a model folder nor a GGUF file.
    #[error("`{}` is no model", path.display())]
    NotAModel {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// A JSON file is malformed.
    #[error("`{}` cannot be used", file.display())]
    Json {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: JsonFault,
    },
    /// The quantisation block of `config.json` is malformed or unknown.
    #[error("the quantisation in `{}` cannot be used", file.display())]
    Quantization {
        /// The configuration file.
        file: PathBuf,
        /// What is wrong with it.
        source: QuantizationFault,
    },
    /// A safetensors file is malformed.
    #[error("`{}` cannot be used", file.display())]
    Safetensors {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: SafetensorsFault,
    },
    /// The files of a model folder do not fit together.
    #[error("the weights of `{}` do not fit together", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What does not fit.
        source: FolderFault,
    },
    /// A GGUF file is malformed or not supported.
    #[error("`{}` cannot be used", file.display())]
    Gguf {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: GgufFault,
    },
    /// The file is not what it was when its header was checked.
    #[error("`{}` changed after it was opened", file.display())]
    Changed {
        /// The file.
        file: PathBuf,
        /// Bytes when the header was checked.
        expected: u64,
        /// Bytes now.
        found: u64,
    },
    /// The checkpoint has no tensor of that name.
    #[error("the checkpoint has no tensor `{name}`")]
    NoTensor {
        /// The name asked for.
        name: String,
        /// Known names that are close.
        nearest: Vec<String>,
    },
    /// A dense tensor was read as numbers but does not hold F32, F16 or BF16.
    #[error("tensor `{tensor}` cannot be read as numbers")]
    NotNumbers {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        found: DType,
    },
    /// A tensor to be quantised holds an infinity, NaN, or a number beyond what a scale can hold.
    #[error("tensor `{tensor}` cannot be quantised: row {row} holds a number that no scale can hold")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// The row.
        row: usize,
    },
    /// A scheme that a tensor cannot take.
    #[error("a tensor cannot be quantised as asked")]
    Scheme(#[from] QuantError),
    /// A model folder cannot be written.
    #[error("cannot write `{}`", folder.display())]
    Export {
        /// The folder to write.
        folder: PathBuf,
        /// Why.
        source: ExportFault,
    },
}

impl Reported for WeightsError {
    fn report(&self) -> Report {
        match self {
            WeightsError::Io { source, .. } => Report::new("weights.io", self.to_string())
                .found(source.to_string())
                .mend("check that the path exists and may be read"),
            WeightsError::NotAModel { path, found } => {
                Report::new("weights.not-a-model", format!("`{}` is no model", path.display()))
                    .expected("a folder with config.json and safetensors files, or one .gguf file")
                    .found(found.clone())
                    .mend("give the model's folder or its GGUF file")
            }
            WeightsError::Json { file, source } => inside(file, source),
            WeightsError::Quantization { file, source } => inside(file, source),
            WeightsError::Safetensors { file, source } => inside(file, source),
            WeightsError::Folder { folder, source } => inside(folder, source),
            WeightsError::Gguf { file, source } => inside(file, source),
            WeightsError::Changed { expected, found, .. } => {
                Report::new("weights.file-changed", self.to_string())
                    .expected(format!("{expected} bytes"))
                    .found(format!("{found} bytes"))
                    .mend("open the model again, and do not write to its files while it is open")
            }
            WeightsError::NoTensor { nearest, .. } => {
                let report = Report::new("weights.no-such-tensor", self.to_string())
                    .mend("check the name against the checkpoint's catalogue");
                nearest.iter().fold(report, |report, name| report.note(format!("nearest: {name}")))
            }
            WeightsError::NotNumbers { found, .. } => Report::new("weights.not-numbers", self.to_string())
                .expected("F32, F16 or BF16")
                .found(found.to_string())
                .mend("convert the checkpoint to one of these dtypes"),
            WeightsError::NotFinite { .. } => Report::new("weights.not-finite", self.to_string())
                .expected("finite numbers, within the range of the tensor's dtype")
                .mend("keep this tensor as it is, or mend the checkpoint"),
            WeightsError::Scheme(source) => source.report(),
            WeightsError::Export { folder, source } => inside(folder, source),
        }
    }
}

/// The report of a fault, with the path in front of its message. Texts from the file are cut to a length that can
/// be shown.
fn inside(path: &Path, fault: &dyn Reported) -> Report {
    let mut report = fault.report();
    report.message = format!("`{}`: {}", path.display(), clip(report.message));
    report.expected = report.expected.map(clip);
    report.found = report.found.map(clip);
    report
}

fn clip(text: String) -> String {
    const LIMIT_CHARS: usize = 400;
    match text.char_indices().nth(LIMIT_CHARS) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}
