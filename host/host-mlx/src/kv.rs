//! How keys and values are kept: as plain numbers, or as affine codes with a scale and a bias for each group.

use host_device::KvStorage;
use mlx_rs::{Array, Dtype};

use crate::fault::Fault;
use crate::ops::{self, Packed};
use crate::weights::size_bytes;

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kv {
    /// Numbers of a dtype.
    Plain(Dtype),
    /// Codes; scales and biases have the dtype of what they were made from.
    Codes { bits: usize, group_size: usize },
}

impl Kv {
    pub(crate) fn of(storage: KvStorage) -> Self {
        match storage {
            KvStorage::PlainF32 => Kv::Plain(Dtype::Float32),
            KvStorage::PlainF16 => Kv::Plain(Dtype::Float16),
            KvStorage::PlainBf16 => Kv::Plain(Dtype::Bfloat16),
            KvStorage::Quantised(codes) => {
                Kv::Codes { bits: usize::from(codes.bits), group_size: usize::from(codes.group_size) }
            }
        }
    }

    /// Bytes of `width` elements beside activations of a dtype.
    pub(crate) fn bytes(self, width: usize, activations: Dtype) -> u64 {
        match self {
            Kv::Plain(dtype) => width as u64 * size_bytes(dtype),
            Kv::Codes { bits, group_size } => {
                (width * bits / 8) as u64 + 2 * (width / group_size) as u64 * size_bytes(activations)
            }
        }
    }

    /// Why heads of a width cannot be kept so.
    pub(crate) fn refusal(self, width: usize) -> Option<String> {
        match self {
            Kv::Codes { group_size, .. } if !width.is_multiple_of(group_size) => {
                Some(format!("heads {width} wide in groups of {group_size}"))
            }
            _ => None,
        }
    }

    /// Keys or values as they are kept: one array, or codes, scales and biases.
    pub(crate) fn kept(self, x: &Array) -> Result<Vec<Array>, Fault> {
        Ok(match self {
            Kv::Plain(dtype) => vec![ops::cast(x, dtype)?],
            Kv::Codes { bits, group_size } => {
                let packed = ops::quantise(x, bits, group_size)?;
                [Some(packed.codes), Some(packed.scales), packed.biases].into_iter().flatten().collect()
            }
        })
    }

    /// Keys and values of what is kept.
    pub(crate) fn read(self, kept: &[Array]) -> Result<Kept, Fault> {
        match (self, kept) {
            (Kv::Plain(_), [k, v]) => Ok(Kept::Plain(k.clone(), v.clone())),
            (Kv::Codes { bits, group_size }, [k, k_scales, k_biases, v, v_scales, v_biases]) => {
                let packed = |codes: &Array, scales: &Array, biases: &Array| Packed {
                    codes: codes.clone(),
                    scales: scales.clone(),
                    biases: Some(biases.clone()),
                    bits,
                    group_size,
                    mode: c"affine",
                };
                Ok(Kept::Codes(packed(k, k_scales, k_biases), packed(v, v_scales, v_biases)))
            }
            _ => Err(Fault("a slot holds other arrays than its storage says".to_owned())),
        }
    }
}

/// Keys and values as they are kept.
pub(crate) enum Kept {
    /// `[rows, H, columns, D]` each.
    Plain(Array, Array),
    /// Their codes.
    Codes(Packed, Packed),
}
