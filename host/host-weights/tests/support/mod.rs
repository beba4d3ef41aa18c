//! Files made byte by byte, so that tests can make wrong ones.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

use host_core::Reported;
use host_weights::WeightsError;

/// The folder with golden data.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// A safetensors file: the header's length, the header as given, the data.
pub(crate) fn safetensors_file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// One tensor of a well-formed safetensors file.
pub(crate) struct Entry<'a>(
    pub(crate) &'a str,
    pub(crate) &'a str,
    pub(crate) &'a [usize],
    pub(crate) Vec<u8>,
);

/// A well-formed safetensors file.
pub(crate) fn well_formed(entries: &[Entry<'_>]) -> Vec<u8> {
    let (mut parts, mut data) = (Vec::new(), Vec::new());
    for Entry(name, dtype, shape, bytes) in entries {
        let (begin, end) = (data.len(), data.len() + bytes.len());
        parts.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
        ));
        data.extend_from_slice(bytes);
    }
    safetensors_file(&format!("{{{}}}", parts.join(",")), &data)
}

/// A GGUF file in the making. The parts may contradict one another: that is what it is for.
#[derive(Clone, Default)]
pub(crate) struct Gguf {
    pub(crate) version: Option<u32>,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) data: Vec<u8>,
    pub(crate) n_keys: Option<u64>,
    pub(crate) n_tensors: Option<u64>,
    pub(crate) alignment: usize,
}

pub(crate) const U32: u32 = 4;
pub(crate) const F32: u32 = 6;
pub(crate) const BOOL: u32 = 7;
pub(crate) const TEXT: u32 = 8;
pub(crate) const ARRAY: u32 = 9;

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

pub(crate) fn array(kind: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(elements.len() as u64).to_le_bytes(), &elements.concat()].concat()
}

impl Gguf {
    pub(crate) fn new() -> Self {
        Gguf { alignment: 32, ..Gguf::default() }
    }

    /// Adds a key with a value of any bytes, in front of those that stand already.
    pub(crate) fn raw_key(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.keys.insert(0, [&text(key)[..], &kind.to_le_bytes(), value].concat());
        self
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Self {
        self.raw_key(key, U32, &value.to_le_bytes())
    }

    pub(crate) fn f32(self, key: &str, value: f32) -> Self {
        self.raw_key(key, F32, &value.to_le_bytes())
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.raw_key(key, TEXT, &text(value))
    }

    /// Removes a key.
    pub(crate) fn without(mut self, key: &str) -> Self {
        let start = text(key);
        self.keys.retain(|bytes| !bytes.starts_with(&start));
        self
    }

    /// Removes a tensor's entry and leaves its data.
    pub(crate) fn without_tensor(mut self, name: &str) -> Self {
        let start = text(name);
        self.tensors.retain(|bytes| !bytes.starts_with(&start));
        self
    }

    /// Adds a tensor with its data, at the next aligned place; `dims` in the order of the file.
    pub(crate) fn tensor(mut self, name: &str, dims: &[u64], kind: u32, data: &[u8]) -> Self {
        self.data.resize(self.data.len().next_multiple_of(self.alignment), 0);
        let offset = self.data.len() as u64;
        self.data.extend_from_slice(data);
        self.raw_tensor(name, dims, kind, offset)
    }

    /// Adds an entry without data.
    pub(crate) fn raw_tensor(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let dim_bytes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        let rank = (dims.len() as u32).to_le_bytes();
        let entry = [&text(name)[..], &rank, &dim_bytes, &kind.to_le_bytes(), &offset.to_le_bytes()].concat();
        self.tensors.push(entry);
        self
    }

    /// Adds bytes at the end.
    pub(crate) fn trailing(mut self, count: usize) -> Self {
        self.data.resize(self.data.len() + count, 0);
        self
    }

    /// Where the next tensor would begin.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data.len().next_multiple_of(self.alignment) as u64
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let n_tensors = self.n_tensors.unwrap_or(self.tensors.len() as u64);
        let n_keys = self.n_keys.unwrap_or(self.keys.len() as u64);
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.unwrap_or(3).to_le_bytes());
        bytes.extend(n_tensors.to_le_bytes());
        bytes.extend(n_keys.to_le_bytes());
        bytes.extend(self.keys.concat());
        bytes.extend(self.tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        bytes.extend(&self.data);
        bytes
    }
}

/// Width of the small models below.
pub(crate) const E: u64 = 32;
/// Tokens of the small models below.
pub(crate) const V: u64 = 4;

pub(crate) fn f32_bytes(count: usize) -> Vec<u8> {
    (0..count).flat_map(|i| (i as f32 * 0.25 - 1.0).to_le_bytes()).collect()
}

/// A whole small llama: one layer, two query heads on one key head, each of 16.
pub(crate) fn small_llama() -> Gguf {
    let dense = |gguf: Gguf, name: &str, dims: &[u64]| {
        let count = dims.iter().product::<u64>() as usize;
        gguf.tensor(name, dims, 0, &f32_bytes(count))
    };
    let mut gguf = small_metadata("llama").f32("llama.rope.freq_base", 10_000.0);
    for (name, dims) in [
        ("token_embd.weight", &[E, V][..]),
        ("output_norm.weight", &[E]),
        ("blk.0.attn_norm.weight", &[E]),
        ("blk.0.attn_q.weight", &[E, 32]),
        ("blk.0.attn_k.weight", &[E, 16]),
        ("blk.0.attn_v.weight", &[E, 16]),
        ("blk.0.attn_output.weight", &[32, E]),
        ("blk.0.ffn_norm.weight", &[E]),
        ("blk.0.ffn_gate.weight", &[E, 64]),
        ("blk.0.ffn_up.weight", &[E, 64]),
        ("blk.0.ffn_down.weight", &[64, E]),
    ] {
        gguf = dense(gguf, name, dims);
    }
    gguf
}

/// The tables of a small Gemma 3: embedding and one norm of each kind.
pub(crate) fn small_gemma() -> Gguf {
    small_metadata("gemma3")
        .f32("gemma3.rope.freq_base", 1_000_000.0)
        .u32("gemma3.attention.key_length", 16)
        .u32("gemma3.attention.value_length", 16)
        .u32("gemma3.attention.sliding_window", 8)
        .tensor("token_embd.weight", &[E, V], 0, &f32_bytes((E * V) as usize))
        .tensor("output_norm.weight", &[E], 0, &f32_bytes(E as usize))
        .tensor("blk.0.attn_q_norm.weight", &[16], 0, &f32_bytes(16))
}

fn small_metadata(architecture: &str) -> Gguf {
    let key = |name: &str| format!("{architecture}.{name}");
    Gguf::new()
        .text("general.architecture", architecture)
        .u32(&key("block_count"), 1)
        .u32(&key("context_length"), 64)
        .u32(&key("embedding_length"), E as u32)
        .u32(&key("feed_forward_length"), 64)
        .u32(&key("attention.head_count"), 2)
        .u32(&key("attention.head_count_kv"), 1)
        .f32(&key("attention.layer_norm_rms_epsilon"), 1e-5)
        .text("tokenizer.ggml.model", "gpt2")
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .raw_key("tokenizer.ggml.tokens", ARRAY, &array(TEXT, &["a", "b", "c", "d"].map(text)))
}

/// The code of an error; every report must also name a mend.
pub(crate) fn code_of(error: &WeightsError) -> &'static str {
    let report = error.report();
    assert!(report.mend.is_some(), "no mend in: {report}");
    report.code
}
