//! The host and its models as the command line names them, with bars while they are opened.

use host_models::{LocalModel, ModelSource, ModelStore, Progress};
use host_plugins::LogSink;
use host_registry::ProfileSet;
use host_service::{Folders, Host, Located, ModelName, OpenProgress, Opened};

use crate::args::{ComposeArgs, FolderArgs, ModelArgs};
use crate::error::Failure;
use crate::folders;
use crate::progress::{BytesProgress, FetchProgress};

/// Reads the folders.
///
/// # Errors
/// Folders that are not there, and those of [`Host::load`].
pub(crate) fn load_host(args: &FolderArgs) -> Result<Host, Failure> {
    let folders = Folders { plugins: folders::plugins(args)?, profiles: folders::profiles(args)? };
    Host::load(folders, log_to_stderr())
}

/// All profiles.
///
/// # Errors
/// A folder that is not there, and every fault of every profile.
pub(crate) fn profiles(args: &FolderArgs) -> Result<ProfileSet, Failure> {
    host_service::load_profiles(&folders::profiles(args)?)
}

/// As [`host_service::open`]; a fallback that serves is told on standard error.
///
/// # Errors
/// The first refusal or error on the way.
pub(crate) fn open(host: &Host, model: &ModelArgs, compose: &ComposeArgs) -> Result<Opened, Failure> {
    let opened = host_service::open(host, model.name(), &compose.overrides(), &mut Bars::new())?;
    opened.composition.fallback_lines().iter().for_each(|line| eprintln!("{line}"));
    Ok(opened)
}

/// The model of that name with its configuration, fetched where it is not here yet.
///
/// # Errors
/// No model of that name, or one that cannot be had or read.
pub(crate) fn locate(host: &Host, name: ModelName<'_>) -> Result<Located, Failure> {
    let source = host_service::source_of(host.profiles(), name)?;
    host_service::locate(host.machine().store(), host.profiles(), &source, &mut FetchProgress::new())
}

/// Fetches a model where it is not here yet.
///
/// # Errors
/// A model that cannot be had, or that differs from what a profile pins.
pub(crate) fn fetch(
    store: &ModelStore,
    profiles: &ProfileSet,
    source: &ModelSource,
) -> Result<LocalModel, Failure> {
    host_service::fetch(store, profiles, source, &mut FetchProgress::new())
}

/// Plugins' log lines and the ledger's notices.
pub(crate) fn log_to_stderr() -> LogSink {
    LogSink::new(|plugin, line| eprintln!("plugin {plugin}: {line}"))
}

/// A bar for the fetching, then one for the weights.
pub(crate) struct Bars {
    fetching: FetchProgress,
    /// Begun by the first bytes.
    preparing: Option<BytesProgress>,
}

impl Bars {
    pub(crate) fn new() -> Self {
        Bars { fetching: FetchProgress::new(), preparing: None }
    }
}

impl OpenProgress for Bars {
    fn fetching(&mut self) -> &mut dyn Progress {
        &mut self.fetching
    }

    fn preparing(&mut self, done_bytes: u64, total_bytes: u64) {
        self.preparing
            .get_or_insert_with(|| BytesProgress::new("preparing weights"))
            .set(done_bytes, total_bytes);
    }
}
