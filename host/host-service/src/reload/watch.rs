//! Watches the folders and has the service reload when something in them changes.
//!
//! Folders are watched, and the folders that they lie in, so that one which is renamed over or made again is seen. An
//! event only says that something happened; what is there now is read anew. A reading that no event asked for comes
//! now and then, for systems that lose events.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use super::error::ReloadError;
use super::service::Service;

/// Watches until it is dropped.
pub struct Watching {
    /// `None` once it is being dropped.
    stop: Option<Sender<Signal>>,
    thread: Option<JoinHandle<()>>,
}

enum Signal {
    /// Something in the folders changed; whether a folder itself did.
    Changed {
        folder: bool,
    },
    Stop,
}

impl Watching {
    /// Starts a thread that reloads `service` when its folders change, and looks at its health gate.
    ///
    /// # Errors
    /// [`ReloadError::Watch`], [`ReloadError::Thread`].
    pub fn start(service: Arc<Service>) -> Result<Self, ReloadError> {
        let (stop, signals) = mpsc::channel();
        let folders = service.folders();
        let folders: Vec<PathBuf> =
            folders.profiles.iter().chain(&folders.plugins).map(|f| absolute(f)).collect();
        let mut watcher = watcher(folders.clone(), stop.clone())?;
        watch(&mut watcher, &folders).map_err(|source| ReloadError::Watch { source })?;
        let thread = std::thread::Builder::new().name("reload".to_owned()).spawn(move || {
            Loop { service, watcher, folders, signals }.run();
        });
        let thread = thread.map_err(|source| ReloadError::Thread { what: "reloading", source })?;
        Ok(Watching { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(Signal::Stop);
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}

/// What the thread owns.
struct Loop {
    service: Arc<Service>,
    watcher: RecommendedWatcher,
    folders: Vec<PathBuf>,
    signals: Receiver<Signal>,
}

impl Loop {
    fn run(mut self) {
        let settings = self.service.settings();
        let (watch_settings, check) = (settings.watch, settings.gate.check());
        let mut read_at = Instant::now();
        loop {
            match self.signals.recv_timeout(check) {
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Signal::Changed { folder }) => {
                    let Some(folder) = self.quiet(folder, watch_settings.debounce(), watch_settings.rescan())
                    else {
                        return;
                    };
                    if folder {
                        // A folder that is not there now is watched for by the one around it.
                        let _ = watch(&mut self.watcher, &self.folders);
                    }
                    read_at = Instant::now();
                    self.service.reload();
                }
                Err(RecvTimeoutError::Timeout) if read_at.elapsed() >= watch_settings.rescan() => {
                    read_at = Instant::now();
                    let _ = watch(&mut self.watcher, &self.folders);
                    self.service.reload();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.service.tick();
        }
    }

    /// Waits until nothing happened for `debounce`, but not longer than `at_most`; whether a folder itself changed, or
    /// `None` where it is to stop.
    fn quiet(&self, mut folder: bool, debounce: Duration, at_most: Duration) -> Option<bool> {
        let began = Instant::now();
        while began.elapsed() < at_most {
            match self.signals.recv_timeout(debounce) {
                Ok(Signal::Changed { folder: this }) => folder |= this,
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        Some(folder)
    }
}

fn watcher(folders: Vec<PathBuf>, signals: Sender<Signal>) -> Result<RecommendedWatcher, ReloadError> {
    let heard = move |event: notify::Result<notify::Event>| {
        let signal = match event {
            Ok(event) => signal_of(&event, &folders),
            // Something was lost: all is read, and watched, anew.
            Err(_) => Some(Signal::Changed { folder: true }),
        };
        // Nobody listens when the thread is gone.
        signal.map(|signal| signals.send(signal));
    };
    notify::recommended_watcher(heard).map_err(|source| ReloadError::Watch { source })
}

/// What an event means; none for one that is about something else, or that reading makes.
fn signal_of(event: &notify::Event, folders: &[PathBuf]) -> Option<Signal> {
    if let EventKind::Access(kind) = event.kind
        && kind != AccessKind::Close(AccessMode::Write)
    {
        return None;
    }
    if event.need_rescan() {
        return Some(Signal::Changed { folder: true });
    }
    let is_folder = event.paths.iter().any(|path| folders.contains(path));
    let is_inside = event.paths.iter().any(|path| folders.iter().any(|folder| path.starts_with(folder)));
    (is_folder || is_inside).then_some(Signal::Changed { folder: is_folder })
}

/// Watches each folder with all in it, and the folder around it alone.
fn watch(watcher: &mut RecommendedWatcher, folders: &[PathBuf]) -> notify::Result<()> {
    for folder in folders {
        if let Some(around) = folder.parent() {
            watcher.watch(around, RecursiveMode::NonRecursive)?;
        }
    }
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        watcher.watch(folder, RecursiveMode::Recursive)?;
    }
    Ok(())
}

/// Events name their files so.
fn absolute(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, ModifyKind};

    use super::*;

    #[test]
    fn an_event_counts_when_it_changes_something_in_the_folders() {
        let folders = [PathBuf::from("/a/profiles"), PathBuf::from("/a/plugins")];
        let modified = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let cases = [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), "/a/profiles/x.toml", None),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), "/a/profiles/x.toml", Some(false)),
            (modified, "/a/plugins/p/main.lua", Some(false)),
            (modified, "/a/other/x.toml", None),
            (EventKind::Create(CreateKind::Folder), "/a/profiles", Some(true)),
            (EventKind::Create(CreateKind::Folder), "/a/profiles2", None),
        ];
        for (kind, path, expected) in cases {
            let event = notify::Event::new(kind).add_path(path.into());
            let found = signal_of(&event, &folders).map(|signal| match signal {
                Signal::Changed { folder } => folder,
                Signal::Stop => unreachable!("an event stops nothing"),
            });
            assert_eq!(found, expected, "{kind:?} {path}");
        }
    }
}
