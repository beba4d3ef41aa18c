//! What a quantisation profile may know of a tensor.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;

/// One tensor as a quantisation profile sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorFacts {
    /// The name in the published checkpoint: `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// The logical shape, for a matrix `[out, in]`, however it is stored.
    pub shape: Vec<usize>,
    /// The dtype of its numbers; of a tensor that is stored as codes, that of its scales.
    pub dtype: DType,
    /// What the model does with it.
    pub role: Role,
    /// The layer that uses it, from 0; none for embeddings, the last norm and the head.
    pub layer: Option<usize>,
}

impl TensorFacts {
    /// A tensor of which nothing is known but how it is stored.
    pub fn unused(name: String, shape: Vec<usize>, dtype: DType) -> Self {
        TensorFacts { name, shape, dtype, role: Role::Other, layer: None }
    }

    /// Logical elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// What a model does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A table of rows by token id; also where it is the head as well (tied embeddings).
    Embedding,
    /// The projection to queries.
    AttentionQ,
    /// The projection to keys.
    AttentionK,
    /// The projection to values.
    AttentionV,
    /// The projection of attention's result back to the model's width.
    AttentionO,
    /// The feed-forward projection whose result passes the activation.
    MlpGate,
    /// The feed-forward projection that the gate multiplies.
    MlpUp,
    /// The feed-forward projection back to the model's width.
    MlpDown,
    /// The projection that chooses experts.
    Router,
    /// A matrix, or a stack of matrices, of experts.
    Expert,
    /// The projection to logits, where it is not the embedding.
    Head,
    /// The weight of a normalisation.
    Norm,
    /// An added vector.
    Bias,
    /// Anything else.
    Other,
}

impl Role {
    /// Every role with its name in rules, plugins and reports.
    pub const ALL: [(Role, &'static str); 14] = [
        (Role::Embedding, "embedding"),
        (Role::AttentionQ, "attention-q"),
        (Role::AttentionK, "attention-k"),
        (Role::AttentionV, "attention-v"),
        (Role::AttentionO, "attention-o"),
        (Role::MlpGate, "mlp-gate"),
        (Role::MlpUp, "mlp-up"),
        (Role::MlpDown, "mlp-down"),
        (Role::Router, "router"),
        (Role::Expert, "expert"),
        (Role::Head, "head"),
        (Role::Norm, "norm"),
        (Role::Bias, "bias"),
        (Role::Other, "other"),
    ];

    /// The name in rules, plugins and reports.
    pub fn name(self) -> &'static str {
        Role::ALL.iter().find(|(role, _)| *role == self).map_or("?", |(_, name)| name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Role::ALL.iter().find(|(_, known)| *known == name).map(|(role, _)| *role).ok_or(())
    }
}
