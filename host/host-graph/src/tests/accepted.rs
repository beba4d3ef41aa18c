//! What each operation gives for inputs that fit.

use super::{CONV, DELTA, INDEX, KV, WINDOWED, added, linear, name, unary};
use crate::{Activation, BinaryOp, Dim, Mask, Op, ReduceOp, RopeSpec, Shape, SlotId, UnaryOp, ValueType};

fn check(op: Op, inputs: &[&str], expected: &str) {
    match added(op.clone(), inputs) {
        Ok(found) => assert_eq!(found, expected, "{op:?} {inputs:?}"),
        Err(error) => panic!("{op:?} {inputs:?}: {error}"),
    }
}

fn attention(slot: SlotId, mask: Mask) -> Op {
    Op::Attention { slot, scale: 0.5, mask, softcap: None, sinks: None }
}

#[test]
fn sources() {
    check(Op::Tokens, &[], "int[B,T]");
    check(Op::Positions, &[], "int[B,T]");
    check(Op::Constant { value: -1.5 }, &[], "float[]");
    check(Op::Weight { name: "cube".into() }, &[], "float[2,3,4]");
    check(Op::Embedding { weight: "table".into() }, &["ids"], "float[B,T,8]");
    check(Op::Embedding { weight: "packed".into() }, &["ids"], "float[B,T,8]");
    check(Op::Embedding { weight: "table".into() }, &["indices"], "float[B,T,3,8]");
    check(Op::PerLayerEmbedding { weight: "layers".into(), n_layers: 3 }, &["ids"], "float[B,T,3,4]");
    check(Op::Inject { feature: "image".into() }, &["x"], "float[B,T,8]");
}

#[test]
fn layers() {
    check(linear("matrix"), &["x"], "float[B,T,6]");
    check(linear("packed"), &["x"], "float[B,T,6]");
    check(Op::Linear { weight: "matrix".into(), bias: name("bias6") }, &["x"], "float[B,T,6]");
    check(linear("matrix"), &["table"], "float[10,6]");
    check(Op::RmsNorm { weight: name("norm8"), eps: 1e-6, offset: 1.0 }, &["x"], "float[B,T,8]");
    check(Op::RmsNorm { weight: None, eps: 1e-6, offset: 0.0 }, &["heads"], "float[B,T,4,2]");
    check(Op::LayerNorm { weight: name("norm8"), bias: name("norm8"), eps: 1e-6 }, &["x"], "float[B,T,8]");
    check(Op::LayerNorm { weight: None, bias: None, eps: 1e-6 }, &["x"], "float[B,T,8]");
    check(Op::Rope(RopeSpec::new(2, 1e4)), &["heads"], "float[B,T,4,2]");
    check(Op::Softmax, &["x"], "float[B,T,8]");
    check(Op::Softmax, &["norm8"], "float[8]");
    let experts = Op::Moe {
        gate: "gates".into(),
        up: "ups".into(),
        down: "downs".into(),
        activation: Activation::Silu,
    };
    check(experts, &["x", "indices", "three"], "float[B,T,8]");
}

#[test]
fn attention_over_each_mask_and_slot() {
    let qkv = ["heads", "kv", "kv"];
    for mask in [Mask::Causal, Mask::Window(4), Mask::Chunked(4), Mask::BidirectionalPrefix] {
        check(attention(KV, mask), &qkv, "float[B,T,4,2]");
    }
    for mask in [Mask::Window(16), Mask::Window(3), Mask::Chunked(16)] {
        check(attention(WINDOWED, mask), &qkv, "float[B,T,4,2]");
    }
    check(attention(KV, Mask::Causal), &["heads", "kv", "kv", "indices"], "float[B,T,4,2]");
    let all = Op::Attention {
        slot: KV,
        scale: 1.0,
        mask: Mask::Causal,
        softcap: Some(50.0),
        sinks: name("sinks4"),
    };
    check(all, &qkv, "float[B,T,4,2]");
}

#[test]
fn state() {
    for weight in ["kernel", "kernel_middle", "kernel_last"] {
        let op = Op::Conv1dCausal { slot: CONV, weight: weight.into(), bias: name("norm8") };
        check(op, &["x"], "float[B,T,8]");
    }
    check(Op::GatedDelta { slot: DELTA }, &["kv", "kv", "heads", "four", "four"], "float[B,T,4,2]");
    check(Op::SsmScan { slot: DELTA }, &["heads", "four", "sinks4", "kv", "kv"], "float[B,T,4,2]");
    check(Op::SparseSelect { slot: INDEX, k: 7 }, &["heads", "two", "four"], "int[B,T,7]");
}

#[test]
fn elementwise() {
    for (op, _) in UnaryOp::ALL.into_iter().filter(|(op, _)| *op != UnaryOp::Not) {
        check(unary(op), &["x"], "float[B,T,8]");
    }
    check(unary(UnaryOp::Not), &["truth"], "bool[B,T,8]");
    check(Op::Scale { factor: 0.0 }, &["x"], "float[B,T,8]");
    check(Op::Softcap { cap: 30.0 }, &["x"], "float[B,T,8]");
    for (op, _) in BinaryOp::ALL {
        let is_logical = matches!(op, BinaryOp::And | BinaryOp::Or);
        let (input, result) = match (is_logical, op.is_comparison()) {
            (true, _) => ("truth", "bool[B,T,8]"),
            (false, true) => ("x", "bool[B,T,8]"),
            (false, false) => ("x", "float[B,T,8]"),
        };
        check(Op::Binary(op), &[input, input], result);
    }
    for op in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Min] {
        check(Op::Binary(op), &["ids", "ids"], "int[B,T]");
    }
    check(Op::Binary(BinaryOp::Equal), &["truth", "truth"], "bool[B,T,8]");
}

#[test]
fn shapes_broadcast_from_the_last_dimension() {
    let add = || Op::Binary(BinaryOp::Add);
    check(add(), &["x", "norm8"], "float[B,T,8]");
    check(add(), &["norm8", "x"], "float[B,T,8]");
    check(add(), &["x", "one"], "float[B,T,8]");
    check(add(), &["table", "norm8"], "float[10,8]");
    check(Op::Where, &["truth", "x", "one"], "float[B,T,8]");
    check(Op::Where, &["truth", "one", "one"], "float[B,T,8]");
}

#[test]
fn shaping() {
    let item = |dims: &[usize]| Shape::per_token(dims);
    check(Op::Slice { axis: 2, start: 7, stop: 8 }, &["x"], "float[B,T,1]");
    check(Op::Slice { axis: 0, start: 1, stop: 2 }, &["cube"], "float[1,3,4]");
    check(Op::Concat { axis: 2 }, &["x", "two", "x"], "float[B,T,18]");
    check(Op::Concat { axis: 2 }, &["indices", "indices"], "int[B,T,6]");
    check(Op::Concat { axis: 2 }, &["x"], "float[B,T,8]");
    check(Op::Reshape { shape: item(&[2, 4]) }, &["x"], "float[B,T,2,4]");
    check(Op::Reshape { shape: item(&[8, 1]) }, &["x"], "float[B,T,8,1]");
    check(Op::Reshape { shape: item(&[1]) }, &["ids"], "int[B,T,1]");
    check(Op::Reshape { shape: Shape::fixed(&[24]) }, &["cube"], "float[24]");
    check(Op::Transpose { axes: vec![0, 1, 3, 2] }, &["heads"], "float[B,T,2,4]");
    check(Op::Transpose { axes: vec![2, 0, 1] }, &["cube"], "float[4,2,3]");
    for to in [ValueType::Float, ValueType::Int, ValueType::Bool] {
        check(Op::Cast { to }, &["x"], &format!("{to}[B,T,8]"));
    }
    check(Op::TopK { k: 8 }, &["x"], "int[B,T,8]");
    check(Op::Gather, &["x", "indices"], "float[B,T,3]");
    check(Op::Gather, &["truth", "indices"], "bool[B,T,3]");
    check(Op::Scatter, &["x", "indices", "three"], "float[B,T,8]");
    check(Op::Matmul, &["heads", "kv"], "float[B,T,4,2]");
}

#[test]
fn along_an_axis() {
    for (op, _) in ReduceOp::ALL {
        check(Op::Reduce { op, axis: 2 }, &["heads"], "float[B,T,1,2]");
        check(Op::Reduce { op, axis: 1 }, &["cube"], "float[2,1,4]");
    }
    check(Op::Cumsum { axis: 3 }, &["heads"], "float[B,T,4,2]");
}

#[test]
fn split_and_topk_are_made_of_plain_operations() {
    let mut g = super::builder();
    let x = super::value(&mut g, "x");
    let parts = g.split(x, &[1, 5, 2], 2).unwrap();
    let shapes: Vec<_> = parts.iter().map(|part| g.shape(*part).unwrap().to_string()).collect();
    assert_eq!(shapes, ["[B,T,1]", "[B,T,5]", "[B,T,2]"]);
    let (values, indices) = g.topk(x, 2).unwrap();
    assert_eq!(g.shape(values).unwrap().0, [Dim::B, Dim::T, Dim::Fixed(2)]);
    assert_eq!(g.shape(indices).unwrap().to_string(), "[B,T,2]");
}

#[test]
fn a_shared_slot_is_read_after_its_donor() {
    let mut g = super::builder();
    super::declare_slots(&mut g);
    let shared = g.slot(1, crate::SlotKind::KvShared { with: KV }).unwrap();
    let [q, k] = ["heads", "kv"].map(|name| super::value(&mut g, name));
    let mixed = g.add(attention(KV, Mask::Causal), &[q, k, k]).unwrap();
    let again = g.add(attention(shared, Mask::Causal), &[mixed]).unwrap();
    assert_eq!(g.shape(again).unwrap().to_string(), "[B,T,4,2]");
}
