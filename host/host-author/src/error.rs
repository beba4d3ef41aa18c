//! What keeps an author's command from its work.

use std::io;
use std::path::{Path, PathBuf};

use host_build::BuildError;
use host_core::{Place, Report, Reported};
use host_plugins::PluginError;

use crate::rerun::RECORD_AGAIN;

/// What keeps an author's command from its work. What a test or a fuzz run finds is no error but its result.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each field is told by its name and by the variant's message")]
pub enum AuthorError {
    /// A name that no plugin can have.
    #[error("`{name}` cannot be a plugin's name")]
    Name { name: String, expected: &'static str },
    /// Something stands where the new folder goes.
    #[error("`{}` is there already", .path.display())]
    FolderTaken { path: PathBuf },
    /// A folder without a manifest.
    #[error("there is no plugin in `{}`", .path.display())]
    NoPlugin { path: PathBuf },
    /// A plugin in Rust that was never built.
    #[error("the plugin was not built: `{}` is missing", .entry.display())]
    NotBuilt { entry: PathBuf },
    /// A plugin in Rust whose component is older than its source.
    #[error("`{}` is newer than `{}`", .source_file.display(), .entry.display())]
    Stale { source_file: PathBuf, entry: PathBuf },
    /// A file or folder that fails.
    #[error("cannot {act} {}", .path.display())]
    File { act: &'static str, path: PathBuf, source: io::Error },
    /// A plugin without cases.
    #[error("the plugin has no test cases")]
    NoCases { folder: PathBuf },
    /// A file of cases that does not parse.
    #[error("{message}")]
    Case { message: String, place: Box<Place> },
    /// A case that says something impossible.
    #[error("{}, case {case}: {message}", .file.display())]
    CaseValue { file: PathBuf, case: usize, message: String, expected: &'static str },
    /// A trace or record that does not parse, or one of another format.
    #[error("`{}` is neither a trace nor a record of this program", .path.display())]
    Trace { path: PathBuf, message: String },
    /// A record without the logits that the plugin reads.
    #[error("the record does not hold what the plugin reads of the logits")]
    RecordLacks { expected: String, found: String },
    /// The compiler, or what it was given.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The plugin itself.
    #[error(transparent)]
    Plugin(#[from] PluginError),
}

impl AuthorError {
    /// For `map_err` on reading and writing files.
    pub(crate) fn file(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AuthorError {
        let path = path.to_owned();
        move |source| AuthorError::File { act, path, source }
    }
}

impl Reported for AuthorError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            AuthorError::Name { name, expected } => {
                Report::new("author.name", text).expected(*expected).found(format!("`{name}`"))
            }
            AuthorError::FolderTaken { .. } => Report::new("author.folder-taken", text)
                .expected("a place where nothing is")
                .mend("choose another name, or another folder with --dir"),
            AuthorError::NoPlugin { path } => Report::new("author.no-plugin", text)
                .expected("a folder with plugin.toml")
                .found(format!("none at {}", path.join("plugin.toml").display()))
                .mend("name the plugin's folder, or make one with `tenon plugin new`"),
            AuthorError::NotBuilt { entry } => {
                Report::new("author.not-built", text).expected("a built component").mend(build_first(entry))
            }
            AuthorError::Stale { entry, .. } => Report::new("author.stale-build", text)
                .expected("a component of the source as it is")
                .mend(build_first(entry)),
            AuthorError::File { source, .. } => Report::new("author.file", text).found(source.to_string()),
            AuthorError::NoCases { folder } => Report::new("author.no-cases", text)
                .expected(format!("at least one .toml in {}", folder.display()))
                .mend("write a case; `tenon plugin new` shows one of each kind"),
            AuthorError::Case { place, .. } => Report::new("author.case", text).at((**place).clone()),
            AuthorError::CaseValue { expected, .. } => {
                Report::new("author.case-value", text).expected(*expected)
            }
            AuthorError::Trace { message, .. } => Report::new("author.trace", text)
                .expected("a file that `tenon plugin fuzz` or `tenon generate --record-policy` wrote, whole")
                .found(message),
            AuthorError::RecordLacks { expected, found } => Report::new("author.record-lacks", text)
                .expected(format!("needs = {expected}"))
                .found(format!("a run with needs = {found}"))
                .mend(RECORD_AGAIN),
            AuthorError::Build(error) => error.report(),
            AuthorError::Plugin(error) => error.report(),
        }
    }
}

fn build_first(entry: &Path) -> String {
    let folder = entry.parent().unwrap_or(Path::new("."));
    format!("run `tenon plugin build {}`", folder.display())
}
