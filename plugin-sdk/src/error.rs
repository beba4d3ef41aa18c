//! Why a plugin gives up.

use std::fmt;

pub use crate::bindings::tenon::plugin::types::{BuildError, FieldError, Refusal, StepRefusal};

use crate::bindings::PluginError;

/// Why a plugin gives up; the host shows it with the plugin's name.
#[derive(Clone, Debug)]
pub enum Error {
    /// Keys of `config.json` whose values cannot be read.
    InvalidConfig(Vec<FieldError>),
    /// Keys that ask for what the plugin does not offer. The host refuses the model; it never falls back.
    Unsupported(Vec<FieldError>),
    /// A builder call that the host refused. Pass it on unchanged: the host then shows its own, fuller error.
    Build(BuildError),
    /// A call on a step that the host refused. Pass it on unchanged: the host then shows its own, fuller error.
    Step(StepRefusal),
    /// Anything else.
    Internal(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidConfig(fields) | Error::Unsupported(fields) => {
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "; " };
                    write!(f, "{comma}{}: expected {}, found {}", field.path, field.expected, field.found)?;
                }
                Ok(())
            }
            Error::Build(error) => write!(f, "{} (operation {}): {:?}", error.op, error.ordinal, error.why),
            Error::Step(refusal) => write!(f, "{refusal:?}"),
            Error::Internal(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

impl From<BuildError> for Error {
    fn from(error: BuildError) -> Self {
        Error::Build(error)
    }
}

impl From<StepRefusal> for Error {
    fn from(refusal: StepRefusal) -> Self {
        Error::Step(refusal)
    }
}

impl From<Error> for PluginError {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidConfig(fields) => PluginError::InvalidConfig(fields),
            Error::Unsupported(fields) => PluginError::Unsupported(fields),
            Error::Build(error) => PluginError::Build(error),
            Error::Step(refusal) => PluginError::Step(refusal),
            Error::Internal(message) => PluginError::Internal(message),
        }
    }
}
