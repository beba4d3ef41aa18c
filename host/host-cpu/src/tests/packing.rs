//! Every stored form of a matrix comes back from its panels as it was.

use host_core::DType;
use host_weights::tensor::AffineBlock;
use host_weights::{FloatMode, Offset, Tensor};
use tempfile::TempDir;

use super::support::{Folder, Model, Random};
use crate::matrix::{Codes, Format, Matrix, Number, Scratch};
use crate::memory::Region;

/// A model with one matrix in each stored form that fits the sizes, and the matrices' names.
pub(super) fn zoo(n_out: usize, n_in: usize) -> Vec<(Model, Vec<String>)> {
    let shape = [n_out, n_in];
    let mut folder = Folder::new((n_out * 1000 + n_in) as u64);
    let mut names = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        names.push(format!("dense {dtype}"));
        folder = folder.dense(&format!("dense {dtype}"), dtype, &shape);
        for bits in [2, 3, 4, 5, 6, 8] {
            for group in [16, 32, 64, 128] {
                if n_in.is_multiple_of(group) && (n_in * usize::from(bits)).is_multiple_of(32) {
                    let module = format!("affine {bits} bits, groups of {group}, {dtype}");
                    names.push(format!("{module}.weight"));
                    folder = folder.affine(&module, &shape, bits, group, dtype);
                }
            }
        }
    }
    for mode in [FloatMode::Mxfp4, FloatMode::Mxfp8, FloatMode::Nvfp4] {
        if n_in.is_multiple_of(mode.group_size()) {
            names.push(format!("{}.weight", mode.name()));
            folder = folder.float_groups(mode.name(), &shape, mode);
        }
    }
    let mut models = vec![(folder.open(), names)];
    models.extend(gguf(n_out, n_in));
    models
}

/// A GGUF file whose layer i holds one matrix of the i-th block type.
fn gguf(n_out: usize, n_in: usize) -> Option<(Model, Vec<String>)> {
    use AffineBlock::{Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    let kinds = [
        (2_u32, Q4_0),
        (3, Q4_1),
        (6, Q5_0),
        (7, Q5_1),
        (8, Q8_0),
        (10, Q2_K),
        (11, Q3_K),
        (12, Q4_K),
        (13, Q5_K),
        (14, Q6_K),
    ];
    let mut random = Random::new(7);
    let (mut entries, mut data, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let mut tensor = |name: &str, dims: [u64; 2], kind: u32, bytes: &[u8]| {
        data.resize(usize::next_multiple_of(data.len(), 32), 0);
        entries.extend(text(name));
        entries.extend(2_u32.to_le_bytes());
        dims.iter().for_each(|dim| entries.extend(dim.to_le_bytes()));
        entries.extend(kind.to_le_bytes());
        entries.extend((data.len() as u64).to_le_bytes());
        data.extend_from_slice(bytes);
    };
    tensor("token_embd.weight", [32, 4], 0, &[0; 4 * 128]);
    let fitting: Vec<_> =
        kinds.into_iter().filter(|(_, kind)| n_in.is_multiple_of(kind.elements())).collect();
    for (layer, (id, kind)) in fitting.iter().enumerate() {
        let n_blocks = n_out * n_in / kind.elements();
        let blocks: Vec<u8> = (0..n_blocks).flat_map(|_| block(*kind, &mut random)).collect();
        tensor(&format!("blk.{layer}.ffn_down.weight"), [n_in as u64, n_out as u64], *id, &blocks);
        names.push(format!("model.layers.{layer}.mlp.down_proj.weight"));
    }
    if fitting.is_empty() {
        return None;
    }
    let number = |key: &str, value: usize| {
        [text(key), 4_u32.to_le_bytes().into(), (value as u32).to_le_bytes().into()].concat()
    };
    let word = |key: &str, value: &str| [text(key), 8_u32.to_le_bytes().into(), text(value)].concat();
    let tokens =
        [8_u32.to_le_bytes().to_vec(), 4_u64.to_le_bytes().to_vec(), ["a", "b", "c", "d"].map(text).concat()];
    let keys = [
        word("general.architecture", "llama"),
        number("llama.block_count", fitting.len()),
        number("llama.context_length", 64),
        number("llama.embedding_length", 32),
        number("llama.feed_forward_length", 64),
        number("llama.attention.head_count", 2),
        number("llama.attention.head_count_kv", 1),
        [
            text("llama.attention.layer_norm_rms_epsilon"),
            6_u32.to_le_bytes().into(),
            1e-5_f32.to_le_bytes().into(),
        ]
        .concat(),
        word("tokenizer.ggml.model", "gpt2"),
        number("tokenizer.ggml.bos_token_id", 1),
        number("tokenizer.ggml.eos_token_id", 2),
        [text("tokenizer.ggml.tokens"), 9_u32.to_le_bytes().into(), tokens.concat()].concat(),
    ];
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    file.extend((fitting.len() as u64 + 1).to_le_bytes());
    file.extend((keys.len() as u64).to_le_bytes());
    file.extend(keys.concat());
    file.extend(entries);
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(data);
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("model.gguf"), file).unwrap();
    Some((Model::open(folder, |path| path.join("model.gguf")), names))
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Random bytes of one block, but for the 16-bit scales, which are small numbers.
fn block(kind: AffineBlock, random: &mut Random) -> Vec<u8> {
    use AffineBlock::{Q2_K, Q3_K, Q4_1, Q4_K, Q5_1, Q5_K, Q6_K};
    let mut bytes = random.bytes(kind.bytes());
    let scales: &[usize] = match kind {
        Q4_1 | Q5_1 | Q4_K | Q5_K => &[0, 2],
        Q2_K => &[80, 82],
        Q3_K => &[108],
        Q6_K => &[208],
        _ => &[0],
    };
    for at in scales {
        let scale = half::f16::from_f32(0.01 + 0.005 * random.unit());
        bytes[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
    }
    bytes
}

/// The packed form of one tensor, alone in a region.
pub(super) fn packed(model: &Model, name: &str) -> (Matrix, Region) {
    let info = model.checkpoint.catalogue().get(name).unwrap();
    let matrix = Matrix::plan(info.shape[0], info.shape[1], info.encoding, 0).unwrap();
    let mut region = Region::new(matrix.bytes(), false).unwrap();
    let tensor = model.checkpoint.tensor(name).unwrap();
    let mut scratch = Scratch::default();
    for panel in 0..matrix.n_panels() {
        let out = region.bytes_mut(panel * matrix.panel_bytes(), matrix.panel_bytes());
        matrix.pack(&tensor, 0, panel, &mut scratch, out);
    }
    (matrix, region)
}

#[expect(unsafe_code, reason = "reads packed weights in place")]
pub(super) fn read_row(matrix: &Matrix, region: &Region, row: usize) -> Vec<f32> {
    let mut out = vec![0.0; matrix.n_in];
    // SAFETY: the region holds exactly this matrix.
    unsafe { matrix.read_row(region.ptr(), row, &mut out) };
    out
}

#[test]
fn every_format_round_trips() {
    let mut seen = Vec::new();
    for (n_out, n_in) in [(5, 48), (16, 32), (17, 128), (33, 512)] {
        for (model, names) in zoo(n_out, n_in) {
            for name in names {
                let (matrix, region) = packed(&model, &name);
                let tensor = model.checkpoint.tensor(&name).unwrap();
                let mut expected = vec![0.0; n_in];
                for row in 0..n_out {
                    tensor.dequantise_row(row, &mut expected).unwrap();
                    let found = read_row(&matrix, &region, row);
                    let is_rounded_twice = is_f32_triple(&tensor);
                    for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        // The device rounds `scale * code + bias` once, the plain form twice. With scales of
                        // 16 bits the product is exact; with those of float32 the two are one rounding apart.
                        let bound = if is_rounded_twice { product_ulp(&tensor, row, k) } else { 0.0 };
                        assert!(
                            (found - expected).abs() <= bound,
                            "{name} [{n_out},{n_in}], row {row}, element {k}: {found}, stored {expected}"
                        );
                    }
                }
                seen.push(matrix.format);
            }
        }
    }
    let has = |codes: Codes, biased: bool| {
        seen.iter().any(
            |format| matches!(format, Format::Grouped { codes: c, has_bias, .. } if *c == codes && *has_bias == biased),
        )
    };
    for codes in [Codes::U2, Codes::U3, Codes::U4, Codes::U5, Codes::U6, Codes::U8] {
        assert!(has(codes, true), "{codes:?} with biases");
    }
    for codes in [Codes::U3, Codes::U4, Codes::U5, Codes::U6, Codes::U8, Codes::E2m1, Codes::E4m3] {
        assert!(has(codes, false), "{codes:?} with a zero point");
    }
    for number in [Number::F32, Number::F16, Number::Bf16] {
        assert!(seen.contains(&Format::Dense(number)), "{number:?}");
    }
}

fn is_f32_triple(tensor: &Tensor<'_>) -> bool {
    matches!(tensor, Tensor::Affine(affine)
        if affine.scale_dtype() == DType::F32 && affine.offset() == Offset::Biases)
}

/// Half a unit in the last place of `scale * code`, plus one of the sum.
fn product_ulp(tensor: &Tensor<'_>, row: usize, k: usize) -> f32 {
    let Tensor::Affine(affine) = tensor else { return 0.0 };
    let (mut codes, groups) = (vec![0; affine.cols()], affine.groups());
    let (mut scales, mut biases) = (vec![0.0; groups], vec![0.0; groups]);
    affine.unpack_row(row, &mut codes, &mut scales, &mut biases);
    let group = k / affine.group_size();
    let product = scales[group] * f32::from(codes[k]);
    (product.abs() + (product + biases[group]).abs()) * f32::EPSILON
}

#[test]
fn panels_past_the_last_row_are_zero() {
    for (model, names) in zoo(5, 64) {
        for name in names {
            let (matrix, region) = packed(&model, &name);
            let whole = Matrix { n_out: 16, ..matrix };
            for row in 5..16 {
                assert!(read_row(&whole, &region, row).iter().all(|x| *x == 0.0), "{name}, row {row}");
            }
        }
    }
}

#[test]
fn a_matrix_within_a_stack_is_packed_from_its_own_rows() {
    let model = Folder::new(3).affine("stack", &[3, 5, 64], 4, 32, DType::F16).open();
    let tensor = model.checkpoint.tensor("stack.weight").unwrap();
    let info = model.checkpoint.catalogue().get("stack.weight").unwrap();
    let matrix = Matrix::plan(5, 64, info.encoding, 0).unwrap();
    for index in 0..3 {
        let mut region = Region::new(matrix.bytes(), false).unwrap();
        let out = region.bytes_mut(0, matrix.panel_bytes());
        matrix.pack(&tensor, index * 5, 0, &mut Scratch::default(), out);
        let mut expected = vec![0.0; 64];
        for row in 0..5 {
            tensor.dequantise_row(index * 5 + row, &mut expected).unwrap();
            assert_eq!(read_row(&matrix, &region, row), expected, "matrix {index}, row {row}");
        }
    }
}

#[test]
fn numbers_that_are_no_floats_have_no_plan() {
    let encoding = host_weights::Encoding::Dense(DType::I32);
    assert_eq!(Matrix::plan(4, 4, encoding, 0), None);
}
