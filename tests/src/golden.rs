//! The oracle's goldens, as `oracle/README.md` describes them. Read without any of the host's code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use host_text::Message;
use serde::Deserialize;

use crate::places::{fixture, read_json};

/// `generation.json`.
#[derive(Debug, Deserialize)]
pub struct Generation {
    /// The file's name.
    pub model_file: String,
    /// Its checksum.
    pub model_sha256: String,
    /// Generated tokens of each prompt.
    pub n_steps: usize,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// The prompts.
    pub prompts: Vec<Prompt>,
}

/// A prompt and its greedy continuation. Lists have an entry a step.
#[derive(Debug, Deserialize)]
pub struct Prompt {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: PromptKind,
    /// The conversation of a chat.
    pub messages: Option<Vec<Message>>,
    /// The text that was tokenised.
    pub rendered: String,
    /// Its tokens.
    pub prompt_ids: Vec<u32>,
    /// The most likely token of each step.
    pub output_ids: Vec<u32>,
    /// Their text, special tokens included.
    pub output_text: String,
    /// How far the best logit is above the second.
    pub argmax_margin: Vec<f32>,
    /// The best five tokens.
    pub top_ids: Vec<[u32; 5]>,
    /// Their logits.
    pub top_logits: Vec<[f32; 5]>,
    /// Their log-probabilities.
    pub top_logprobs: Vec<[f32; 5]>,
}

/// How a prompt came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptKind {
    /// Text.
    Raw,
    /// A conversation through the model's chat template.
    Chat,
    /// Text with special tokens written in it.
    Literal,
}

impl Generation {
    /// Reads the goldens of a model.
    pub fn read(model: &str) -> Generation {
        read_json(&fixture(model).join("generation.json"))
    }
}

/// `kl.json` and `kl.safetensors`: float32 distributions at positions of a text.
#[derive(Debug)]
pub struct Kl {
    /// The text's tokens, as far as the oracle read it.
    pub token_ids: Vec<u32>,
    /// The first token that has a row: row r is the distribution after `token_ids[first + r]`.
    pub first: usize,
    /// The most likely token of each row.
    pub top1_ids: Vec<u32>,
    rows: Vec<KlRow>,
}

/// One distribution: its most likely tokens, and the mass of all others.
#[derive(Debug)]
struct KlRow {
    top: Vec<(u32, f64)>,
    rest_mass: f64,
}

#[derive(Deserialize)]
struct KlJson {
    context: usize,
    first: usize,
    n_positions: usize,
    token_ids: Vec<u32>,
    top1_ids: Vec<u32>,
}

impl Kl {
    /// Reads the distributions of a model.
    pub fn read(model: &str) -> Kl {
        let json: KlJson = read_json(&fixture(model).join("kl.json"));
        let tensors = Tensors::read(&fixture(model).join("kl.safetensors"));
        let (ids, logprobs) = (tensors.i32s("top_ids"), tensors.f32s("top_logprobs"));
        let rest = tensors.f32s("rest_mass");
        assert_eq!((rest.len(), json.first + json.n_positions), (json.n_positions, json.context));
        let n_top = ids.len() / json.n_positions;
        let row = |r: usize| {
            let range = r * n_top..(r + 1) * n_top;
            let top = ids[range.clone()].iter().zip(&logprobs[range]);
            let top = top.map(|(id, logprob)| (*id as u32, f64::from(*logprob))).collect();
            KlRow { top, rest_mass: f64::from(rest[r]) }
        };
        let rows = (0..json.n_positions).map(row).collect();
        let token_ids = json.token_ids[..json.context].to_vec();
        Kl { token_ids, first: json.first, top1_ids: json.top1_ids, rows }
    }

    /// How many distributions there are.
    pub fn n_rows(&self) -> usize {
        self.rows.len()
    }

    /// KL divergence in nats from row `r` to the distribution of `logits`, all rare tokens in one bin.
    pub fn divergence(&self, r: usize, logits: &[f32]) -> f64 {
        let KlRow { top, rest_mass } = &self.rows[r];
        let normaliser = log_sum_exp(logits);
        let (mut divergence, mut covered) = (0.0, 0.0);
        for (id, logprob) in top {
            let found = f64::from(logits[*id as usize]) - normaliser;
            divergence += logprob.exp() * (logprob - found);
            covered += found.exp();
        }
        divergence + rest_mass * (rest_mass / (1.0 - covered)).ln()
    }
}

/// The logarithm of the sum of exponentials.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    largest + logits.iter().map(|x| (f64::from(*x) - largest).exp()).sum::<f64>().ln()
}

/// `golden.json` of a tiny model.
#[derive(Debug, Deserialize)]
pub struct Tiny {
    /// The prompt.
    pub input_ids: Vec<u32>,
    /// The logits after each of its tokens.
    pub logits: Vec<Vec<f32>>,
    /// The most likely tokens that follow, one after the other.
    pub greedy_output_ids: Vec<u32>,
    /// How far each was above the second.
    pub greedy_margin: Vec<f32>,
}

impl Tiny {
    /// Reads the goldens in a tiny model's folder.
    pub fn read(folder: &Path) -> Tiny {
        read_json(&folder.join("golden.json"))
    }
}

/// A safetensors file of goldens, in memory.
#[derive(Debug)]
pub struct Tensors {
    entries: BTreeMap<String, Entry>,
    data: Vec<u8>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    dtype: String,
    data_offsets: (usize, usize),
}

impl Tensors {
    /// Reads a file.
    pub fn read(path: &Path) -> Tensors {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (length, rest) = bytes.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
        let (header, data) = rest.split_at(length);
        let mut header: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(header).expect("a header in JSON");
        header.remove("__metadata__");
        let entry = |(name, value)| (name, serde_json::from_value(value).expect("dtype and offsets"));
        Tensors { entries: header.into_iter().map(entry).collect(), data: data.to_vec() }
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The numbers of a float32 tensor.
    pub fn f32s(&self, name: &str) -> Vec<f32> {
        self.words(name, "F32").map(f32::from_le_bytes).collect()
    }

    /// The numbers of an int32 tensor.
    pub fn i32s(&self, name: &str) -> Vec<i32> {
        self.words(name, "I32").map(i32::from_le_bytes).collect()
    }

    fn words(&self, name: &str, dtype: &str) -> impl Iterator<Item = [u8; 4]> {
        let entry = self.entries.get(name).unwrap_or_else(|| panic!("no tensor {name}"));
        assert_eq!(entry.dtype, dtype, "{name}");
        let bytes = &self.data[entry.data_offsets.0..entry.data_offsets.1];
        bytes.chunks_exact(4).map(|word| word.try_into().expect("four bytes"))
    }
}
