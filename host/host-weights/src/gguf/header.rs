//! The header of a GGUF file, versions 2 and 3: metadata and tensor table, checked against the file's length.

use super::cursor::Cursor;
use super::fault::GgufFault;
use super::ggml_type::GgmlType;
use super::metadata::{KEY_COUNT_LIMIT, Metadata};
use crate::safetensors::NAME_LIMIT_BYTES;

const MAGIC: &[u8] = b"GGUF";
const VERSIONS: [u32; 2] = [2, 3];
/// Most tensors.
const TENSOR_COUNT_LIMIT: u64 = 1 << 20;
/// Most dimensions, as ggml has it.
const RANK_LIMIT: u32 = 4;
/// Alignment of the data where the metadata does not say.
const DEFAULT_ALIGNMENT: usize = 32;
const ALIGNMENT_LIMIT: usize = 1 << 20;

/// A checked header, borrowing from the file's bytes.
#[derive(Clone, Debug)]
pub struct Header<'a> {
    /// 2 or 3.
    pub version: u32,
    /// The keys and values.
    pub metadata: Metadata<'a>,
    /// The tensors, by their place in the file.
    pub tensors: Vec<HeaderTensor<'a>>,
}

/// One tensor. Its byte range lies in the file and fits type and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTensor<'a> {
    /// The name in the file.
    pub name: &'a str,
    /// The element type.
    pub ggml_type: GgmlType,
    /// The shape, outermost dimension first; no dimension is zero, and the last is whole blocks.
    pub shape: Vec<usize>,
    /// First byte, counted from the start of the file.
    pub begin: usize,
    /// Bytes.
    pub bytes: usize,
}

impl<'a> Header<'a> {
    /// Parses and checks the header of a whole file. Tensor data is not read.
    ///
    /// # Errors
    /// A [`GgufFault`] names the first thing that is wrong.
    pub fn parse(file: &'a [u8]) -> Result<Header<'a>, GgufFault> {
        if file.is_empty() {
            return Err(GgufFault::Empty);
        }
        let mut cursor = Cursor::new(file);
        let version = read_version(&mut cursor)?;
        let n_tensors = read_count(&mut cursor, "tensors", TENSOR_COUNT_LIMIT)?;
        let n_keys = read_count(&mut cursor, "metadata keys", KEY_COUNT_LIMIT)?;
        let metadata = Metadata::read(&mut cursor, n_keys)?;
        refuse_split(&metadata)?;
        let alignment = read_alignment(&metadata)?;
        let mut entries = Vec::new();
        for _ in 0..n_tensors {
            entries.push(Entry::read(&mut cursor)?);
        }
        check_names(&entries)?;
        let tensors = place(entries, align_up(cursor.at(), alignment), alignment, file.len())?;
        Ok(Header { version, metadata, tensors })
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&HeaderTensor<'a>> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufFault> {
    let magic = cursor.take(4, "the magic")?;
    if magic != MAGIC {
        return Err(GgufFault::NotGguf { found: magic.escape_ascii().to_string() });
    }
    let version = cursor.u32("the version")?;
    if VERSIONS.contains(&version) {
        return Ok(version);
    }
    Err(match VERSIONS.contains(&version.swap_bytes()) {
        true => GgufFault::BigEndian,
        false => GgufFault::Version { found: version },
    })
}

fn read_count(cursor: &mut Cursor<'_>, what: &'static str, limit: u64) -> Result<u64, GgufFault> {
    let found = cursor.u64(what)?;
    if found > limit {
        return Err(GgufFault::TooMany { what, limit, found });
    }
    Ok(found)
}

fn refuse_split(metadata: &Metadata<'_>) -> Result<(), GgufFault> {
    match metadata.count("split.count")? {
        None | Some(0 | 1) => Ok(()),
        Some(found) => Err(GgufFault::Split { found }),
    }
}

fn read_alignment(metadata: &Metadata<'_>) -> Result<usize, GgufFault> {
    let found = metadata.count("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if !found.is_power_of_two() || found > ALIGNMENT_LIMIT {
        return Err(GgufFault::Alignment { found });
    }
    Ok(found)
}

/// Both numbers are far below the address range: `at` lies in a file, `alignment` is at most the limit.
fn align_up(at: usize, alignment: usize) -> usize {
    at.next_multiple_of(alignment)
}

/// A row of the tensor table.
struct Entry<'a> {
    name: &'a str,
    ggml_type: GgmlType,
    shape: Vec<usize>,
    bytes: usize,
    /// Counted from the start of the data.
    offset: u64,
}

impl<'a> Entry<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Entry<'a>, GgufFault> {
        let name = cursor.text(NAME_LIMIT_BYTES as u64, "a tensor's name")?;
        let tensor = || name.to_owned();
        let rank = cursor.u32("a tensor's rank")?;
        if rank == 0 || rank > RANK_LIMIT {
            return Err(GgufFault::Rank { tensor: tensor(), found: rank });
        }
        let mut dims = Vec::new();
        for _ in 0..rank {
            dims.push(cursor.u64("a tensor's shape")?);
        }
        // The file lists the innermost dimension first.
        dims.reverse();
        let id = cursor.u32("a tensor's type")?;
        let ggml_type =
            GgmlType::from_id(id).map_err(|found| GgufFault::UnknownType { tensor: tensor(), found })?;
        let offset = cursor.u64("a tensor's offset")?;
        if dims.contains(&0) {
            return Err(GgufFault::NoElements { tensor: tensor(), shape: dims });
        }
        let (elements, bytes) = ggml_type.block();
        let row = dims[dims.len() - 1];
        if !row.is_multiple_of(elements as u64) {
            return Err(GgufFault::PartialBlock { tensor: tensor(), expected: elements, found: row });
        }
        let total = dims.iter().try_fold(1_u64, |total, dim| total.checked_mul(*dim));
        let total = total.and_then(|total| (total / elements as u64).checked_mul(bytes as u64));
        let sized = total.and_then(|total| usize::try_from(total).ok()).and_then(|bytes| {
            let shape = dims.iter().map(|dim| usize::try_from(*dim).ok()).collect::<Option<Vec<_>>>()?;
            Some((shape, bytes))
        });
        let Some((shape, bytes)) = sized else {
            return Err(GgufFault::ShapeTooLarge { tensor: tensor(), shape: dims });
        };
        Ok(Entry { name, ggml_type, shape, bytes, offset })
    }
}

fn check_names(entries: &[Entry<'_>]) -> Result<(), GgufFault> {
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(GgufFault::DuplicateTensor { tensor: pair[0].to_owned() }),
        None => Ok(()),
    }
}

/// Checks that the tensors follow one another, each at the next aligned place, and fill the file.
fn place<'a>(
    mut entries: Vec<Entry<'a>>,
    data_start: usize,
    alignment: usize,
    file_bytes: usize,
) -> Result<Vec<HeaderTensor<'a>>, GgufFault> {
    if entries.is_empty() {
        return Err(GgufFault::NoTensors);
    }
    entries.sort_by(|a, b| (a.offset, a.bytes, a.name).cmp(&(b.offset, b.bytes, b.name)));
    let mut tensors = Vec::with_capacity(entries.len());
    let mut end = data_start;
    for entry in entries {
        let Entry { name, ggml_type, shape, bytes, offset } = entry;
        let tensor = || name.to_owned();
        let expected = (align_up(end, alignment) - data_start) as u64;
        if !offset.is_multiple_of(alignment as u64) {
            return Err(GgufFault::Misaligned { tensor: tensor(), alignment, found: offset });
        }
        if offset < expected {
            return Err(GgufFault::Overlap { tensor: tensor(), expected, found: offset });
        }
        if offset > expected {
            return Err(GgufFault::Gap { tensor: tensor(), expected, found: offset });
        }
        let begin = data_start + expected as usize;
        end = match begin.checked_add(bytes) {
            Some(end) if end <= file_bytes => end,
            end => {
                let expected = end.map_or(u64::MAX, |end| end as u64);
                return Err(GgufFault::Truncated { tensor: tensor(), expected, found: file_bytes as u64 });
            }
        };
        tensors.push(HeaderTensor { name, ggml_type, shape, begin, bytes });
    }
    if file_bytes > align_up(end, alignment) {
        return Err(GgufFault::TrailingBytes { expected: end as u64, found: file_bytes as u64 });
    }
    Ok(tensors)
}
