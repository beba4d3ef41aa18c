//! Small checkpoints, graphs over them, and ways to run those on any device.

use std::fs;
use std::path::Path;

use host_core::{DType, Numeric};
use host_device::{CompileOptions, Executable, KvStorage, LogitsFor, SequenceId, TokenRun};
use host_graph::{
    BuildError, Catalogue, Graph, GraphBuilder, Limits, Op, Shape, TensorFacts, Value, ValueType,
};
use host_weights::{Checkpoint, Encoding, FloatMode};
use tempfile::TempDir;

/// A stream of numbers that is the same everywhere (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `n - 1`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// From -1 to 1.
    pub(super) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(super) fn units(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    pub(super) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }
}

/// A model folder in the making: names that end in `.weight` may be quantised.
pub(super) struct Folder {
    header: Vec<String>,
    data: Vec<u8>,
    modules: Vec<String>,
    random: Random,
}

/// A checkpoint that lives as long as its files.
pub(super) struct Model {
    pub(super) checkpoint: Checkpoint,
    _folder: TempDir,
}

impl Folder {
    pub(super) fn new(seed: u64) -> Self {
        Folder { header: Vec::new(), data: Vec::new(), modules: Vec::new(), random: Random::new(seed) }
    }

    fn put(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) {
        let (begin, end) = (self.data.len(), self.data.len() + bytes.len());
        self.header.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
        ));
        self.data.extend_from_slice(bytes);
    }

    /// Numbers as they are.
    pub(super) fn numbers(mut self, name: &str, dtype: DType, shape: &[usize], numbers: &[f32]) -> Self {
        self.put(name, &dtype.to_string(), shape, &encode(dtype, numbers));
        self
    }

    /// Random numbers, so small that a product with rows of about 1 is about 1.
    pub(super) fn dense(mut self, name: &str, dtype: DType, shape: &[usize]) -> Self {
        let scale = if shape.len() > 1 { (3.0 / shape[shape.len() - 1] as f32).sqrt() } else { 1.0 };
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|_| scale * self.random.unit()).collect();
        self.numbers(name, dtype, shape, &numbers)
    }

    /// Random codes with scales and biases as MLX stores them.
    pub(super) fn affine(
        mut self,
        module: &str,
        shape: &[usize],
        bits: u8,
        group: usize,
        scale: DType,
    ) -> Self {
        let (leading, cols) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        let rows: usize = leading.iter().product();
        let packed = |last: usize| [leading, &[last]].concat();
        let codes = self.random.bytes(rows * cols * usize::from(bits) / 8);
        let width = 3.0 / (f32::from((1_u16 << bits) - 1) * (cols as f32).sqrt());
        let groups = rows * cols / group;
        let scales: Vec<f32> = (0..groups).map(|_| width * (1.0 + 0.3 * self.random.unit())).collect();
        let biases: Vec<f32> =
            (0..groups).map(|_| -1.5 / (cols as f32).sqrt() * (1.0 + 0.3 * self.random.unit())).collect();
        self.put(&format!("{module}.weight"), "U32", &packed(cols * usize::from(bits) / 32), &codes);
        self.put(
            &format!("{module}.scales"),
            &scale.to_string(),
            &packed(cols / group),
            &encode(scale, &scales),
        );
        self.put(
            &format!("{module}.biases"),
            &scale.to_string(),
            &packed(cols / group),
            &encode(scale, &biases),
        );
        self.modules.push(format!(r#""{module}":{{"bits":{bits},"group_size":{group},"mode":"affine"}}"#));
        self
    }

    /// Random floating-point codes with scales as MLX stores them; none is NaN.
    pub(super) fn float_groups(mut self, module: &str, shape: &[usize], mode: FloatMode) -> Self {
        let (leading, cols) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        let rows: usize = leading.iter().product();
        let packed = |last: usize| [leading, &[last]].concat();
        let (bits, group) = (usize::from(mode.bits()), mode.group_size());
        let mut codes = self.random.bytes(rows * cols * bits / 8);
        if mode == FloatMode::Mxfp8 {
            // 0x7f and 0xff are no numbers.
            codes.iter_mut().filter(|code| **code & 0x7f == 0x7f).for_each(|code| *code &= 0x80);
        }
        // E8M0 scales from 2^-7 to 2^-4, E4M3 scales from 0.0625 up.
        let first = if mode == FloatMode::Nvfp4 { 24 } else { 120 };
        let scales: Vec<u8> = (0..rows * cols / group).map(|_| first + self.random.below(4) as u8).collect();
        self.put(&format!("{module}.weight"), "U32", &packed(cols * bits / 32), &codes);
        self.put(&format!("{module}.scales"), "U8", &packed(cols / group), &scales);
        let name = mode.name();
        self.modules.push(format!(r#""{module}":{{"bits":{bits},"group_size":{group},"mode":"{name}"}}"#));
        self
    }

    pub(super) fn open(self) -> Model {
        let folder = TempDir::new().unwrap();
        let header = format!("{{{}}}", self.header.join(","));
        let length = (header.len() as u64).to_le_bytes();
        let file = [&length[..], header.as_bytes(), &self.data].concat();
        fs::write(folder.path().join("model.safetensors"), file).unwrap();
        let config = if self.modules.is_empty() {
            "{}".to_owned()
        } else {
            format!(r#"{{"quantization":{{"bits":4,"group_size":64,{}}}}}"#, self.modules.join(","))
        };
        fs::write(folder.path().join("config.json"), config).unwrap();
        Model::open(folder, |path| path.to_owned())
    }
}

fn encode(dtype: DType, numbers: &[f32]) -> Vec<u8> {
    let bytes = |number: &f32| match dtype {
        DType::F32 => number.to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(*number).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f32(*number).to_le_bytes().to_vec(),
        DType::I32 => (*number as i32).to_le_bytes().to_vec(),
        other => panic!("no numbers of {other}"),
    };
    numbers.iter().flat_map(bytes).collect()
}

impl Model {
    pub(super) fn open(folder: TempDir, path: impl Fn(&Path) -> std::path::PathBuf) -> Model {
        let checkpoint = Checkpoint::open(&path(folder.path())).unwrap();
        Model { checkpoint, _folder: folder }
    }

    /// A graph over this model; tensors that it does not use are ignored.
    pub(super) fn graph(&self, build: impl FnOnce(&mut GraphBuilder) -> Result<Value, BuildError>) -> Graph {
        let facts = |info: &host_weights::TensorInfo| {
            let is_dense = matches!(info.encoding, Encoding::Dense(_));
            (info.name.clone(), TensorFacts { shape: info.shape.clone(), is_dense })
        };
        let catalogue: Catalogue = self.checkpoint.catalogue().iter().map(facts).collect();
        let names: Vec<String> = catalogue.keys().cloned().collect();
        let mut builder = GraphBuilder::new(catalogue, Limits::default());
        names.iter().for_each(|name| builder.ignore(name));
        let output = build(&mut builder).unwrap();
        builder.finish(output).unwrap()
    }
}

/// Any value with one item a token as logits `[B,T,V]` of at least 8 columns, so that 8 tokens may be used.
pub(super) fn as_logits(b: &mut GraphBuilder, x: Value) -> Result<Value, BuildError> {
    let x = b.add(Op::Cast { to: ValueType::Float }, &[x])?;
    let n = b.shape(x)?.item_len();
    let flat = b.add(Op::Reshape { shape: Shape::per_token(&[n]) }, &[x])?;
    if n >= 8 {
        return Ok(flat);
    }
    b.add(Op::Concat { axis: 2 }, &vec![flat; 8_usize.div_ceil(n)])
}

/// Room for four short sequences, everything in float32.
pub(super) fn options() -> CompileOptions {
    CompileOptions {
        numeric: Numeric::Exact,
        kv: KvStorage::PlainF32,
        n_threads: 1,
        context_tokens: 72,
        max_sequences: 4,
        max_step_tokens: 96,
        memory_bytes: None,
        kernels: Vec::new(),
    }
}

/// One step of some runs; the logits of all tokens, run by run.
pub(super) fn step(executable: &mut dyn Executable, runs: &[(SequenceId, &[u32])]) -> Vec<Vec<Vec<f32>>> {
    let token_runs: Vec<_> = runs
        .iter()
        .map(|(sequence, tokens)| TokenRun { sequence: *sequence, tokens, logits: LogitsFor::All })
        .collect();
    let logits = executable.step(&token_runs).unwrap();
    let mut row = 0;
    runs.iter()
        .map(|(_, tokens)| {
            let rows = tokens.iter().enumerate().map(|(i, _)| {
                let mut out = Vec::new();
                logits.read(row + i, &mut out);
                out
            });
            let rows = rows.collect();
            row += tokens.len();
            rows
        })
        .collect()
}

/// The logits of one new sequence, given `chunk` tokens at a time.
pub(super) fn run(executable: &mut dyn Executable, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
    let sequence = executable.new_sequence().unwrap();
    let rows =
        tokens.chunks(chunk).flat_map(|part| step(executable, &[(sequence, part)]).remove(0)).collect();
    executable.release(sequence);
    rows
}

/// The logits of a sequence that shares its steps with two others.
pub(super) fn run_in_batch(executable: &mut dyn Executable, tokens: &[u32]) -> Vec<Vec<f32>> {
    let others = [7_u32, 2, 5, 0, 1, 6, 3, 3, 4, 2, 1].repeat(3);
    let [a, b, c] = [(); 3].map(|()| executable.new_sequence().unwrap());
    let mut rows = Vec::new();
    let (mut at, mut at_b) = (0, 0);
    for (n, n_b) in [(1, 9), (5, 1), (1, 1), (3, 2), (40, 6)] {
        let end = (at + n).min(tokens.len());
        let mut runs = vec![(b, &others[at_b..at_b + n_b])];
        if at < end {
            runs.push((a, &tokens[at..end]));
        }
        if n == 3 {
            runs.insert(0, (c, &others[4..8]));
        }
        let index = runs.iter().position(|(sequence, _)| *sequence == a);
        let mut results = step(executable, &runs);
        if let Some(index) = index {
            rows.append(&mut results[index]);
        }
        (at, at_b) = (end, at_b + n_b);
    }
    [a, b, c].into_iter().for_each(|sequence| executable.release(sequence));
    rows
}

/// Twenty tokens below 8.
pub(super) const TOKENS: [u32; 20] = [3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 7, 0, 7, 2, 3, 6, 4, 6, 2, 6];

pub(super) fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

pub(super) fn compare(name: &str, found: &[Vec<f32>], expected: &[Vec<f64>], bound: f64) {
    assert_eq!(found.len(), expected.len(), "{name}: rows");
    for (token, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{name}: columns");
        let unit = expected.iter().fold(1.0_f64, |top, x| top.max(x.abs()));
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let difference = (f64::from(*found) - expected).abs();
            assert!(
                difference <= bound * unit,
                "{name}: token {token}, element {i}: {found}, expected {expected}, off by {difference:e}"
            );
        }
    }
}
