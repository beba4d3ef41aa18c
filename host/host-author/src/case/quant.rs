//! Cases of quantisation profiles: tensors with the schemes that they get, or the refusal of the params.

use host_core::DType;
use host_core::quant::{Role, Scheme, TensorFacts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Placed;
use crate::error::AuthorError;

/// One case, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuantCase {
    pub(crate) about: String,
    /// The checkpoint's `config.json`.
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
    #[serde(default)]
    pub(crate) params: Map<String, Value>,
    #[serde(default)]
    pub(crate) tensor: Vec<TensorCase>,
    /// The code of the error that refuses the plan; such a case has no tensors.
    pub(crate) refused: Option<String>,
}

/// A tensor with the scheme that it must get.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TensorCase {
    name: String,
    shape: Vec<usize>,
    dtype: String,
    role: Role,
    layer: Option<usize>,
    scheme: SchemeText,
}

/// A scheme as cases and traces write it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum SchemeText {
    Affine { bits: u64, group_size: u64 },
    Named(String),
}

impl SchemeText {
    /// The scheme; none for a name or a width that does not exist.
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        match self {
            SchemeText::Affine { bits, group_size } => Scheme::affine(*bits, *group_size).ok(),
            SchemeText::Named(name) => [Scheme::Keep, Scheme::Mxfp4, Scheme::Mxfp8, Scheme::Nvfp4]
                .into_iter()
                .find(|s| s.to_string() == *name),
        }
    }
}

impl From<Scheme> for SchemeText {
    fn from(scheme: Scheme) -> Self {
        match scheme {
            Scheme::Affine { bits, group_size } => {
                SchemeText::Affine { bits: bits.into(), group_size: group_size as u64 }
            }
            named => SchemeText::Named(named.to_string()),
        }
    }
}

impl Placed<QuantCase> {
    /// The tensors, each with the scheme that it must get.
    ///
    /// # Errors
    /// [`AuthorError::CaseValue`] for a dtype or a scheme that does not exist, and for a case that expects nothing.
    pub(crate) fn tensors(&self) -> Result<Vec<(TensorFacts, Scheme)>, AuthorError> {
        if self.case.refused.is_some() != self.case.tensor.is_empty() {
            return Err(
                self.wrong("the tensors".to_owned(), "tensors, or `refused` with the code of the error")
            );
        }
        self.case.tensor.iter().map(|tensor| self.tensor(tensor)).collect()
    }

    fn tensor(&self, tensor: &TensorCase) -> Result<(TensorFacts, Scheme), AuthorError> {
        let TensorCase { name, shape, dtype, role, layer, scheme } = tensor;
        let dtype = dtype.parse::<DType>();
        let dtype =
            dtype.map_err(|_| self.wrong(format!("`dtype` of {name}"), "a dtype such as BF16 or F32"))?;
        let expected = "\"keep\", \"mxfp4\", \"mxfp8\", \"nvfp4\" or { bits, group_size }";
        let scheme = scheme.scheme().ok_or_else(|| self.wrong(format!("`scheme` of {name}"), expected))?;
        let (name, shape) = (name.clone(), shape.clone());
        Ok((TensorFacts { name, shape, dtype, role: *role, layer: *layer }, scheme))
    }
}
