//! All profiles that were loaded: every file of the profile folders, checked together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::chain::{read_all, source_of};
use crate::error::ProfileError;
use crate::nearest::nearest;
use crate::profile::Profile;
use crate::source::ProfileSource;

/// A profile is a page of text; a file beyond this is something else.
const FILE_LIMIT_BYTES: u64 = 1 << 20;

/// A profile with the text it was read from, and those of the profiles that it extends.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedProfile {
    profile: Profile,
    source: ProfileSource,
    bases: Vec<Base>,
}

/// A profile that another one extends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Base {
    /// Its id.
    pub id: String,
    /// Its file.
    pub file: String,
}

impl LoadedProfile {
    pub(crate) fn new(profile: Profile, source: ProfileSource, bases: Vec<Base>) -> Self {
        LoadedProfile { profile, source, bases }
    }

    /// Reads one profile that extends no other. `file` is named in reports.
    ///
    /// # Errors
    /// Every fault that can be told at once: one of syntax or schema, or all values that mean nothing.
    pub fn parse(file: &str, text: &str) -> Result<LoadedProfile, Vec<ProfileError>> {
        let source = source_of(file, text).map_err(|error| vec![error])?;
        read_all(vec![source]).pop().expect("one text, one result")
    }

    /// What the file says, and where it is silent, the profiles that it extends.
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

    /// The profiles that it extends, the nearest first.
    pub fn bases(&self) -> &[Base] {
        &self.bases
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
        ProfileSet::from_texts_after(texts, &ProfileSet::default())
    }

    /// The same, where most texts are those of `before`: what they give is taken from there, and the result is what
    /// reading all of them gives.
    ///
    /// # Errors
    /// As [`ProfileSet::load`].
    pub fn from_texts_after<F, T>(
        texts: impl IntoIterator<Item = (F, T)>,
        before: &ProfileSet,
    ) -> Result<ProfileSet, Vec<ProfileError>>
    where
        F: AsRef<str>,
        T: AsRef<str>,
    {
        let texts: Vec<(F, T)> = texts.into_iter().collect();
        let known = before.known(&texts);
        let sources: Vec<Result<ProfileSource, ProfileError>> = texts
            .iter()
            .zip(&known)
            .filter(|(_, known)| known.is_none())
            .map(|((file, text), _)| source_of(file.as_ref(), text.as_ref()))
            .collect();
        let unknown = known.iter().enumerate().filter(|(_, known)| known.is_none()).map(|(i, _)| i);
        let (mut indexed, mut at_text) = (Vec::new(), Vec::new());
        let mut errors: Vec<(usize, ProfileError)> = Vec::new();
        for (i, source) in unknown.zip(sources) {
            match source {
                Ok(source) => {
                    indexed.push(source);
                    at_text.push(i);
                }
                Err(error) => errors.push((i, error)),
            }
        }
        let mut read = known;
        for (i, of_text) in at_text.into_iter().zip(read_all(indexed)) {
            match of_text {
                Ok(loaded) => read[i] = Some(Arc::new(loaded)),
                Err(faults) => errors.extend(faults.into_iter().map(|fault| (i, fault))),
            }
        }
        let mut set = ProfileSet::default();
        for (i, loaded) in read.into_iter().enumerate() {
            if let Some(loaded) = loaded {
                errors.extend(set.insert(loaded).err().map(|error| (i, error)));
            }
        }
        // In the order of the texts, whatever was found first.
        errors.sort_by_key(|(i, _)| *i);
        let mut errors: Vec<ProfileError> = errors.into_iter().map(|(_, error)| error).collect();
        if errors.is_empty() {
            errors = set.iter().flat_map(|loaded| set.fallback_faults(loaded)).collect();
        }
        if errors.is_empty() { Ok(set) } else { Err(errors) }
    }

    /// For each text the profile that it gave here, where it is the same text and no other has a part in it. Where
    /// profiles extend each other, all are read anew.
    fn known<F: AsRef<str>, T: AsRef<str>>(&self, texts: &[(F, T)]) -> Vec<Option<Arc<LoadedProfile>>> {
        let by_file: BTreeMap<&str, &Arc<LoadedProfile>> =
            self.iter().map(|loaded| (loaded.source.file(), loaded)).collect();
        let of_text = |(file, text): &(F, T)| {
            let loaded = by_file.get(file.as_ref())?;
            (loaded.source.text() == text.as_ref()).then(|| Arc::clone(loaded))
        };
        let known: Vec<Option<Arc<LoadedProfile>>> = texts.iter().map(of_text).collect();
        let extends = |((_, text), known): (&(F, T), &Option<Arc<LoadedProfile>>)| match known {
            Some(loaded) => !loaded.bases.is_empty(),
            None => text.as_ref().contains("extends"),
        };
        if texts.iter().zip(&known).any(extends) { vec![None; texts.len()] } else { known }
    }

    /// Each fallback is another profile of the set, named once.
    fn fallback_faults(&self, loaded: &LoadedProfile) -> Vec<ProfileError> {
        let named = &loaded.profile().fallbacks;
        let fault = |id: &String, found: &str, expected: &str| ProfileError::Fallback {
            place: Box::new(loaded.source().place(&["fallbacks"])),
            id: id.clone(),
            found: found.to_owned(),
            expected: expected.to_owned(),
            nearest: nearest(id, self.ids().filter(|known| known != id && *known != loaded.id())),
        };
        let judged = named.iter().enumerate().filter_map(|(i, id)| {
            if id == loaded.id() {
                return Some(fault(id, "it is the profile itself", "other profiles"));
            }
            if named[..i].contains(id) {
                return Some(fault(id, "it is named twice", "each profile once"));
            }
            let is_there = self.by_id.contains_key(id);
            (!is_there).then(|| fault(id, "there is no such profile", "ids of profiles that are loaded"))
        });
        judged.collect()
    }

    fn insert(&mut self, loaded: Arc<LoadedProfile>) -> Result<(), ProfileError> {
        if let Some(first) = self.by_id.get(loaded.id()) {
            return Err(ProfileError::DuplicateId {
                id: loaded.id().to_owned(),
                first: first.source.line_of(&["id"]),
                place: Box::new(loaded.source.place(&["id"])),
            });
        }
        self.by_id.insert(loaded.id().to_owned(), loaded);
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
