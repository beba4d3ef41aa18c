//! A written model folder holds the very codes, scales and biases of the checkpoint it came from.

mod support;

use std::fs;
use std::path::Path;

use host_core::DType;
use host_core::quant::Scheme;
use host_weights::tensor::AffineBlock;
use host_weights::{Checkpoint, Encoding, Tensor, TensorInfo, write_model_folder};
use serde_json::json;
use support::{ARRAY, Gguf, TEXT, array, code_of, fixtures, text};

/// What a tensor stands for: codes, and the bits of scales and biases, or its bytes.
#[derive(Debug, PartialEq)]
enum Content {
    Dense(DType, Vec<u8>),
    Rows(Vec<(Vec<u8>, Vec<u32>, Vec<u32>)>),
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn content(tensor: &Tensor<'_>) -> Content {
    let rows = |unpack: &dyn Fn(usize) -> (Vec<u8>, Vec<u32>, Vec<u32>)| {
        Content::Rows((0..tensor.rows()).map(unpack).collect())
    };
    match tensor {
        Tensor::Dense(tensor) => Content::Dense(tensor.dtype(), tensor.bytes().into_owned()),
        Tensor::Affine(tensor) => rows(&|row| {
            let mut codes = vec![0; tensor.cols()];
            let (mut scales, mut biases) = (vec![0.0; tensor.groups()], vec![0.0; tensor.groups()]);
            tensor.unpack_row(row, &mut codes, &mut scales, &mut biases);
            (codes, bits(&scales), bits(&biases))
        }),
        Tensor::FloatGroups(tensor) => rows(&|row| {
            let (mut codes, mut scales) = (vec![0; tensor.cols()], vec![0.0; tensor.groups()]);
            tensor.unpack_row(row, &mut codes, &mut scales);
            (codes, bits(&scales), Vec::new())
        }),
    }
}

/// Writes a checkpoint and compares the folder with it.
fn check_round_trip(source: &Path) -> (tempfile::TempDir, Checkpoint) {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let out = parent.path().join("model");
    let original = Checkpoint::open(source).expect("a checkpoint");
    let mut told = Vec::new();
    write_model_folder(&original, &out, &mut |done, total| told.push((done, total))).expect("a folder");
    assert!(told.is_sorted() && told.last().is_some_and(|(done, total)| done == total), "{told:?}");
    assert_eq!(fs::read_dir(parent.path()).expect("a folder").count(), 1, "nothing is left beside it");

    let written = Checkpoint::open(&out).expect("the folder opens");
    assert_eq!(written.catalogue().len(), original.catalogue().len());
    for (found, expected) in written.catalogue().iter().zip(original.catalogue()) {
        assert_eq!((&found.name, &found.shape), (&expected.name, &expected.shape));
        let of = |checkpoint: &Checkpoint| content(&checkpoint.tensor(&expected.name).expect("a tensor"));
        assert!(of(&written) == of(&original), "{} differs", expected.name);
    }
    let mut config = written.config().json.clone();
    if !original.config().json.contains_key("quantization") {
        config.remove("quantization");
    }
    assert_eq!(config, original.config().json);
    (parent, written)
}

#[test]
fn folders_and_gguf_files_come_back_as_they_were() {
    for source in [
        "gguf-models/llama-f32.gguf",
        "gguf-models/llama-f16.gguf",
        "gguf-models/gemma3-f32.gguf",
        "tiny-llama-sharded",
        "tiny-llama-gqa-bf16",
        "tiny-mlx-q3-g64",
        "tiny-mlx-q5-g64",
        "tiny-mlx-mixed",
        "tiny-mlx-mxfp8",
        "tiny-mlx-nvfp4",
    ] {
        check_round_trip(&fixtures().join(source));
    }
}

const BLOCKS: [(AffineBlock, u32, &str); 10] = [
    (AffineBlock::Q4_0, 2, "q4_0"),
    (AffineBlock::Q4_1, 3, "q4_1"),
    (AffineBlock::Q5_0, 6, "q5_0"),
    (AffineBlock::Q5_1, 7, "q5_1"),
    (AffineBlock::Q8_0, 8, "q8_0"),
    (AffineBlock::Q2_K, 10, "q2_k"),
    (AffineBlock::Q3_K, 11, "q3_k"),
    (AffineBlock::Q4_K, 12, "q4_k"),
    (AffineBlock::Q5_K, 13, "q5_k"),
    (AffineBlock::Q6_K, 14, "q6_k"),
];

/// A GGUF file with a matrix of each block type, one a layer.
fn one_of_each_block() -> Gguf {
    let mut gguf = Gguf::new().text("general.architecture", "llama");
    for (key, value) in [
        ("block_count", 10),
        ("context_length", 8),
        ("embedding_length", 32),
        ("feed_forward_length", 8),
        ("attention.head_count", 2),
    ] {
        gguf = gguf.u32(&format!("llama.{key}"), value);
    }
    let mut gguf = gguf
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .text("tokenizer.ggml.model", "gpt2")
        .raw_key("tokenizer.ggml.tokens", ARRAY, &array(TEXT, &["a", "b"].map(text)))
        .tensor("token_embd.weight", &[32, 2], 0, &support::f32_bytes(64));
    for (layer, (kind, number, file)) in BLOCKS.into_iter().enumerate() {
        let blocks = fs::read(fixtures().join(format!("gguf-blocks/{file}.blocks"))).expect("blocks");
        let dims = [kind.elements() as u64, (blocks.len() / kind.bytes()) as u64];
        gguf = gguf.tensor(&format!("blk.{layer}.ffn_up.weight"), &dims, number, &blocks);
    }
    gguf
}

#[test]
fn every_block_type_comes_back_bit_for_bit_and_mlx_names_its_parts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("blocks.gguf");
    fs::write(&source, one_of_each_block().bytes()).expect("a file");
    let (parent, written) = check_round_trip(&source);

    // Three types have 5 bits in groups of 32, as three have 4; the others override them.
    let block = &written.config().json["quantization"];
    assert_eq!(
        (&block["bits"], &block["group_size"], &block["mode"]),
        (&json!(5), &json!(32), &json!("affine"))
    );
    let six = &block["model.layers.9.mlp.up_proj"];
    assert_eq!(six, &json!({"group_size": 16, "bits": 6, "mode": "affine"}));
    assert_eq!(block.as_object().expect("a block").len(), 3 + 7);

    let file = fs::read(parent.path().join("model/model.safetensors")).expect("a file");
    let entries = safetensors::SafeTensors::deserialize(&file).expect("another reader agrees");
    let scales = |layer: usize| {
        entries.tensor(&format!("model.layers.{layer}.mlp.up_proj.scales")).expect("scales").dtype()
    };
    // The golden blocks of Q8_0 have scales whose zero point leaves F16, those of Q4_1 have none.
    assert_eq!(scales(1), safetensors::Dtype::F16);
    assert_eq!(scales(4), safetensors::Dtype::F32);
    assert_eq!(scales(7), safetensors::Dtype::F32);
    let codes = entries.tensor("model.layers.9.mlp.up_proj.weight").expect("codes");
    assert_eq!((codes.dtype(), codes.shape()), (safetensors::Dtype::U32, &[16, 48][..]));
}

#[test]
fn zero_points_of_usual_scales_stay_in_f16() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("small.gguf");
    let data = [vec![0x00, 0x2C], vec![7; 32]].concat().repeat(4);
    let gguf = support::small_llama().without_tensor("none").tensor("output.weight", &[32, 4], 8, &data);
    fs::write(&source, gguf.bytes()).expect("a file");
    let (_parent, written) = check_round_trip(&source);
    let encoding = written.catalogue().get("lm_head.weight").expect("a tensor").encoding;
    assert!(matches!(encoding, Encoding::Affine { bits: 8, group_size: 32, scale_dtype: DType::F16, .. }));
    assert_eq!(written.config().json["tie_word_embeddings"], false);
}

#[test]
fn an_existing_target_is_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let checkpoint = Checkpoint::open(&fixtures().join("tiny-llama-tied")).expect("a checkpoint");
    let mut ignore = |_, _| {};
    let out = folder.path().join("taken");
    fs::create_dir(&out).expect("a folder");
    let error = write_model_folder(&checkpoint, &out, &mut ignore).expect_err("the name is taken");
    assert_eq!(code_of(&error), "weights.target-exists");
    let nowhere = folder.path().join("no/such/folder");
    let error = write_model_folder(&checkpoint, &nowhere, &mut ignore).expect_err("there is no such folder");
    assert_eq!(code_of(&error), "weights.target-name");
    let error = write_model_folder(&checkpoint, Path::new("/"), &mut ignore).expect_err("the root exists");
    assert_eq!(code_of(&error), "weights.target-exists");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing was written");
}

#[test]
fn nothing_is_left_of_a_folder_that_could_not_be_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("source");
    fs::create_dir(&source).expect("a folder");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixtures().join("tiny-llama-tied").join(file), source.join(file)).expect("a copy");
    }
    let checkpoint = Checkpoint::open(&source).expect("a checkpoint");
    fs::write(source.join("model.safetensors"), b"no longer the same").expect("a file");
    let out = folder.path().join("out");
    let error = write_model_folder(&checkpoint, &out, &mut |_, _| {}).expect_err("the source has changed");
    assert_eq!(code_of(&error), "weights.file-changed");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "only the source is there");
}

/// Numbers of every row, as bits.
fn all_numbers(checkpoint: &Checkpoint, name: &str) -> Vec<u32> {
    let tensor = checkpoint.tensor(name).expect("a tensor");
    let mut row = vec![0.0; tensor.cols()];
    let rows = 0..tensor.rows();
    rows.flat_map(|at| {
        tensor.dequantise_row(at, &mut row).expect("numbers");
        bits(&row)
    })
    .collect()
}

#[test]
fn a_quantised_checkpoint_is_what_the_folder_written_from_it_is() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let open = || Checkpoint::open(&fixtures().join("tiny-mlx-q8-g64")).expect("a checkpoint");
    // Every form in turn over the matrices; what is no matrix is kept.
    let affine = |bits| Scheme::Affine { bits, group_size: 32 };
    let forms = [affine(4), Scheme::Mxfp4, affine(4), affine(3), Scheme::Keep, Scheme::Mxfp8, Scheme::Nvfp4];
    let mut forms = forms.into_iter().cycle();
    let is_matrix = |info: &TensorInfo| info.shape.len() == 2;
    let schemes: Vec<_> = open()
        .catalogue()
        .iter()
        .map(|info| if is_matrix(info) { forms.next().expect("endless") } else { Scheme::Keep })
        .collect();
    let quantised = open().quantised(&schemes).expect("each can take its scheme");
    assert!(quantised.is_recoded());
    let out = parent.path().join("out");
    write_model_folder(&quantised, &out, &mut |_, _| {}).expect("a folder");
    let written = Checkpoint::open(&out).expect("the folder opens");
    for (found, expected) in written.catalogue().iter().zip(quantised.catalogue()) {
        assert_eq!((&found.name, &found.shape), (&expected.name, &expected.shape));
        assert_eq!((found.encoding, found.bytes), (expected.encoding, expected.bytes), "{}", found.name);
        assert!(all_numbers(&written, &found.name) == all_numbers(&quantised, &found.name), "{}", found.name);
    }
    // Schemes given later stand in for those given before.
    let keep = vec![Scheme::Keep; schemes.len()];
    let again = written.quantised(&keep).expect("anything can be kept");
    assert!(!again.is_recoded());
    let again = quantised.quantised(&keep).expect("anything can be kept");
    for (found, expected) in again.catalogue().iter().zip(open().catalogue()) {
        assert_eq!(found, expected);
    }
}
