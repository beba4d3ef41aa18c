//! Weight matrices repacked for sixteen lanes.
//!
//! A matrix `[out, in]` is cut into panels of 16 rows. Within a panel the numbers lie in the order in which a
//! product reads them, one lane a row, so a lane sums its row from first to last whatever the number of
//! tokens: that is what makes a batch give the bits that a single sequence gets.

use host_core::DType;
use host_weights::{AffineTensor, DenseTensor, Encoding, FloatGroupsTensor, FloatMode, Offset, Tensor};

use crate::lanes::LANES;

/// Inputs of one block: the unit that codes are packed and activations quantised in.
pub(crate) const BLOCK: usize = 32;

/// How the codes of a block lie in memory, and what they stand for.
///
/// A block holds 8 quads of 4 inputs; a quad is 64 bytes, 4 of each row. Narrow codes share bytes: the low
/// nibbles of four vectors are quads 0 to 3, the high ones quads 4 to 7; further bits lie in planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// Two planes of 2 bits.
    U2,
    /// Two planes of 2 bits, one of 1 bit.
    U3,
    /// Nibbles.
    U4,
    /// Nibbles and a plane of 1 bit.
    U5,
    /// Nibbles and two planes of 2 bits.
    U6,
    /// Bytes.
    U8,
    /// Nibbles that name an E2M1 number; twice the number plus 12 is an integer from 0 to 24.
    E2m1,
    /// Bytes that are E4M3 numbers.
    E4m3,
}

impl Codes {
    /// Bytes of one block of one panel: 32 inputs of 16 rows.
    pub(crate) const fn block_bytes(self) -> usize {
        match self {
            Codes::U2 => 128,
            Codes::U3 => 192,
            Codes::U4 | Codes::E2m1 => 256,
            Codes::U5 => 320,
            Codes::U6 => 384,
            Codes::U8 | Codes::E4m3 => 512,
        }
    }

    fn of_bits(bits: u8) -> Codes {
        match bits {
            2 => Codes::U2,
            3 => Codes::U3,
            4 => Codes::U4,
            5 => Codes::U5,
            6 => Codes::U6,
            _ => Codes::U8,
        }
    }
}

/// The dtype of dense weights and of scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    F32,
    F16,
    Bf16,
}

impl Number {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Number::F32 => 4,
            Number::F16 | Number::Bf16 => 2,
        }
    }

    pub(crate) fn of(dtype: DType) -> Option<Number> {
        match dtype {
            DType::F32 => Some(Number::F32),
            DType::F16 => Some(Number::F16),
            DType::BF16 => Some(Number::Bf16),
            _ => None,
        }
    }
}

/// How a matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One number a weight, input by input.
    Dense(Number),
    /// Codes in groups.
    Grouped {
        codes: Codes,
        /// Inputs that share a scale: 16, or a multiple of 32.
        group: usize,
        scale: Number,
        /// Whether each group has a bias; otherwise `zero_point` stands for 0.
        has_bias: bool,
        zero_point: i32,
    },
}

/// Shape and place of a repacked matrix within the weights' region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) n_out: usize,
    pub(crate) n_in: usize,
    pub(crate) format: Format,
    /// First byte within the region.
    pub(crate) offset: usize,
}

impl Matrix {
    /// The matrix of a stored tensor, placed at `offset`; `None` for numbers that are not floats.
    pub(crate) fn plan(rows: usize, cols: usize, encoding: Encoding, offset: usize) -> Option<Matrix> {
        let format = match encoding {
            Encoding::Dense(dtype) => Format::Dense(Number::of(dtype)?),
            Encoding::Affine { bits, group_size, scale_dtype, offset } => Format::Grouped {
                codes: Codes::of_bits(bits),
                group: group_size,
                scale: Number::of(scale_dtype)?,
                has_bias: offset == Offset::Biases,
                zero_point: match offset {
                    Offset::Biases => 0,
                    Offset::ZeroPoint(code) => i32::from(code),
                },
            },
            // An E8M0 or E4M3 scale, halved or not, is a bfloat16 exactly.
            Encoding::FloatGroups { mode, group_size } => {
                let (codes, zero_point) = match mode {
                    FloatMode::Mxfp4 | FloatMode::Nvfp4 => (Codes::E2m1, 12),
                    FloatMode::Mxfp8 => (Codes::E4m3, 0),
                };
                Format::Grouped { codes, group: group_size, scale: Number::Bf16, has_bias: false, zero_point }
            }
        };
        Some(Matrix { n_out: rows, n_in: cols, format, offset })
    }

    /// Panels of 16 rows; the last one may be partly empty.
    pub(crate) fn n_panels(&self) -> usize {
        self.n_out.div_ceil(LANES)
    }

    /// Inputs as stored: whole blocks for codes.
    pub(crate) fn n_in_padded(&self) -> usize {
        match self.format {
            Format::Dense(_) => self.n_in,
            Format::Grouped { .. } => self.n_in.next_multiple_of(BLOCK),
        }
    }

    pub(crate) fn n_blocks(&self) -> usize {
        self.n_in_padded() / BLOCK
    }

    /// Groups as stored, of whole blocks.
    fn n_groups(&self) -> usize {
        match self.format {
            Format::Dense(_) => 0,
            Format::Grouped { group, .. } => self.n_in_padded().div_ceil(group),
        }
    }

    /// Bytes of scales and biases at the head of each panel: all scales, then all biases.
    pub(crate) fn header_bytes(&self) -> usize {
        match self.format {
            Format::Dense(_) => 0,
            Format::Grouped { scale, has_bias, .. } => {
                let values = self.n_groups() * LANES * if has_bias { 2 } else { 1 };
                (values * scale.bytes()).next_multiple_of(64)
            }
        }
    }

    /// Bytes from the panel's scales to its biases.
    pub(crate) fn biases_offset(&self) -> usize {
        match self.format {
            Format::Dense(_) => 0,
            Format::Grouped { scale, .. } => self.n_groups() * LANES * scale.bytes(),
        }
    }

    pub(crate) fn panel_bytes(&self) -> usize {
        let body = match self.format {
            Format::Dense(number) => self.n_in * LANES * number.bytes(),
            Format::Grouped { codes, .. } => self.n_blocks() * codes.block_bytes(),
        };
        (self.header_bytes() + body).next_multiple_of(64)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.n_panels() * self.panel_bytes()
    }

    /// Whether products in the fast numeric profile take 8-bit activations.
    pub(crate) fn takes_quantised(&self) -> bool {
        matches!(self.format, Format::Grouped { codes, .. } if codes != Codes::E4m3)
    }

    /// Fills one panel from the stored tensor, in which this matrix begins at row `first_row`; `out` is zeroed
    /// and [`Matrix::panel_bytes`] long.
    pub(crate) fn pack(
        &self,
        tensor: &Tensor<'_>,
        first_row: usize,
        panel: usize,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) {
        let rows = first_row + panel * LANES..first_row + self.n_out.min((panel + 1) * LANES);
        match tensor {
            Tensor::Dense(dense) => self.pack_dense(dense, rows, out),
            Tensor::Affine(affine) => {
                scratch.fit(self);
                self.pack_affine(affine, rows, scratch, out);
            }
            Tensor::FloatGroups(floats) => {
                scratch.fit(self);
                self.pack_float_groups(floats, rows, scratch, out);
            }
        }
    }

    fn pack_dense(&self, tensor: &DenseTensor<'_>, rows: std::ops::Range<usize>, out: &mut [u8]) {
        let Format::Dense(number) = self.format else { unreachable!("planned from the same tensor") };
        let size = number.bytes();
        for (lane, row) in rows.enumerate() {
            for (k, value) in tensor.row_bytes(row).chunks_exact(size).enumerate() {
                out[(k * LANES + lane) * size..][..size].copy_from_slice(value);
            }
        }
    }

    fn pack_affine(
        &self,
        tensor: &AffineTensor<'_>,
        rows: std::ops::Range<usize>,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) {
        let n_groups = tensor.groups();
        for (lane, row) in rows.enumerate() {
            let (codes, scales, biases) = scratch.row(lane, self.n_in, n_groups);
            tensor.unpack_row(row, codes, scales, biases);
            self.put_scales(lane, &scratch.scales[..n_groups], &scratch.biases[..n_groups], out);
        }
        self.put_codes(&scratch.codes, out);
    }

    fn pack_float_groups(
        &self,
        tensor: &FloatGroupsTensor<'_>,
        rows: std::ops::Range<usize>,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) {
        let n_groups = tensor.groups();
        // The integer that stands for an E2M1 number is twice it.
        let unit = if tensor.mode() == FloatMode::Mxfp8 { 1.0 } else { 0.5 };
        for (lane, row) in rows.enumerate() {
            let (codes, scales, _) = scratch.row(lane, self.n_in, n_groups);
            tensor.unpack_row(row, codes, scales);
            for scale in scales {
                *scale *= unit;
            }
            self.put_scales(lane, &scratch.scales[..n_groups], &[], out);
        }
        self.put_codes(&scratch.codes, out);
    }

    fn put_scales(&self, lane: usize, scales: &[f32], biases: &[f32], out: &mut [u8]) {
        let Format::Grouped { scale, has_bias, .. } = self.format else { return };
        let mut put = |start: usize, values: &[f32]| {
            let size = scale.bytes();
            for (group, value) in values.iter().enumerate() {
                let to = &mut out[start + (group * LANES + lane) * size..][..size];
                match scale {
                    Number::F32 => to.copy_from_slice(&value.to_le_bytes()),
                    Number::F16 => to.copy_from_slice(&half::f16::from_f32(*value).to_le_bytes()),
                    Number::Bf16 => to.copy_from_slice(&half::bf16::from_f32(*value).to_le_bytes()),
                }
            }
        };
        put(0, scales);
        if has_bias {
            put(self.biases_offset(), biases);
        }
    }

    /// Interleaves the scratch's 16 rows of codes into blocks.
    fn put_codes(&self, rows: &[u8], out: &mut [u8]) {
        let Format::Grouped { codes, .. } = self.format else { return };
        let stride = self.n_in_padded();
        let body = &mut out[self.header_bytes()..];
        for (block, to) in body.chunks_exact_mut(codes.block_bytes()).take(self.n_blocks()).enumerate() {
            let mut quads = [[0_u32; LANES]; 8];
            for lane in 0..LANES {
                let from = &rows[lane * stride + block * BLOCK..][..BLOCK];
                for (quad, four) in quads.iter_mut().zip(from.chunks_exact(4)) {
                    quad[lane] = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
                }
            }
            write_block(codes, &quads, to);
        }
    }
}

/// Writes 8 quads of codes as [`Codes`] tells.
fn write_block(codes: Codes, quads: &[[u32; LANES]; 8], to: &mut [u8]) {
    const ONES: u32 = 0x0101_0101;
    let mut vectors = to.chunks_exact_mut(4 * LANES);
    let mut put = |lane_of: &dyn Fn(usize) -> u32| {
        let Some(vector) = vectors.next() else { return };
        for (lane, bytes) in vector.chunks_exact_mut(4).enumerate() {
            bytes.copy_from_slice(&lane_of(lane).to_le_bytes());
        }
    };
    // `bits` of every byte of four quads from `first` on, from bit `from` up, side by side.
    let plane = |first: usize, n_quads: usize, from: u32, bits: u32, lane: usize| {
        let mask = ONES * ((1 << bits) - 1);
        (0..n_quads).fold(0, |sum, i| sum | ((quads[first + i][lane] >> from) & mask) << (i as u32 * bits))
    };
    match codes {
        Codes::U8 | Codes::E4m3 => quads.iter().for_each(|quad| put(&|lane| quad[lane])),
        Codes::U4 | Codes::U5 | Codes::U6 | Codes::E2m1 => {
            for i in 0..4 {
                put(&|lane| quads[i][lane] & (ONES * 15) | (quads[i + 4][lane] & (ONES * 15)) << 4);
            }
            match codes {
                Codes::U5 => put(&|lane| plane(0, 8, 4, 1, lane)),
                Codes::U6 => [0, 4].into_iter().for_each(|first| put(&|lane| plane(first, 4, 4, 2, lane))),
                _ => {}
            }
        }
        Codes::U2 | Codes::U3 => {
            [0, 4].into_iter().for_each(|first| put(&|lane| plane(first, 4, 0, 2, lane)));
            if codes == Codes::U3 {
                put(&|lane| plane(0, 8, 2, 1, lane));
            }
        }
    }
}

/// Sixteen unpacked rows of one panel.
#[derive(Default)]
pub(crate) struct Scratch {
    codes: Vec<u8>,
    scales: Vec<f32>,
    biases: Vec<f32>,
    stride: usize,
}

impl Scratch {
    /// Zeroed room for one panel of the matrix, so that absent rows and padding stay 0.
    fn fit(&mut self, matrix: &Matrix) {
        self.stride = matrix.n_in_padded();
        let n_groups = matrix.n_groups();
        self.codes.clear();
        self.codes.resize(self.stride * LANES, 0);
        self.scales.resize(n_groups.max(self.scales.len()), 0.0);
        self.biases.resize(n_groups.max(self.biases.len()), 0.0);
    }

    fn row(&mut self, lane: usize, n_in: usize, n_groups: usize) -> (&mut [u8], &mut [f32], &mut [f32]) {
        let codes = &mut self.codes[lane * self.stride..][..n_in];
        (codes, &mut self.scales[..n_groups], &mut self.biases[..n_groups])
    }
}

impl Matrix {
    /// The numbers of one row, as [`Format`] tells: for embeddings.
    ///
    /// # Safety
    /// `weights` is the region that holds this matrix.
    #[expect(unsafe_code, reason = "reads the repacked weights in place")]
    pub(crate) unsafe fn read_row(&self, weights: *const u8, row: usize, out: &mut [f32]) {
        assert!(row < self.n_out && out.len() == self.n_in, "a row of the matrix");
        // SAFETY: the caller gives the region, and the panel lies within it.
        let panel = unsafe {
            let start = weights.add(self.offset + row / LANES * self.panel_bytes());
            std::slice::from_raw_parts(start, self.panel_bytes())
        };
        let lane = row % LANES;
        match self.format {
            Format::Dense(number) => {
                for (k, x) in out.iter_mut().enumerate() {
                    *x = number.read(panel, k * LANES + lane);
                }
            }
            Format::Grouped { codes, group, scale, has_bias, zero_point } => {
                let body = &panel[self.header_bytes()..];
                for (k, x) in out.iter_mut().enumerate() {
                    let block = &body[k / BLOCK * codes.block_bytes()..][..codes.block_bytes()];
                    let code = codes.read(block, lane, k % BLOCK);
                    let d = scale.read(panel, k / group * LANES + lane);
                    *x = if codes == Codes::E4m3 {
                        host_weights::tensor::E4M3[usize::from(code)] * d
                    } else if has_bias {
                        let biases = &panel[self.biases_offset()..];
                        f32::from(code).mul_add(d, scale.read(biases, k / group * LANES + lane))
                    } else {
                        (i32::from(code) - zero_point) as f32 * d
                    };
                }
            }
        }
    }
}

impl Number {
    /// The element at `index` of packed numbers.
    fn read(self, bytes: &[u8], index: usize) -> f32 {
        let at = index * self.bytes();
        match self {
            Number::F32 => f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]),
            Number::F16 => half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32(),
            Number::Bf16 => half::bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32(),
        }
    }
}

impl Codes {
    /// The code of one row's input within a block, as the integer that products multiply.
    fn read(self, block: &[u8], lane: usize, k: usize) -> u8 {
        let (quad, byte) = (k / 4, lane * 4 + k % 4);
        let vector = |i: usize| block[64 * i + byte];
        let nibble = || (vector(quad % 4) >> (quad / 4 * 4)) & 15;
        let bit = |plane: usize| (vector(plane) >> quad) & 1;
        let pair = |plane: usize| (vector(plane + quad / 4) >> (quad % 4 * 2)) & 3;
        match self {
            Codes::U2 => pair(0),
            Codes::U3 => pair(0) | bit(2) << 2,
            Codes::U4 => nibble(),
            Codes::U5 => nibble() | bit(4) << 4,
            Codes::U6 => nibble() | pair(4) << 4,
            Codes::U8 | Codes::E4m3 => vector(quad),
            Codes::E2m1 => E2M1_TABLE[usize::from(nibble())],
        }
    }
}

/// Twice each E2M1 number plus 12.
pub(crate) const E2M1_TABLE: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];
