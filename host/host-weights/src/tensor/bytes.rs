//! The bytes of a tensor's part: mapped from a file, or made while the checkpoint is read.

use std::ops::Deref;
use std::sync::Arc;

/// Bytes that a view holds on to.
#[derive(Clone, Debug)]
pub(crate) enum Bytes<'a> {
    /// A part of a mapped file.
    Mapped(&'a [u8]),
    /// Made by an encoder; shared by the views over it.
    Made(Arc<Vec<u8>>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(bytes) => bytes,
            Bytes::Made(bytes) => bytes,
        }
    }
}
