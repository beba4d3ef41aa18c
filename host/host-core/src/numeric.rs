//! Numeric profiles: how a device may round between weights and logits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A named numeric profile. A profile or a flag names it; nothing chooses one silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Numeric {
    /// Activations, sums and the KV cache in float32; weights enter with the exact value their codes stand
    /// for. The form that independent oracles judge.
    Exact,
    /// Activations are quantised to 8 bits in groups of 32 before each product with integer codes (E2M1 codes
    /// count as integers). Weights that are stored as numbers, dense or E4M3, meet float32 activations.
    Fast,
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Numeric::Exact => "exact",
            Numeric::Fast => "fast",
        })
    }
}

impl FromStr for Numeric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "exact" => Ok(Numeric::Exact),
            "fast" => Ok(Numeric::Fast),
            other => Err(format!("expected `exact` or `fast`, found `{other}`")),
        }
    }
}
