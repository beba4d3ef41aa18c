//! Copies of tiny models that a test may spoil, and a watch over who opens their files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::places::{fixture, read_json};

/// A copy of a tiny model's folder.
#[derive(Debug)]
pub struct Altered {
    folder: TempDir,
}

impl Altered {
    /// A copy as it is.
    pub fn of(name: &str) -> Altered {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for entry in fs::read_dir(fixture(name)).expect("the fixture exists") {
            let from = entry.expect("a file of the fixture").path();
            let to = folder.path().join(from.file_name().expect("a file has a name"));
            fs::copy(&from, to).expect("a fixture can be copied");
        }
        Altered { folder }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Changes its `config.json`.
    #[must_use]
    pub fn config(self, edit: impl FnOnce(&mut Map<String, Value>)) -> Self {
        let path = self.path().join("config.json");
        let mut config: Map<String, Value> = read_json(&path);
        edit(&mut config);
        fs::write(&path, Value::Object(config).to_string()).expect("a copy can be written");
        self
    }

    /// Fills every file of weights with bytes that no reader accepts.
    #[must_use]
    pub fn garbage_weights(self) -> Self {
        for path in self.weights() {
            fs::write(path, [0xff; 64]).expect("a copy can be written");
        }
        self
    }

    /// Renames a tensor to a name of the same length; the file stays a sound one.
    #[must_use]
    pub fn rename_tensor(self, from: &str, to: &str) -> Self {
        assert_eq!(from.len(), to.len(), "the header keeps its length");
        let quoted = |name: &str| format!("\"{name}\"").into_bytes();
        let (from, to) = (quoted(from), quoted(to));
        let mut n_renamed = 0;
        for path in self.weights() {
            let mut bytes = fs::read(&path).expect("a copy can be read");
            if let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
                bytes[at..at + to.len()].copy_from_slice(&to);
                n_renamed += 1;
                fs::write(path, bytes).expect("a copy can be written");
            }
        }
        assert_eq!(n_renamed, 1, "one file has the tensor");
        self
    }

    /// Its files of weights.
    pub fn weights(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).expect("the copy exists");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
        assert!(!paths.is_empty(), "a model has weights");
        paths
    }
}

/// A watch over files: whether anybody, in whichever process, opened one of them.
#[cfg(target_os = "linux")]
pub struct Watch(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Watch {
    /// Begins now.
    pub fn over(files: &[PathBuf]) -> Watch {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let queue = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("the system has inotify");
        for file in files {
            add_watch(&queue, file, WatchFlags::OPEN).expect("a file can be watched");
        }
        Watch(queue)
    }

    /// Whether a file was opened since this was last asked.
    pub fn saw_opening(&self) -> bool {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = rustix::fs::inotify::Reader::new(&self.0, &mut buffer);
        let mut seen = false;
        loop {
            match events.next() {
                Ok(_) => seen = true,
                Err(rustix::io::Errno::AGAIN) => return seen,
                Err(error) => panic!("inotify: {error}"),
            }
        }
    }
}
