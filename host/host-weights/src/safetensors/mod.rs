//! Safetensors: the header of one file, the index of a sharded model, and the folder as a whole.

mod folder;
mod header;
mod index;

pub use folder::FolderFault;
pub use header::{HEADER_LIMIT_BYTES, Header, HeaderTensor, SafetensorsFault};

pub(crate) use folder::open_folder;
pub(crate) use header::{FETCH_AGAIN, NAME_LIMIT_BYTES, WRITE_AGAIN};
