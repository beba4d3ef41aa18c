//! Why a reload changes nothing.

use std::path::PathBuf;

use host_core::{Place, Report, Reported};

use super::id::GenerationId;
use super::settings::FILE;

/// An error of reloading that no other crate has a word for.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// No folder has the numbers.
    #[error("no folder of profiles has the settings of reloading")]
    NoSettings {
        /// The folders.
        folders: Vec<PathBuf>,
    },
    /// The numbers cannot be used.
    #[error("the settings of reloading: {message}")]
    Settings {
        /// What is wrong.
        message: String,
        /// Where.
        place: Box<Place>,
    },
    /// A file or folder that cannot be read.
    #[error("`{}` cannot be read", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A text that is not UTF-8.
    #[error("`{}` is not UTF-8", .path.display())]
    Encoding {
        /// Which.
        path: PathBuf,
        /// The first byte that is not.
        offset: usize,
    },
    /// Files that go on changing.
    #[error("the files still change after {readings} readings")]
    Unsettled {
        /// How often they were read.
        readings: u32,
    },
    /// Old generations still have requests.
    #[error("{found} old generations still have running requests")]
    Draining {
        /// The most that may.
        at_most: usize,
        /// How many do.
        found: usize,
    },
    /// A generation that was taken back before.
    #[error("the generation {id} is kept out")]
    KeptOut {
        /// Which.
        id: GenerationId,
        /// Failed requests of those that ended, when it was taken back.
        failed: u64,
        /// Those that ended.
        ended: u64,
    },
    /// New models beside the old ones are too large.
    #[error("the model `{model}` does not fit beside those that are loaded")]
    Memory {
        /// Which.
        model: String,
        /// What all models may hold, in bytes.
        limit: u64,
        /// What they hold now, in bytes.
        held: u64,
        /// What this one needs, in bytes.
        needed: u64,
    },
    /// The model is being replaced, and its old requests end first.
    #[error("the model `{name}` is being replaced")]
    Replacing {
        /// Which.
        name: String,
    },
    /// Requests that did not end in time for their model to be replaced.
    #[error("{running} requests of the model `{name}` are still running after {seconds} s")]
    NotDrained {
        /// Which.
        name: String,
        /// Requests.
        running: u64,
        /// How long was waited.
        seconds: u64,
    },
    /// A served name that is not there.
    #[error("no model `{name}` is served")]
    NotServed {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The request's generation was ended.
    #[error("the generation {id} was ended while this request ran")]
    Ended {
        /// Which.
        id: GenerationId,
    },
    /// No stored generation of that name.
    #[error("no stored generation begins with `{asked}`")]
    NotStored {
        /// What was asked for.
        asked: String,
        /// The stored ones, newest first.
        known: Vec<String>,
    },
    /// Several stored generations of that name.
    #[error("{} stored generations begin with `{asked}`", .found.len())]
    NotOne {
        /// What was asked for.
        asked: String,
        /// Those that do.
        found: Vec<String>,
    },
    /// The store on disk.
    #[error("the store of generations: `{}` cannot be {act}", .path.display())]
    Store {
        /// `read`, `written`.
        act: &'static str,
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A stored file with other bytes.
    #[error("the store of generations: `{}` is not what was stored", .path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// Changes cannot be watched for.
    #[error("the folders cannot be watched")]
    Watch {
        /// Why.
        source: notify::Error,
    },
    /// The system gives no thread.
    #[error("no thread for {what}")]
    Thread {
        /// For what.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl Reported for ReloadError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            ReloadError::NoSettings { folders } => {
                let looked: Vec<String> =
                    folders.iter().map(|folder| folder.join(FILE).display().to_string()).collect();
                let report = Report::new("usage.no-reload-settings", text)
                    .expected(
                        "service/reload.toml in a folder of profiles, or among the program's own profiles",
                    )
                    .found(format!("none of {}", looked.join(", ")));
                match looked.last() {
                    Some(of_program) => report.mend(format!(
                        "put the file that the program was shipped with back to {of_program}, or a copy of it into a \
                         folder of your own"
                    )),
                    None => report.mend("name a folder of profiles"),
                }
            }
            ReloadError::Settings { place, .. } => Report::new("reload.settings", text)
                .mend("profiles/service/reload.toml shows every key with its unit")
                .at((**place).clone()),
            ReloadError::Read { source, .. } => Report::new("reload.unreadable", text)
                .found(source.to_string())
                .mend("check the path and its permissions"),
            ReloadError::Encoding { offset, .. } => Report::new("profile.encoding", text)
                .expected("UTF-8")
                .found(format!("another encoding at byte {offset}"))
                .mend("save the file as UTF-8"),
            ReloadError::Unsettled { .. } => Report::new("reload.unsettled", text)
                .expected("two equal readings")
                .mend("it is tried again at the next change; end whatever writes there without pause"),
            ReloadError::Draining { at_most, found } => Report::new("reload.draining", text)
                .expected(format!("at most {at_most} (drain.at_most in service/reload.toml)"))
                .found(found.to_string())
                .mend("wait until requests end; `drain.then = \"end-oldest\"` ends them instead"),
            ReloadError::KeptOut { failed, ended, .. } => Report::new("reload.kept-out", text)
                .expected("a generation that was not taken back")
                .found(format!("{failed} of {ended} requests failed when it served"))
                .mend("mend the profile or plugin: any change makes another generation"),
            ReloadError::Memory { limit, held, needed, .. } => Report::new("reload.memory", text)
                .expected(format!("at most {limit} bytes for all models (memory.models_bytes)"))
                .found(format!("{held} bytes held and {needed} bytes needed"))
                .mend("lower limits.context_tokens or limits.max_sequences, or restart with the new profile"),
            ReloadError::Replacing { .. } => Report::new("reload.replacing", text)
                .expected("weights in memory; its profile lets old ones go before new ones come")
                .mend("send the request again in a moment"),
            ReloadError::NotDrained { .. } => Report::new("reload.not-drained", text)
                .expected("no running request (drain.first_s in service/reload.toml)")
                .mend("it is tried again; end the requests, or wait longer"),
            ReloadError::NotServed { known, .. } => Report::new("reload.not-served", text)
                .expected(format!("one of: {}", known.join(", ")))
                .mend("name a model that is served"),
            ReloadError::Ended { .. } => Report::new("reload.generation-ended", text)
                .expected("an end of its own before too many generations follow")
                .mend("send the request again: the current generation serves it"),
            ReloadError::NotStored { known, .. } => Report::new("usage.no-generation", text)
                .expected(if known.is_empty() {
                    "a stored generation; there is none".to_owned()
                } else {
                    format!("one of: {}", known.join(", "))
                })
                .mend("tenon profiles history lists them"),
            ReloadError::NotOne { found, .. } => Report::new("usage.generation-ambiguous", text)
                .expected("digits that only one begins with")
                .found(found.join(", "))
                .mend("give more digits"),
            ReloadError::Store { source, .. } => Report::new("reload.store", text)
                .found(source.to_string())
                .mend("check the cache folder, its permissions and its free space"),
            ReloadError::Corrupt { found, .. } => Report::new("reload.store-corrupt", text)
                .found(found)
                .mend("choose another generation; remove this one's file from the cache folder"),
            ReloadError::Watch { source } => Report::new("reload.watch", text)
                .found(source.to_string())
                .mend("raise the system's limit of watches (fs.inotify.max_user_watches)"),
            ReloadError::Thread { source, .. } => {
                Report::new("reload.thread", text).found(source.to_string())
            }
        }
    }
}
