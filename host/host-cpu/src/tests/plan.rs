//! The plan: what is fused, where threads meet, and that no buffer is overwritten while somebody still reads it.

use std::collections::HashMap;

use host_core::{DType, Numeric};
use host_device::CompileOptions;
use host_graph::{
    BinaryOp, BuildError, Graph, GraphBuilder, Mask, Op, RopeSpec, Section, Shape, SlotKind, UnaryOp, Value,
};
use proptest::prelude::*;

use super::support::{Folder, Model, as_logits, check, options};
use crate::plan::{Instr, Plan, ProductInput, Rows, compile};

/// A llama of one layer, two query heads on one key head, with tied embeddings or quantised matrices.
pub(super) fn llama_model(is_quantised: bool) -> Model {
    let mut folder = Folder::new(31).dense("embed", DType::F32, &[8, 32]);
    let matrices = [
        ("q", [32, 32]),
        ("k", [16, 32]),
        ("v", [16, 32]),
        ("o", [32, 32]),
        ("gate", [48, 32]),
        ("up", [48, 32]),
        ("down", [32, 64]),
    ];
    for (name, shape) in matrices {
        folder = match is_quantised {
            true => folder.affine(name, &shape, 4, 32, DType::F16),
            false => folder.dense(&format!("{name}.weight"), DType::BF16, &shape),
        };
    }
    folder.dense("norm", DType::F32, &[32]).dense("final", DType::F32, &[32]).open()
}

fn linear(b: &mut GraphBuilder, name: &str, x: Value) -> Result<Value, BuildError> {
    b.add(Op::Linear { weight: format!("{name}.weight"), bias: None }, &[x])
}

/// The graph of [`llama_model`]; the feed-forward width is made 64 by hand, so that a concat stands in the way.
pub(super) fn llama(model: &Model) -> Graph {
    model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "embed".into() }, &[ids])?;
        b.section(Section::Layer(0));
        let norm = |b: &mut GraphBuilder, x, name: &str| {
            b.add(Op::RmsNorm { weight: Some(name.into()), eps: 1e-5, offset: 0.0 }, &[x])
        };
        let h = norm(b, x, "norm")?;
        let mut heads = Vec::new();
        for (name, n) in [("q", 2), ("k", 1), ("v", 1)] {
            let y = linear(b, name, h)?;
            heads.push(b.add(Op::Reshape { shape: Shape::per_token(&[n, 16]) }, &[y])?);
        }
        let q = b.add(Op::Rope(RopeSpec::new(16, 10_000.0)), &[heads[0]])?;
        let k = b.add(Op::Rope(RopeSpec::new(16, 10_000.0)), &[heads[1]])?;
        let slot = b.slot(0, SlotKind::Kv { heads: 1, dim_k: 16, dim_v: 16, window: None })?;
        let op = Op::Attention { slot, scale: 0.25, mask: Mask::Causal, softcap: None, sinks: None };
        let y = b.add(op, &[q, k, heads[2]])?;
        let y = b.add(Op::Reshape { shape: Shape::per_token(&[32]) }, &[y])?;
        let y = linear(b, "o", y)?;
        let x = b.add(Op::Binary(BinaryOp::Add), &[x, y])?;
        let h = norm(b, x, "norm")?;
        let gate = linear(b, "gate", h)?;
        let gate = b.add(Op::Unary(UnaryOp::Silu), &[gate])?;
        let up = linear(b, "up", h)?;
        let inner = b.add(Op::Binary(BinaryOp::Mul), &[gate, up])?;
        let some = b.add(Op::Slice { axis: 2, start: 0, stop: 16 }, &[inner])?;
        let wide = b.add(Op::Concat { axis: 2 }, &[inner, some])?;
        let y = linear(b, "down", wide)?;
        let x = b.add(Op::Binary(BinaryOp::Add), &[x, y])?;
        b.section(Section::Head);
        let x = norm(b, x, "final")?;
        b.add(Op::Linear { weight: "embed".into(), bias: None }, &[x])
    })
}

/// A line an instruction, `|` where threads meet before it.
fn listing(plan: &Plan) -> Vec<String> {
    let line = |step: &crate::plan::Step| {
        let what = match &step.instr {
            Instr::RopeTable { .. } => "rope table".to_owned(),
            Instr::Embed { scale, .. } => format!("embed * {scale}"),
            Instr::Norm { codes, .. } => format!("norm{}", if codes.is_some() { " + codes" } else { "" }),
            Instr::Quantise { .. } => "codes".to_owned(),
            Instr::Product { input, residual, matrix, .. } => format!(
                "product {}x{} of {}{}",
                matrix.n_out,
                matrix.n_in,
                if matches!(input, ProductInput::Codes(_)) { "codes" } else { "floats" },
                if residual.is_some() { " + residual" } else { "" }
            ),
            Instr::Glu { codes, .. } => format!("glu{}", if codes.is_some() { " + codes" } else { "" }),
            Instr::Rope { .. } => "rope".to_owned(),
            Instr::KvWrite { rope, .. } => format!("kv write{}", if rope.is_some() { " + rope" } else { "" }),
            Instr::Attention { .. } => "attention".to_owned(),
            Instr::TakeRows { .. } => "take rows".to_owned(),
            Instr::General { op, .. } => op.name().to_owned(),
            other => format!("{other:?}"),
        };
        format!("{} {what}", if step.barrier_before { '|' } else { ' ' })
    };
    plan.steps.iter().map(line).collect()
}

#[test]
fn a_llama_is_fused_and_its_threads_meet_where_they_must() {
    let model = llama_model(false);
    let (plan, _) = compile(&llama(&model), model.checkpoint.catalogue(), &options()).unwrap();
    let expected = [
        "  rope table",
        "  embed * 1",
        "  norm",
        "| product 32x32 of floats",
        "  product 16x32 of floats",
        "  product 16x32 of floats",
        "| rope",
        "  kv write + rope",
        "| attention",
        "| product 32x32 of floats + residual",
        "| norm",
        "| product 48x32 of floats",
        "  product 48x32 of floats",
        "| glu",
        "| slice",
        "  concat",
        "| product 32x64 of floats + residual",
        "| take rows",
        "| norm",
        "| product 8x32 of floats",
    ];
    assert_eq!(listing(&plan), expected);
}

#[test]
fn in_the_fast_profile_the_writer_of_a_value_makes_its_codes() {
    let model = llama_model(true);
    let fast = CompileOptions { numeric: Numeric::Fast, ..options() };
    let (plan, _) = compile(&llama(&model), model.checkpoint.catalogue(), &fast).unwrap();
    let found = listing(&plan);
    let count = |what: &str| found.iter().filter(|line| line[2..] == *what).count();
    assert_eq!(count("norm + codes"), 2, "{found:#?}");
    // The attention's and the concat's results have codes of their own; the head's table is dense.
    assert_eq!(count("codes"), 2, "{found:#?}");
    assert_eq!(count("norm"), 1, "{found:#?}");
    assert_eq!(count("product 8x32 of floats"), 1, "{found:#?}");
    assert_eq!(found.iter().filter(|line| line.contains("of codes")).count(), 7, "{found:#?}");
}

#[test]
fn a_scaled_embedding_is_one_instruction() {
    let model = llama_model(false);
    let graph = model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "embed".into() }, &[ids])?;
        let x = b.add(Op::Scale { factor: 5.5 }, &[x])?;
        b.section(Section::Head);
        as_logits(b, x)
    });
    let (plan, _) = compile(&graph, model.checkpoint.catalogue(), &options()).unwrap();
    assert_eq!(listing(&plan), ["  embed * 5.5", "| take rows"]);
    check("scaled embedding", &model, &graph, &options(), 6e-8);
}

#[test]
fn what_has_two_users_is_not_fused() {
    let model = llama_model(false);
    let graph = model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "embed".into() }, &[ids])?;
        b.section(Section::Layer(0));
        let y = linear(b, "q", x)?;
        let sum = b.add(Op::Binary(BinaryOp::Add), &[x, y])?;
        let gate = b.add(Op::Unary(UnaryOp::Silu), &[sum])?;
        let product = b.add(Op::Binary(BinaryOp::Mul), &[gate, y])?;
        let both = b.add(Op::Concat { axis: 2 }, &[product, gate, sum])?;
        b.section(Section::Head);
        as_logits(b, both)
    });
    let (plan, _) = compile(&graph, model.checkpoint.catalogue(), &options()).unwrap();
    let names: Vec<String> = listing(&plan).iter().map(|line| line[2..].to_owned()).collect();
    assert_eq!(names, ["embed * 1", "product 32x32 of floats", "add", "silu", "mul", "concat", "take rows"]);
    check("two users", &model, &graph, &options(), 4e-6);
}

#[test]
fn the_small_llama_follows_the_oracle() {
    for is_quantised in [false, true] {
        let model = llama_model(is_quantised);
        // About ten sums of up to 64 terms, one after the other: 640 * 2^-24.
        check("llama", &model, &llama(&model), &options(), 4e-5);
    }
}

/// One random operation: which, and on which of the values so far.
type Choice = (u8, u16, u16);

fn random_model() -> Model {
    Folder::new(41)
        .dense("e", DType::F32, &[8, 12])
        .dense("w", DType::F32, &[12, 12])
        .dense("u", DType::BF16, &[12, 12])
        .dense("wide", DType::F32, &[40, 12])
        .dense("narrow", DType::F32, &[12, 40])
        .dense("bias", DType::F32, &[12])
        .dense("conv", DType::F32, &[12, 3])
        .open()
}

/// A graph of the chosen operations over values `[B,T,12]` of moderate size, all of which reach the logits.
fn random_graph(model: &Model, choices: &[Choice]) -> Graph {
    model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let mut values = vec![b.add(Op::Embedding { weight: "e".into() }, &[ids])?];
        for (layer, (op, i, j)) in choices.iter().enumerate() {
            b.section(Section::Layer(layer as u32));
            // Recent values are chosen more often than old ones.
            let pick = |i: u16| values[values.len() - 1 - usize::from(i) % values.len().min(4)];
            let (x, y) = (pick(*i), pick(*j));
            values.push(random_op(b, *op, layer as u32, x, y)?);
        }
        let all = b.add(Op::Concat { axis: 2 }, &values)?;
        let all = b.add(Op::RmsNorm { weight: None, eps: 1e-5, offset: 0.0 }, &[all])?;
        b.section(Section::Head);
        as_logits(b, all)
    })
}

fn random_op(b: &mut GraphBuilder, op: u8, layer: u32, x: Value, y: Value) -> Result<Value, BuildError> {
    let linear =
        |b: &mut GraphBuilder, weight: &str, x| b.add(Op::Linear { weight: weight.into(), bias: None }, &[x]);
    let norm = |b: &mut GraphBuilder, x| b.add(Op::RmsNorm { weight: None, eps: 1e-5, offset: 0.0 }, &[x]);
    match op % 13 {
        0 => linear(b, "w", x),
        1 => norm(b, x),
        2 => {
            let sum = linear(b, "u", x)?;
            let sum = b.add(Op::Binary(BinaryOp::Add), &[y, sum])?;
            norm(b, sum)
        }
        3 => {
            let (gate, up) = (linear(b, "wide", x)?, linear(b, "wide", y)?);
            let gate = b.add(Op::Unary(UnaryOp::Silu), &[gate])?;
            let inner = b.add(Op::Binary(BinaryOp::Mul), &[gate, up])?;
            let y = linear(b, "narrow", inner)?;
            norm(b, y)
        }
        4 => b.add(Op::Unary(UnaryOp::Tanh), &[x]),
        5 => {
            let product = b.add(Op::Binary(BinaryOp::Mul), &[x, y])?;
            b.add(Op::Softcap { cap: 2.0 }, &[product])
        }
        6 => {
            let parts = b.split(x, &[5, 7], 2)?;
            b.add(Op::Concat { axis: 2 }, &[parts[1], parts[0]])
        }
        7 => b.add(Op::Softmax, &[x]),
        8 => {
            let slot = b.slot(layer, SlotKind::Conv { channels: 12, kernel: 3 })?;
            let y =
                b.add(Op::Conv1dCausal { slot, weight: "conv".into(), bias: Some("bias".into()) }, &[x])?;
            norm(b, y)
        }
        9 | 10 => {
            let mask = if op % 13 == 9 { Mask::Causal } else { Mask::Window(4) };
            let slot = b.slot(layer, SlotKind::Kv { heads: 1, dim_k: 6, dim_v: 6, window: None })?;
            let heads =
                |b: &mut GraphBuilder, x| b.add(Op::Reshape { shape: Shape::per_token(&[2, 6]) }, &[x]);
            let (q, k) = (heads(b, x)?, heads(b, y)?);
            let q = b.add(Op::Rope(RopeSpec::new(6, 100.0)), &[q])?;
            let k = b.add(Op::Slice { axis: 2, start: 1, stop: 2 }, &[k])?;
            let v = k;
            let k = b.add(Op::Rope(RopeSpec::new(4, 100.0)), &[k])?;
            let y =
                b.add(Op::Attention { slot, scale: 0.4, mask, softcap: None, sinks: None }, &[q, k, v])?;
            b.add(Op::Reshape { shape: Shape::per_token(&[12]) }, &[y])
        }
        11 => {
            let heads = b.add(Op::Reshape { shape: Shape::per_token(&[3, 4]) }, &[x])?;
            let turned = b.add(Op::Transpose { axes: vec![0, 1, 3, 2] }, &[heads])?;
            b.add(Op::Reshape { shape: Shape::per_token(&[12]) }, &[turned])
        }
        _ => {
            let slot = b.slot(layer, SlotKind::Recurrent { shape: vec![12] })?;
            let inner = b.begin_scan(slot, &[x, y])?;
            let mixed = linear(b, "w", inner[0])?;
            let sum = b.add(Op::Binary(BinaryOp::Add), &[mixed, inner[1]])?;
            let state = b.add(Op::Unary(UnaryOp::Tanh), &[sum])?;
            let output = b.add(Op::Binary(BinaryOp::Add), &[state, inner[2]])?;
            let output = norm(b, output)?;
            b.end_scan(state, output)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_follow_the_oracle(choices in proptest::collection::vec(any::<Choice>(), 1..14)) {
        let model = random_model();
        let graph = random_graph(&model, &choices);
        // Up to fourteen operations that each multiply an error by a few, from sums of 40 terms.
        check("random", &model, &graph, &options(), 2e-3);
    }

    #[test]
    fn no_buffer_is_given_away_while_it_is_read(choices in proptest::collection::vec(any::<Choice>(), 1..40)) {
        let model = random_model();
        let graph = random_graph(&model, &choices);
        let (plan, _) = compile(&graph, model.checkpoint.catalogue(), &options()).unwrap();
        check_layout(&plan, options().max_step_tokens);
    }
}

/// Every two buffers that share a byte live at different times: one is read for the last time before the other
/// is first written, and an instruction's results share nothing with what it reads.
fn check_layout(plan: &Plan, max_rows: usize) {
    let mut lives: HashMap<usize, (usize, usize)> = HashMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        let (reads, writes) = step.instr.touches(plan);
        for id in reads.into_iter().chain(writes) {
            let life = lives.entry(id.0).or_insert((at, at));
            life.1 = at;
        }
    }
    for id in [plan.tokens, plan.positions] {
        lives.insert(id.0, (0, plan.steps.len()));
    }
    let room = |id: usize| {
        let buffer = plan.buffers[id];
        (buffer.offset, buffer.offset + buffer.item * max_rows * 4)
    };
    let in_arena = |id: usize| plan.buffers[id].rows != Rows::Once && id != plan.logits.0;
    let ids: Vec<usize> = lives.keys().copied().filter(|id| in_arena(*id)).collect();
    for a in &ids {
        assert!(room(*a).1 <= plan.arena_bytes, "buffer {a} lies in the arena");
        for b in ids.iter().filter(|b| a < *b) {
            let ((from, to), (start, end)) = (room(*a), room(*b));
            let ((born, dead), (first, last)) = (lives[a], lives[b]);
            let share = from < end && start < to;
            assert!(!share || dead < first || last < born, "buffers {a} and {b} share room and time");
        }
    }
}
