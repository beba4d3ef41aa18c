//! Where things lie.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// The folder of the root manifest.
pub fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("the tests lie in the workspace").to_owned()
}

/// `tests/fixtures/NAME`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// The fixtures whose name begins so, by name.
pub fn fixtures(prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(fixture("")).expect("there are fixtures");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a fixture").path()).collect();
    paths.retain(|path| name(path).starts_with(prefix));
    paths.sort();
    assert!(!paths.is_empty(), "no fixture begins with {prefix}");
    paths
}

/// The last part of a path.
pub fn name(path: &Path) -> String {
    path.file_name().expect("a path with a name").to_string_lossy().into_owned()
}

/// The folder with `release/tenon`, `plugins` and `profiles` as `cargo xtask` builds them: what
/// `TENON_TEST_PREFIX` names, else cargo's target folder.
pub fn prefix() -> PathBuf {
    env::var_os("TENON_TEST_PREFIX").map_or_else(target, PathBuf::from)
}

/// Cargo's target folder: this program lies in its `release/deps`.
pub fn target() -> PathBuf {
    let program = env::current_exe().expect("the system knows the path of this program");
    let folder = program.ancestors().nth(3).expect("cargo puts tests three folders deep");
    folder.to_owned()
}

/// Reads a JSON file.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
