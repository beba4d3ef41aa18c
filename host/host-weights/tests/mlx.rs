//! MLX-quantised folders: every tensor has the values that MLX itself gives it, bit for bit.

mod support;

use std::fs;

use host_weights::{Checkpoint, Encoding, FloatMode, Format, Tensor, TensorInfo};
use serde_json::Value;
use sha2::{Digest, Sha256};
use support::fixtures;

/// All rows of a tensor as little-endian f32.
fn value_bytes(tensor: &Tensor<'_>) -> Vec<u8> {
    let mut row = vec![0.0; tensor.cols()];
    let mut bytes = Vec::new();
    for at in 0..tensor.rows() {
        tensor.dequantise_row(at, &mut row).expect("numbers");
        bytes.extend(row.iter().flat_map(|number: &f32| number.to_le_bytes()));
    }
    bytes
}

#[test]
fn quantised_tensors_have_the_values_that_mlx_gives_them() {
    let mut compared = 0;
    for folder in fs::read_dir(fixtures()).expect("the fixtures") {
        let folder = folder.expect("an entry").path();
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        if !name.starts_with("tiny-mlx-") {
            continue;
        }
        let golden = fs::read(folder.join("golden.json")).expect("a golden");
        let golden: Value = serde_json::from_slice(&golden).expect("JSON");
        let checkpoint = Checkpoint::open(&folder).expect("a checkpoint");
        assert_eq!(checkpoint.format(), Format::Safetensors);
        for (tensor, expected) in golden["tensors"].as_object().expect("tensors") {
            let info = checkpoint.catalogue().get(tensor).expect("a catalogued tensor");
            assert_eq!(Value::from(info.shape.clone()), expected["shape"], "{name} {tensor}");
            check_encoding(info.encoding, expected);
            let digest = Sha256::digest(value_bytes(&checkpoint.tensor(tensor).expect("a tensor")));
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(Value::from(digest), expected["f32_le_sha256"], "{name} {tensor}");
            compared += 1;
        }
        let hidden = |name: &str| name.ends_with(".scales") || name.ends_with(".biases");
        assert!(!checkpoint.catalogue().iter().any(|info| hidden(&info.name)), "{name}");
    }
    assert!(compared >= 80, "{compared} tensors were compared");
}

fn check_encoding(found: Encoding, expected: &Value) {
    let mode = match found {
        Encoding::Affine { bits, group_size, .. } => ("affine", bits, group_size),
        Encoding::FloatGroups { mode, group_size } => (mode.name(), mode.bits(), group_size),
        Encoding::Dense(dtype) => panic!("{dtype} is not quantised"),
    };
    let field = |name: &str| expected[name].as_u64().expect("a number");
    assert_eq!(mode.0, expected["mode"]);
    assert_eq!((u64::from(mode.1), mode.2 as u64), (field("bits"), field("group_size")));
}

#[test]
fn modules_follow_their_overrides() {
    let checkpoint = Checkpoint::open(&fixtures().join("tiny-mlx-mixed")).expect("a checkpoint");
    let encoding = |module: &str| {
        checkpoint.catalogue().get(&format!("model.layers.0.{module}.weight")).expect("a tensor").encoding
    };
    assert!(matches!(encoding("self_attn.v_proj"), Encoding::Affine { bits: 8, group_size: 32, .. }));
    assert!(matches!(encoding("self_attn.q_proj"), Encoding::Affine { bits: 4, group_size: 64, .. }));
    let mxfp4 = Encoding::FloatGroups { mode: FloatMode::Mxfp4, group_size: 32 };
    assert_eq!(encoding("self_attn.o_proj"), mxfp4);
    assert!(matches!(encoding("mlp.down_proj"), Encoding::Dense(_)));
}

#[test]
fn a_stack_of_experts_has_a_row_for_each_expert_and_output() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = r#"{"quantization":{"bits":8,"group_size":32}}"#;
    let codes: Vec<u8> = (0..192).collect();
    let half = |count: usize| [0x00, 0x3C].repeat(count);
    let file = support::well_formed(&[
        support::Entry("switch_mlp.up_proj.weight", "U32", &[3, 2, 8], codes.clone()),
        support::Entry("switch_mlp.up_proj.scales", "F16", &[3, 2, 1], half(6)),
        support::Entry("switch_mlp.up_proj.biases", "F16", &[3, 2, 1], half(6)),
    ]);
    fs::write(folder.path().join("config.json"), config).expect("a file");
    fs::write(folder.path().join("model.safetensors"), file).expect("a file");
    let checkpoint = Checkpoint::open(folder.path()).expect("a checkpoint");
    let tensor = checkpoint.tensor("switch_mlp.up_proj.weight").expect("a tensor");
    assert_eq!((tensor.shape(), tensor.rows(), tensor.cols()), (&[3, 2, 32][..], 6, 32));
    let mut row = [0.0; 32];
    tensor.dequantise_row(5, &mut row).expect("numbers");
    assert_eq!(row.to_vec(), codes[160..].iter().map(|code| f32::from(*code) + 1.0).collect::<Vec<_>>());
}

#[test]
fn shards_make_one_catalogue() {
    let checkpoint = Checkpoint::open(&fixtures().join("tiny-llama-sharded")).expect("a checkpoint");
    let catalogue = checkpoint.catalogue();
    let names: Vec<_> = catalogue.iter().map(|info| info.name.as_str()).collect();
    assert!(names.is_sorted());
    let files: std::collections::BTreeSet<_> = catalogue.iter().map(|info| &info.file).collect();
    assert_eq!(files.len(), 5);
    let stored = |info: &TensorInfo| match info.encoding {
        Encoding::Dense(dtype) => (info.elements() * dtype.size_bytes()) as u64,
        other => panic!("{other} in an unquantised model"),
    };
    assert_eq!(catalogue.bytes(), catalogue.iter().map(stored).sum::<u64>());
    for name in names {
        let tensor = checkpoint.tensor(name).expect("a tensor");
        let Tensor::Dense(tensor) = tensor else { panic!("{name} is dense") };
        let file = fs::read(&catalogue.get(name).expect("a tensor").file).expect("a shard");
        let expected = safetensors::SafeTensors::deserialize(&file).expect("a well-formed shard");
        assert_eq!(tensor.bytes(), expected.tensor(name).expect("a tensor").data(), "{name}");
        checkpoint.release(name);
        checkpoint.release_rows(name, 1..usize::MAX);
        assert_eq!(tensor.bytes(), expected.tensor(name).expect("a tensor").data(), "{name} after release");
    }
}
