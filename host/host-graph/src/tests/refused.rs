//! What each operation refuses, in words.

use super::{CONV, DELTA, INDEX, KV, STATE, WINDOWED, added, linear, name, unary};
use crate::{Activation, BinaryOp, Mask, Op, ReduceOp, RopeFrequencies, RopeSpec, Shape, SlotId, UnaryOp};

/// The message behind the operation and its place.
fn check(op: Op, inputs: &[&str], expected: &str) {
    let error = added(op.clone(), inputs).expect_err(expected);
    assert_eq!(error.kind.to_string(), expected, "{op:?} {inputs:?}");
    assert_eq!(error.op, op.name());
}

#[test]
fn another_number_of_inputs() {
    let tokens = "`inputs` is 1, expected 0 values";
    check(Op::Tokens, &["x"], tokens);
    check(Op::Constant { value: 0.0 }, &["x"], tokens);
    check(linear("matrix"), &[], "`inputs` is 0, expected 1 values");
    check(unary(UnaryOp::Silu), &["x", "x"], "`inputs` is 2, expected 1 values");
    check(unary(UnaryOp::Not), &[], "`inputs` is 0, expected 1 values");
    check(Op::Binary(BinaryOp::Add), &["x"], "`inputs` is 1, expected 2 values");
    check(Op::Where, &["truth", "x"], "`inputs` is 2, expected 3 values");
    check(Op::Concat { axis: 2 }, &[], "`inputs` is 0, expected at least 1 value");
    check(Op::GatedDelta { slot: DELTA }, &["kv", "kv"], "`inputs` is 2, expected 5 values");
    let attention = Op::Attention { slot: KV, scale: 1.0, mask: Mask::Causal, softcap: None, sinks: None };
    check(attention.clone(), &["heads"], "`inputs` is 1, expected 3 or 4 values");
    check(attention, &[], "`inputs` is 0, expected at least 1 values");
}

#[test]
fn tensors_that_are_missing_quantised_or_of_another_shape() {
    check(linear("nowhere"), &["x"], "the checkpoint has no tensor `nowhere`");
    check(Op::Weight { name: "packed".into() }, &[], "tensor `packed` is quantised, expected plain numbers");
    let packed = Op::RmsNorm { weight: name("packed8"), eps: 1e-6, offset: 0.0 };
    check(packed, &["x"], "tensor `packed8` is quantised, expected plain numbers");
    check(linear("cube"), &["x"], "tensor `cube` has shape [2,3,4], expected [out,in]");
    check(
        Op::Embedding { weight: "norm8".into() },
        &["ids"],
        "tensor `norm8` has shape [8], expected [out,in]",
    );
    let biased = Op::Linear { weight: "matrix".into(), bias: name("norm8") };
    check(biased, &["x"], "tensor `norm8` has shape [8], expected [6]");
    let norm = Op::LayerNorm { weight: name("norm8"), bias: name("bias6"), eps: 1e-6 };
    check(norm, &["x"], "tensor `bias6` has shape [6], expected [8]");
    let sinks =
        Op::Attention { slot: KV, scale: 1.0, mask: Mask::Causal, softcap: None, sinks: name("norm8") };
    check(sinks, &["heads", "kv", "kv"], "tensor `norm8` has shape [8], expected [4]");
    let conv = Op::Conv1dCausal { slot: CONV, weight: "matrix".into(), bias: None };
    check(conv, &["x"], "tensor `matrix` has shape [6,8], expected [8,4]");
    let moe = |gate: &str, up: &str, down: &str| Op::Moe {
        gate: gate.into(),
        up: up.into(),
        down: down.into(),
        activation: Activation::Gelu,
    };
    let inputs = ["x", "indices", "three"];
    check(
        moe("matrix", "ups", "downs"),
        &inputs,
        "tensor `matrix` has shape [6,8], expected [n_experts,F,8]",
    );
    check(moe("gates", "downs", "downs"), &inputs, "tensor `downs` has shape [5,8,6], expected [5,6,8]");
    check(moe("gates", "ups", "ups"), &inputs, "tensor `ups` has shape [5,6,8], expected [5,8,6]");
}

#[test]
fn shapes_that_do_not_fit() {
    check(linear("matrix"), &["heads"], "input `x` has shape [B,T,4,2], expected […,8] for `matrix` [6,8]");
    check(
        Op::Inject { feature: "image".into() },
        &["heads"],
        "input `x` has shape [B,T,4,2], expected [B,T,n]",
    );
    check(Op::Rope(RopeSpec::new(2, 1e4)), &["x"], "input `x` has shape [B,T,8], expected [B,T,n,m]");
    check(Op::Softmax, &["one"], "input `x` has shape [], expected a fixed last dimension");
    check(Op::Binary(BinaryOp::Add), &["x", "bias6"], "input `b` has shape [6], expected fits [B,T,8]");
    check(Op::Where, &["truth", "x", "bias6"], "input `b` has shape [6], expected fits [B,T,8]");
    check(Op::Where, &["truth", "two", "two"], "input `condition` has shape [B,T,8], expected fits [B,T,2]");
    check(
        Op::Concat { axis: 2 },
        &["x", "heads"],
        "input `x` has shape [B,T,4,2], expected [B,T,8] but for axis 2",
    );
    for dims in [&[3][..], &[0], &[8, 0]] {
        let shape = Shape::per_token(dims);
        let expected = format!("input `x` has shape [B,T,8], expected as many elements as {shape}");
        check(Op::Reshape { shape }, &["x"], &expected);
    }
    let without_lead = Op::Reshape { shape: Shape::fixed(&[8]) };
    check(without_lead, &["x"], "input `x` has shape [B,T,8], expected as many elements as [8]");
    check(
        Op::Gather,
        &["heads", "indices"],
        "input `indices` has shape [B,T,3], expected [B,T,4,2] but for the last dimension",
    );
    check(Op::Scatter, &["x", "indices", "two"], "input `values` has shape [B,T,2], expected [B,T,3]");
    check(Op::Matmul, &["x", "x"], "input `a` has shape [B,T,8], expected two fixed dimensions at the end");
    check(Op::Matmul, &["kv", "heads"], "input `b` has shape [B,T,4,2], expected […,2,n]");
    check(Op::Matmul, &["cube", "table"], "input `b` has shape [10,8], expected […,4,n]");
}

#[test]
fn types_that_do_not_fit() {
    check(Op::Embedding { weight: "table".into() }, &["x"], "input `ids` is float, expected int");
    check(linear("matrix"), &["ids"], "input `x` is int, expected float");
    check(unary(UnaryOp::Not), &["x"], "input `x` is float, expected bool");
    check(unary(UnaryOp::Exp), &["truth"], "input `x` is bool, expected float");
    check(Op::Binary(BinaryOp::Add), &["x", "ids"], "input `b` is int, expected float");
    check(Op::Binary(BinaryOp::Add), &["truth", "truth"], "input `a` is bool, expected float");
    check(Op::Binary(BinaryOp::Div), &["ids", "ids"], "input `a` is int, expected float");
    check(Op::Binary(BinaryOp::And), &["x", "x"], "input `a` is float, expected bool");
    check(Op::Where, &["x", "x", "x"], "input `condition` is float, expected bool");
    check(Op::Concat { axis: 2 }, &["x", "indices"], "input `x` is int, expected float");
    check(Op::Gather, &["x", "three"], "input `indices` is float, expected int");
    check(Op::Scatter, &["x", "indices", "indices"], "input `values` is int, expected float");
    check(Op::Reduce { op: ReduceOp::Sum, axis: 2 }, &["indices"], "input `x` is int, expected float");
    check(Op::Cumsum { axis: 2 }, &["truth"], "input `x` is bool, expected float");
    check(Op::TopK { k: 1 }, &["indices"], "input `x` is int, expected float");
}

#[test]
fn attributes_out_of_range() {
    for value in [f32::NAN, f32::INFINITY] {
        check(Op::Constant { value }, &[], &format!("`value` is {value}, expected a finite number"));
        check(Op::Scale { factor: value }, &["x"], &format!("`factor` is {value}, expected a finite number"));
    }
    for eps in [0.0, -1.0, f32::NAN] {
        let expected = format!("`eps` is {eps}, expected a finite number above 0");
        check(Op::RmsNorm { weight: None, eps, offset: 0.0 }, &["x"], &expected);
        check(Op::LayerNorm { weight: None, bias: None, eps }, &["x"], &expected);
    }
    check(Op::Softcap { cap: 0.0 }, &["x"], "`cap` is 0, expected a finite number above 0");
    let layers = |n_layers| Op::PerLayerEmbedding { weight: "layers".into(), n_layers };
    check(layers(0), &["ids"], "`n_layers` is 0, expected a divisor of 12");
    check(layers(5), &["ids"], "`n_layers` is 5, expected a divisor of 12");
    check(Op::Inject { feature: String::new() }, &["x"], "`feature` is nothing, expected a name");
    for (start, stop) in [(3, 3), (4, 3), (0, 9), (8, 9)] {
        let expected = format!("`start..stop` is {start}..{stop}, expected a part of 0..8");
        check(Op::Slice { axis: 2, start, stop }, &["x"], &expected);
    }
    for axis in [0, 1, 3, usize::MAX] {
        let expected = format!("`axis` is {axis}, expected a fixed dimension of [B,T,8]");
        check(Op::Slice { axis, start: 0, stop: 1 }, &["x"], &expected);
        check(Op::Concat { axis }, &["x", "x"], &expected);
        check(Op::Reduce { op: ReduceOp::Max, axis }, &["x"], &expected);
        check(Op::Cumsum { axis }, &["x"], &expected);
    }
    for axes in [vec![0, 1, 2], vec![0, 1, 2, 2], vec![1, 0, 2, 3], vec![0, 2, 1, 3], vec![]] {
        let expected = format!("`axes` is {axes:?}, expected an order of 0..4 that keeps 2 leading axes");
        check(Op::Transpose { axes }, &["heads"], &expected);
    }
    for k in [0, 9] {
        check(Op::TopK { k }, &["x"], &format!("`k` is {k}, expected from 1 to 8"));
    }
    let select = Op::SparseSelect { slot: INDEX, k: 0 };
    check(select, &["heads", "two", "four"], "`k` is 0, expected at least 1");
}

#[test]
fn attention_that_does_not_fit_its_slot() {
    let attention = |slot, mask| Op::Attention { slot, scale: 1.0, mask, softcap: None, sinks: None };
    let qkv = ["heads", "kv", "kv"];
    check(
        attention(KV, Mask::Causal),
        &["kv", "heads", "kv"],
        "input `k` has shape [B,T,4,2], expected [B,T,2,2]",
    );
    check(attention(KV, Mask::Causal), &["x", "kv", "kv"], "input `q` has shape [B,T,8], expected [B,T,n,m]");
    for mask in [Mask::Window(0), Mask::Chunked(0)] {
        check(attention(KV, mask), &qkv, "`mask` is 0, expected at least 1 position");
    }
    // Keys outside of the slot's window are gone.
    for mask in [Mask::Causal, Mask::Window(17), Mask::Chunked(17), Mask::BidirectionalPrefix] {
        let expected = format!("`mask` is {mask:?}, expected at most the slot's window, 16");
        check(attention(WINDOWED, mask), &qkv, &expected);
    }
    check(
        attention(CONV, Mask::Causal),
        &qkv,
        "slot 1: Conv { channels: 8, kernel: 4 }, expected kv or kv_shared",
    );
    check(
        attention(SlotId(99), Mask::Causal),
        &qkv,
        "slot 99: no slot of that number, expected a declared slot",
    );
    let scaled = Op::Attention { slot: KV, scale: f32::NAN, mask: Mask::Causal, softcap: None, sinks: None };
    check(scaled, &qkv, "`scale` is NaN, expected a finite number");
    let capped = Op::Attention { slot: KV, scale: 1.0, mask: Mask::Causal, softcap: Some(0.0), sinks: None };
    check(capped, &qkv, "`softcap` is 0, expected a finite number above 0");
    check(
        attention(KV, Mask::Causal),
        &["heads", "kv", "kv", "three"],
        "input `selected` is float, expected int",
    );
}

#[test]
fn state_that_does_not_fit_its_slot() {
    let delta = ["kv", "kv", "heads", "four", "four"];
    check(
        Op::GatedDelta { slot: STATE },
        &delta,
        "slot 3: Recurrent { shape: [8] }, expected recurrent [4,2,2]",
    );
    check(
        Op::GatedDelta { slot: DELTA },
        &["heads", "heads", "kv", "two", "two"],
        "input `v` has shape [B,T,2,2], expected [B,T,Hv,Dv] with Hv a multiple of 4",
    );
    check(
        Op::GatedDelta { slot: DELTA },
        &["kv", "kv", "heads", "two", "four"],
        "input `g` has shape [B,T,2], expected [B,T,4]",
    );
    check(
        Op::SsmScan { slot: DELTA },
        &["heads", "four", "norm8", "kv", "kv"],
        "input `a` has shape [8], expected [4]",
    );
    check(
        Op::SparseSelect { slot: KV, k: 2 },
        &["heads", "two", "four"],
        "slot 0: Kv { heads: 2, dim_k: 2, dim_v: 2, window: None }, expected index_keys",
    );
    check(
        Op::SparseSelect { slot: INDEX, k: 2 },
        &["heads", "four", "four"],
        "input `k` has shape [B,T,4], expected [B,T,2]",
    );
    check(
        Op::Conv1dCausal { slot: CONV, weight: "kernel".into(), bias: None },
        &["two"],
        "input `x` has shape [B,T,2], expected [B,T,8]",
    );
}

#[test]
fn rotations_out_of_range() {
    let rotate = |spec: RopeSpec, expected: &str| check(Op::Rope(spec), &["heads"], expected);
    let with = |frequencies| RopeSpec { frequencies, ..RopeSpec::new(2, 1e4) };
    for dims in [0, 1, 3, 4] {
        rotate(RopeSpec::new(dims, 1e4), &format!("`dims` is {dims}, expected even, from 2 to 2"));
    }
    rotate(RopeSpec::new(2, 0.0), "`theta` is 0, expected a finite number above 0");
    let still = RopeSpec { attention_factor: 0.0, ..RopeSpec::new(2, 1e4) };
    rotate(still, "`attention_factor` is 0, expected a finite number above 0");
    rotate(
        with(RopeFrequencies::Linear { factor: -1.0 }),
        "`factor` is -1, expected a finite number above 0",
    );
    let llama3 = |low_freq_factor, high_freq_factor| RopeFrequencies::Llama3 {
        factor: 8.0,
        low_freq_factor,
        high_freq_factor,
        original_max_position_embeddings: 8192.0,
    };
    rotate(with(llama3(4.0, 4.0)), "`high_freq_factor` is 4, expected a finite number above 4");
    rotate(with(llama3(0.0, 4.0)), "`low_freq_factor` is 0, expected a finite number above 0");
    let yarn = |beta_slow, original_max_position_embeddings| RopeFrequencies::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow,
        original_max_position_embeddings,
        truncate: true,
    };
    rotate(with(yarn(0.0, 4096.0)), "`beta_slow` is 0, expected a finite number above 0");
    rotate(
        with(yarn(1.0, f32::NAN)),
        "`original_max_position_embeddings` is NaN, expected a finite number above 0",
    );
    let flat = RopeSpec { frequencies: yarn(1.0, 4096.0), ..RopeSpec::new(2, 1.0) };
    rotate(flat, "`theta` is 1, expected above 1 for yarn");
    let long = RopeFrequencies::LongRope { factors: vec![1.0, 2.0] };
    rotate(with(long), "`factors` is [1.0, 2.0], expected 1 positive numbers");
    let long = RopeFrequencies::LongRope { factors: vec![0.0] };
    rotate(with(long), "`factors` is [0.0], expected 1 positive numbers");
    let narrow = RopeFrequencies::Proportional { factor: 1.0, full_dims: 1 };
    rotate(with(narrow), "`full_dims` is 1, expected at least dims, 2");
    for section in [vec![1, 1, 1], vec![1], vec![usize::MAX, 1, 1]] {
        let expected = format!("`mrope_section` is {section:?}, expected three numbers that sum to 1");
        rotate(RopeSpec { mrope_section: section, ..RopeSpec::new(2, 1e4) }, &expected);
    }
}
