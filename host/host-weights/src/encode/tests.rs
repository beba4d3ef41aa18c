//! Codes, scales and biases are those that MLX gives, bit for bit.

use std::fs;
use std::path::Path;

use host_core::DType;
use host_core::quant::Scheme;
use safetensors::SafeTensors;

use super::*;
use crate::tensor::{DenseTensor, RowOrder, Shift};

const DTYPES: [(&str, DType); 3] = [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::BF16)];
const SHAPE: [usize; 2] = [16, 256];

fn encode_as(numbers: &[u8], dtype: DType, scheme: Scheme) -> Result<Coded, WeightsError> {
    let name = "a.weight";
    let dense = DenseTensor::new(name, dtype, &SHAPE, numbers, RowOrder::Published, Shift::None);
    let encoding = encoding_of(scheme, dtype).expect("a scheme that encodes");
    let info = TensorInfo {
        name: name.to_owned(),
        shape: SHAPE.to_vec(),
        encoding,
        bytes: coded_bytes(encoding, &SHAPE),
        file: Default::default(),
    };
    let coded = encode(&Tensor::Dense(dense), &info, dtype, &|_| ())?;
    assert_eq!((coded.codes.len() + coded.scales.len() + coded.biases.len()) as u64, info.bytes);
    Ok(coded)
}

#[test]
fn what_mlx_makes_of_numbers_is_made_here() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/mlx-quantize/cases.safetensors");
    let file = fs::read(path).expect("the fixture");
    let golden = SafeTensors::deserialize(&file).expect("a well-formed fixture");
    let part = |name: String| golden.tensor(&name).expect("a case").data().to_vec();
    let mut compared = 0;
    for (name, dtype) in DTYPES {
        let input = part(format!("{name}.input"));
        for bits in [2, 3, 4, 5, 6, 8] {
            for group_size in [32, 64, 128] {
                let case = format!("{name}.affine.{bits}.{group_size}");
                let coded = encode_as(&input, dtype, Scheme::Affine { bits, group_size }).expect("finite");
                assert_eq!(*coded.scales, part(format!("{case}.scales")), "{case} scales");
                assert_eq!(*coded.biases, part(format!("{case}.biases")), "{case} biases");
                assert_eq!(*coded.codes, part(format!("{case}.codes")), "{case} codes");
                compared += 1;
            }
        }
        for (mode, scheme) in [("mxfp4", Scheme::Mxfp4), ("mxfp8", Scheme::Mxfp8), ("nvfp4", Scheme::Nvfp4)] {
            let coded = encode_as(&input, dtype, scheme).expect("finite");
            assert_eq!(*coded.scales, part(format!("{name}.{mode}.scales")), "{name} {mode} scales");
            assert_eq!(*coded.codes, part(format!("{name}.{mode}.codes")), "{name} {mode} codes");
            compared += 1;
        }
    }
    assert_eq!(compared, 63);
}

#[test]
fn numbers_that_no_scale_can_hold_are_refused() {
    let row_of = |number: f32| {
        let mut numbers = vec![0.5_f32; SHAPE[0] * SHAPE[1]];
        numbers[3 * SHAPE[1] + 7] = number;
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()
    };
    let affine = Scheme::Affine { bits: 4, group_size: 64 };
    for scheme in [affine, Scheme::Mxfp4, Scheme::Mxfp8, Scheme::Nvfp4] {
        for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = encode_as(&row_of(number), DType::F32, scheme).expect_err("a refusal");
            assert!(matches!(error, WeightsError::NotFinite { row: 3, .. }), "{scheme} {number}: {error}");
        }
    }
    // The range from -MAX to MAX is wider than float32.
    let mut wide = row_of(f32::MAX);
    wide[(3 * SHAPE[1] + 8) * 4..][..4].copy_from_slice(&f32::MIN.to_le_bytes());
    assert!(encode_as(&wide, DType::F32, affine).is_err());
}
