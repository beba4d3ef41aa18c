//! Bounded little-endian reads from a GGUF file.

use super::fault::GgufFault;

/// A place in the file's bytes; every read is checked against their end.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The bytes read since a place, which was [`Cursor::at`] before.
    pub(super) fn since(&self, at: usize) -> &'a [u8] {
        &self.bytes[at.min(self.at)..self.at]
    }

    /// The next `count` bytes; `what` names them in the error.
    pub(super) fn take(&mut self, count: u64, what: &'static str) -> Result<&'a [u8], GgufFault> {
        let rest = &self.bytes[self.at..];
        let taken = usize::try_from(count).ok().and_then(|count| rest.get(..count));
        let taken = taken.ok_or(GgufFault::HeaderTruncated {
            what,
            at: self.at as u64,
            expected: count,
            found: rest.len() as u64,
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufFault> {
        let bytes = self.take(N as u64, what)?;
        Ok(*bytes.first_chunk().expect("take gives exactly N bytes"))
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, GgufFault> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, GgufFault> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufFault> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufFault> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length-prefixed text of at most `limit` bytes.
    pub(super) fn text(&mut self, limit: u64, what: &'static str) -> Result<&'a str, GgufFault> {
        let at = self.at as u64;
        let bytes = self.text_bytes(limit, what)?;
        std::str::from_utf8(bytes).map_err(|_| GgufFault::NotUtf8 { what, at })
    }

    /// The bytes of a length-prefixed text of at most `limit` bytes.
    pub(super) fn text_bytes(&mut self, limit: u64, what: &'static str) -> Result<&'a [u8], GgufFault> {
        let count = self.u64(what)?;
        if count > limit {
            return Err(GgufFault::TooMany { what, limit, found: count });
        }
        self.take(count, what)
    }
}
