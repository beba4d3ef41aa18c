//! Affine codes for every matrix that can have them, but for those that speak most: the embedding and the head.
//!
//! Params: `bits`, the width of a code: 2, 3, 4, 5, 6 or 8.

use plugin_sdk::quant::{Affine, QuantProfile, Role, Scheme, TensorFacts};
use plugin_sdk::{Config, Error, register_quant_profile};

struct Profile;

register_quant_profile!(Profile);

impl QuantProfile for Profile {
    fn plan(_config: &Config, params: &Config, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, Error> {
        params.refuse_unknown(&["bits"])?;
        let bits = params.usize("bits")? as u32;
        if ![2, 3, 4, 5, 6, 8].contains(&bits) {
            return Err(params.invalid("bits", "2, 3, 4, 5, 6 or 8"));
        }
        Ok(tensors.iter().map(|tensor| scheme(tensor, bits)).collect())
    }
}

fn scheme(tensor: &TensorFacts, bits: u32) -> Scheme {
    let codes = Scheme::Affine(Affine { bits, group_size: 64 });
    let is_kept = matches!(tensor.role, Role::Embedding | Role::Head) || !tensor.can_be(codes);
    if is_kept { Scheme::Keep } else { codes }
}
