//! Writes the types for editors into a folder: `cargo xtask stubs` runs it over `plugin-sdk/lua`.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or_else(|| io::Error::other("expected a folder"))?);
    host_lua::stubs().into_iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
}
