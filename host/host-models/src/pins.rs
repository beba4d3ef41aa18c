//! Checksums that a profile pins: SHA-256 by file name.

use std::collections::BTreeMap;

use crate::error::ModelsError;

/// The SHA-256 that named files of a model must have. Empty pins nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins(BTreeMap<String, String>);

impl Pins {
    /// Pins nothing.
    pub const NONE: Pins = Pins(BTreeMap::new());

    /// Pins `(file name, SHA-256 in 64 hexadecimal digits)` pairs.
    ///
    /// # Errors
    /// [`ModelsError::PinForm`] when a checksum is not 64 hexadecimal digits, or a file is pinned twice to
    /// different checksums.
    pub fn new<N, S>(pairs: impl IntoIterator<Item = (N, S)>) -> Result<Pins, ModelsError>
    where
        N: Into<String>,
        S: AsRef<str>,
    {
        let mut pins = BTreeMap::new();
        for (file, sha256) in pairs {
            let (file, sha256) = (file.into(), sha256.as_ref());
            let Some(digits) = sha256_digits(sha256) else {
                return Err(ModelsError::PinForm { file, found: sha256.to_owned() });
            };
            if let Some(earlier) = pins.insert(file.clone(), digits.clone())
                && earlier != digits
            {
                return Err(ModelsError::PinForm { file, found: format!("{earlier} and {digits}") });
            }
        }
        Ok(Pins(pins))
    }

    /// The checksum pinned for a file, in lower case.
    pub fn get(&self, file: &str) -> Option<&str> {
        self.0.get(file).map(String::as_str)
    }

    /// Whether nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every pair, by file name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(file, sha256)| (file.as_str(), sha256.as_str()))
    }
}

/// The 64 hexadecimal digits of a SHA-256 in lower case, or `None` for any other text.
pub(crate) fn sha256_digits(text: &str) -> Option<String> {
    (text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| text.to_ascii_lowercase())
}
