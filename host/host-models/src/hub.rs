//! Models that lie in a repository of the hub, through `hf-hub`.
//!
//! A revision is resolved to a commit first, so that all files are of one state. Downloads go on where an
//! interrupted fetch stopped; large files are compared with the SHA-256 that the hub tells.

use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;

use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, Metadata};
use hf_hub::{Cache, Repo, RepoType};

use crate::choice::{Choice, choose};
use crate::error::ModelsError;
use crate::files::{self, DoingAt};
use crate::pins::sha256_digits;
use crate::progress::{Progress, Step};
use crate::record::MODEL;
use crate::source::{HubSource, check_inner_path};
use crate::store::{Settings, Staged};

/// How often a broken connection is taken up again, each time after twice the wait.
const ATTEMPTS: u32 = 4;

/// Fetches the files of the source into `partial/model`.
pub(crate) fn fetch(
    source: &HubSource,
    settings: &Settings,
    partial: &Path,
    progress: &mut dyn Progress,
) -> Result<Staged, ModelsError> {
    let hub = Hub::new(source, settings, partial)?;
    progress.begin(&Step::Resolving { what: source.to_string() }, None);
    let info = hub.retried(|| hub.info())?;
    progress.end();
    let names: Vec<String> = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
    let choice = choose(&names, source.file.as_deref(), &source.to_string())?;
    let model = partial.join(MODEL);
    files::remove_folder(&model)?;
    fs::create_dir_all(&model).doing_at("create", &model)?;
    let mut staged = Staged { revision: Some(info.sha.clone()), ..Staged::default() };
    let mut take = |name: String, parts: &[usize]| -> Result<(), ModelsError> {
        let mut blobs = Vec::new();
        for &part in parts {
            blobs.push(hub.download(&info.sha, &names[part], progress)?);
        }
        place(&blobs, &model.join(&name))?;
        if let [Blob { sha256: Some(sha256), .. }] = blobs.as_slice() {
            staged.told.push((name.clone(), sha256.clone()));
        }
        staged.names.push(name);
        Ok(())
    };
    match choice {
        Choice::Folder(files) => {
            for (file, name) in files {
                take(name, &[file])?;
            }
        }
        Choice::Gguf { name, parts } => {
            take(name.clone(), &parts)?;
            staged.main = Some(name);
        }
    }
    Ok(staged)
}

/// One repository, spoken to through a cache inside the partial folder.
struct Hub<'a> {
    source: &'a HubSource,
    settings: &'a Settings,
    api: Api,
    cache: Cache,
}

/// A whole file in the hub's cache.
struct Blob {
    path: PathBuf,
    sha256: Option<String>,
}

impl<'a> Hub<'a> {
    fn new(source: &'a HubSource, settings: &'a Settings, partial: &Path) -> Result<Hub<'a>, ModelsError> {
        let cache = Cache::new(partial.join("hub"));
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(settings.hub_endpoint.clone())
            .with_token(settings.hub_token.clone())
            .with_progress(false)
            .with_user_agent("tenon", env!("CARGO_PKG_VERSION"))
            .build()
            .map_err(|error| network(&source.to_string(), error.to_string()))?;
        Ok(Hub { source, settings, api, cache })
    }

    fn repo(&self, revision: &str) -> Repo {
        Repo::with_revision(self.source.repository.clone(), RepoType::Model, revision.to_owned())
    }

    /// The commit and file names of the revision asked for.
    fn info(&self) -> Result<RepoInfo, ModelsError> {
        let revision = self.source.revision.as_deref().unwrap_or("main");
        let what = format!("{}@{revision}", self.source.repository);
        let info = self.guarded(&what, || self.api.repo(self.repo(revision)).info())?;
        if !is_commit(&info.sha) {
            return Err(answer(&what, format!("`{}` is not a commit", info.sha)));
        }
        Ok(info)
    }

    /// A whole, size-checked file at a commit.
    fn download(&self, commit: &str, name: &str, progress: &mut dyn Progress) -> Result<Blob, ModelsError> {
        let what = format!("{}/{name}", self.source.repository);
        check_inner_path(name).map_err(|why| answer(&what, why))?;
        progress.begin(&Step::Downloading { name: name.to_owned() }, None);
        let blob = self.retried(|| self.attempt(commit, name, &what, progress))?;
        progress.end();
        Ok(blob)
    }

    fn attempt(
        &self,
        commit: &str,
        name: &str,
        what: &str,
        progress: &mut dyn Progress,
    ) -> Result<Blob, ModelsError> {
        let repo = self.api.repo(self.repo(commit));
        let metadata = self.guarded(what, || self.api.metadata(&repo.url(name)))?;
        check_metadata(&metadata, commit, what)?;
        let size_bytes = metadata.size() as u64;
        let path = self.cache.repo(self.repo(commit)).blob_path(metadata.etag());
        progress.total(size_bytes);
        if files::size_bytes(&path)? != Some(size_bytes) {
            // A part as long as the whole cannot be resumed: there is nothing left to ask for.
            let part = path.with_extension("part");
            if files::size_bytes(&part)?.is_some_and(|part_bytes| part_bytes >= size_bytes) {
                fs::remove_file(&part).doing_at("delete", &part)?;
            }
            self.guarded(what, || repo.download_with_progress(name, Bridge { progress, done_bytes: 0 }))?;
        }
        let found = files::size_bytes(&path)?;
        if found != Some(size_bytes) {
            // Typically a server that ignored the range; what was joined is worthless.
            fs::remove_file(&path).doing_at("delete", &path)?;
            let detail = format!("{} of {size_bytes} bytes came", found.unwrap_or(0));
            return Err(network(what, detail));
        }
        Ok(Blob { path, sha256: sha256_digits(metadata.etag()) })
    }

    /// Runs an attempt until it succeeds or fails for another reason than the network.
    fn retried<T>(&self, mut attempt: impl FnMut() -> Result<T, ModelsError>) -> Result<T, ModelsError> {
        let mut tries = 1;
        loop {
            match attempt() {
                Err(ModelsError::Network { .. }) if tries < ATTEMPTS => {
                    thread::sleep(self.settings.hub_retry_wait * 2_u32.pow(tries - 1));
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Calls `hf-hub`, which in places panics over an answer's headers instead of refusing them.
    fn guarded<T>(&self, what: &str, call: impl FnOnce() -> Result<T, ApiError>) -> Result<T, ModelsError> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(outcome) => outcome.map_err(|error| self.understood(what, error)),
            Err(_) => Err(answer(what, "its headers are not those of a hub".to_owned())),
        }
    }

    /// The typed form of an error of `hf-hub`.
    fn understood(&self, what: &str, error: ApiError) -> ModelsError {
        match error {
            ApiError::RequestError(error) => match *error {
                ureq::Error::StatusCode(status) => self.refused(what, status),
                ureq::Error::Json(_) | ureq::Error::BadUri(_) | ureq::Error::BodyExceedsLimit(_) => {
                    answer(what, error.to_string())
                }
                ureq::Error::Io(source) => self.broken(what, source),
                other => network(what, other.to_string()),
            },
            ApiError::IoError(source) => self.broken(what, source),
            ApiError::TooManyRetries(error) => self.understood(what, *error),
            ApiError::LockAcquisition(path) => {
                ModelsError::io("lock", &path, io::ErrorKind::WouldBlock.into())
            }
            ApiError::MissingHeader(_)
            | ApiError::InvalidHeader(_)
            | ApiError::ParseIntError(_)
            | ApiError::InvalidResume => answer(what, error.to_string()),
        }
    }

    fn refused(&self, what: &str, status: u16) -> ModelsError {
        match status {
            401 | 403 => ModelsError::HubAccess {
                repository: self.source.repository.clone(),
                status,
                had_token: self.settings.hub_token.is_some(),
            },
            404 => ModelsError::HubAbsent { what: what.to_owned() },
            408 | 429 | 500.. => network(what, format!("HTTP {status}")),
            _ => answer(what, format!("HTTP {status}")),
        }
    }

    /// An input-output error is either this disk's or the connection's.
    fn broken(&self, what: &str, source: io::Error) -> ModelsError {
        use io::ErrorKind as Kind;
        match source.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::PermissionDenied | Kind::ReadOnlyFilesystem => {
                ModelsError::io("write", self.cache.path(), source)
            }
            _ => network(what, source.to_string()),
        }
    }
}

/// The hub's words become part of local paths, so they must be plain.
fn check_metadata(metadata: &Metadata, commit: &str, what: &str) -> Result<(), ModelsError> {
    let etag = metadata.etag();
    let plain = etag.strip_prefix("W/").unwrap_or(etag);
    if plain.is_empty() || !plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(answer(what, format!("`{etag}` is not an entity tag")));
    }
    if metadata.commit_hash() != commit {
        return Err(answer(
            what,
            format!("it is of commit `{}`, asked was {commit}", metadata.commit_hash()),
        ));
    }
    Ok(())
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Puts a whole file in its place: linked where the disk can, else copied; parts are joined.
fn place(blobs: &[Blob], to: &Path) -> Result<(), ModelsError> {
    if let [blob] = blobs
        && fs::hard_link(&blob.path, to).is_ok()
    {
        return Ok(());
    }
    let mut output = File::create(to).doing_at("create", to)?;
    for blob in blobs {
        let mut input = File::open(&blob.path).doing_at("open", &blob.path)?;
        io::copy(&mut input, &mut output).doing_at("write", to)?;
    }
    Ok(())
}

fn network(what: &str, detail: String) -> ModelsError {
    ModelsError::Network { what: what.to_owned(), detail }
}

fn answer(what: &str, detail: String) -> ModelsError {
    ModelsError::HubAnswer { what: what.to_owned(), detail }
}

/// Our progress behind the trait of `hf-hub`, which begins a resumed file by the bytes that are there.
struct Bridge<'a> {
    progress: &'a mut dyn Progress,
    done_bytes: u64,
}

impl hf_hub::api::Progress for Bridge<'_> {
    fn init(&mut self, size: usize, _filename: &str) {
        self.done_bytes = 0;
        self.progress.total(size as u64);
    }

    fn update(&mut self, size: usize) {
        self.done_bytes += size as u64;
        self.progress.advance(self.done_bytes);
    }

    fn finish(&mut self) {}
}

#[cfg(test)]
mod tests;
