//! Caches: windows that turn round, forks and trims, and steps begun before they were asked for.

use host_core::DType;
use host_device::{
    CompileOptions, Device, DeviceError, Executable, KvStorage, Logits, LogitsFor, SequenceId, TokenRun,
};
use host_graph::{Graph, Mask, Op, RopeSpec, Section, Shape, SlotKind};

use super::support::{Folder, Model, TOKENS, as_logits, check, compile, options, run};
use crate::state::Columns;
use crate::{MlxDevice, ops};

fn model() -> Model {
    Folder::new(41)
        .dense("e", DType::F32, &[8, 16])
        .dense("q", DType::F32, &[16, 16])
        .dense("k", DType::F32, &[8, 16])
        .dense("v", DType::F32, &[8, 16])
        .dense("o", DType::F32, &[16, 16])
        .open()
}

/// Two layers of rotated attention, the second over whole sequences.
fn graph(model: &Model, mask: Mask, window: Option<usize>) -> Graph {
    model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let mut x = b.add(Op::Embedding { weight: "e".into() }, &[ids])?;
        for (layer, (mask, window)) in [(mask, window), (Mask::Causal, None)].into_iter().enumerate() {
            b.section(Section::Layer(layer as u32));
            let mut parts = Vec::new();
            for (weight, heads) in [("q", 2), ("k", 1), ("v", 1)] {
                let y = b.add(Op::Linear { weight: weight.into(), bias: None }, &[x])?;
                parts.push(b.add(Op::Reshape { shape: Shape::per_token(&[heads, 8]) }, &[y])?);
            }
            let rope = Op::Rope(RopeSpec::new(8, 100.0));
            let (q, k) = (b.add(rope.clone(), &[parts[0]])?, b.add(rope, &[parts[1]])?);
            let slot = b.slot(layer as u32, SlotKind::Kv { heads: 1, dim_k: 8, dim_v: 8, window })?;
            let op = Op::Attention { slot, scale: 0.7, mask, softcap: None, sinks: None };
            let y = b.add(op, &[q, k, parts[2]])?;
            let y = b.add(Op::Reshape { shape: Shape::per_token(&[16]) }, &[y])?;
            let y = b.add(Op::Linear { weight: "o".into(), bias: None }, &[y])?;
            x = b.add(Op::Binary(host_graph::BinaryOp::Add), &[x, y])?;
        }
        b.section(Section::Head);
        as_logits(b, x)
    })
}

/// Two layers of the sums that attention's own test counts.
const BOUND: f64 = 3.2e-5;

#[test]
fn windows_turn_round_as_if_they_were_whole() {
    let model = model();
    for window in [1, 2, 5, 8, 13, 40] {
        let graph = graph(&model, Mask::Window(window), Some(window));
        check(&format!("a window of {window}"), &model, &graph, &options(), BOUND);
    }
    for (mask, window) in [(Mask::Window(3), 8), (Mask::Chunked(4), 8), (Mask::Chunked(8), 8)] {
        let graph = graph(&model, mask, Some(window));
        check(&format!("{mask:?} in {window} columns"), &model, &graph, &options(), BOUND);
    }
}

/// The spec's own example: the newest columns are kept, not the first.
#[test]
fn a_window_keeps_the_newest_after_several_at_once() {
    let mut columns = Columns::new(Some(8));
    let mut offset = 0;
    for n in [5, 5, 3] {
        let values: Vec<f32> = (offset..offset + n).map(|i| i as f32).collect();
        let new = ops::from_floats(&values, &[1, 1, n as i32, 1], mlx_rs::Dtype::Float32).unwrap();
        columns.append(offset, &[new]).unwrap();
        offset += n;
    }
    let row = columns.row(0, 0, offset).unwrap();
    let kept = ops::read_floats(&row.arrays()[0]).unwrap();
    assert_eq!(kept, [5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]);
}

#[test]
fn forks_and_trims_leave_what_was_computed() {
    let model = model();
    for (mask, window) in [(Mask::Causal, None), (Mask::Window(30), Some(30))] {
        let graph = graph(&model, mask, window);
        let mut executable = compile(&model, &graph, &options());
        let executable = &mut *executable;
        let whole = run(executable, &TOKENS, TOKENS.len());
        let first = executable.new_sequence().unwrap();
        feed(executable, first, &TOKENS[..14]);
        let second = executable.fork(first).unwrap();
        executable.release(first);
        executable.trim(second, 4).unwrap();
        assert_eq!(executable.len(second).unwrap(), 10);
        near(&feed(executable, second, &TOKENS[10..]), &whole[10..]);
        executable.trim(second, 20).unwrap();
        near(&feed(executable, second, &TOKENS), &whole);
    }
}

#[test]
fn a_window_that_has_turned_cannot_go_back() {
    let model = model();
    let mut executable = compile(&model, &graph(&model, Mask::Window(5), Some(5)), &options());
    let sequence = executable.new_sequence().unwrap();
    feed(&mut *executable, sequence, &TOKENS);
    let refused = executable.trim(sequence, 3).unwrap_err();
    assert!(matches!(refused, DeviceError::Trim { len: 20, n_tokens: 3, .. }), "{refused}");
    executable.trim(sequence, 20).unwrap();
    assert_eq!(executable.len(sequence).unwrap(), 0);
}

/// Greedy steps are foreseen after the first; others are not, and take back what ran ahead.
#[test]
fn what_ran_ahead_changes_nothing() {
    let model = model();
    for (mask, window) in [(Mask::Causal, None), (Mask::Window(4), Some(4))] {
        let graph = graph(&model, mask, window);
        let mut executable = compile(&model, &graph, &options());
        let executable = &mut *executable;
        let pair = [(); 2].map(|()| executable.new_sequence().unwrap());
        feed(executable, pair[0], &TOKENS[..3]);
        let mut told = [TOKENS[..3].to_vec(), Vec::new()];
        let mut next = [2, 5];
        let mut found: [Vec<Vec<f32>>; 2] = Default::default();
        for t in 0..24 {
            let runs: Vec<TokenRun<'_>> = pair
                .iter()
                .zip(&next)
                .map(|(id, token)| TokenRun {
                    sequence: *id,
                    tokens: std::slice::from_ref(token),
                    logits: LogitsFor::Last,
                })
                .collect();
            let logits = executable.step(&runs).unwrap();
            let mut new = [0; 2];
            for row in 0..2 {
                told[row].push(next[row]);
                let mut out = Vec::new();
                logits.read(row, &mut out);
                let largest = logits.argmax(row).unwrap();
                assert_eq!(Some(largest), host_device::argmax(&out));
                found[row].push(out);
                // Now and then another token than the most likely.
                new[row] = if t % 7 == 6 { (largest + 1) % 8 } else { largest % 8 };
            }
            next = new;
            if t == 15 {
                // A fork in between must not see what ran ahead.
                let copy = executable.fork(pair[0]).unwrap();
                assert_eq!(executable.len(copy).unwrap(), told[0].len());
                executable.release(copy);
            }
        }
        for (row, told) in told.iter().enumerate() {
            let whole = run(executable, told, told.len());
            near(&found[row], &whole[told.len() - found[row].len()..]);
        }
    }
}

/// A prompt whose first part asks for no logits, as the engine feeds long ones, gives the same as one that asks for all.
#[test]
fn a_part_of_a_prompt_may_want_no_logits() {
    let model = model();
    let mut executable = compile(&model, &graph(&model, Mask::Causal, None), &options());
    let whole = run(&mut *executable, &TOKENS, TOKENS.len());
    let sequence = executable.new_sequence().unwrap();
    let (before, last) = TOKENS.split_at(TOKENS.len() - 3);
    let runs = [TokenRun { sequence, tokens: before, logits: LogitsFor::None }];
    assert_eq!(executable.step(&runs).unwrap().n_rows(), 0);
    near(&feed(&mut *executable, sequence, last), &whole[before.len()..]);
}

/// All logits of a run.
fn feed(executable: &mut dyn Executable, sequence: SequenceId, tokens: &[u32]) -> Vec<Vec<f32>> {
    let logits = executable.step(&[TokenRun { sequence, tokens, logits: LogitsFor::All }]).unwrap();
    rows(logits, tokens.len())
}

fn rows(logits: &dyn Logits, n: usize) -> Vec<Vec<f32>> {
    let row = |row| {
        let mut out = Vec::new();
        logits.read(row, &mut out);
        out
    };
    (0..n).map(row).collect()
}

/// Equal but for the order of sums.
fn near(found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found - expected).abs() <= 2e-5, "{found}, expected {expected}");
    }
}

/// Heads 32 wide, so that groups of 32 codes fit.
fn wide_model() -> Model {
    Folder::new(42)
        .dense("e", DType::F32, &[8, 64])
        .dense("q", DType::F32, &[64, 64])
        .dense("k", DType::F32, &[32, 64])
        .dense("v", DType::F32, &[32, 64])
        .open()
}

fn wide_graph(model: &Model, mask: Mask, window: Option<usize>, softcap: Option<f32>) -> Graph {
    model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "e".into() }, &[ids])?;
        b.section(Section::Layer(0));
        let mut parts = Vec::new();
        for (weight, heads) in [("q", 2), ("k", 1), ("v", 1)] {
            let y = b.add(Op::Linear { weight: weight.into(), bias: None }, &[x])?;
            parts.push(b.add(Op::Reshape { shape: Shape::per_token(&[heads, 32]) }, &[y])?);
        }
        let rope = Op::Rope(RopeSpec::new(32, 100.0));
        let (q, k) = (b.add(rope.clone(), &[parts[0]])?, b.add(rope, &[parts[1]])?);
        let slot = b.slot(0, SlotKind::Kv { heads: 1, dim_k: 32, dim_v: 32, window })?;
        let op = Op::Attention { slot, scale: 0.3, mask, softcap, sinks: None };
        let y = b.add(op, &[q, k, parts[2]])?;
        b.section(Section::Head);
        as_logits(b, y)
    })
}

/// The judge keeps each group of a head by the written rule, in double precision. An element would fall to another
/// code there only if it lay within rounding of the middle between two; none of these does, so that the bound is that
/// of the sums alone.
#[test]
fn keys_and_values_are_kept_as_codes() {
    let model = wide_model();
    for bits in [4, 8] {
        let kv = KvStorage::all().find(|kv| kv.signature() == format!("kv:quant:{bits}:32")).unwrap();
        let options = CompileOptions { kv, ..options() };
        for (mask, window, softcap) in [
            (Mask::Causal, None, None),
            (Mask::Window(5), Some(5), None),
            (Mask::Window(3), Some(8), None),
            (Mask::Causal, None, Some(2.0)),
        ] {
            let graph = wide_graph(&model, mask, window, softcap);
            check(&format!("{bits} bits, {mask:?}, {softcap:?}"), &model, &graph, &options, BOUND);
        }
    }
}

#[test]
fn codes_say_what_they_are_and_take_their_room() {
    let model = wide_model();
    let graph = wide_graph(&model, Mask::Causal, None, None);
    let plan = |kv| {
        let options = CompileOptions { kv, ..options() };
        let executable = compile(&model, &graph, &options);
        (executable.signatures(), executable.memory().state_bytes)
    };
    let quantised = |signature: &str| KvStorage::all().find(|kv| kv.signature() == signature).unwrap();
    // 256 columns of one head, keys and values, four sequences; scales and biases in float32.
    let columns = 256 * 2 * 4;
    assert_eq!(plan(KvStorage::PlainF32), (vec!["kv:plain:f32".to_owned()], columns * 32 * 4));
    assert_eq!(plan(quantised("kv:quant:8:32")), (vec!["kv:quant:8:32".to_owned()], columns * (32 + 8)));
    assert_eq!(plan(quantised("kv:quant:4:32")).1, columns * (16 + 8));
    let graph = wide_graph(&model, Mask::Window(5), Some(5), None);
    let options = CompileOptions { kv: quantised("kv:quant:8:32"), ..options() };
    assert_eq!(compile(&model, &graph, &options).signatures(), ["kv:rotating-quant:8:32:5"]);
}

#[test]
fn groups_that_do_not_divide_a_head_are_refused() {
    let model = wide_model();
    let graph = wide_graph(&model, Mask::Causal, None, None);
    let kv = KvStorage::all().find(|kv| kv.signature() == "kv:quant:8:64").unwrap();
    let options = CompileOptions { kv, ..options() };
    let refused = MlxDevice::new().check(&graph, model.checkpoint.catalogue(), &options).unwrap_err();
    assert_eq!(refused.to_string(), "device `mlx` does not have heads 32 wide in groups of 64");
}

/// Codes stay codes when a sequence is copied and cut.
#[test]
fn codes_are_forked_and_trimmed() {
    let model = wide_model();
    let graph = wide_graph(&model, Mask::Causal, None, None);
    let kv = KvStorage::all().find(|kv| kv.signature() == "kv:quant:8:32").unwrap();
    let mut executable = compile(&model, &graph, &CompileOptions { kv, ..options() });
    let executable = &mut *executable;
    let whole = run(executable, &TOKENS, TOKENS.len());
    let first = executable.new_sequence().unwrap();
    feed(executable, first, &TOKENS[..14]);
    let second = executable.fork(first).unwrap();
    executable.trim(second, 4).unwrap();
    near(&feed(executable, second, &TOKENS[10..]), &whole[10..]);
    near(&feed(executable, first, &TOKENS[14..]), &whole[14..]);
}
