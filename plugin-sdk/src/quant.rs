//! Write a quantisation profile: how each tensor of a checkpoint is stored.
//!
//! A whole profile, which stores every matrix in four bits and leaves the rest as it is:
//!
//! ```
//! use plugin_sdk::quant::{Affine, QuantProfile, Scheme, TensorFacts};
//! use plugin_sdk::{Config, Error, register_quant_profile};
//!
//! struct FourBits;
//!
//! impl QuantProfile for FourBits {
//!     fn plan(_: &Config, params: &Config, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, Error> {
//!         params.refuse_unknown(&[])?;
//!         let four_bits = Scheme::Affine(Affine { bits: 4, group_size: 64 });
//!         let choose = |tensor: &TensorFacts| if tensor.can_be(four_bits) { four_bits } else { Scheme::Keep };
//!         Ok(tensors.iter().map(choose).collect())
//!     }
//! }
//!
//! register_quant_profile!(FourBits);
//! # fn main() {}
//! ```

use crate::quant_bindings::PluginError;
use crate::quant_bindings::tenon::plugin::quant;
use crate::{Config, Error};

pub use crate::quant_bindings::tenon::plugin::quant::{Affine, Role, Scheme, TensorFacts};

/// Chooses how each tensor of a checkpoint is stored.
pub trait QuantProfile {
    /// One scheme a tensor, in order. `config` is the checkpoint's `config.json`, `params` what the profile passes.
    ///
    /// # Errors
    /// [`Error`], usually passed on from `config` and `params`. The host refuses the plan with it.
    fn plan(config: &Config, params: &Config, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, Error>;
}

impl TensorFacts {
    /// Whether the host accepts this scheme for this tensor: anything can be kept; else it must be a float matrix
    /// named `….weight` whose rows are whole groups.
    pub fn can_be(&self, scheme: Scheme) -> bool {
        let group_size = match scheme {
            Scheme::Keep => return true,
            Scheme::Affine(affine) => affine.group_size,
            Scheme::Mxfp4 | Scheme::Mxfp8 => 32,
            Scheme::Nvfp4 => 16,
        };
        let is_float = matches!(&*self.dtype, "F32" | "F16" | "BF16");
        let is_matrix = self.shape.len() >= 2 && !self.shape.contains(&0) && self.name.ends_with(".weight");
        let has_whole_groups = self.shape.last().is_some_and(|cols| cols % group_size == 0);
        is_float && is_matrix && has_whole_groups
    }
}

/// Writes a line to the host's log.
pub fn log(line: &str) {
    quant::log(line);
}

/// Runs one plan: parses the texts, calls the author, hands errors over the border.
///
/// # Errors
/// Whatever the plugin gave up with.
#[doc(hidden)]
pub fn run<P: QuantProfile>(
    config: &str,
    params: &str,
    tensors: &[TensorFacts],
) -> Result<Vec<Scheme>, PluginError> {
    // A panic ends in a trap without words; the log line before it says where.
    std::panic::set_hook(Box::new(|panic| quant::log(&panic.to_string())));
    Ok(P::plan(&Config::parse(config)?, &Config::parse_params(params)?, tensors)?)
}
