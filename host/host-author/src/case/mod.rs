//! The cases of a plugin: TOML files in its folder `tests`, a form for each kind.

pub(crate) mod graph;
pub(crate) mod policy;
pub(crate) mod quant;

use std::path::Path;

use host_core::Place;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::AuthorError;
use crate::files;
use crate::project::CASES;

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile<C> {
    case: Vec<C>,
}

/// A case with its place: the file as the author knows it, and its number in there, from 1.
#[derive(Debug)]
pub(crate) struct Placed<C> {
    pub(crate) file: String,
    pub(crate) number: usize,
    pub(crate) case: C,
}

impl<C> Placed<C> {
    /// An error of this case.
    pub(crate) fn wrong(&self, message: String, expected: &'static str) -> AuthorError {
        AuthorError::CaseValue { file: self.file.clone().into(), case: self.number, message, expected }
    }
}

/// All cases of a plugin's folder.
///
/// # Errors
/// [`AuthorError::NoCases`], [`AuthorError::Case`].
pub(crate) fn read_all<C: DeserializeOwned>(folder: &Path) -> Result<Vec<Placed<C>>, AuthorError> {
    let cases = folder.join(CASES);
    let mut found = Vec::new();
    for path in files::with_extension(&cases, "toml")? {
        found.extend(parse(&files::read(&path)?, &path)?);
    }
    if found.is_empty() {
        return Err(AuthorError::NoCases { folder: cases });
    }
    Ok(found)
}

/// The cases of one file's text.
pub(crate) fn parse<C: DeserializeOwned>(text: &str, path: &Path) -> Result<Vec<Placed<C>>, AuthorError> {
    let file = path.display().to_string();
    let parsed: CaseFile<C> = toml::from_str(text).map_err(|error| AuthorError::Case {
        message: error.message().to_owned(),
        place: Box::new(Place::in_text(&file, text, error.span())),
    })?;
    let placed = |(i, case)| Placed { file: file.clone(), number: i + 1, case };
    Ok(parsed.case.into_iter().enumerate().map(placed).collect())
}
