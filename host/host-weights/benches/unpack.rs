//! Speed of `unpack_row`, one thread: packed bytes and elements a second for each block type and code width.
//!
//! `cargo bench -p host-weights` prints the median and the spread of 15 passes over about 24 MB of packed bytes.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use host_weights::tensor::AffineBlock;
use host_weights::{Checkpoint, Tensor};

const PASSES: usize = 15;
const COLS: usize = 2048;
const PACKED_BYTES: usize = 24 << 20;

const BLOCKS: [(AffineBlock, u32); 10] = [
    (AffineBlock::Q4_0, 2),
    (AffineBlock::Q4_1, 3),
    (AffineBlock::Q5_0, 6),
    (AffineBlock::Q5_1, 7),
    (AffineBlock::Q8_0, 8),
    (AffineBlock::Q2_K, 10),
    (AffineBlock::Q3_K, 11),
    (AffineBlock::Q4_K, 12),
    (AffineBlock::Q5_K, 13),
    (AffineBlock::Q6_K, 14),
];

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    println!("{:<12} {:>10} {:>10} {:>10} {:>12}", "type", "GB/s", "low", "high", "Melements/s");
    for (kind, number) in BLOCKS {
        let rows = PACKED_BYTES / (COLS / kind.elements() * kind.bytes());
        let path = folder.path().join(format!("{kind:?}.gguf"));
        fs::write(&path, gguf(number, rows, rows * COLS / kind.elements() * kind.bytes())).expect("a file");
        measure(&format!("{kind:?}"), &Checkpoint::open(&path).expect("a checkpoint"), "lm_head.weight");
    }
    for bits in [2, 3, 4, 5, 6, 8] {
        let path = folder.path().join(format!("affine-{bits}"));
        fs::create_dir(&path).expect("a folder");
        let config = format!(r#"{{"quantization":{{"bits":{bits},"group_size":64}}}}"#);
        fs::write(path.join("config.json"), config).expect("a file");
        fs::write(path.join("model.safetensors"), triple(bits)).expect("a file");
        measure(&format!("affine {bits}"), &Checkpoint::open(&path).expect("a checkpoint"), "m.weight");
    }
}

fn measure(name: &str, checkpoint: &Checkpoint, tensor: &str) {
    let bytes = checkpoint.catalogue().get(tensor).expect("a tensor").bytes as f64;
    let Tensor::Affine(tensor) = checkpoint.tensor(tensor).expect("a tensor") else {
        panic!("{name} is affine")
    };
    let mut codes = vec![0; tensor.cols()];
    let (mut scales, mut biases) = (vec![0.0; tensor.groups()], vec![0.0; tensor.groups()]);
    let mut seconds: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            for row in 0..tensor.rows() {
                tensor.unpack_row(row, &mut codes, &mut scales, &mut biases);
                black_box((&codes, &scales, &biases));
            }
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let speed = |seconds: f64| bytes / seconds / 1e9;
    let median = seconds[PASSES / 2];
    let elements = (tensor.rows() * tensor.cols()) as f64 / median / 1e6;
    let (low, high) = (speed(seconds[PASSES - 1]), speed(seconds[0]));
    println!("{name:<12} {:>10.2} {low:>10.2} {high:>10.2} {elements:>12.0}", speed(median));
}

/// A GGUF file that holds one output matrix of this type, and an embedding of one token.
fn gguf(number: u32, rows: usize, bytes: usize) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let key = |key: &str, kind: u32, value: Vec<u8>| [text(key), kind.to_le_bytes().to_vec(), value].concat();
    let count =
        |name: &str, value: usize| key(&format!("llama.{name}"), 4, (value as u32).to_le_bytes().to_vec());
    let keys = [
        key("general.architecture", 8, text("llama")),
        count("block_count", 1),
        count("context_length", 1),
        count("embedding_length", COLS),
        count("feed_forward_length", 1),
        count("attention.head_count", 1),
        key("llama.attention.layer_norm_rms_epsilon", 6, 1e-5_f32.to_le_bytes().to_vec()),
        key("tokenizer.ggml.model", 8, text("gpt2")),
        key(
            "tokenizer.ggml.tokens",
            9,
            [&8_u32.to_le_bytes()[..], &1_u64.to_le_bytes(), &text("a")].concat(),
        ),
    ];
    let tensor = |name: &str, rows: usize, number: u32, offset: u64| {
        let dims = [COLS as u64, rows as u64].map(u64::to_le_bytes).concat();
        [
            text(name),
            2_u32.to_le_bytes().to_vec(),
            dims,
            number.to_le_bytes().to_vec(),
            offset.to_le_bytes().to_vec(),
        ]
        .concat()
    };
    let embedding_bytes = COLS * 4;
    let tensors =
        [tensor("token_embd.weight", 1, 0, 0), tensor("output.weight", rows, number, embedding_bytes as u64)];
    let head = [&b"GGUF"[..], &3_u32.to_le_bytes(), &2_u64.to_le_bytes(), &(keys.len() as u64).to_le_bytes()];
    let mut file = [head.concat(), keys.concat(), tensors.concat()].concat();
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend((0..embedding_bytes + bytes).map(|i| (i * 37 % 97) as u8));
    file
}

/// A safetensors file with one packed triple.
fn triple(bits: usize) -> Vec<u8> {
    let rows = PACKED_BYTES / (COLS * bits / 8 + COLS / 64 * 4);
    let (codes, scales) = (rows * COLS * bits / 8, rows * COLS / 64 * 2);
    let (words, groups) = (COLS * bits / 32, COLS / 64);
    let header = format!(
        r#"{{"m.weight":{{"dtype":"U32","shape":[{rows},{words}],"data_offsets":[0,{codes}]}},"m.scales":{{"dtype":"BF16","shape":[{rows},{groups}],"data_offsets":[{codes},{}]}},"m.biases":{{"dtype":"BF16","shape":[{rows},{groups}],"data_offsets":[{},{}]}}}}"#,
        codes + scales,
        codes + scales,
        codes + 2 * scales
    );
    let mut file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    file.extend((0..codes + 2 * scales).map(|i| (i * 37 % 61) as u8));
    file
}
