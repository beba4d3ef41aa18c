//! Files at the rim: sizes, checksums, and input-output errors with the path they happened at.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::ModelsError;
use crate::progress::{Progress, Step};
use crate::record::FileRecord;

/// Adds what was being done, and where, to an input-output error.
pub(crate) trait DoingAt<T> {
    /// `action` is a verb: read, write, create.
    fn doing_at(self, action: &'static str, path: &Path) -> Result<T, ModelsError>;
}

impl<T> DoingAt<T> for io::Result<T> {
    fn doing_at(self, action: &'static str, path: &Path) -> Result<T, ModelsError> {
        self.map_err(|source| ModelsError::io(action, path, source))
    }
}

/// The size of a regular file; `None` when nothing, or something else, lies there.
pub(crate) fn size_bytes(path: &Path) -> Result<Option<u64>, ModelsError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(Some(metadata.len())),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(ModelsError::io("look at", path, error)),
    }
}

/// The size of everything in a folder; what vanishes meanwhile counts nothing.
pub(crate) fn folder_size_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_size_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

/// Deletes a folder with all it holds; an absent one is no error.
pub(crate) fn remove_folder(path: &Path) -> Result<(), ModelsError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ModelsError::io("delete", path, error)),
        _ => Ok(()),
    }
}

/// Reads a whole file and tells its size and SHA-256, as the step [`Step::Verifying`].
pub(crate) fn hash(path: &Path, name: &str, progress: &mut dyn Progress) -> Result<FileRecord, ModelsError> {
    let mut file = File::open(path).doing_at("open", path)?;
    let total_bytes = file.metadata().doing_at("look at", path)?.len();
    progress.begin(&Step::Verifying { name: name.to_owned() }, Some(total_bytes));
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut size_bytes = 0;
    loop {
        let read = file.read(&mut buffer).doing_at("read", path)?;
        if read == 0 {
            break;
        }
        digest.update(&buffer[..read]);
        size_bytes += read as u64;
        progress.advance(size_bytes);
    }
    progress.end();
    Ok(FileRecord { name: name.to_owned(), size_bytes, sha256: Some(hex(&digest.finalize())) })
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a name is a relative path that no file system could read as leaving its folder.
pub(crate) fn stays_inside(name: &str) -> bool {
    let path = name.strip_suffix('/').unwrap_or(name);
    let strange = |c: char| c == '\\' || c == ':' || c.is_control();
    !path.contains(strange) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}
