//! One affine scheme for every matrix that can take it, but for the roles that are kept.
//!
//! Params: `bits` (2, 3, 4, 5, 6 or 8), `group_size` (32, 64 or 128), `keep`, a list of roles that stay as they are.

use plugin_sdk::quant::{Affine, QuantProfile, Role, Scheme, TensorFacts};
use plugin_sdk::{Config, Error, register_quant_profile};

struct Uniform;

register_quant_profile!(Uniform);

/// Every role with its name in `keep`.
const ROLES: [(&str, Role); 14] = [
    ("embedding", Role::Embedding),
    ("attention-q", Role::AttentionQ),
    ("attention-k", Role::AttentionK),
    ("attention-v", Role::AttentionV),
    ("attention-o", Role::AttentionO),
    ("mlp-gate", Role::MlpGate),
    ("mlp-up", Role::MlpUp),
    ("mlp-down", Role::MlpDown),
    ("router", Role::Router),
    ("expert", Role::Expert),
    ("head", Role::Head),
    ("norm", Role::Norm),
    ("bias", Role::Bias),
    ("other", Role::Other),
];

impl QuantProfile for Uniform {
    fn plan(_: &Config, params: &Config, tensors: &[TensorFacts]) -> Result<Vec<Scheme>, Error> {
        params.refuse_unknown(&["bits", "group_size", "keep"])?;
        let (bits, group_size) = (params.usize("bits")? as u32, params.usize("group_size")? as u32);
        if ![2, 3, 4, 5, 6, 8].contains(&bits) {
            return Err(params.invalid("bits", "2, 3, 4, 5, 6 or 8"));
        }
        if ![32, 64, 128].contains(&group_size) {
            return Err(params.invalid("group_size", "32, 64 or 128"));
        }
        let scheme = Scheme::Affine(Affine { bits, group_size });
        let kept = kept(params)?;
        let choose = |tensor: &TensorFacts| {
            let is_kept = kept.contains(&tensor.role) || !tensor.can_be(scheme);
            if is_kept { Scheme::Keep } else { scheme }
        };
        Ok(tensors.iter().map(choose).collect())
    }
}

fn kept(params: &Config) -> Result<Vec<Role>, Error> {
    let names = params.strs("keep")?.unwrap_or_default();
    let role = |name: &String| ROLES.iter().find(|(known, _)| known == name).map(|(_, role)| *role);
    let roles: Option<Vec<Role>> = names.iter().map(role).collect();
    roles.ok_or_else(|| params.invalid("keep", "a list of roles"))
}
