//! Operations that keep a state, and experts, against plain recurrences.

use host_core::{DType, Numeric};
use host_device::CompileOptions;
use host_graph::{
    Activation, BinaryOp, BuildError, GraphBuilder, Mask, Op, ReduceOp, Section, Shape, SlotKind, UnaryOp,
    Value,
};
use host_weights::FloatMode;

use super::support::{Folder, Model, SMALLEST_GROUP, as_logits, check, options, run_every_way};

/// A value of the given shape and its activation, from a linear of the embedding.
fn part(b: &mut GraphBuilder, x: Value, name: &str, shape: &[usize]) -> Result<Value, BuildError> {
    let x = b.add(Op::Linear { weight: name.into(), bias: None }, &[x])?;
    b.add(Op::Reshape { shape: Shape::per_token(shape) }, &[x])
}

fn embedded(b: &mut GraphBuilder) -> Result<Value, BuildError> {
    let ids = b.add(Op::Tokens, &[])?;
    b.add(Op::Embedding { weight: "e".into() }, &[ids])
}

/// Each state row sums at most 20 tokens of terms of about 1, read through a sum of at most 24 terms:
/// (20 + 24) * 2^-24, with room for states of up to 8.
const BOUND: f64 = 2.1e-5;

#[test]
fn a_causal_convolution_follows_its_formula() {
    for (name, channels, kernel, shape) in [
        ("narrow", 5, 4, vec![5, 4]),
        ("wide", 40, 3, vec![40, 1, 3]),
        ("as mlx stores it", 17, 2, vec![17, 2, 1]),
        ("of one tap", 9, 1, vec![9, 1]),
        ("longer than a chunk", 8, 12, vec![8, 12]),
    ] {
        for bias in [None, Some("bias".to_owned())] {
            let model = Folder::new(1)
                .dense("e", DType::F32, &[8, channels])
                .dense("w", DType::BF16, &shape)
                .dense("bias", DType::F32, &[channels])
                .open();
            let graph = model.graph(|b| {
                let x = embedded(b)?;
                let slot = b.slot(0, SlotKind::Conv { channels, kernel })?;
                let y = b.add(Op::Conv1dCausal { slot, weight: "w".into(), bias: bias.clone() }, &[x])?;
                b.section(Section::Head);
                as_logits(b, y)
            });
            check(name, &model, &graph, &options(), BOUND);
        }
    }
}

#[test]
fn the_gated_delta_rule_follows_its_formula() {
    for (name, hv, hk, dv, dk) in [
        ("one head", 1, 1, 4, 4),
        ("a key head for three", 6, 2, 16, 16),
        ("odd widths", 2, 2, 19, 5),
        ("wide keys", 2, 1, 33, 24),
    ] {
        let model = Folder::new(2)
            .dense("e", DType::F32, &[8, 12])
            .dense("q", DType::F32, &[hk * dk, 12])
            .dense("k", DType::F32, &[hk * dk, 12])
            .dense("v", DType::F32, &[hv * dv, 12])
            .dense("g", DType::F32, &[hv, 12])
            .dense("beta", DType::F32, &[hv, 12])
            .open();
        let graph = model.graph(|b| {
            let x = embedded(b)?;
            let norm = |b: &mut GraphBuilder, x| {
                let x = b.add(Op::RmsNorm { weight: None, eps: 1e-6, offset: 0.0 }, &[x])?;
                b.add(Op::Scale { factor: (dk as f32).powf(-0.5) }, &[x])
            };
            let (q, k) = (part(b, x, "q", &[hk, dk])?, part(b, x, "k", &[hk, dk])?);
            let (q, k) = (norm(b, q)?, norm(b, k)?);
            let v = part(b, x, "v", &[hv, dv])?;
            let (g, beta) = (part(b, x, "g", &[hv])?, part(b, x, "beta", &[hv])?);
            let g = b.add(Op::Unary(UnaryOp::Sigmoid), &[g])?;
            let beta = b.add(Op::Unary(UnaryOp::Sigmoid), &[beta])?;
            let slot = b.slot(0, SlotKind::Recurrent { shape: vec![hv, dv, dk] })?;
            let y = b.add(Op::GatedDelta { slot }, &[q, k, v, g, beta])?;
            b.section(Section::Head);
            as_logits(b, y)
        });
        check(name, &model, &graph, &options(), BOUND);
    }
}

#[test]
fn the_selective_state_space_follows_its_formula() {
    for (name, h, g, p, n) in [
        ("one head", 1, 1, 4, 4),
        ("two groups", 6, 2, 8, 16),
        ("odd widths", 3, 3, 21, 5),
        ("wide", 2, 1, 40, 24),
    ] {
        let model = Folder::new(3)
            .dense("e", DType::F32, &[8, 12])
            .dense("x", DType::F32, &[h * p, 12])
            .dense("dt", DType::F32, &[h, 12])
            .dense("b", DType::F32, &[g * n, 12])
            .dense("c", DType::F32, &[g * n, 12])
            .dense("a", DType::F32, &[h])
            .open();
        let graph = model.graph(|b| {
            let x = embedded(b)?;
            let dt = part(b, x, "dt", &[h])?;
            let dt = b.add(Op::Unary(UnaryOp::Softplus), &[dt])?;
            // a is -exp of a weight, as in the published models: a value that no token changes.
            let a = b.add(Op::Weight { name: "a".into() }, &[])?;
            let a = b.add(Op::Unary(UnaryOp::Exp), &[a])?;
            let a = b.add(Op::Unary(UnaryOp::Neg), &[a])?;
            let (bb, c) = (part(b, x, "b", &[g, n])?, part(b, x, "c", &[g, n])?);
            let x = part(b, x, "x", &[h, p])?;
            let slot = b.slot(0, SlotKind::Recurrent { shape: vec![h, p, n] })?;
            let y = b.add(Op::SsmScan { slot }, &[x, dt, a, bb, c])?;
            b.section(Section::Head);
            as_logits(b, y)
        });
        check(name, &model, &graph, &options(), BOUND);
    }
}

#[test]
fn sparse_selection_takes_the_best_positions_and_ties_in_order() {
    for (name, heads, dim, k) in [
        ("fewer than there are", 2, 8, 3),
        ("one", 4, 5, 1),
        // With one narrow head about half of all scores are 0: ties everywhere.
        ("ties", 1, 2, 6),
        ("more than there are", 2, 8, 30),
    ] {
        let model = Folder::new(4)
            .dense("e", DType::F32, &[8, 12])
            .dense("q", DType::F32, &[heads * dim, 12])
            .dense("k", DType::F32, &[dim, 12])
            .dense("w", DType::F32, &[heads, 12])
            .open();
        let graph = model.graph(|b| {
            let x = embedded(b)?;
            let (q, key) = (part(b, x, "q", &[heads, dim])?, part(b, x, "k", &[dim])?);
            let w = part(b, x, "w", &[heads])?;
            let slot = b.slot(0, SlotKind::IndexKeys { dim })?;
            let chosen = b.add(Op::SparseSelect { slot, k }, &[q, key, w])?;
            b.section(Section::Head);
            as_logits(b, chosen)
        });
        // Positions are whole numbers: any difference is a whole one.
        check(name, &model, &graph, &options(), 0.01);
    }
}

#[test]
fn attention_over_selected_positions_sees_those_alone() {
    for (name, mask, k) in
        [("all", Mask::Causal, 30), ("some", Mask::Causal, 4), ("a window", Mask::Window(5), 4)]
    {
        for has_sinks in [false, true] {
            let model = Folder::new(5)
                .dense("e", DType::F32, &[8, 16])
                .dense("q", DType::F32, &[24, 16])
                .dense("k", DType::F32, &[16, 16])
                .dense("v", DType::F32, &[10, 16])
                .dense("w", DType::F32, &[2, 16])
                .dense("sinks", DType::F32, &[3])
                .open();
            let graph = model.graph(|b| {
                let x = embedded(b)?;
                let w = part(b, x, "w", &[2])?;
                let index_q = b.add(Op::Reshape { shape: Shape::per_token(&[2, 8]) }, &[x])?;
                let index_k = b.add(Op::Slice { axis: 2, start: 4, stop: 12 }, &[x])?;
                let index = b.slot(0, SlotKind::IndexKeys { dim: 8 })?;
                let chosen = b.add(Op::SparseSelect { slot: index, k }, &[index_q, index_k, w])?;
                let (q, key) = (part(b, x, "q", &[3, 8])?, part(b, x, "k", &[1, 16])?);
                let key = b.add(Op::Slice { axis: 3, start: 0, stop: 8 }, &[key])?;
                let v = part(b, x, "v", &[1, 10])?;
                let slot = b.slot(0, SlotKind::Kv { heads: 1, dim_k: 8, dim_v: 10, window: None })?;
                let sinks = has_sinks.then(|| "sinks".to_owned());
                let op = Op::Attention { slot, scale: 0.7, mask, softcap: Some(3.0), sinks };
                let y = b.add(op, &[q, key, v, chosen])?;
                b.section(Section::Head);
                as_logits(b, y)
            });
            check(name, &model, &graph, &options(), BOUND);
        }
    }
}

/// A scan over the given inputs: `state = tanh(w state) * decay + mean(x)`, and an output of another width.
fn scan(b: &mut GraphBuilder, x: Value) -> Result<Value, BuildError> {
    let slot = b.slot(0, SlotKind::Recurrent { shape: vec![6] })?;
    let gate = part(b, x, "gate", &[6])?;
    let inner = b.begin_scan(slot, &[x, gate])?;
    let [state, x, gate] = inner[..] else { unreachable!("a state and two inputs") };
    let moved = b.add(Op::Linear { weight: "w".into(), bias: Some("bias".into()) }, &[state])?;
    let moved = b.add(Op::RmsNorm { weight: Some("norm".into()), eps: 1e-5, offset: 1.0 }, &[moved])?;
    let decay = b.add(Op::Constant { value: 0.75 }, &[])?;
    let kept = b.add(Op::Binary(BinaryOp::Mul), &[state, decay])?;
    let mean = b.add(Op::Reduce { op: ReduceOp::Mean, axis: 1 }, &[x])?;
    let gate = b.add(Op::Unary(UnaryOp::Silu), &[gate])?;
    let gated = b.add(Op::Binary(BinaryOp::Mul), &[gate, moved])?;
    let sum = b.add(Op::Binary(BinaryOp::Add), &[kept, gated])?;
    let new_state = b.add(Op::Binary(BinaryOp::Add), &[sum, mean])?;
    // What no token changes is computed in a body too.
    let weight = b.add(Op::Weight { name: "bias".into() }, &[])?;
    let weight = b.add(Op::Scale { factor: 2.0 }, &[weight])?;
    let scaled = b.add(Op::Binary(BinaryOp::Mul), &[new_state, weight])?;
    let output = b.add(Op::Concat { axis: 1 }, &[scaled, state, x])?;
    b.end_scan(new_state, output)
}

fn scan_model() -> Model {
    Folder::new(6)
        .dense("e", DType::F32, &[8, 10])
        .dense("gate", DType::F32, &[6, 10])
        .dense("w", DType::F32, &[6, 6])
        .dense("bias", DType::F32, &[6])
        .dense("norm", DType::F32, &[6])
        .open()
}

#[test]
fn a_scan_runs_its_body_token_by_token() {
    let model = scan_model();
    let graph = model.graph(|b| {
        let x = embedded(b)?;
        let y = scan(b, x)?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    check("scan", &model, &graph, &options(), BOUND);
}

#[test]
fn a_body_may_hand_its_state_and_inputs_through() {
    let model = scan_model();
    let graph = model.graph(|b| {
        let x = embedded(b)?;
        let slot = b.slot(0, SlotKind::Recurrent { shape: vec![10] })?;
        let inner = b.begin_scan(slot, &[x])?;
        // The new state is the input itself, the output the state as it was: a delay of one token.
        let late = b.end_scan(inner[1], inner[0])?;
        b.section(Section::Head);
        as_logits(b, late)
    });
    check("delay", &model, &graph, &options(), 0.0);
}

#[test]
fn a_body_may_give_what_no_token_changes() {
    let model = scan_model();
    let graph = model.graph(|b| {
        let x = embedded(b)?;
        let slot = b.slot(0, SlotKind::Recurrent { shape: vec![10] })?;
        let inner = b.begin_scan(slot, &[x])?;
        let fixed = b.add(Op::Weight { name: "norm".into() }, &[])?;
        let y = b.end_scan(inner[0], fixed)?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    check("fixed output", &model, &graph, &options(), 0.0);
}

/// Experts of every kind: name, and how a stack of that name is made.
fn expert_models() -> Vec<(&'static str, &'static str, Model)> {
    type Add = fn(Folder, &str, &[usize]) -> Folder;
    let kinds: [(&str, &str, Add); 5] = [
        ("float32", "", |folder, name, shape| folder.dense(name, DType::F32, shape)),
        ("bfloat16", "", |folder, name, shape| folder.dense(name, DType::BF16, shape)),
        ("4 bits", ".weight", |folder, name, shape| folder.affine(name, shape, 4, 32, DType::F16)),
        ("6 bits in the smallest groups", ".weight", |folder, name, shape| {
            folder.affine(name, shape, 6, SMALLEST_GROUP, DType::BF16)
        }),
        ("mxfp4", ".weight", |folder, name, shape| folder.float_groups(name, shape, FloatMode::Mxfp4)),
    ];
    let models = kinds.into_iter().map(|(name, suffix, add)| {
        let mut folder =
            Folder::new(7).dense("e", DType::F32, &[8, 32]).dense("router", DType::F32, &[5, 32]);
        // Widths that are no whole panels, so that a panel must not reach into the next expert.
        for (part, shape) in [("gate", [5, 96, 32]), ("up", [5, 96, 32]), ("down", [5, 32, 96])] {
            folder = add(folder, part, &shape);
        }
        (name, suffix, folder.open())
    });
    models.collect()
}

fn experts(model: &Model, suffix: &str, activation: Activation, section: Section) -> host_graph::Graph {
    model.graph(|b| {
        let x = embedded(b)?;
        b.section(section);
        let scores = b.add(Op::Linear { weight: "router".into(), bias: None }, &[x])?;
        let scores = b.add(Op::Softmax, &[scores])?;
        let (weights, indices) = b.topk(scores, 3)?;
        let op = Op::Moe {
            gate: format!("gate{suffix}"),
            up: format!("up{suffix}"),
            down: format!("down{suffix}"),
            activation,
        };
        let y = b.add(op, &[x, indices, weights])?;
        let y = b.add(Op::Binary(BinaryOp::Add), &[x, y])?;
        b.section(Section::Head);
        as_logits(b, y)
    })
}

#[test]
fn experts_follow_their_formula() {
    for (name, suffix, model) in expert_models() {
        for (activation, activation_name) in Activation::ALL {
            let graph = experts(&model, suffix, activation, Section::Layer(0));
            // Sums of 32 and of 96 terms, one after the other: 128 * 2^-24.
            check(&format!("{name}, {activation_name}"), &model, &graph, &options(), 8e-6);
        }
        check(name, &model, &experts(&model, suffix, Activation::Silu, Section::Head), &options(), 8e-6);
    }
}

#[test]
fn experts_in_the_fast_profile_are_near_and_batch_invariant() {
    for (name, suffix, model) in expert_models() {
        let graph = experts(&model, suffix, Activation::Silu, Section::Layer(0));
        let exact = run_every_way(name, &model, &graph, &options());
        let fast =
            run_every_way(name, &model, &graph, &CompileOptions { numeric: Numeric::Fast, ..options() });
        for (exact, fast) in exact.iter().flatten().zip(fast.iter().flatten()) {
            // Activations of about 1 in steps of 1/127 each: errors of half a step, in sums of 32 and 96 terms.
            assert!((exact - fast).abs() <= 0.1, "{name}: {fast}, exactly {exact}");
        }
    }
}

#[test]
fn narrow_experts_do_not_share_panels() {
    let model = Folder::new(8)
        .dense("e", DType::F32, &[8, 6])
        .dense("router", DType::F32, &[3, 6])
        .dense("gate", DType::F32, &[3, 5, 6])
        .dense("up", DType::F32, &[3, 5, 6])
        .dense("down", DType::F32, &[3, 6, 5])
        .open();
    let graph = model.graph(|b| {
        let x = embedded(b)?;
        let scores = b.add(Op::Linear { weight: "router".into(), bias: None }, &[x])?;
        let (weights, indices) = b.topk(scores, 1)?;
        let (gate, up, down) = ("gate".into(), "up".into(), "down".into());
        let y = b.add(Op::Moe { gate, up, down, activation: Activation::Silu }, &[x, indices, weights])?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    check("experts of 5", &model, &graph, &options(), BOUND);
}
