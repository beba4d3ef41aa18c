//! All quantisation rules that are found by name: the `quant` folders inside the profile folders.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::fault::RulesFault;
use super::rules::QuantRules;
use crate::error::ProfileError;
use crate::nearest::nearest;
use crate::set::{profile_files, read_text};

/// Rules by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantSet {
    by_id: BTreeMap<String, Arc<QuantRules>>,
}

impl QuantSet {
    /// Reads every `*.toml` of the folder `quant` of each profile folder that has one.
    ///
    /// # Errors
    /// Every fault of every file.
    pub fn load<P: AsRef<Path>>(profile_dirs: &[P]) -> Result<QuantSet, Vec<ProfileError>> {
        let (mut set, mut errors) = (QuantSet::default(), Vec::new());
        let dirs = profile_dirs.iter().map(|dir| dir.as_ref().join("quant"));
        for dir in dirs.filter(|dir| dir.is_dir()) {
            match profile_files(&dir) {
                Ok(files) => {
                    for file in files {
                        errors.extend(QuantSet::read(&file).and_then(|rules| set.insert(rules)).err());
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(set) } else { Err(errors) }
    }

    /// The same from texts in memory: (file as it is named in reports, text).
    ///
    /// # Errors
    /// As [`QuantSet::load`].
    pub fn from_texts<F, T>(texts: impl IntoIterator<Item = (F, T)>) -> Result<QuantSet, Vec<ProfileError>>
    where
        F: AsRef<str>,
        T: AsRef<str>,
    {
        let (mut set, mut errors) = (QuantSet::default(), Vec::new());
        for (file, text) in texts {
            let rules = QuantRules::parse(file.as_ref(), text.as_ref());
            errors.extend(rules.and_then(|rules| set.insert(rules)).err());
        }
        if errors.is_empty() { Ok(set) } else { Err(errors) }
    }

    /// Reads one file of rules.
    ///
    /// # Errors
    /// A file that cannot be read, or its first fault.
    pub fn read(path: &Path) -> Result<QuantRules, ProfileError> {
        QuantRules::parse(&path.display().to_string(), &read_text(path)?)
    }

    fn insert(&mut self, rules: QuantRules) -> Result<(), ProfileError> {
        if let Some(first) = self.by_id.get(rules.id()) {
            return Err(ProfileError::DuplicateId {
                id: rules.id().to_owned(),
                first: first.file().to_owned(),
                place: Box::new(rules.id_place()),
            });
        }
        self.by_id.insert(rules.id().to_owned(), Arc::new(rules));
        Ok(())
    }

    /// The rules of that name.
    ///
    /// # Errors
    /// [`RulesFault::UnknownId`] with the names most like it.
    pub fn by_id(&self, id: &str) -> Result<&Arc<QuantRules>, RulesFault> {
        self.by_id.get(id).ok_or_else(|| RulesFault::UnknownId {
            id: id.to_owned(),
            nearest: nearest(id, self.by_id.keys().map(String::as_str)),
            known: self.by_id.keys().cloned().collect(),
        })
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<QuantRules>> {
        self.by_id.values()
    }
}
