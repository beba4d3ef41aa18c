//! Typed access to `config.json`.

use serde_json::{Map, Value as Json};

use crate::error::{Error, FieldError};

/// An object of `config.json`.
///
/// A key with the value `null` counts as absent. Every error names the key from the top, what was expected
/// and what was found.
///
/// ```
/// use plugin_sdk::Config;
///
/// let config = Config::parse(r#"{"hidden_size": 64, "rope_scaling": {"factor": 4.0}, "head_dim": null}"#)?;
/// assert_eq!(config.usize("hidden_size")?, 64);
/// assert_eq!(config.optional_usize("head_dim")?, None);
/// let scaling = config.object("rope_scaling")?.expect("it is there");
/// assert_eq!(scaling.number_or("factor", 1.0)?, 4.0);
/// let error = scaling.str("factor").unwrap_err();
/// assert_eq!(error.to_string(), "rope_scaling.factor: expected a string, found 4.0");
/// # Ok::<(), plugin_sdk::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    object: Map<String, Json>,
    /// Keys from the top with a final dot; empty for the top.
    path: String,
}

const WHOLE: &str = "a whole number of at least 0";

impl Config {
    /// Reads the text of a `config.json`. The host does this before `build`; tests may need it.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when the text is not a JSON object.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_as("config.json", String::new(), text)
    }

    /// Reads the text of a profile's `params`, whose keys are told as `params.…`. The host does this before `open`
    /// and `plan`; tests may need it.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when the text is not a JSON object.
    pub fn parse_params(text: &str) -> Result<Self, Error> {
        Self::parse_as("params", "params.".to_owned(), text)
    }

    fn parse_as(name: &str, path: String, text: &str) -> Result<Self, Error> {
        let refuse = |expected: &str, found: String| {
            let (path, expected) = (name.to_owned(), expected.to_owned());
            Err(Error::InvalidConfig(vec![FieldError { path, expected, found }]))
        };
        match serde_json::from_str(text) {
            Ok(Json::Object(object)) => Ok(Config { object, path: path.clone() }),
            Ok(other) => refuse("a JSON object", shown(Some(&other))),
            Err(error) => refuse("JSON", error.to_string()),
        }
    }

    /// Whether the key is there and not `null`.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All keys, those with `null` too.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.object.keys().map(String::as_str)
    }

    /// A whole number of 32 bits.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is absent or something else.
    pub fn usize(&self, key: &str) -> Result<usize, Error> {
        self.required(key, WHOLE, whole)
    }

    /// A whole number, or `None` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn optional_usize(&self, key: &str) -> Result<Option<usize>, Error> {
        self.read(key, WHOLE, whole)
    }

    /// A whole number, or `default` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn usize_or(&self, key: &str, default: usize) -> Result<usize, Error> {
        Ok(self.optional_usize(key)?.unwrap_or(default))
    }

    /// A number. It stays double until it enters the graph, where it is rounded once.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is absent or something else.
    pub fn number(&self, key: &str) -> Result<f64, Error> {
        self.required(key, "a number", Json::as_f64)
    }

    /// A number, or `None` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn optional_number(&self, key: &str) -> Result<Option<f64>, Error> {
        self.read(key, "a number", Json::as_f64)
    }

    /// A number, or `default` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn number_or(&self, key: &str, default: f64) -> Result<f64, Error> {
        Ok(self.optional_number(key)?.unwrap_or(default))
    }

    /// A truth value, or `default` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool, Error> {
        Ok(self.read(key, "true or false", Json::as_bool)?.unwrap_or(default))
    }

    /// A string.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is absent or something else.
    pub fn str(&self, key: &str) -> Result<String, Error> {
        self.required(key, "a string", text)
    }

    /// A string, or `default` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn str_or(&self, key: &str, default: &str) -> Result<String, Error> {
        Ok(self.read(key, "a string", text)?.unwrap_or_else(|| default.to_owned()))
    }

    /// A nested object, or `None` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn object(&self, key: &str) -> Result<Option<Config>, Error> {
        let object = self.read(key, "an object", |json| json.as_object().cloned())?;
        Ok(object.map(|object| Config { object, path: format!("{}{key}.", self.path) }))
    }

    /// Any value, as JSON text: for what the host reads again, such as a schema.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is absent.
    pub fn json(&self, key: &str) -> Result<String, Error> {
        self.required(key, "a value", |json| Some(json.to_string()))
    }

    /// A list of whole numbers, or `None` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn usizes(&self, key: &str) -> Result<Option<Vec<usize>>, Error> {
        self.read(key, "a list of whole numbers", |json| list(json, whole))
    }

    /// A list of numbers, or `None` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, Error> {
        self.read(key, "a list of numbers", |json| list(json, Json::as_f64))
    }

    /// A list of strings, or `None` when it is absent.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] when it is something else.
    pub fn strs(&self, key: &str) -> Result<Option<Vec<String>>, Error> {
        self.read(key, "a list of strings", |json| list(json, text))
    }

    /// Refuses every key that the plugin does not list in `known`.
    ///
    /// A key that a plugin does not read may change the model, so it is refused rather than dropped. At the
    /// top, keys that never change what a model computes (names, versions, training settings, token ids,
    /// quantisation, which is the host's) need not be listed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with all unknown keys.
    pub fn refuse_unknown(&self, known: &[&str]) -> Result<(), Error> {
        let is_unknown =
            |key: &&str| self.has(key) && !known.contains(key) && !(self.path.is_empty() && is_harmless(key));
        let unknown = self.keys().filter(is_unknown);
        let fields: Vec<_> = unknown.map(|key| self.field(key, "a key that this plugin knows")).collect();
        if fields.is_empty() { Ok(()) } else { Err(Error::Unsupported(fields)) }
    }

    /// The error for a key whose value cannot be read.
    pub fn invalid(&self, key: &str, expected: &str) -> Error {
        Error::InvalidConfig(vec![self.field(key, expected)])
    }

    /// The error for a key that asks for what the plugin does not offer.
    pub fn unsupported(&self, key: &str, expected: &str) -> Error {
        Error::Unsupported(vec![self.field(key, expected)])
    }

    fn get(&self, key: &str) -> Option<&Json> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn field(&self, key: &str, expected: &str) -> FieldError {
        FieldError {
            path: format!("{}{key}", self.path),
            expected: expected.to_owned(),
            found: shown(self.get(key)),
        }
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&Json) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.invalid(key, expected))
    }

    fn required<T>(&self, key: &str, expected: &str, read: impl Fn(&Json) -> Option<T>) -> Result<T, Error> {
        self.read(key, expected, read)?.ok_or_else(|| self.invalid(key, expected))
    }
}

fn is_harmless(key: &str) -> bool {
    include_str!("../wit/0.2/harmless-config-keys.txt")
        .lines()
        .any(|line| line == key && !line.starts_with('#'))
}

/// A whole number as the contract carries it: 32 bits.
fn whole(json: &Json) -> Option<usize> {
    let number = u32::try_from(json.as_u64()?).ok()?;
    usize::try_from(number).ok()
}

fn text(json: &Json) -> Option<String> {
    json.as_str().map(str::to_owned)
}

fn list<T>(json: &Json, read: impl Fn(&Json) -> Option<T>) -> Option<Vec<T>> {
    json.as_array()?.iter().map(read).collect()
}

/// A value as an error shows it, short.
fn shown(value: Option<&Json>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    text.chars().take(60).chain("…".chars()).collect()
}
