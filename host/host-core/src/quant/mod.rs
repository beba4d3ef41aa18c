//! Quantisation profiles: which scheme each tensor of a checkpoint gets.
//!
//! A profile sees facts, never numbers: it gets all tensors in one call and answers a [`Scheme`] for each. The
//! TOML rules and plugins implement the same trait, [`QuantProfile`]; [`plan_schemes`] calls one and checks what
//! it answers, so that no one downstream meets a scheme that a tensor cannot take.

mod error;
mod facts;
mod scheme;

#[cfg(test)]
mod tests;

pub use error::QuantError;
pub use facts::{Role, TensorFacts};
pub use scheme::{AFFINE_BITS, AFFINE_GROUP_SIZES, Scheme};

use crate::report::{Report, Reported};

/// What decides how each tensor of a checkpoint is stored.
pub trait QuantProfile {
    /// The scheme of each tensor, in the order of `tensors` and of the same length.
    ///
    /// # Errors
    /// A [`Report`] of why there is no plan: a rule that matches nothing, a tensor that no rule matches, a
    /// plugin's fault.
    fn plan(&self, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, Report>;
}

/// Asks `profile` for a plan and checks it: one scheme a tensor, and each one that its tensor can take.
///
/// # Errors
/// The profile's own report, or that of a [`QuantError`] which names the first tensor at fault.
pub fn plan_schemes(profile: &dyn QuantProfile, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, Report> {
    let schemes = profile.plan(tensors)?;
    if schemes.len() != tensors.len() {
        let error = QuantError::Count { expected: tensors.len(), found: schemes.len() };
        return Err(error.report());
    }
    for (scheme, tensor) in schemes.iter().zip(tensors) {
        scheme.check(tensor).map_err(|error| error.report())?;
    }
    Ok(schemes)
}
