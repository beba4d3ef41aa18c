//! The header of a safetensors file, checked against hostile input before any of its numbers is used.
//!
//! A file is a little-endian u64 `n`, `n` bytes of JSON (name to dtype, shape and byte range), then the data.
//! Every byte of the data must belong to exactly one tensor.

use std::fmt;

use host_core::{DType, Report, Reported};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::tensor::rows_and_cols;

/// Longest header that is read.
pub const HEADER_LIMIT_BYTES: u64 = 100_000_000;
/// Longest tensor name that is read.
pub(crate) const NAME_LIMIT_BYTES: usize = 1024;
/// Most dimensions of a tensor.
pub(crate) const RANK_LIMIT: usize = 8;
/// Bytes of the length in front of the header.
const LENGTH_BYTES: u64 = 8;

/// A checked header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The tensors, by their place in the file.
    pub tensors: Vec<HeaderTensor>,
}

/// One tensor of a header. Its byte range lies in the file and fits dtype and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTensor {
    /// The name.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The stored shape; no dimension is zero.
    pub shape: Vec<usize>,
    /// First byte, counted from the start of the file.
    pub begin: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Header {
    /// Bytes of the JSON, from the first eight bytes of a file of `file_bytes`.
    ///
    /// # Errors
    /// A [`SafetensorsFault`] when the file is empty, shorter than it says, or the header is too long.
    pub fn json_bytes(first: &[u8], file_bytes: u64) -> Result<u64, SafetensorsFault> {
        if file_bytes == 0 {
            return Err(SafetensorsFault::Empty);
        }
        let Some(length) = first.first_chunk::<8>().filter(|_| file_bytes >= LENGTH_BYTES) else {
            return Err(SafetensorsFault::NoLength { found: file_bytes });
        };
        let found = u64::from_le_bytes(*length);
        if found > HEADER_LIMIT_BYTES {
            return Err(SafetensorsFault::HeaderTooLong { found });
        }
        if found > file_bytes - LENGTH_BYTES {
            return Err(SafetensorsFault::HeaderPastEnd {
                expected: found + LENGTH_BYTES,
                found: file_bytes,
            });
        }
        Ok(found)
    }

    /// Parses and checks a header.
    ///
    /// `head` is the file's beginning, at least as long as the header; `file_bytes` is the file's length.
    ///
    /// # Errors
    /// A [`SafetensorsFault`] names the first thing that is wrong.
    pub fn parse(head: &[u8], file_bytes: u64) -> Result<Header, SafetensorsFault> {
        let json_bytes = Header::json_bytes(head, file_bytes)?;
        let data_start = LENGTH_BYTES + json_bytes;
        let json = usize::try_from(data_start).ok().and_then(|end| head.get(LENGTH_BYTES as usize..end));
        let json =
            json.ok_or(SafetensorsFault::HeaderPastEnd { expected: data_start, found: head.len() as u64 })?;
        let Entries(entries) = serde_json::from_slice(json)
            .map_err(|error| SafetensorsFault::NotJson { detail: error.to_string() })?;
        let mut tensors = entries
            .into_iter()
            .map(|(name, entry)| entry.check(name, data_start))
            .collect::<Result<Vec<_>, _>>()?;
        tensors.sort_by(|a, b| (a.begin, a.bytes, &a.name).cmp(&(b.begin, b.bytes, &b.name)));
        check_names(&tensors)?;
        check_cover(&tensors, data_start, file_bytes)?;
        Ok(Header { tensors })
    }
}

/// Refuses equal names.
fn check_names(tensors: &[HeaderTensor]) -> Result<(), SafetensorsFault> {
    let mut names: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(SafetensorsFault::DuplicateTensor { tensor: pair[0].to_owned() }),
        None => Ok(()),
    }
}

/// Checks that the tensors, sorted by their place, cover the data without overlap, gap or rest.
fn check_cover(tensors: &[HeaderTensor], data_start: u64, file_bytes: u64) -> Result<(), SafetensorsFault> {
    if tensors.is_empty() {
        return Err(SafetensorsFault::NoTensors);
    }
    let mut end = data_start;
    for tensor in tensors {
        let (name, begin) = (&tensor.name, tensor.begin as u64);
        if begin < end {
            return Err(SafetensorsFault::Overlap { tensor: name.clone(), expected: end, found: begin });
        }
        if begin > end {
            return Err(SafetensorsFault::Gap { tensor: name.clone(), expected: end, found: begin });
        }
        end += tensor.bytes as u64;
        if end > file_bytes {
            return Err(SafetensorsFault::Truncated {
                tensor: name.clone(),
                expected: end,
                found: file_bytes,
            });
        }
    }
    if end < file_bytes {
        return Err(SafetensorsFault::TrailingBytes { expected: end, found: file_bytes });
    }
    Ok(())
}

/// The entries of a header in the order of the file, repeated names included.
struct Entries(Vec<(String, Entry)>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                let mut has_metadata = false;
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        if std::mem::replace(&mut has_metadata, true) {
                            return Err(A::Error::custom("repeated key \"__metadata__\""));
                        }
                        map.next_value::<Metadata>()?;
                    } else {
                        let entry = map.next_value()?;
                        entries.push((name, entry));
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// The free text of a header: strings by name, not used.
struct Metadata;

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetadataVisitor;
        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                while map.next_key::<IgnoredAny>()?.is_some() {
                    map.next_value::<String>()?;
                }
                Ok(Metadata)
            }
        }
        deserializer.deserialize_map(MetadataVisitor)
    }
}

impl Entry {
    fn check(self, name: String, data_start: u64) -> Result<HeaderTensor, SafetensorsFault> {
        if name.len() > NAME_LIMIT_BYTES {
            return Err(SafetensorsFault::NameTooLong { found: name.len() });
        }
        let Ok(dtype) = self.dtype.parse::<DType>() else {
            return Err(SafetensorsFault::UnknownDType { tensor: name, found: self.dtype });
        };
        let [begin, end] = self.data_offsets;
        if begin > end {
            return Err(SafetensorsFault::OffsetsReversed { tensor: name, begin, end });
        }
        let Some(expected) = bytes_of(&self.shape, dtype) else {
            return Err(SafetensorsFault::ShapeTooLarge { tensor: name, shape: self.shape });
        };
        if expected == 0 {
            return Err(SafetensorsFault::NoElements { tensor: name, shape: self.shape });
        }
        if end - begin != expected {
            let found = end - begin;
            return Err(SafetensorsFault::WrongByteRange {
                tensor: name,
                dtype,
                shape: self.shape,
                expected,
                found,
            });
        }
        let place = begin.checked_add(data_start).filter(|begin| begin.checked_add(expected).is_some());
        let place =
            place.and_then(|begin| Some((usize::try_from(begin).ok()?, usize::try_from(expected).ok()?)));
        let Some((begin, bytes)) = place else {
            return Err(SafetensorsFault::ShapeTooLarge { tensor: name, shape: self.shape });
        };
        // Each dimension divides the byte count, which fits.
        let shape = self.shape.iter().map(|dim| *dim as usize).collect();
        Ok(HeaderTensor { name, dtype, shape, begin, bytes })
    }
}

/// Bytes of a tensor, or `None` where they do not fit or the rank is beyond the limit.
fn bytes_of(shape: &[u64], dtype: DType) -> Option<u64> {
    if shape.len() > RANK_LIMIT {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(dtype.size_bytes() as u64, |bytes, dim| bytes.checked_mul(*dim))
}

impl HeaderTensor {
    /// Rows and columns of the stored shape.
    pub(crate) fn rows_and_cols(&self) -> (usize, usize) {
        rows_and_cols(&self.shape)
    }
}

/// What is wrong with a safetensors file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the message's expected and found lines show")]
pub enum SafetensorsFault {
    /// It is a folder or something else that is no file.
    #[error("this is no file")]
    NotAFile,
    /// It has no bytes.
    #[error("the file is empty")]
    Empty,
    /// It is shorter than the length in front of the header.
    #[error("the file is cut off before its header")]
    NoLength { found: u64 },
    /// The header is longer than is read.
    #[error("the header is too long")]
    HeaderTooLong { found: u64 },
    /// The header reaches past the end of the file.
    #[error("the file is cut off within its header")]
    HeaderPastEnd { expected: u64, found: u64 },
    /// The header is not JSON of the expected form.
    #[error("the header is malformed")]
    NotJson { detail: String },
    /// There is nothing in it.
    #[error("the file holds no tensor")]
    NoTensors,
    /// A tensor's name is longer than is read.
    #[error("the name of a tensor is too long")]
    NameTooLong { found: usize },
    /// Two tensors have one name.
    #[error("tensor {tensor:?} stands twice in the header")]
    DuplicateTensor { tensor: String },
    /// A dtype that is not known.
    #[error("tensor {tensor:?} has an unknown dtype")]
    UnknownDType { tensor: String, found: String },
    /// The shape has too many dimensions, or more elements than can be addressed.
    #[error("tensor {tensor:?} has an impossible shape")]
    ShapeTooLarge { tensor: String, shape: Vec<u64> },
    /// The shape has a zero.
    #[error("tensor {tensor:?} has no elements")]
    NoElements { tensor: String, shape: Vec<u64> },
    /// The byte range ends before it begins.
    #[error("the byte range of tensor {tensor:?} is reversed")]
    OffsetsReversed { tensor: String, begin: u64, end: u64 },
    /// The byte range is not that of shape and dtype.
    #[error("the byte range of tensor {tensor:?} does not fit its shape")]
    WrongByteRange { tensor: String, dtype: DType, shape: Vec<u64>, expected: u64, found: u64 },
    /// Two tensors share bytes.
    #[error("tensor {tensor:?} overlaps the one before it")]
    Overlap { tensor: String, expected: u64, found: u64 },
    /// Bytes before a tensor belong to none.
    #[error("there is a gap before tensor {tensor:?}")]
    Gap { tensor: String, expected: u64, found: u64 },
    /// A tensor reaches past the end of the file.
    #[error("the file is cut off within tensor {tensor:?}")]
    Truncated { tensor: String, expected: u64, found: u64 },
    /// Bytes at the end belong to no tensor.
    #[error("bytes after the last tensor belong to none")]
    TrailingBytes { expected: u64, found: u64 },
}

/// What to do about a file that is not whole.
pub(crate) const FETCH_AGAIN: &str = "fetch the file again; it is damaged or incomplete";
/// What to do about a file that its writer got wrong.
pub(crate) const WRITE_AGAIN: &str = "write the file again with a current library, or fetch another copy";

impl Reported for SafetensorsFault {
    fn report(&self) -> Report {
        use SafetensorsFault as F;
        let report = |code| Report::new(code, self.to_string());
        match self {
            F::NotAFile => report("weights.not-a-file").expected("a safetensors file").mend(FETCH_AGAIN),
            F::Empty => {
                report("weights.empty-file").expected("a safetensors file").found("0 bytes").mend(FETCH_AGAIN)
            }
            F::NoLength { found } => report("weights.no-header")
                .expected("at least 8 bytes")
                .found(format!("{found} bytes"))
                .mend(FETCH_AGAIN),
            F::HeaderTooLong { found } => report("weights.header-too-long")
                .expected(format!("at most {HEADER_LIMIT_BYTES} bytes"))
                .found(format!("{found} bytes"))
                .mend("check that this is a safetensors file"),
            F::HeaderPastEnd { expected, found } => report("weights.header-truncated")
                .expected(format!("at least {expected} bytes"))
                .found(format!("{found} bytes"))
                .mend(FETCH_AGAIN),
            F::NotJson { detail } => report("weights.header-malformed")
                .expected("a JSON object: name to dtype, shape and data_offsets")
                .found(detail.clone())
                .mend(FETCH_AGAIN),
            F::NoTensors => report("weights.no-tensors").expected("at least one tensor").mend(FETCH_AGAIN),
            F::NameTooLong { found } => report("weights.name-too-long")
                .expected(format!("at most {NAME_LIMIT_BYTES} bytes"))
                .found(format!("{found} bytes"))
                .mend(WRITE_AGAIN),
            F::DuplicateTensor { .. } => {
                report("weights.duplicate-tensor").expected("each name once").mend(WRITE_AGAIN)
            }
            F::UnknownDType { found, .. } => report("weights.unknown-dtype")
                .expected(DType::ALL.map(|(_, name)| name).join(", "))
                .found(format!("{found:?}"))
                .mend("convert the tensor to one of these dtypes"),
            F::ShapeTooLarge { shape, .. } => report("weights.shape-too-large")
                .expected(format!("at most {RANK_LIMIT} dimensions, and bytes that fit 64 bits"))
                .found(format!("{shape:?}"))
                .mend(WRITE_AGAIN),
            F::NoElements { shape, .. } => report("weights.empty-tensor")
                .expected("no dimension of zero")
                .found(format!("{shape:?}"))
                .mend(WRITE_AGAIN),
            F::OffsetsReversed { begin, end, .. } => report("weights.offsets-reversed")
                .expected("begin at most end")
                .found(format!("[{begin}, {end}]"))
                .mend(WRITE_AGAIN),
            F::WrongByteRange { dtype, shape, expected, found, .. } => report("weights.wrong-byte-range")
                .expected(format!("{expected} bytes for {dtype} {shape:?}"))
                .found(format!("{found} bytes"))
                .mend(WRITE_AGAIN),
            F::Overlap { expected, found, .. } => report("weights.overlap")
                .expected(format!("a first byte at {expected}"))
                .found(format!("a first byte at {found}"))
                .mend(WRITE_AGAIN),
            F::Gap { expected, found, .. } => report("weights.gap")
                .expected(format!("a first byte at {expected}"))
                .found(format!("a first byte at {found}"))
                .mend(WRITE_AGAIN),
            F::Truncated { expected, found, .. } => report("weights.truncated")
                .expected(format!("at least {expected} bytes"))
                .found(format!("{found} bytes"))
                .mend(FETCH_AGAIN),
            F::TrailingBytes { expected, found } => report("weights.trailing-bytes")
                .expected(format!("{expected} bytes"))
                .found(format!("{found} bytes"))
                .mend(FETCH_AGAIN),
        }
    }
}
