//! Where plugins and profiles lie: flags, else variables, else beside the program.

use std::env;
use std::path::{Path, PathBuf};

use crate::args::FolderArgs;
use crate::error::CliError;

/// The folders of one kind.
struct Kind {
    what: &'static str,
    flag: &'static str,
    variable: &'static str,
    /// Below the parent of the program's folder.
    beside: &'static str,
}

const PLUGINS: Kind =
    Kind { what: "plugins", flag: "--plugins", variable: "TENON_PLUGINS", beside: "plugins" };
const PROFILES: Kind =
    Kind { what: "profiles", flag: "--profiles", variable: "TENON_PROFILES", beside: "profiles" };

/// The folders that hold plugins.
pub(crate) fn plugins(args: &FolderArgs) -> Result<Vec<PathBuf>, CliError> {
    folders(&PLUGINS, &args.plugins)
}

/// The folders that hold profiles.
pub(crate) fn profiles(args: &FolderArgs) -> Result<Vec<PathBuf>, CliError> {
    folders(&PROFILES, &args.profiles)
}

/// Folders of profiles, then the one beside the program: where settings are looked for.
pub(crate) fn with_settings(profiles: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut folders = profiles.to_vec();
    let of_program = prefix()?.join(PROFILES.beside);
    if !folders.contains(&of_program) {
        folders.push(of_program);
    }
    Ok(folders)
}

fn folders(kind: &Kind, of_flag: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let folders = match (of_flag, env::var_os(kind.variable)) {
        ([], Some(list)) => env::split_paths(&list).collect(),
        ([], None) => vec![prefix()?.join(kind.beside)],
        (given, _) => given.to_vec(),
    };
    match folders.iter().find(|folder| !folder.is_dir()) {
        Some(absent) => Err(CliError::NoFolder {
            what: kind.what,
            path: absent.clone(),
            flag: kind.flag,
            variable: kind.variable,
        }),
        None => Ok(folders),
    }
}

/// The parent of the folder of the program: `target` of `target/release/tenon`, `/usr/local` of
/// `/usr/local/bin/tenon`.
fn prefix() -> Result<PathBuf, CliError> {
    let program = env::current_exe().map_err(|source| CliError::NoProgramFolder { source })?;
    Ok(program.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned())
}
