//! Whole models on the MLX device, against the same goldens as the native one.
//!
//! Only `cargo xtask mlx --test` builds this: it needs MLX's library.
#![cfg(feature = "mlx")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use host_core::Numeric;
use host_device::Executable;
use host_mlx::MlxDevice;
use tests::golden::{Generation, Prompt, Tiny};
use tests::judge::generate;
use tests::model::{overrides, told};
use tests::places::{fixtures, name};
use tests::rows::{Rows, alone, largest_difference, mixed_ids, step};
use tests::{Host, skip};

/// The oracle computes in float32 as well; both sums of 30 layers err, in different orders.
const TOLERANCE: f32 = 2e-3;
/// Float32 logits of tiny models, none larger than about 10, summed in different orders.
const TINY_TOLERANCE: f32 = 1e-4;

#[test]
fn tiny_models_give_the_oracles_logits() {
    let host = Host::lua();
    let mut faults = Vec::new();
    let folders =
        ["tiny-llama", "tiny-gemma3", "tiny-mlx", "tiny-qwen3"].iter().flat_map(|prefix| fixtures(prefix));
    for folder in folders {
        let golden = Tiny::read(&folder);
        let model = host.open(&folder, &overrides(Numeric::Exact, 128, 9, 256)).unwrap();
        let mut executable = model.compile_on(&MlxDevice::new());
        let found = alone(&mut *executable, &golden.input_ids);
        let difference = difference(&found, &golden.logits);
        println!("{:<32} {difference:.1e}", name(&folder));
        if difference.is_nan() || difference > TINY_TOLERANCE {
            faults.push(format!("{} differs by {difference:e}", name(&folder)));
        }
        let ragged = ragged_difference(&mut *executable, model.graph.n_vocab());
        if ragged.is_nan() || ragged > TINY_TOLERANCE {
            faults.push(format!("{} in a batch differs by {ragged:e}", name(&folder)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn smollm2_generates_what_the_oracle_does() {
    let golden = Generation::read("smollm2-135m");
    let Some(path) = skip::model_file(&golden.model_file, &golden.model_sha256) else { return };
    // MLX's processor kernels are slow: some short prompts of different kinds.
    let wanted = ["capital", "arabic", "shout", "chat_capital"];
    let prompts: Vec<&Prompt> =
        golden.prompts.iter().filter(|prompt| wanted.contains(&prompt.name.as_str())).collect();
    assert_eq!(prompts.len(), wanted.len());
    let overrides = overrides(Numeric::Exact, 128, prompts.len(), 64);
    let model = Host::lua().open(&path, &overrides).unwrap();
    let mut executable = model.compile_on(&MlxDevice::new());
    let judge = generate(&golden, &prompts, "smollm2-135m", &mut *executable, TOLERANCE);
    println!("largest difference of a logit {:.2e}, {} near choices", judge.logits, judge.n_near);
    assert!(judge.faults.is_empty(), "{} faults:\n{}", judge.faults.len(), judge.faults.join("\n"));
    assert_eq!(judge.n_steps, prompts.len() * golden.n_steps);
}

/// Sequences of different lengths decode together; each against itself alone.
fn ragged_difference(executable: &mut dyn Executable, n_vocab: usize) -> f32 {
    let lengths = [3, 17, 9, 30];
    let sequences: Vec<Vec<u32>> =
        lengths.iter().enumerate().map(|(i, n)| mixed_ids(n + 8, n_vocab, i as u32)).collect();
    let expected: Vec<Rows> = sequences.iter().map(|tokens| alone(executable, tokens)).collect();
    let ids: Vec<_> = sequences.iter().map(|_| told(executable.new_sequence())).collect();
    let all = |part: &dyn Fn(usize) -> std::ops::Range<usize>| -> Vec<_> {
        ids.iter().zip(&sequences).enumerate().map(|(i, (id, tokens))| (*id, &tokens[part(i)])).collect()
    };
    let mut found = step(executable, &all(&|i| 0..lengths[i]));
    for t in 0..8 {
        let rows = step(executable, &all(&|i| lengths[i] + t..lengths[i] + t + 1));
        found.iter_mut().zip(rows).for_each(|(found, rows)| found.extend(rows));
    }
    ids.iter().for_each(|id| executable.release(*id));
    found.iter().zip(&expected).map(|(found, expected)| difference(found, expected)).fold(0.0, f32::max)
}

fn difference(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let rows = found.iter().zip(expected).map(|(found, row)| largest_difference(found, row));
    rows.fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a })
}
