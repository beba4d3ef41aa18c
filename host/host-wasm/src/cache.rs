//! Compiled components on disk, so that start-up compiles nothing.
//!
//! An entry's name holds the plugin's digest and everything that compiled code depends on: wasmtime's version,
//! its settings, the processor's features. An entry carries the hash of its own bytes; one that was cut or
//! altered is compiled again from the component. The folder is trusted like the program itself: whoever may
//! write there may run code.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use host_plugins::Digest;
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

const HASH_BYTES: usize = 32;

/// A folder of compiled components.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Uses a folder, made when it is missing.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Cache { folder: folder.to_owned() })
    }

    fn path(&self, engine: &Engine, digest: &Digest) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        self.folder.join(format!("{}-{:016x}.cwasm", digest.as_hex(), hasher.finish()))
    }

    /// The compiled component, if a whole one for this engine is there.
    pub(crate) fn load(&self, engine: &Engine, digest: &Digest) -> Option<Component> {
        let entry = fs::read(self.path(engine, digest)).ok()?;
        let (hash, code) = entry.split_at_checked(HASH_BYTES)?;
        if Sha256::digest(code).as_slice() != hash {
            return None;
        }
        deserialize(engine, code)
    }

    /// Keeps a compiled component. The rename makes it appear whole or not at all.
    pub(crate) fn store(&self, engine: &Engine, digest: &Digest, code: &[u8]) -> io::Result<()> {
        let path = self.path(engine, digest);
        let partial = path.with_extension(format!("{}.partial", std::process::id()));
        let entry = [Sha256::digest(code).as_slice(), code].concat();
        fs::write(&partial, entry)?;
        fs::rename(&partial, &path)
    }
}

/// Makes a component of code that this engine compiled; `None` when it is for another engine.
#[expect(unsafe_code, reason = "compiled code is machine code; only its origin makes it safe")]
pub(crate) fn deserialize(engine: &Engine, code: &[u8]) -> Option<Component> {
    // SAFETY: `code` comes from `Engine::precompile_component`: either in this process, or through an entry
    // of our cache folder whose hash was checked. Wasmtime itself refuses code of another version.
    unsafe { Component::deserialize(engine, code) }.ok()
}
