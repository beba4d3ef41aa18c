//! Schemes that do not exist, and schemes that a tensor cannot take.

use super::scheme::{AFFINE_BITS, AFFINE_GROUP_SIZES, Scheme};
use crate::dtype::DType;
use crate::report::{Report, Reported};

/// Why a scheme, or a plan of schemes, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    /// A code width that does not exist.
    #[error("there are no affine codes of {found} bits")]
    Bits {
        /// The width asked for.
        found: u64,
    },
    /// A group size that does not exist.
    #[error("there are no affine groups of {found}")]
    GroupSize {
        /// The size asked for.
        found: u64,
    },
    /// A plan that does not answer for each tensor.
    #[error("the quantisation profile did not give one scheme a tensor")]
    Count {
        /// How many tensors it was asked about.
        expected: usize,
        /// How many schemes it gave.
        found: usize,
    },
    /// A tensor that holds no float numbers.
    #[error("tensor `{tensor}` cannot be stored as {scheme}: it holds no F32, F16 or BF16 numbers")]
    NotNumbers {
        /// The tensor.
        tensor: String,
        /// The scheme.
        scheme: Scheme,
        /// What it holds.
        found: DType,
    },
    /// A tensor that is no matrix of a module.
    #[error("tensor `{tensor}` cannot be stored as {scheme}: it is no matrix named `….weight`")]
    NotAMatrix {
        /// The tensor.
        tensor: String,
        /// The scheme.
        scheme: Scheme,
        /// Its shape.
        found: Vec<usize>,
    },
    /// A row that is no whole number of groups.
    #[error("tensor `{tensor}` cannot be stored as {scheme}: its rows are not whole groups")]
    Indivisible {
        /// The tensor.
        tensor: String,
        /// The scheme.
        scheme: Scheme,
        /// Elements of a row.
        cols: usize,
        /// Elements of a group.
        group_size: usize,
    },
}

impl Reported for QuantError {
    fn report(&self) -> Report {
        let report = |code| Report::new(code, self.to_string());
        let keep = "give this tensor another scheme, or \"keep\"";
        match self {
            QuantError::Bits { found } => report("quant.bits")
                .expected(format!("bits of {AFFINE_BITS:?}, as MLX has them"))
                .found(found.to_string())
                .mend("take the next width up or down"),
            QuantError::GroupSize { found } => report("quant.group-size")
                .expected(format!("a group_size of {AFFINE_GROUP_SIZES:?}, as MLX has them"))
                .found(found.to_string())
                .mend("take one of these sizes"),
            QuantError::Count { expected, found } => report("quant.count")
                .expected(format!("{expected} schemes, in the order of the tensors"))
                .found(format!("{found} schemes"))
                .mend("mend the profile's plugin"),
            QuantError::NotNumbers { found, .. } => report("quant.not-numbers")
                .expected("a tensor of F32, F16 or BF16")
                .found(found.to_string())
                .mend(keep),
            QuantError::NotAMatrix { found, .. } => report("quant.not-a-matrix")
                .expected("a name that ends in `.weight`, and a shape of two or more dimensions")
                .found(format!("shape {found:?}"))
                .mend(keep),
            QuantError::Indivisible { cols, group_size, .. } => report("quant.indivisible")
                .expected(format!("rows of a multiple of {group_size} elements"))
                .found(format!("rows of {cols} elements"))
                .mend(keep),
        }
    }
}
