//! Takes the SDK's files into the program, so that `tenon plugin new` needs no repository.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let sdk = Path::new(&env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("../../plugin-sdk");
    let mut files = Vec::new();
    for part in ["README.md", "src", "wit"] {
        collect(&sdk.join(part), &mut files)?;
        println!("cargo::rerun-if-changed={}", sdk.join(part).display());
    }
    files.sort();
    let mut text = String::from("&[\n");
    for file in &files {
        let name =
            file.strip_prefix(&sdk).map_err(io::Error::other)?.display().to_string().replace('\\', "/");
        writeln!(text, "    ({name:?}, include_str!({:?})),", file.display().to_string())
            .map_err(io::Error::other)?;
    }
    text.push_str("]\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("sdk_files.rs"), text)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}
