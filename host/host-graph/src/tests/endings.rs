//! What a graph must fulfil in the end.

use host_core::Reported;

use super::{builder, catalogue, declare_slots, finish, linear, value};
use crate::{BuildErrorKind, Catalogue, GraphBuilder, Limits, Op, Section, TensorFacts, UnaryOp, Value};

fn ignoring() -> GraphBuilder {
    let mut g = builder();
    catalogue().keys().for_each(|name| g.ignore(name));
    g
}

#[test]
fn logits_are_float_with_one_number_an_entry() {
    for (name, found) in [
        ("ids", "int [B,T]"),
        ("indices", "int [B,T,3]"),
        ("heads", "float [B,T,4,2]"),
        ("table", "float [10,8]"),
    ] {
        let mut g = ignoring();
        let output = value(&mut g, name);
        let error = g.finish(output).unwrap_err();
        assert_eq!(error.kind.to_string(), format!("input `logits` has shape {found}, expected [B,T,V]"));
        assert_eq!(error.op, "output");
    }
}

#[test]
fn an_output_that_was_never_made_is_refused() {
    let error = ignoring().finish(Value(0)).unwrap_err();
    assert_eq!(error.kind, BuildErrorKind::UnknownValue { found: 0 });
}

#[test]
fn an_open_loop_is_refused() {
    let mut g = ignoring();
    declare_slots(&mut g);
    let x = value(&mut g, "x");
    g.begin_scan(super::STATE, &[x]).unwrap();
    let error = g.finish(x).unwrap_err();
    assert_eq!(error.kind, BuildErrorKind::Order { expected: "end_scan first", found: "output" });
}

#[test]
fn a_slot_that_nothing_uses_is_refused() {
    let mut g = ignoring();
    declare_slots(&mut g);
    let x = value(&mut g, "x");
    let error = g.finish(x).unwrap_err();
    assert_eq!(error.kind.to_string(), "slot 0: declared only, expected an operation that uses it");
}

#[test]
fn unused_tensors_are_listed_and_ignored_ones_are_not() {
    let mut g = builder();
    for name in catalogue().keys().filter(|name| *name != "cube" && *name != "packed") {
        g.ignore(name);
    }
    let x = value(&mut g, "x");
    let error = g.finish(x).unwrap_err();
    assert_eq!(error.kind, BuildErrorKind::UnusedTensors { names: vec!["cube".into(), "packed".into()] });
    let report = error.report();
    assert_eq!(report.code, "graph.unused-tensors");
    assert_eq!(report.found.as_deref(), Some("cube, packed"));
}

/// A node that the logits do not need does not save its tensors from being unused.
#[test]
fn a_tensor_of_a_dead_node_is_unused() {
    let mut g = builder();
    for name in catalogue().keys().filter(|name| *name != "matrix" && *name != "table") {
        g.ignore(name);
    }
    let x = value(&mut g, "x");
    g.add(linear("matrix"), &[x]).unwrap();
    let error = g.finish(x).unwrap_err();
    assert_eq!(error.kind, BuildErrorKind::UnusedTensors { names: vec!["matrix".into()] });
}

#[test]
fn ignoring_what_does_not_exist_leaves_no_trace() {
    let mut g = ignoring();
    g.ignore("rotary_emb.inv_freq");
    g.ignore("cube");
    let x = value(&mut g, "x");
    let graph = g.finish(x).unwrap();
    assert_eq!(graph.ignored_tensors().len(), catalogue().len());
    assert!(graph.ignored_tensors().is_sorted());
}

#[test]
fn a_graph_knows_its_sizes() {
    let mut g = builder();
    let mut x = value(&mut g, "x");
    for layer in 0..3 {
        g.section(Section::Layer(layer));
        x = g.add(Op::Unary(UnaryOp::Silu), &[x]).unwrap();
    }
    g.section(Section::Head);
    let logits = g.add(linear("table"), &[x]).unwrap();
    let graph = finish(g, logits);
    assert_eq!((graph.n_layers(), graph.n_vocab()), (3, 10));
    assert_eq!(graph.tensors(), ["table"]);
    assert_eq!(graph.node(graph.output()).section, Section::Head);
}

#[test]
fn an_empty_checkpoint_builds_nothing() {
    let g = GraphBuilder::new(Catalogue::new(), Limits::default());
    assert_eq!(g.tensor("table"), None);
    let g = builder();
    let facts = TensorFacts { shape: vec![10, 8], is_dense: true };
    assert_eq!(g.tensor("table"), Some(&facts));
}
