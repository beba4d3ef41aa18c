//! What cannot run here is skipped aloud: a line `skipped: REASON`, which `cargo xtask test` counts and shows.
//!
//! Where a variable says that a thing is there, its absence is a failure and no reason to skip.

use std::env;
use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::places::prefix;

/// Says that something does not run. The line is what `cargo xtask test` looks for.
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// A model file of the folder that `TENON_TEST_MODELS` names, if it has the bytes that goldens were made from.
///
/// `None` has been said aloud.
///
/// # Panics
/// Where the file has other bytes, and with `TENON_TEST_REQUIRE_MODELS=1` where it is absent.
pub fn model_file(name: &str, sha256: &str) -> Option<PathBuf> {
    let Some(folder) = env::var_os("TENON_TEST_MODELS") else {
        return absent(
            "TENON_TEST_REQUIRE_MODELS",
            &format!("TENON_TEST_MODELS does not name the folder of {name}"),
        );
    };
    let path = PathBuf::from(folder).join(name);
    if !path.exists() {
        return absent("TENON_TEST_REQUIRE_MODELS", &format!("{} does not exist", path.display()));
    }
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let found: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(found, sha256, "{} is another file than the one the goldens were made from", path.display());
    Some(path)
}

/// The built program. `None` has been said aloud.
///
/// # Panics
/// Where `TENON_TEST_PREFIX` is set and it is absent there.
pub fn program() -> Option<PathBuf> {
    let path = prefix().join("release").join(format!("tenon{}", env::consts::EXE_SUFFIX));
    if path.exists() {
        return Some(path);
    }
    absent("TENON_TEST_PREFIX", &format!("{} is not built: `cargo xtask test` does", path.display()))
}

/// The folder of built WASM plugins. `None` has been said aloud.
///
/// # Panics
/// As [`program`].
pub fn wasm_plugins() -> Option<PathBuf> {
    let path = prefix().join("plugins");
    if path.join("llama").join("plugin.wasm").exists() && path.join("gemma3").join("plugin.wasm").exists() {
        return Some(path);
    }
    absent(
        "TENON_TEST_PREFIX",
        &format!("{} lacks WASM plugins: `cargo xtask plugins` builds them", path.display()),
    )
}

/// Skips, unless `variable` says that what is absent must be there.
fn absent<T>(variable: &str, reason: &str) -> Option<T> {
    let required = env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!required, "{variable} is set, but {reason}");
    skip(reason);
    None
}
