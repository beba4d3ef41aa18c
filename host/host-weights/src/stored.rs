//! Where the parts of each tensor lie, and how a view over them is made.

use std::convert::Infallible;

use host_core::DType;

use crate::catalogue::{Encoding, TensorInfo};
use crate::encode::Coded;
use crate::error::WeightsError;
use crate::mapping::{Extent, MappedFile};
use crate::tensor::{
    AffineBlock, AffineTensor, Bytes, DenseTensor, FloatGroupsTensor, RowOrder, Shift, Tensor, Triple,
};

/// The places of one tensor's parts. Their lengths fit the tensor's shape and encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Numbers.
    Dense { at: Extent, order: RowOrder, shift: Shift },
    /// Packed codes, scales and biases.
    Triple { codes: Extent, scales: Extent, biases: Extent },
    /// Packed codes and scales.
    FloatGroups { codes: Extent, scales: Extent },
    /// GGUF blocks.
    Blocks { at: Extent, kind: AffineBlock, order: RowOrder },
    /// To be encoded when it is taken.
    Recoded {
        /// The tensor as the file has it.
        from: Box<(TensorInfo, Stored)>,
        /// What its numbers are held in.
        dtype: DType,
    },
}

/// What a checkpoint's headers say.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) files: Vec<MappedFile>,
    pub(crate) tensors: Vec<(TensorInfo, Stored)>,
}

impl Stored {
    /// All places in files.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + use<> {
        let mut stored = self;
        while let Stored::Recoded { from, .. } = stored {
            stored = &from.1;
        }
        let parts = match *stored {
            Stored::Dense { at, .. } | Stored::Blocks { at, .. } => [Some(at), None, None],
            Stored::Triple { codes, scales, biases } => [Some(codes), Some(scales), Some(biases)],
            Stored::FloatGroups { codes, scales } => [Some(codes), Some(scales), None],
            Stored::Recoded { .. } => unreachable!("the loop ends at what a file has"),
        };
        parts.into_iter().flatten()
    }

    /// A view over the bytes; maps the files that hold them.
    pub(crate) fn view<'a>(
        &self,
        info: &'a TensorInfo,
        files: &'a [MappedFile],
    ) -> Result<Tensor<'a>, WeightsError> {
        self.view_with(info, |at| files[at.file].bytes().map(|bytes| &bytes[at.range()]))
    }

    /// A view over the bytes of the one file that holds everything.
    pub(crate) fn view_in<'a>(&self, info: &'a TensorInfo, file: &'a [u8]) -> Tensor<'a> {
        let view = self.view_with(info, |at| Ok::<_, Infallible>(&file[at.range()]));
        view.unwrap_or_else(|never| match never {})
    }

    fn view_with<'a, E>(
        &self,
        info: &'a TensorInfo,
        bytes: impl Fn(Extent) -> Result<&'a [u8], E>,
    ) -> Result<Tensor<'a>, E> {
        let shape = info.shape.as_slice();
        Ok(match (self, info.encoding) {
            (Stored::Dense { at, order, shift }, Encoding::Dense(dtype)) => {
                Tensor::Dense(DenseTensor::new(&info.name, dtype, shape, bytes(*at)?, *order, *shift))
            }
            (
                Stored::Triple { codes, scales, biases },
                Encoding::Affine { bits, group_size, scale_dtype, .. },
            ) => {
                let [codes, scales, biases] =
                    [bytes(*codes)?, bytes(*scales)?, bytes(*biases)?].map(Bytes::Mapped);
                let triple = Triple { bits, group_size, scale_dtype, codes, scales, biases };
                Tensor::Affine(AffineTensor::from_triple(shape, triple))
            }
            (Stored::FloatGroups { codes, scales }, Encoding::FloatGroups { mode, .. }) => {
                let [codes, scales] = [bytes(*codes)?, bytes(*scales)?].map(Bytes::Mapped);
                Tensor::FloatGroups(FloatGroupsTensor::new(shape, mode, codes, scales))
            }
            (Stored::Blocks { at, kind, order }, Encoding::Affine { .. }) => {
                Tensor::Affine(AffineTensor::from_blocks(shape, *kind, bytes(*at)?, *order))
            }
            (stored, encoding) => {
                unreachable!("the readers pair {stored:?} with its encoding, not {encoding:?}")
            }
        })
    }
}

/// A view over parts that an encoder made.
pub(crate) fn view_of_coded<'a>(info: &'a TensorInfo, coded: &Coded) -> Tensor<'a> {
    let [codes, scales, biases] =
        [&coded.codes, &coded.scales, &coded.biases].map(|part| Bytes::Made(part.clone()));
    match info.encoding {
        Encoding::Affine { bits, group_size, scale_dtype, .. } => {
            let triple = Triple { bits, group_size, scale_dtype, codes, scales, biases };
            Tensor::Affine(AffineTensor::from_triple(&info.shape, triple))
        }
        Encoding::FloatGroups { mode, .. } => {
            Tensor::FloatGroups(FloatGroupsTensor::new(&info.shape, mode, codes, scales))
        }
        Encoding::Dense(_) => unreachable!("a scheme never encodes to plain numbers"),
    }
}
