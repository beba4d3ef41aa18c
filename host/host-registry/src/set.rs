//! All profiles that were loaded: every file of the profile folders, checked together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::ProfileError;
use crate::nearest::nearest;
use crate::profile::{Profile, faults};
use crate::schema_error;
use crate::source::ProfileSource;

/// A profile is a page of text; a file beyond this is something else.
const FILE_LIMIT_BYTES: u64 = 1 << 20;

/// A profile with the text it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedProfile {
    profile: Profile,
    source: ProfileSource,
}

impl LoadedProfile {
    /// Reads one profile. `file` is named in reports.
    ///
    /// # Errors
    /// Every fault that can be told at once: one of syntax or schema, or all values that mean nothing.
    pub fn parse(file: &str, text: &str) -> Result<LoadedProfile, Vec<ProfileError>> {
        let source = ProfileSource::parse(file, text).map_err(|fault| {
            vec![ProfileError::Syntax { place: Box::new(fault.place), message: fault.message }]
        })?;
        schema_error::check_version(&source).map_err(|error| vec![error])?;
        let profile: Profile =
            toml::from_str(text).map_err(|error| vec![schema_error::explain(&source, &error)])?;
        let faults: Vec<ProfileError> =
            faults(&profile).into_iter().map(|fault| ProfileError::value(&source, fault)).collect();
        if faults.is_empty() { Ok(LoadedProfile { profile, source }) } else { Err(faults) }
    }

    /// What the file says.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The file's text, with the place of each key.
    pub fn source(&self) -> &ProfileSource {
        &self.source
    }

    /// The name it is chosen by.
    pub fn id(&self) -> &str {
        &self.profile.id
    }
}

/// All profiles, each id once. Never changes; a reload builds another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileSet {
    by_id: BTreeMap<String, Arc<LoadedProfile>>,
}

impl ProfileSet {
    /// Reads every `*.toml` of the folders themselves, not of folders inside; names that begin with a dot are
    /// left out, as editors put half-written files there.
    ///
    /// # Errors
    /// Every fault of every file, so that they can be mended in one go.
    pub fn load<P: AsRef<Path>>(dirs: &[P]) -> Result<ProfileSet, Vec<ProfileError>> {
        let mut errors = Vec::new();
        let mut texts = Vec::new();
        for dir in dirs {
            match profile_files(dir.as_ref()) {
                Ok(files) => {
                    for file in files {
                        match read_text(&file) {
                            Ok(text) => texts.push((file.display().to_string(), text)),
                            Err(error) => errors.push(error),
                        }
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        match ProfileSet::from_texts(texts) {
            Ok(set) if errors.is_empty() => Ok(set),
            Ok(_) => Err(errors),
            Err(faults) => {
                errors.extend(faults);
                Err(errors)
            }
        }
    }

    /// The same from texts in memory: (file as it is named in reports, text).
    ///
    /// # Errors
    /// As [`ProfileSet::load`].
    pub fn from_texts<F, T>(texts: impl IntoIterator<Item = (F, T)>) -> Result<ProfileSet, Vec<ProfileError>>
    where
        F: AsRef<str>,
        T: AsRef<str>,
    {
        let mut set = ProfileSet::default();
        let mut errors = Vec::new();
        for (file, text) in texts {
            match LoadedProfile::parse(file.as_ref(), text.as_ref()) {
                Ok(loaded) => errors.extend(set.insert(loaded).err()),
                Err(faults) => errors.extend(faults),
            }
        }
        if errors.is_empty() { Ok(set) } else { Err(errors) }
    }

    fn insert(&mut self, loaded: LoadedProfile) -> Result<(), ProfileError> {
        if let Some(first) = self.by_id.get(loaded.id()) {
            return Err(ProfileError::DuplicateId {
                id: loaded.id().to_owned(),
                first: first.source.line_of(&["id"]),
                place: Box::new(loaded.source.place(&["id"])),
            });
        }
        self.by_id.insert(loaded.id().to_owned(), Arc::new(loaded));
        Ok(())
    }

    /// The profile of that id.
    ///
    /// # Errors
    /// [`ProfileError::UnknownId`] with the ids most like it.
    pub fn by_id(&self, id: &str) -> Result<&Arc<LoadedProfile>, ProfileError> {
        self.by_id.get(id).ok_or_else(|| ProfileError::UnknownId {
            id: id.to_owned(),
            nearest: nearest(id, self.ids()),
            known: self.ids().map(str::to_owned).collect(),
        })
    }

    /// Every id, in order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.by_id.keys().map(String::as_str)
    }

    /// Every profile, in order of id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<LoadedProfile>> {
        self.by_id.values()
    }
}

/// The `*.toml` files of a folder, by name.
pub(crate) fn profile_files(dir: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    let failed = |source| ProfileError::Read { path: dir.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !is_hidden && path.extension().is_some_and(|extension| extension == "toml") && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub(crate) fn read_text(path: &Path) -> Result<String, ProfileError> {
    let failed = |source| ProfileError::Read { path: path.to_owned(), source };
    let found = fs::metadata(path).map_err(failed)?.len();
    if found > FILE_LIMIT_BYTES {
        return Err(ProfileError::TooLarge { path: path.to_owned(), limit: FILE_LIMIT_BYTES, found });
    }
    let bytes = fs::read(path).map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| ProfileError::Encoding {
        path: path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })
}
