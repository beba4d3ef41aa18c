//! Blocks and packed codes against the definition of each format, and against values of the `gguf` package.

use half::f16;
use host_core::DType;

use super::numbers::bf16_to_f32;
use super::packed::{pack_row, unpack_row};
use super::*;
use crate::catalogue::{FloatMode, Offset};

/// Numbers that look random and are the same in each run (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

macro_rules! golden {
    ($kind:ident, $name:literal) => {
        (
            AffineBlock::$kind,
            include_bytes!(concat!("../../../../tests/fixtures/gguf-blocks/", $name, ".blocks")),
            include_bytes!(concat!("../../../../tests/fixtures/gguf-blocks/", $name, ".f32")),
        )
    };
}

const GOLDENS: [(AffineBlock, &[u8], &[u8]); 10] = [
    golden!(Q4_0, "q4_0"),
    golden!(Q4_1, "q4_1"),
    golden!(Q5_0, "q5_0"),
    golden!(Q5_1, "q5_1"),
    golden!(Q8_0, "q8_0"),
    golden!(Q2_K, "q2_k"),
    golden!(Q3_K, "q3_k"),
    golden!(Q4_K, "q4_k"),
    golden!(Q5_K, "q5_k"),
    golden!(Q6_K, "q6_k"),
];

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn blocks_give_the_values_of_the_gguf_package_bit_for_bit() {
    for (kind, blocks, values) in GOLDENS {
        let shape = [blocks.len() / kind.bytes(), kind.elements()];
        let tensor = AffineTensor::from_blocks(&shape, kind, blocks, RowOrder::Published);
        let expected: Vec<f32> =
            values.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let mut found = vec![0.0; expected.len()];
        for (row, out) in found.chunks_exact_mut(kind.elements()).enumerate() {
            tensor.dequantise_row(row, out);
        }
        assert_eq!(bits(&found), bits(&expected), "{kind:?}");
    }
}

/// Bits `[at, at + width)` of a block, counted from the lowest bit of its first byte.
fn field(block: &[u8], at: usize, width: usize) -> u32 {
    (0..width).map(|i| u32::from(block[(at + i) / 8] >> ((at + i) % 8) & 1) << i).sum()
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_bits(field(block, at * 8, 16) as u16).to_f32()
}

/// Element `i` of a block as the format defines it, one bit field at a time: code, scale, bias.
fn define(kind: AffineBlock, block: &[u8], i: usize) -> (u32, f32, f32) {
    // Byte `base + i % run`, low nibble in even runs and high nibble in odd ones.
    let nibble = |base: usize, i: usize, run: usize| {
        field(block, (base + i / (2 * run) * run + i % run) * 8 + i / run % 2 * 4, 4)
    };
    let low = |base: usize| nibble(base, i, 16);
    match kind {
        AffineBlock::Q4_0 => (low(2), half_at(block, 0), -8.0 * half_at(block, 0)),
        AffineBlock::Q4_1 => (low(4), half_at(block, 0), half_at(block, 2)),
        AffineBlock::Q5_0 => {
            let code = low(6) + 16 * field(block, 2 * 8 + i, 1);
            (code, half_at(block, 0), -16.0 * half_at(block, 0))
        }
        AffineBlock::Q5_1 => (low(8) + 16 * field(block, 4 * 8 + i, 1), half_at(block, 0), half_at(block, 2)),
        AffineBlock::Q8_0 => {
            let code = (i32::from(block[2 + i] as i8) + 128) as u32;
            (code, half_at(block, 0), -128.0 * half_at(block, 0))
        }
        AffineBlock::Q2_K => {
            let code = field(block, (16 + i / 128 * 32 + i % 32) * 8 + i % 128 / 32 * 2, 2);
            let (sc, m) = (field(block, i / 16 * 8, 4), field(block, i / 16 * 8 + 4, 4));
            (code, half_at(block, 80) * sc as f32, -(half_at(block, 82) * m as f32))
        }
        AffineBlock::Q3_K => {
            let low = field(block, (32 + i / 128 * 32 + i % 32) * 8 + i % 128 / 32 * 2, 2);
            let high = field(block, i % 32 * 8 + i / 32, 1);
            let group = i / 16;
            let sc = field(block, (96 + group % 8) * 8 + group / 8 * 4, 4)
                + 16 * field(block, (104 + group % 4) * 8 + group / 4 * 2, 2);
            let scale = half_at(block, 108) * (sc as f32 - 32.0);
            (low + 4 * high, scale, -4.0 * scale)
        }
        AffineBlock::Q4_K | AffineBlock::Q5_K => {
            let group = i / 32;
            let (sc, m) = match group {
                0..4 => (field(block, (4 + group) * 8, 6), field(block, (8 + group) * 8, 6)),
                _ => (
                    field(block, (8 + group) * 8, 4) + 16 * field(block, group * 8 + 6, 2),
                    field(block, (8 + group) * 8 + 4, 4) + 16 * field(block, (4 + group) * 8 + 6, 2),
                ),
            };
            let code = match kind {
                AffineBlock::Q4_K => nibble(16, i, 32),
                _ => nibble(48, i, 32) + 16 * field(block, (16 + i % 32) * 8 + group, 1),
            };
            (code, half_at(block, 0) * sc as f32, -(half_at(block, 2) * m as f32))
        }
        AffineBlock::Q6_K => {
            let (half, quarter) = (i / 128, i % 128 / 32);
            let low = field(block, (half * 64 + quarter % 2 * 32 + i % 32) * 8 + quarter / 2 * 4, 4);
            let high = field(block, (128 + half * 32 + i % 32) * 8 + quarter * 2, 2);
            let scale = half_at(block, 208) * f32::from(block[192 + i / 16] as i8);
            (low + 16 * high, scale, -32.0 * scale)
        }
    }
}

#[test]
fn blocks_unpack_as_their_format_defines() {
    let mut draws = Draws(3);
    for (kind, ..) in GOLDENS {
        let (rows, blocks_a_row) = (5, 3);
        let shape = [rows, blocks_a_row * kind.elements()];
        let bytes = draws.bytes(rows * blocks_a_row * kind.bytes());
        let tensor = AffineTensor::from_blocks(&shape, kind, &bytes, RowOrder::Published);
        let (mut codes, groups) = (vec![0; tensor.cols()], tensor.groups());
        let (mut scales, mut biases) = (vec![0.0; groups], vec![0.0; groups]);
        for row in 0..rows {
            tensor.unpack_row(row, &mut codes, &mut scales, &mut biases);
            let row_bytes = &bytes[row * blocks_a_row * kind.bytes()..];
            for (i, code) in codes.iter().enumerate() {
                let block = &row_bytes[i / kind.elements() * kind.bytes()..][..kind.bytes()];
                let group = i / kind.group_size();
                let found = (u32::from(*code), scales[group].to_bits(), biases[group].to_bits());
                let (code, scale, bias) = define(kind, block, i % kind.elements());
                // Random bits make some f16 not-a-number; then only that must agree.
                let scale_agrees = found.1 == scale.to_bits() || scale.is_nan() && scales[group].is_nan();
                let bias_agrees = found.2 == bias.to_bits() || bias.is_nan() && biases[group].is_nan();
                assert!(found.0 == code && scale_agrees && bias_agrees, "{kind:?} row {row} element {i}");
                assert!(code < 1 << kind.bits(), "{kind:?}");
            }
        }
    }
}

#[test]
fn a_zero_point_says_the_same_as_the_biases() {
    for (kind, blocks, _) in GOLDENS {
        let Offset::ZeroPoint(zero) = kind.offset() else { continue };
        let shape = [blocks.len() / kind.bytes(), kind.elements()];
        let tensor = AffineTensor::from_blocks(&shape, kind, blocks, RowOrder::Published);
        let mut codes = vec![0; tensor.cols()];
        let (mut scales, mut biases) = (vec![0.0; tensor.groups()], vec![0.0; tensor.groups()]);
        for row in 0..tensor.rows() {
            tensor.unpack_row(row, &mut codes, &mut scales, &mut biases);
            for (scale, bias) in scales.iter().zip(&biases) {
                assert_eq!(f64::from(*bias), -f64::from(zero) * f64::from(*scale), "{kind:?}");
            }
        }
    }
}

#[test]
fn codes_of_every_width_are_a_little_endian_bit_stream() {
    let mut draws = Draws(5);
    for width in [2_u8, 3, 4, 5, 6, 8] {
        let codes: Vec<u8> = draws.bytes(96).iter().map(|byte| byte & ((1_u16 << width) - 1) as u8).collect();
        let mut packed = vec![0; 96 * usize::from(width) / 8];
        pack_row(width, &codes, &mut packed);
        let mut found = vec![0; 96];
        unpack_row(width, &packed, &mut found);
        assert_eq!(found, codes, "{width} bits");
        for (i, code) in codes.iter().enumerate() {
            assert_eq!(
                field(&packed, i * usize::from(width), width.into()),
                u32::from(*code),
                "{width} bits"
            );
        }
    }
}

#[test]
fn small_floats_widen_as_ieee_and_ocp_define() {
    for code in 0..=u16::MAX {
        let (found, expected) = (f16_to_f32(code), f16::from_bits(code).to_f32());
        assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{code:#06x}");
        assert_eq!(bf16_to_f32(code).to_bits(), u32::from(code) << 16);
    }
    for code in 0..256_i32 {
        let (exponent, mantissa) = (code >> 3 & 15, f64::from(code & 7));
        let magnitude = match exponent {
            0 => mantissa / 8.0 * 2_f64.powi(-6),
            _ => (1.0 + mantissa / 8.0) * 2_f64.powi(exponent - 7),
        };
        let found = E4M3[code as usize];
        match code & 0x7F {
            0x7F => assert!(found.is_nan()),
            _ => assert_eq!(f64::from(found.abs()), magnitude, "{code:#04x}"),
        }
        assert_eq!(found.is_sign_negative(), code & 0x80 != 0 && !found.is_nan(), "{code:#04x}");
    }
    for code in 0..16_i32 {
        let (exponent, mantissa) = (code >> 1 & 3, f64::from(code & 1));
        let magnitude = match exponent {
            0 => mantissa / 2.0,
            _ => (1.0 + mantissa / 2.0) * 2_f64.powi(exponent - 1),
        };
        assert_eq!(f64::from(E2M1[code as usize].abs()), magnitude, "{code:#03x}");
        assert_eq!(E2M1[code as usize].is_sign_negative(), code & 8 != 0);
    }
    for code in 0..=254_u8 {
        assert_eq!(f64::from(e8m0_to_f32(code)), 2_f64.powi(i32::from(code) - 127));
    }
    assert!(e8m0_to_f32(255).is_nan());
}

#[test]
fn rotary_pairs_come_apart_into_halves() {
    let order = RowOrder::RotaryPairs { head_dim: 6 };
    let stored: Vec<_> = (0..12).map(|row| order.stored(row)).collect();
    assert_eq!(stored, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
}

#[test]
fn rows_of_blocks_are_found_in_their_stored_order() {
    let mut draws = Draws(7);
    let bytes = draws.bytes(8 * 18);
    let (shape, kind) = ([8, 32], AffineBlock::Q4_0);
    let stored = AffineTensor::from_blocks(&shape, kind, &bytes, RowOrder::Published);
    let published = AffineTensor::from_blocks(&shape, kind, &bytes, RowOrder::RotaryPairs { head_dim: 4 });
    let row = |tensor: &AffineTensor<'_>, row| {
        let (mut codes, mut scales, mut biases) = ([0; 32], [0.0], [0.0]);
        tensor.unpack_row(row, &mut codes, &mut scales, &mut biases);
        codes
    };
    for (published_row, stored_row) in [(0, 0), (1, 2), (2, 1), (3, 3), (4, 4), (5, 6), (6, 5), (7, 7)] {
        assert_eq!(row(&published, published_row), row(&stored, stored_row));
    }
}

#[test]
fn dense_numbers_are_borrowed_unless_the_file_stores_them_otherwise() {
    let numbers: Vec<f32> = (0..8).map(|i| i as f32 * 0.5).collect();
    let stored: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let dense = |shape: &'static [usize], order, shift| {
        DenseTensor::new("w", DType::F32, shape, &stored, order, shift)
    };
    let read = |tensor: &DenseTensor<'_>| {
        let mut out = [0.0; 8];
        tensor.read_f32(0..8, &mut out).expect("F32 reads as numbers");
        let bytes: Vec<u8> = out.iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(tensor.bytes(), bytes, "bytes and numbers say the same");
        out
    };
    let pairs = RowOrder::RotaryPairs { head_dim: 4 };

    let plain = dense(&[4, 2], RowOrder::Published, Shift::None);
    assert!(matches!(plain.bytes(), std::borrow::Cow::Borrowed(_)));
    assert_eq!(read(&plain), *numbers);
    assert_eq!(read(&dense(&[4, 2], pairs, Shift::None)), [0.0, 0.5, 2.0, 2.5, 1.0, 1.5, 3.0, 3.5]);
    assert_eq!(read(&dense(&[8], pairs, Shift::None)), [0.0, 1.0, 0.5, 1.5, 2.0, 3.0, 2.5, 3.5]);
    let norm = dense(&[8], RowOrder::Published, Shift::PlusOne);
    assert_eq!(read(&norm), [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);

    let mut row = [0.0; 2];
    dense(&[4, 2], pairs, Shift::None).dequantise_row(1, &mut row).expect("F32 reads as numbers");
    assert_eq!(row, [2.0, 2.5]);
    let mut part = [0.0; 3];
    dense(&[4, 2], pairs, Shift::None).read_f32(3..6, &mut part).expect("F32 reads as numbers");
    assert_eq!(part, [2.5, 1.0, 1.5]);
}

#[test]
fn only_numbers_read_as_numbers() {
    for (dtype, stored, expected) in [
        (DType::F16, &[0x00, 0x3C, 0x00, 0xC0][..], Some([1.0, -2.0])),
        (DType::BF16, &[0x80, 0x3F, 0x00, 0xC0], Some([1.0, -2.0])),
        (DType::I16, &[1, 0, 2, 0], None),
    ] {
        let tensor = DenseTensor::new("w", dtype, &[2], stored, RowOrder::Published, Shift::None);
        let mut out = [0.0; 2];
        let read = tensor.read_f32(0..2, &mut out).is_ok().then_some(out);
        assert_eq!(read, expected, "{dtype}");
    }
}

#[test]
fn triples_and_float_groups_unpack_by_their_definition() {
    // 16 codes of 3 bits are 6 bytes; two rows of one group of 16.
    let codes = Draws(9).bytes(12);
    let (scales, biases) = ([0x00, 0x3C, 0x00, 0x40], [0x00, 0xBC, 0x00, 0x00]);
    let triple = Triple {
        bits: 3,
        group_size: 16,
        scale_dtype: DType::F16,
        codes: Bytes::Mapped(&codes),
        scales: Bytes::Mapped(&scales),
        biases: Bytes::Mapped(&biases),
    };
    let tensor = AffineTensor::from_triple(&[2, 16], triple);
    let mut row = [0.0; 16];
    for (at, scale, bias) in [(0, 1.0, -1.0), (1, 2.0, 0.0)] {
        tensor.dequantise_row(at, &mut row);
        let expected: Vec<f32> =
            (0..16).map(|i| scale * field(&codes[at * 6..], i * 3, 3) as f32 + bias).collect();
        assert_eq!(row, *expected);
    }

    let codes: Vec<u8> = (0..8).map(|i| (2 * i) | (2 * i + 1) << 4).collect();
    let tensor =
        FloatGroupsTensor::new(&[1, 16], FloatMode::Nvfp4, Bytes::Mapped(&codes), Bytes::Mapped(&[0x40]));
    tensor.dequantise_row(0, &mut row);
    assert_eq!(row, E2M1.map(|value| 2.0 * value));
}
