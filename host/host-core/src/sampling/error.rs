//! What is wrong with a sampling setting or with a sampler of a chain.

use crate::report::{Report, Reported};

/// A sampling setting outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("sampling setting `{name}` is {found}, expected {expected}")]
pub struct SamplingError {
    /// The setting; of a chain's sampler, its own word for it.
    pub name: &'static str,
    /// The sampler of the chain that it belongs to, as the chain names it.
    pub sampler: Option<&'static str>,
    /// The range it must lie in.
    pub expected: &'static str,
    /// The value given, as text.
    pub found: String,
}

impl Reported for SamplingError {
    fn report(&self) -> Report {
        let message = match self.sampler {
            Some(sampler) => format!("`{}` of the sampler `{sampler}` is out of range", self.name),
            None => format!("`{}` is out of range", self.name),
        };
        Report::new("sampling.out-of-range", message)
            .expected(self.expected)
            .found(self.found.clone())
            .mend(format!("give `{}` a value in that range", self.name))
    }
}
