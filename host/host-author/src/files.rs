//! Reading and writing of an author's files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::AuthorError;

/// Writes a file, and the folders above it.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), AuthorError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(AuthorError::file("create", folder))?;
    }
    fs::write(path, bytes).map_err(AuthorError::file("write", path))
}

/// Reads a text.
pub(crate) fn read(path: &Path) -> Result<String, AuthorError> {
    fs::read_to_string(path).map_err(AuthorError::file("read", path))
}

/// The files of a folder with this extension, by name; none where there is no folder.
pub(crate) fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, AuthorError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(AuthorError::file("list", folder))? {
        let path = entry.map_err(AuthorError::file("list", folder))?.path();
        if path.is_file() && path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Every file below a folder.
pub(crate) fn below(folder: &Path) -> Result<Vec<PathBuf>, AuthorError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(AuthorError::file("list", folder))? {
        let path = entry.map_err(AuthorError::file("list", folder))?.path();
        if path.is_dir() {
            files.extend(below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}
