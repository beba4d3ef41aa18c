//! How the numbers of a tensor are stored: the forms that MLX has, and leaving them as they are.

use std::fmt;

use super::error::QuantError;
use super::facts::TensorFacts;
use crate::dtype::DType;

/// Code widths of affine quantisation; MLX has no others.
pub const AFFINE_BITS: [u8; 6] = [2, 3, 4, 5, 6, 8];
/// Elements that can share a scale in affine quantisation; MLX makes no others.
pub const AFFINE_GROUP_SIZES: [usize; 3] = [32, 64, 128];

/// How the numbers of one tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// As the checkpoint has them.
    Keep,
    /// Integer codes, a scale and a bias a group: `w = scale * code + bias`. Made by [`Scheme::affine`].
    Affine {
        /// Bits of a code, one of [`AFFINE_BITS`].
        bits: u8,
        /// Consecutive elements of a row that share scale and bias, one of [`AFFINE_GROUP_SIZES`].
        group_size: usize,
    },
    /// E2M1 codes in groups of 32 with E8M0 scales.
    Mxfp4,
    /// E4M3 codes in groups of 32 with E8M0 scales.
    Mxfp8,
    /// E2M1 codes in groups of 16 with E4M3 scales.
    Nvfp4,
}

impl Scheme {
    /// The affine scheme of these widths.
    ///
    /// # Errors
    /// [`QuantError::Bits`] or [`QuantError::GroupSize`] for a width that MLX does not have.
    pub fn affine(bits: u64, group_size: u64) -> Result<Scheme, QuantError> {
        let known_bits = AFFINE_BITS.into_iter().find(|known| u64::from(*known) == bits);
        let known_group = AFFINE_GROUP_SIZES.into_iter().find(|known| *known as u64 == group_size);
        Ok(Scheme::Affine {
            bits: known_bits.ok_or(QuantError::Bits { found: bits })?,
            group_size: known_group.ok_or(QuantError::GroupSize { found: group_size })?,
        })
    }

    /// Elements of a row that share a scale; none where nothing is shared.
    pub fn group_size(self) -> Option<usize> {
        match self {
            Scheme::Keep => None,
            Scheme::Affine { group_size, .. } => Some(group_size),
            Scheme::Mxfp4 | Scheme::Mxfp8 => Some(32),
            Scheme::Nvfp4 => Some(16),
        }
    }

    /// Whether `tensor` can be stored so: a float matrix named `….weight` whose rows are whole groups.
    ///
    /// Anything can be kept.
    ///
    /// # Errors
    /// A [`QuantError`] that names the tensor and what does not fit; also for widths that were not made by
    /// [`Scheme::affine`].
    pub fn check(self, tensor: &TensorFacts) -> Result<(), QuantError> {
        let Some(group_size) = self.group_size() else { return Ok(()) };
        if let Scheme::Affine { bits, group_size } = self {
            Scheme::affine(bits.into(), group_size as u64)?;
        }
        let name = || tensor.name.clone();
        // Affine biases and scales have the weight's dtype; the other forms are made from the same three.
        if !matches!(tensor.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(QuantError::NotNumbers { tensor: name(), scheme: self, found: tensor.dtype });
        }
        if tensor.shape.len() < 2 || tensor.elements() == 0 || !tensor.name.ends_with(".weight") {
            return Err(QuantError::NotAMatrix { tensor: name(), scheme: self, found: tensor.shape.clone() });
        }
        let cols = tensor.shape[tensor.shape.len() - 1];
        if !cols.is_multiple_of(group_size) {
            return Err(QuantError::Indivisible { tensor: name(), scheme: self, cols, group_size });
        }
        Ok(())
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Keep => f.write_str("keep"),
            Scheme::Affine { bits, group_size } => write!(f, "{bits} bits, groups of {group_size}"),
            Scheme::Mxfp4 => f.write_str("mxfp4"),
            Scheme::Mxfp8 => f.write_str("mxfp8"),
            Scheme::Nvfp4 => f.write_str("nvfp4"),
        }
    }
}
