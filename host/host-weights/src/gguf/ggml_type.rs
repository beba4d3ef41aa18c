//! The element types of GGUF tensors: those that are read, and the names of the others for refusals.

use host_core::DType;

use crate::catalogue::Encoding;
use crate::tensor::AffineBlock;

/// A supported element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgmlType {
    /// One number an element.
    Dense(DType),
    /// Blocks that are affine in groups.
    Blocks(AffineBlock),
}

/// Supported types by their number in the file.
const SUPPORTED: [(u32, &str, GgmlType); 13] = [
    (0, "F32", GgmlType::Dense(DType::F32)),
    (1, "F16", GgmlType::Dense(DType::F16)),
    (30, "BF16", GgmlType::Dense(DType::BF16)),
    (2, "Q4_0", GgmlType::Blocks(AffineBlock::Q4_0)),
    (3, "Q4_1", GgmlType::Blocks(AffineBlock::Q4_1)),
    (6, "Q5_0", GgmlType::Blocks(AffineBlock::Q5_0)),
    (7, "Q5_1", GgmlType::Blocks(AffineBlock::Q5_1)),
    (8, "Q8_0", GgmlType::Blocks(AffineBlock::Q8_0)),
    (10, "Q2_K", GgmlType::Blocks(AffineBlock::Q2_K)),
    (11, "Q3_K", GgmlType::Blocks(AffineBlock::Q3_K)),
    (12, "Q4_K", GgmlType::Blocks(AffineBlock::Q4_K)),
    (13, "Q5_K", GgmlType::Blocks(AffineBlock::Q5_K)),
    (14, "Q6_K", GgmlType::Blocks(AffineBlock::Q6_K)),
];

/// Types that exist and are not read.
const REFUSED: [(u32, &str); 28] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

impl GgmlType {
    /// The type of that number; else its name, or its number where even the name is unknown.
    pub fn from_id(id: u32) -> Result<GgmlType, String> {
        if let Some((_, _, found)) = SUPPORTED.iter().find(|(known, _, _)| *known == id) {
            return Ok(*found);
        }
        let name = REFUSED.iter().find(|(known, _)| *known == id).map(|(_, name)| *name);
        Err(name.map_or_else(|| format!("type number {id}"), str::to_owned))
    }

    /// The names of the supported types, for messages.
    pub fn supported_names() -> String {
        SUPPORTED.map(|(_, name, _)| name).join(", ")
    }

    /// Elements and bytes of a block.
    pub const fn block(self) -> (usize, usize) {
        match self {
            GgmlType::Dense(dtype) => (1, dtype.size_bytes()),
            GgmlType::Blocks(block) => (block.elements(), block.bytes()),
        }
    }

    /// The encoding in the catalogue.
    pub const fn encoding(self) -> Encoding {
        match self {
            GgmlType::Dense(dtype) => Encoding::Dense(dtype),
            GgmlType::Blocks(block) => Encoding::Affine {
                bits: block.bits(),
                group_size: block.group_size(),
                scale_dtype: block.scale_dtype(),
                offset: block.offset(),
            },
        }
    }
}
