//! The loop over T.

use super::{KV, STATE, builder, declare_slots, finish, linear, value};
use crate::{BinaryOp, BuildErrorKind, GraphBuilder, Op, SlotId, SlotKind, UnaryOp, Value};

/// `S = tanh(S + x); y = S`, over x `[B,T,8]`.
fn running_tanh(g: &mut GraphBuilder, slot: SlotId) -> Value {
    let x = value(g, "x");
    let begun = g.begin_scan(slot, &[x]).unwrap();
    let sum = g.add(Op::Binary(BinaryOp::Add), &begun).unwrap();
    let state = g.add(Op::Unary(UnaryOp::Tanh), &[sum]).unwrap();
    g.end_scan(state, state).unwrap()
}

fn started() -> (GraphBuilder, Value, Vec<Value>) {
    let mut g = builder();
    declare_slots(&mut g);
    let x = value(&mut g, "x");
    let begun = g.begin_scan(STATE, &[x]).unwrap();
    (g, x, begun)
}

#[test]
fn a_loop_is_one_node_with_a_body() {
    let mut g = builder();
    let slot = g.slot(0, SlotKind::Recurrent { shape: vec![8] }).unwrap();
    let y = running_tanh(&mut g, slot);
    let text = finish(g, y).text();
    let expected = "\
%2 = scan(%1) slot=0 : float[B,T,8]
  %0 = body_input() index=0 : float[B,8]
  %1 = body_input() index=1 : float[B,8]
  %2 = add(%0, %1) : float[B,8]
  %3 = tanh(%2) : float[B,8]
  state %3 output %3
output %2
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn inputs_come_without_t() {
    let (g, _, begun) = started();
    let shapes: Vec<_> = begun.iter().map(|value| g.shape(*value).unwrap().to_string()).collect();
    assert_eq!(shapes, ["[B,8]", "[B,8]"]);
}

#[test]
fn values_from_outside_are_not_seen_inside() {
    let (mut g, x, _) = started();
    let error = g.add(Op::Unary(UnaryOp::Exp), &[x]).unwrap_err();
    assert_eq!(error.kind, BuildErrorKind::UnknownValue { found: x.0 });
    assert!(g.shape(x).is_err());
}

#[test]
fn values_from_inside_end_with_the_loop() {
    let (mut g, _, begun) = started();
    let inner = g.add(Op::Unary(UnaryOp::Exp), &[begun[0]]).unwrap();
    let outer = g.end_scan(begun[0], inner).unwrap();
    // The loop's own handle may bear the number of a handle from inside; the others are gone.
    assert!(g.shape(inner).is_err());
    assert!(g.shape(outer).is_ok());
}

#[test]
fn state_and_tokens_stay_outside() {
    for op in [Op::Tokens, Op::Positions] {
        let (mut g, _, _) = started();
        let error = g.add(op, &[]).unwrap_err();
        assert!(matches!(error.kind, BuildErrorKind::Order { .. }), "{error}");
    }
    let (mut g, _, begun) = started();
    let conv = Op::Conv1dCausal { slot: super::CONV, weight: "kernel".into(), bias: None };
    assert!(matches!(g.add(conv, &[begun[1]]).unwrap_err().kind, BuildErrorKind::Order { .. }));
    assert!(g.add(linear("matrix"), &[begun[1]]).is_ok(), "weights are no state");
}

#[test]
fn loops_do_not_nest_and_end_once() {
    let (mut g, _, begun) = started();
    let error = g.begin_scan(SlotId(2), &[]).unwrap_err();
    let expected = BuildErrorKind::Order { expected: "end_scan first", found: "begin_scan" };
    assert_eq!(error.kind, expected);
    g.end_scan(begun[0], begun[0]).unwrap();
    let error = g.end_scan(begun[0], begun[0]).unwrap_err();
    assert_eq!(error.kind, BuildErrorKind::Order { expected: "begin_scan first", found: "end_scan" });
}

#[test]
fn what_a_loop_refuses() {
    let mut g = builder();
    declare_slots(&mut g);
    let [x, ids, table] = ["x", "ids", "table"].map(|name| value(&mut g, name));
    for (slot, inputs, expected) in [
        (
            KV,
            vec![x],
            "slot 0: Some(Kv { heads: 2, dim_k: 2, dim_v: 2, window: None }), expected a recurrent slot",
        ),
        (SlotId(99), vec![x], "slot 99: None, expected a recurrent slot"),
        (STATE, vec![ids], ""),
        (STATE, vec![table], ""),
        (STATE, vec![Value(999)], "there is no value 999 here"),
    ] {
        let error = g.begin_scan(slot, &inputs).unwrap_err();
        if !expected.is_empty() {
            assert_eq!(error.kind.to_string(), expected);
        }
        assert_eq!(error.op, "scan");
    }
    // Nothing of it opened a loop.
    assert!(g.add(Op::Tokens, &[]).is_ok());
}

#[test]
fn the_new_state_has_the_slots_shape() {
    let (mut g, _, begun) = started();
    let narrow = g.add(Op::Slice { axis: 1, start: 0, stop: 2 }, &[begun[0]]).unwrap();
    let error = g.end_scan(narrow, begun[1]).unwrap_err();
    assert_eq!(error.kind.to_string(), "input `state` has shape [B,2], expected [B,8]");
    let out = g.end_scan(begun[0], narrow).unwrap();
    assert_eq!(g.shape(out).unwrap().to_string(), "[B,T,2]");
}

#[test]
fn a_slot_carries_one_loop() {
    let (mut g, x, begun) = started();
    g.end_scan(begun[0], begun[1]).unwrap();
    let error = g.begin_scan(STATE, &[x]).unwrap_err();
    assert_eq!(error.kind.to_string(), "slot 3: a slot that is used already, expected one operation a slot");
}

#[test]
fn tensors_of_a_body_count_as_used() {
    let mut g = builder();
    let slot = g.slot(0, SlotKind::Recurrent { shape: vec![8] }).unwrap();
    let x = value(&mut g, "x");
    let begun = g.begin_scan(slot, &[x]).unwrap();
    let y = g.add(linear("matrix"), &[begun[1]]).unwrap();
    let y = g.end_scan(begun[0], y).unwrap();
    let graph = finish(g, y);
    assert_eq!(graph.tensors(), ["table", "matrix"]);
}
