//! A safetensors model folder: every header checked, shards against the index, packed triples put together.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use host_core::{DType, Report, Reported};

use super::header::{FETCH_AGAIN, Header, HeaderTensor, SafetensorsFault, WRITE_AGAIN};
use super::index::{Shards, find_shards};
use crate::catalogue::{Encoding, FloatMode, Offset, TensorInfo};
use crate::error::WeightsError;
use crate::mapping::{Extent, MappedFile};
use crate::quantization::{QuantMode, QuantSpec, Quantization};
use crate::stored::{Contents, Stored};
use crate::tensor::{RowOrder, Shift};

/// Opens the folder: reads and checks all headers, and maps nothing.
pub(crate) fn open_folder(folder: &Path, quant: Option<&Quantization>) -> Result<Contents, WeightsError> {
    let shards = find_shards(folder)?;
    let mut files = Vec::new();
    let mut parts = BTreeMap::new();
    for (shard, expected) in &shards {
        let path = folder.join(shard);
        let (header, file_bytes) = read_header(&path)?;
        let fault = |source| WeightsError::Folder { folder: folder.to_owned(), source };
        if let Some(expected) = expected {
            check_shard(shard, expected, &header, &shards).map_err(fault)?;
        }
        let file = files.len();
        files.push(MappedFile::new(path, file_bytes));
        for tensor in header.tensors {
            let name = tensor.name.clone();
            if parts.insert(name.clone(), Part { file, tensor }).is_some() {
                return Err(fault(FolderFault::DuplicateTensor { tensor: name, shard: shard.clone() }));
            }
        }
    }
    let tensors = assemble(&parts, &files, quant)
        .map_err(|source| WeightsError::Folder { folder: folder.to_owned(), source })?;
    Ok(Contents { files, tensors })
}

/// Reads and checks the header of one file.
fn read_header(path: &Path) -> Result<(Header, u64), WeightsError> {
    let io = |act| move |source| WeightsError::Io { act, path: path.to_owned(), source };
    let fault = |source| WeightsError::Safetensors { file: path.to_owned(), source };
    let kind = fs::metadata(path).map_err(io("open"))?;
    if !kind.is_file() {
        return Err(fault(SafetensorsFault::NotAFile));
    }
    let (file, file_bytes) = (File::open(path).map_err(io("open"))?, kind.len());
    let mut head = Vec::new();
    (&file).take(8).read_to_end(&mut head).map_err(io("read"))?;
    let json_bytes = Header::json_bytes(&head, file_bytes).map_err(fault)?;
    (&file).take(json_bytes).read_to_end(&mut head).map_err(io("read"))?;
    Ok((Header::parse(&head, file_bytes).map_err(fault)?, file_bytes))
}

/// Checks that a shard holds exactly what the index places there.
fn check_shard(shard: &str, expected: &[String], header: &Header, all: &Shards) -> Result<(), FolderFault> {
    let mut found: Vec<_> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    found.sort_unstable();
    if let Some(tensor) = expected.iter().find(|name| found.binary_search(&name.as_str()).is_err()) {
        return Err(FolderFault::AbsentTensor { tensor: tensor.clone(), shard: shard.to_owned() });
    }
    let mut expected: Vec<_> = expected.iter().map(String::as_str).collect();
    expected.sort_unstable();
    let Some(extra) = found.into_iter().find(|name| expected.binary_search(name).is_err()) else {
        return Ok(());
    };
    let (tensor, shard) = (extra.to_owned(), shard.to_owned());
    let elsewhere = |names: &Option<Vec<String>>| names.iter().flatten().any(|name| name == extra);
    Err(match all.values().any(elsewhere) {
        true => FolderFault::DuplicateTensor { tensor, shard },
        false => FolderFault::UnindexedTensor { tensor, shard },
    })
}

/// A stored tensor with the file that holds it.
struct Part {
    file: usize,
    tensor: HeaderTensor,
}

impl Part {
    fn extent(&self) -> Extent {
        Extent { file: self.file, begin: self.tensor.begin, bytes: self.tensor.bytes }
    }
}

type Parts = BTreeMap<String, Part>;

/// Turns stored tensors into logical ones: `.weight`, `.scales` and `.biases` of a quantised module become one.
fn assemble(
    parts: &Parts,
    files: &[MappedFile],
    quant: Option<&Quantization>,
) -> Result<Vec<(TensorInfo, Stored)>, FolderFault> {
    let mut tensors = Vec::new();
    for (name, part) in parts {
        if belongs_to_codes(name, parts) {
            continue;
        }
        let (shape, encoding, stored) = match name.strip_suffix(".weight") {
            Some(module) => module_weight(module, part, parts, quant)?,
            None => dense(part),
        };
        let bytes = stored.extents().map(|at| at.bytes as u64).sum();
        let file = files[part.file].path().to_owned();
        tensors.push((TensorInfo { name: name.clone(), shape, encoding, bytes, file }, stored));
    }
    Ok(tensors)
}

/// Whether the tensor is the scales or biases of packed codes.
fn belongs_to_codes(name: &str, parts: &Parts) -> bool {
    let module = name.strip_suffix(".scales").or_else(|| name.strip_suffix(".biases"));
    let weight = module.and_then(|module| parts.get(&format!("{module}.weight")));
    weight.is_some_and(|weight| weight.tensor.dtype == DType::U32)
}

type Assembled = (Vec<usize>, Encoding, Stored);

fn dense(part: &Part) -> Assembled {
    let stored = Stored::Dense { at: part.extent(), order: RowOrder::Published, shift: Shift::None };
    (part.tensor.shape.clone(), Encoding::Dense(part.tensor.dtype), stored)
}

/// The `.weight` of a module: dense numbers, or codes where the configuration says that it is quantised.
fn module_weight(
    module: &str,
    weight: &Part,
    parts: &Parts,
    quant: Option<&Quantization>,
) -> Result<Assembled, FolderFault> {
    let scales = parts.get(&format!("{module}.scales"));
    let biases = parts.get(&format!("{module}.biases"));
    let is_codes = weight.tensor.dtype == DType::U32;
    let overridden = quant.and_then(|quant| quant.modules.get(module).copied()).flatten().is_some();
    if !is_codes {
        let module = module.to_owned();
        return match scales {
            Some(_) => Err(FolderFault::NotCodes { module, found: weight.tensor.dtype }),
            None if overridden => Err(FolderFault::NotQuantized { module, found: weight.tensor.dtype }),
            None => Ok(dense(weight)),
        };
    }
    let spec = quant
        .and_then(|quant| quant.of(module))
        .ok_or_else(|| FolderFault::NoSpec { module: module.to_owned() })?;
    let scales =
        scales.ok_or_else(|| FolderFault::MissingPart { module: module.to_owned(), part: "scales" })?;
    match (spec.mode, biases) {
        (QuantMode::Affine, None) => {
            Err(FolderFault::MissingPart { module: module.to_owned(), part: "biases" })
        }
        (QuantMode::Affine, Some(biases)) => affine(module, spec, weight, scales, biases),
        (QuantMode::Float(mode), None) => float_groups(module, spec, mode, weight, scales),
        (QuantMode::Float(_), Some(_)) => {
            Err(FolderFault::UnexpectedBiases { module: module.to_owned(), mode: spec.mode.name() })
        }
    }
}

fn affine(
    module: &str,
    spec: QuantSpec,
    weight: &Part,
    scales: &Part,
    biases: &Part,
) -> Result<Assembled, FolderFault> {
    let shape = logical_shape(module, spec, weight, scales)?;
    let scale_dtype = scales.tensor.dtype;
    if !matches!(scale_dtype, DType::F16 | DType::BF16 | DType::F32) {
        return Err(scale_fault(module, spec, "F16, BF16 or F32", scale_dtype));
    }
    if (biases.tensor.dtype, &biases.tensor.shape) != (scale_dtype, &scales.tensor.shape) {
        let form = |part: &Part| format!("{} {:?}", part.tensor.dtype, part.tensor.shape);
        let (expected, found) = (form(scales), form(biases));
        return Err(FolderFault::BiasesDiffer { module: module.to_owned(), expected, found });
    }
    let (bits, group_size) = (spec.bits, spec.group_size);
    let encoding = Encoding::Affine { bits, group_size, scale_dtype, offset: Offset::Biases };
    let (codes, scales, biases) = (weight.extent(), scales.extent(), biases.extent());
    Ok((shape, encoding, Stored::Triple { codes, scales, biases }))
}

fn float_groups(
    module: &str,
    spec: QuantSpec,
    mode: FloatMode,
    weight: &Part,
    scales: &Part,
) -> Result<Assembled, FolderFault> {
    let shape = logical_shape(module, spec, weight, scales)?;
    if scales.tensor.dtype != DType::U8 {
        return Err(scale_fault(module, spec, "U8", scales.tensor.dtype));
    }
    let encoding = Encoding::FloatGroups { mode, group_size: mode.group_size() };
    Ok((shape, encoding, Stored::FloatGroups { codes: weight.extent(), scales: scales.extent() }))
}

fn scale_fault(module: &str, spec: QuantSpec, expected: &'static str, found: DType) -> FolderFault {
    FolderFault::ScaleDType { module: module.to_owned(), mode: spec.mode.name(), expected, found }
}

/// The shape of packed codes `[…, cols * bits / 32]` with scales `[…, cols / group_size]`.
fn logical_shape(
    module: &str,
    spec: QuantSpec,
    weight: &Part,
    scales: &Part,
) -> Result<Vec<usize>, FolderFault> {
    let ((_, words), (_, groups)) = (weight.tensor.rows_and_cols(), scales.tensor.rows_and_cols());
    let (rank, scale_rank) = (weight.tensor.shape.len(), scales.tensor.shape.len());
    let cols = groups.checked_mul(spec.group_size);
    // Groups are multiples of 16 and widths divide 32 times their eights, so a row is whole words.
    let fits = |cols: &usize| {
        words.checked_mul(32).is_some_and(|bits| cols.checked_mul(spec.bits.into()) == Some(bits))
    };
    let same_rows = rank == scale_rank
        && rank >= 2
        && weight.tensor.shape[..rank - 1] == scales.tensor.shape[..scale_rank - 1];
    let Some(cols) = cols.filter(fits).filter(|_| same_rows) else {
        return Err(FolderFault::PackedShape {
            module: module.to_owned(),
            spec,
            weight: weight.tensor.shape.clone(),
            scales: scales.tensor.shape.clone(),
        });
    };
    let mut shape = weight.tensor.shape.clone();
    shape[rank - 1] = cols;
    Ok(shape)
}

/// What does not fit together in a model folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the message's expected and found lines show")]
pub enum FolderFault {
    /// Neither a single file nor an index.
    #[error("the folder holds no weights")]
    NoWeights,
    /// A single file beside an index that does not name it.
    #[error("the folder holds two models")]
    TwoModels,
    /// The index has no `weight_map`.
    #[error("the index does not say which file holds which tensor")]
    NoWeightMap { found: &'static str },
    /// The index names something that is no file of the folder.
    #[error("the index places tensor {tensor:?} in something that is no file of the folder")]
    ShardName { tensor: String, found: String },
    /// A file that the index names does not exist.
    #[error("shard {shard:?} is missing")]
    MissingShard { shard: String },
    /// The index places a tensor in a file that does not hold it.
    #[error("tensor {tensor:?} is not in shard {shard:?}, where the index places it")]
    AbsentTensor { tensor: String, shard: String },
    /// A file holds a tensor that the index does not know.
    #[error("shard {shard:?} holds tensor {tensor:?}, which the index does not name")]
    UnindexedTensor { tensor: String, shard: String },
    /// Two files hold one name.
    #[error("shard {shard:?} holds tensor {tensor:?}, which another shard holds too")]
    DuplicateTensor { tensor: String, shard: String },
    /// Codes whose quantisation the configuration does not give.
    #[error("`{module}` holds codes, but the configuration does not say how they are quantised")]
    NoSpec { module: String },
    /// Codes without scales, or affine codes without biases.
    #[error("`{module}` holds codes, but `{module}.{part}` is missing")]
    MissingPart { module: String, part: &'static str },
    /// Scales beside a weight that is no codes.
    #[error("`{module}` has scales, but its weight holds no codes")]
    NotCodes { module: String, found: DType },
    /// The configuration says quantised, the file does not.
    #[error("the configuration says that `{module}` is quantised, but its weight holds no codes")]
    NotQuantized { module: String, found: DType },
    /// Biases in a mode that has none.
    #[error("`{module}` has biases, but mode {mode} has none")]
    UnexpectedBiases { module: String, mode: &'static str },
    /// Scales of a dtype that the mode does not have.
    #[error("the scales of `{module}` have the wrong dtype")]
    ScaleDType { module: String, mode: &'static str, expected: &'static str, found: DType },
    /// Biases that do not look like the scales.
    #[error("the biases of `{module}` do not match its scales")]
    BiasesDiffer { module: String, expected: String, found: String },
    /// Shapes that do not go with the quantisation.
    #[error("the shapes of `{module}` do not fit its quantisation")]
    PackedShape { module: String, spec: QuantSpec, weight: Vec<usize>, scales: Vec<usize> },
}

impl Reported for FolderFault {
    fn report(&self) -> Report {
        use FolderFault as F;
        let report = |code| Report::new(code, self.to_string());
        let config = "mend the quantization block of config.json, or fetch the model again";
        match self {
            F::NoWeights => report("weights.no-weights")
                .expected("model.safetensors or model.safetensors.index.json")
                .mend("fetch the model's safetensors files into the folder"),
            F::TwoModels => report("weights.two-models")
                .expected("model.safetensors, or an index with its shards, not both")
                .mend("remove the one that is not meant"),
            F::NoWeightMap { found } => report("weights.index-malformed")
                .expected("`weight_map`: an object of tensor names to file names")
                .found(*found)
                .mend(FETCH_AGAIN),
            F::ShardName { found, .. } => report("weights.shard-name")
                .expected("the name of a .safetensors file in the model's folder")
                .found(found.clone())
                .mend("do not use this index: it points outside its folder"),
            F::MissingShard { .. } => {
                report("weights.missing-shard").mend("fetch the missing file into the folder")
            }
            F::AbsentTensor { .. } => report("weights.absent-tensor").mend(FETCH_AGAIN),
            F::UnindexedTensor { .. } => report("weights.unindexed-tensor").mend(FETCH_AGAIN),
            F::DuplicateTensor { .. } => report("weights.duplicate-tensor").mend(WRITE_AGAIN),
            F::NoSpec { .. } => report("weights.no-quantization")
                .expected("a `quantization` block that covers the module")
                .mend(config),
            F::MissingPart { module, part } => report("weights.missing-scales")
                .expected(format!("`{module}.{part}`"))
                .mend("fetch or convert the model again"),
            F::NotCodes { found, .. } => report("weights.not-codes")
                .expected("U32 codes")
                .found(found.to_string())
                .mend("convert the model again"),
            F::NotQuantized { found, .. } => {
                report("weights.not-quantized").expected("U32 codes").found(found.to_string()).mend(config)
            }
            F::UnexpectedBiases { .. } => {
                report("weights.unexpected-biases").expected("codes and scales only").mend(config)
            }
            F::ScaleDType { expected, found, mode, .. } => report("weights.scale-dtype")
                .expected(format!("{expected} for mode {mode}"))
                .found(found.to_string())
                .mend(config),
            F::BiasesDiffer { expected, found, .. } => report("weights.biases-differ")
                .expected(expected.clone())
                .found(found.clone())
                .mend("convert the model again"),
            F::PackedShape { spec, weight, scales, .. } => report("weights.packed-shape")
                .expected(format!(
                    "weight [out, in * {} / 32] and scales [out, in / {}] for {spec}",
                    spec.bits, spec.group_size
                ))
                .found(format!("weight {weight:?} and scales {scales:?}"))
                .mend(config),
        }
    }
}
