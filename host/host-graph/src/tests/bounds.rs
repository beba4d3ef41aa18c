//! Bounds on what a guest may make the host hold.

use super::{catalogue, value};
use crate::{BuildErrorKind, GraphBuilder, Limits, Op, Shape, SlotKind, UnaryOp};

fn with(limits: Limits) -> GraphBuilder {
    GraphBuilder::new(catalogue(), limits)
}

fn limit(kind: &BuildErrorKind) -> (&'static str, usize) {
    match kind {
        BuildErrorKind::Limit { what, limit } => (what, *limit),
        other => panic!("{other}"),
    }
}

#[test]
fn nodes_are_bounded_those_in_loops_included() {
    let mut g = with(Limits { max_nodes: 8, ..Limits::default() });
    let slot = g.slot(0, SlotKind::Recurrent { shape: vec![8] }).unwrap();
    let x = value(&mut g, "x");
    let begun = g.begin_scan(slot, &[x]).unwrap();
    let y = g.add(Op::Unary(UnaryOp::Exp), &[begun[1]]).unwrap();
    let mut h = g.end_scan(begun[0], y).unwrap();
    // tokens, embedding, three in the body, the loop; two more fit.
    for _ in 0..2 {
        h = g.add(Op::Unary(UnaryOp::Exp), &[h]).unwrap();
    }
    let error = g.add(Op::Unary(UnaryOp::Exp), &[h]).unwrap_err();
    assert_eq!(limit(&error.kind), ("nodes", 8));
}

#[test]
fn a_loops_inputs_count_before_it_opens() {
    let mut g = with(Limits { max_nodes: 4, ..Limits::default() });
    let slot = g.slot(0, SlotKind::Recurrent { shape: vec![8] }).unwrap();
    let x = value(&mut g, "x");
    let error = g.begin_scan(slot, &[x, x]).unwrap_err();
    assert_eq!(limit(&error.kind), ("nodes", 4));
}

#[test]
fn slots_are_bounded() {
    let mut g = with(Limits { max_slots: 2, ..Limits::default() });
    let kind = || SlotKind::IndexKeys { dim: 1 };
    g.slot(0, kind()).unwrap();
    g.slot(0, kind()).unwrap();
    assert_eq!(limit(&g.slot(0, kind()).unwrap_err().kind), ("slots", 2));
}

#[test]
fn sizes_of_slots_are_bounded() {
    let mut g = with(Limits::default());
    let long = SlotKind::Recurrent { shape: vec![1; 9] };
    assert_eq!(limit(&g.slot(0, long).unwrap_err().kind), ("dimensions", 8));
    for kind in [
        SlotKind::Kv { heads: 1 << 30, dim_k: 1 << 30, dim_v: 1 << 30, window: None },
        SlotKind::Recurrent { shape: vec![usize::MAX, 2] },
        SlotKind::Conv { channels: usize::MAX, kernel: 4 },
    ] {
        assert_eq!(limit(&g.slot(0, kind).unwrap_err().kind), ("elements", 1 << 40));
    }
    for kind in [SlotKind::IndexKeys { dim: 0 }, SlotKind::Recurrent { shape: vec![4, 0] }] {
        let error = g.slot(0, kind).unwrap_err();
        assert!(matches!(error.kind, BuildErrorKind::Attribute { name: "kind", .. }), "{error}");
    }
}

#[test]
fn names_are_bounded() {
    let mut g = with(Limits { max_name_bytes: 5, ..Limits::default() });
    let ids = g.add(Op::Tokens, &[]).unwrap();
    let x = g.add(Op::Embedding { weight: "table".into() }, &[ids]).unwrap();
    let error = g.add(Op::Weight { name: "matrix".into() }, &[]).unwrap_err();
    assert_eq!(limit(&error.kind), ("bytes of a name", 5));
    let error = g.add(Op::Inject { feature: "images".into() }, &[x]).unwrap_err();
    assert_eq!(limit(&error.kind), ("bytes of a name", 5));
}

#[test]
fn inputs_and_dimensions_are_bounded() {
    let mut g = with(Limits { max_inputs: 3, max_rank: 4, ..Limits::default() });
    let x = value(&mut g, "x");
    let error = g.add(Op::Concat { axis: 2 }, &[x; 4]).unwrap_err();
    assert_eq!(limit(&error.kind), ("inputs", 3));
    let error = g.add(Op::Reshape { shape: Shape::per_token(&[8, 1, 1]) }, &[x]).unwrap_err();
    assert_eq!(limit(&error.kind), ("dimensions", 4));
}

/// Products of dimensions that would wrap around to the right number are still wrong.
#[test]
fn products_do_not_wrap() {
    let mut g = with(Limits::default());
    let x = value(&mut g, "x");
    let wraps_to_8 = Shape::per_token(&[(1 << 61) + 1, 8]);
    let error = g.add(Op::Reshape { shape: wraps_to_8 }, &[x]).unwrap_err();
    assert!(matches!(error.kind, BuildErrorKind::Shape { .. }), "{error}");
    let error = g.split(x, &[usize::MAX, 9], 2).unwrap_err();
    assert!(matches!(error.kind, BuildErrorKind::Attribute { name: "sizes", .. }), "{error}");
}

#[test]
fn elements_are_bounded() {
    let mut g = with(Limits { max_elements: 64, ..Limits::default() });
    let mut x = value(&mut g, "x");
    for _ in 0..3 {
        x = g.add(Op::Concat { axis: 2 }, &[x, x]).unwrap();
    }
    let error = g.add(Op::Concat { axis: 2 }, &[x, x]).unwrap_err();
    assert_eq!(limit(&error.kind), ("elements", 64));
}
