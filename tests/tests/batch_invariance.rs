//! A sequence gets the same logits, bit for bit, alone or in a batch, whole or in chunks, on one thread or two, with
//! its beginning computed or shared with another sequence.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};

use host_core::Numeric;
use host_device::Executable;
use host_registry::{Overrides, Threads};
use tests::golden::Generation;
use tests::model::{overrides, told};
use tests::places::fixtures;
use tests::rows::{Rows, alone, first_difference, mixed_ids, step};
use tests::{Host, Model, skip};

const CHUNK: usize = 7;

#[test]
fn tiny_models_are_batch_invariant() {
    // Longer than the windows of 8 that some have, across the 16 lanes of a kernel, and up to a context of 128.
    let lengths = [1, 2, 7, 8, 16, 33, 64, 100];
    let folders =
        ["tiny-llama", "tiny-gemma3", "tiny-mlx", "tiny-qwen3"].iter().flat_map(|prefix| fixtures(prefix));
    for folder in folders {
        check(&folder, lengths);
    }
}

#[test]
fn smollm2_is_batch_invariant() {
    let golden = Generation::read("smollm2-135m");
    let Some(path) = skip::model_file(&golden.model_file, &golden.model_sha256) else { return };
    check(&path, [1, 3, 7, 9, 16, 21, 34, 50]);
}

fn check(path: &Path, lengths: [usize; 8]) {
    let host = Host::lua();
    for numeric in [Numeric::Exact, Numeric::Fast] {
        let overrides = overrides(numeric, 128, 9, 256);
        let check = Check { name: format!("{} {numeric}", path.display()), overrides, path: path.to_owned() };
        check.run(&host, lengths);
    }
}

struct Check {
    name: String,
    path: PathBuf,
    overrides: Overrides,
}

impl Check {
    fn run(&self, host: &Host, lengths: [usize; 8]) {
        let model = self.open(host, 1);
        let mut executable = model.compile();
        let executable = &mut *executable;
        let ids = |(i, length): (usize, usize)| mixed_ids(length, model.graph.n_vocab(), i as u32);
        let sequences: Vec<Vec<u32>> = lengths.into_iter().enumerate().map(ids).collect();
        let expected: Vec<Rows> = sequences.iter().map(|tokens| alone(executable, tokens)).collect();
        assert!(expected.iter().flatten().flatten().all(|logit| logit.is_finite()), "{}", self.name);

        self.same("one batch", batched(executable, &sequences), &expected);
        let chunked =
            sequences.iter().map(|tokens| staggered(executable, std::slice::from_ref(tokens), CHUNK));
        self.same("chunks, alone", chunked.flatten().collect(), &expected);
        self.same("chunks, joining one a step", staggered(executable, &sequences, CHUNK), &expected);
        self.same("decoding, joining one a step", staggered(executable, &sequences, 1), &expected);
        let forked = sequences.iter().map(|tokens| forked(executable, tokens));
        self.same("forked half way", forked.collect(), &expected);
        self.same("two threads", batched(&mut *self.open(host, 2).compile(), &sequences), &expected);
    }

    fn open(&self, host: &Host, n_threads: usize) -> Model {
        let n_threads = Some(Threads::Count(n_threads));
        host.open(&self.path, &Overrides { n_threads, ..self.overrides.clone() }).unwrap()
    }

    fn same(&self, how: &str, found: Vec<Rows>, expected: &[Rows]) {
        assert_eq!(found.len(), expected.len());
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            if let Some((position, token)) = first_difference(found, expected) {
                let (found, expected) = (found[position][token], expected[position][token]);
                let where_ = format!("sequence {i}, position {position}, token {token}");
                panic!("{}, {how}: {where_}: {found:e}, alone and whole {expected:e}", self.name);
            }
        }
    }
}

/// All sequences in one step.
fn batched(executable: &mut dyn Executable, sequences: &[Vec<u32>]) -> Vec<Rows> {
    let ids: Vec<_> = sequences.iter().map(|_| told(executable.new_sequence())).collect();
    let runs: Vec<_> = ids.iter().zip(sequences).map(|(id, tokens)| (*id, tokens.as_slice())).collect();
    let rows = step(executable, &runs);
    ids.iter().for_each(|id| executable.release(*id));
    rows
}

/// Each step takes one more sequence in, and a chunk of each that is in. A sequence leaves at its end.
fn staggered(executable: &mut dyn Executable, sequences: &[Vec<u32>], chunk: usize) -> Vec<Rows> {
    let mut rows: Vec<Rows> = sequences.iter().map(|_| Vec::new()).collect();
    let mut ids: Vec<_> = sequences.iter().map(|_| None).collect();
    for t in 0.. {
        let is_in = |i: &usize| *i <= t && rows[*i].len() < sequences[*i].len();
        let present: Vec<usize> = (0..sequences.len()).filter(is_in).collect();
        if present.is_empty() {
            return rows;
        }
        let runs: Vec<_> = present
            .iter()
            .map(|i| {
                let id = *ids[*i].get_or_insert_with(|| told(executable.new_sequence()));
                let left = &sequences[*i][rows[*i].len()..];
                (id, &left[..left.len().min(chunk)])
            })
            .collect();
        for (i, of_run) in present.iter().zip(step(executable, &runs)) {
            rows[*i].extend(of_run);
            if rows[*i].len() == sequences[*i].len() {
                executable.release(ids[*i].expect("it was in"));
            }
        }
    }
    unreachable!("a sequence ends")
}

/// Two thirds are computed in one sequence; another takes them over at the half, after the rest was trimmed.
fn forked(executable: &mut dyn Executable, tokens: &[u32]) -> Rows {
    let (half, most) = (tokens.len() / 2, tokens.len() - tokens.len() / 3);
    let first = told(executable.new_sequence());
    let mut rows = step(executable, &[(first, &tokens[..most])]).remove(0);
    let second = told(executable.fork(first));
    executable.release(first);
    told(executable.trim(second, most - half));
    rows.truncate(half);
    rows.extend(step(executable, &[(second, &tokens[half..])]).remove(0));
    executable.release(second);
    rows
}
