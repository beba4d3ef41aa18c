//! The numbers of reloading. They stand in a TOML file beside the profiles, never in code.

use std::path::{Path, PathBuf};
use std::time::Duration;

use host_core::Place;
use host_registry::Bytes;
use serde::Deserialize;

use super::error::ReloadError;

/// Where the file lies inside a folder of profiles.
pub(super) const FILE: &str = "service/reload.toml";

/// Everything that `service/reload.toml` says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadSettings {
    /// The file that says it.
    #[serde(skip)]
    pub file: PathBuf,
    /// When files are read.
    pub watch: WatchSettings,
    /// What becomes of old generations.
    pub drain: DrainSettings,
    /// When a generation is taken back.
    pub gate: GateSettings,
    /// How much is kept on disk.
    pub store: StoreSettings,
    /// What all models may hold.
    #[serde(default)]
    pub memory: MemorySettings,
}

/// When files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchSettings {
    /// Milliseconds without an event before files are read.
    pub debounce_ms: u64,
    /// Milliseconds between two readings that must be equal.
    pub settle_ms: u64,
    /// Readings, at least 2; past that files still change.
    pub settle_readings: u32,
    /// Milliseconds between readings that no event asked for.
    pub rescan_ms: u64,
}

/// What becomes of old generations that still have requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainSettings {
    /// So many at most, at least 1.
    pub at_most: usize,
    /// What happens to one more.
    pub then: Overflow,
    /// Seconds that a change waits for running requests where a profile lets its old weights go first.
    pub first_s: u64,
}

/// What happens when more generations than allowed have running requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// Further reloads are refused until one has drained.
    Refuse,
    /// The requests of the oldest end with an error.
    EndOldest,
}

/// When a generation is taken back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSettings {
    /// Milliseconds between two looks.
    pub check_ms: u64,
    /// Seconds after the swap.
    pub watch_s: u64,
    /// Requests that ended before anything is said, at least 1.
    pub min_requests: u64,
    /// By how much the share of failed requests may grow, from 0 to 1.
    pub worse_by: f64,
}

/// How much is kept on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSettings {
    /// Good generations, at least 1.
    pub keep: usize,
}

/// What all models of the process may hold together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySettings {
    /// Absent leaves it to each profile's `limits.memory_bytes`.
    pub models_bytes: Option<Bytes>,
}

impl ReloadSettings {
    /// Reads the file in the first of the folders that has it.
    ///
    /// # Errors
    /// [`ReloadError::NoSettings`], and those of [`ReloadSettings::parse`].
    pub fn load(profile_folders: &[PathBuf]) -> Result<Self, ReloadError> {
        let path = ReloadSettings::find(profile_folders)?;
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|source| ReloadError::Read { path: path.clone(), source })?;
        ReloadSettings::parse(&text, &path)
    }

    /// The file that is read: that of the first of the folders that has one. What lies there under that name is meant,
    /// even where it cannot be read.
    ///
    /// # Errors
    /// [`ReloadError::NoSettings`].
    pub fn find(profile_folders: &[PathBuf]) -> Result<PathBuf, ReloadError> {
        let found = profile_folders
            .iter()
            .map(|folder| folder.join(FILE))
            .find(|path| path.symlink_metadata().is_ok());
        found.ok_or_else(|| ReloadError::NoSettings { folders: profile_folders.to_vec() })
    }

    /// Reads the text of the file; `path` is named in errors.
    ///
    /// # Errors
    /// [`ReloadError::Settings`]: a key is absent, unknown, of another type, or outside its range.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ReloadError> {
        let file = path.display().to_string();
        let wrong = |message: String, place: Place| ReloadError::Settings { message, place: Box::new(place) };
        let settings: ReloadSettings = toml::from_str(text)
            .map_err(|error| wrong(error.message().to_owned(), Place::in_text(&file, text, error.span())))?;
        match settings.outside() {
            None => Ok(ReloadSettings { file: path.to_owned(), ..settings }),
            Some((key, expected)) => {
                let at = text.find(key);
                let place = Place::in_text(&file, text, at.map(|at| at..at + key.len()));
                Err(wrong(format!("`{key}` must be {expected}"), place))
            }
        }
    }

    /// The first key outside its range, and the range.
    fn outside(&self) -> Option<(&'static str, &'static str)> {
        let checks = [
            (self.watch.settle_readings >= 2, "settle_readings", "at least 2"),
            (self.watch.rescan_ms >= 1, "rescan_ms", "at least 1"),
            (self.gate.check_ms >= 1, "check_ms", "at least 1"),
            (self.drain.at_most >= 1, "at_most", "at least 1"),
            (self.gate.min_requests >= 1, "min_requests", "at least 1"),
            ((0.0..=1.0).contains(&self.gate.worse_by), "worse_by", "from 0 to 1"),
            (self.store.keep >= 1, "keep", "at least 1"),
        ];
        checks.into_iter().find(|(holds, ..)| !holds).map(|(_, key, expected)| (key, expected))
    }
}

impl GateSettings {
    pub(crate) fn check(self) -> Duration {
        Duration::from_millis(self.check_ms)
    }
}

impl WatchSettings {
    pub(crate) fn debounce(self) -> Duration {
        Duration::from_millis(self.debounce_ms)
    }

    pub(crate) fn settle(self) -> Duration {
        Duration::from_millis(self.settle_ms)
    }

    pub(crate) fn rescan(self) -> Duration {
        Duration::from_millis(self.rescan_ms)
    }
}

#[cfg(test)]
mod tests;
