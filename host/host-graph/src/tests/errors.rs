//! What an error tells besides its kind.

use host_core::Reported;

use super::{KV, builder, declare_slots, linear, value};
use crate::{BuildErrorKind, Mask, Op, Section, SlotKind, UnaryOp, Value};

#[test]
fn an_error_names_operation_ordinal_and_section() {
    let mut g = builder();
    let x = value(&mut g, "x");
    g.section(Section::Layer(3));
    let error = g.add(linear("nowhere"), &[x]).unwrap_err();
    assert_eq!((error.op, error.ordinal, error.section), ("linear", 3, Section::Layer(3)));
    assert_eq!(
        error.to_string(),
        "linear (operation 3, section layer[3]): the checkpoint has no tensor `nowhere`"
    );
}

#[test]
fn a_report_has_code_expected_and_found() {
    let mut g = builder();
    let heads = value(&mut g, "heads");
    let report = g.add(linear("matrix"), &[heads]).unwrap_err().report();
    assert_eq!(report.code, "graph.shape");
    assert_eq!(report.expected.as_deref(), Some("[…,8] for `matrix` [6,8]"));
    assert_eq!(report.found.as_deref(), Some("[B,T,4,2]"));
}

#[test]
fn a_missing_tensor_comes_with_the_nearest_names() {
    let mut g = builder();
    let error = g.add(Op::Weight { name: "kernel_mid".into() }, &[]).unwrap_err();
    let BuildErrorKind::MissingTensor { nearest, .. } = &error.kind else { panic!("{error}") };
    assert_eq!(nearest[0], "kernel_middle");
    let report = error.report();
    assert_eq!(report.code, "graph.missing-tensor");
    assert!(report.found.unwrap().starts_with("similar: kernel_middle"));
    assert!(report.mend.is_some());
}

#[test]
fn a_refused_call_changes_nothing() {
    let mut g = builder();
    declare_slots(&mut g);
    let [x, heads, kv] = ["x", "heads", "kv"].map(|name| value(&mut g, name));
    let before = format!("{g:?}").replace(char::is_numeric, "");
    let attention = Op::Attention { slot: KV, scale: 1.0, mask: Mask::Causal, softcap: None, sinks: None };
    g.add(attention.clone(), &[heads, heads, kv]).unwrap_err();
    g.split(x, &[1, 2], 2).unwrap_err();
    g.slot(0, SlotKind::KvShared { with: crate::SlotId(1) }).unwrap_err();
    g.topk(x, 9).unwrap_err();
    assert_eq!(format!("{g:?}").replace(char::is_numeric, ""), before);
    g.add(attention, &[heads, kv, kv]).unwrap();
}

#[test]
fn handles_that_were_never_given_are_refused() {
    let mut g = builder();
    for handle in [0, 1, u32::MAX] {
        let error = g.add(Op::Unary(UnaryOp::Exp), &[Value(handle)]).unwrap_err();
        assert_eq!(error.kind, BuildErrorKind::UnknownValue { found: handle });
        assert_eq!(error.report().code, "graph.unknown-value");
    }
}

#[test]
fn a_shared_slot_needs_a_donor_that_is_filled() {
    let mut g = builder();
    declare_slots(&mut g);
    let heads = value(&mut g, "heads");
    let shared = g.slot(1, SlotKind::KvShared { with: KV }).unwrap();
    let op = Op::Attention { slot: shared, scale: 1.0, mask: Mask::Causal, softcap: None, sinks: None };
    let error = g.add(op, &[heads]).unwrap_err();
    assert_eq!(
        error.kind.to_string(),
        "slot 6: a donor that nothing has filled, expected the donor's attention first"
    );
    for donor in [1, 6, 99] {
        let error = g.slot(1, SlotKind::KvShared { with: crate::SlotId(donor) }).unwrap_err();
        assert_eq!(error.report().code, "graph.slot");
    }
}

#[test]
fn one_operation_a_slot() {
    let mut g = builder();
    declare_slots(&mut g);
    let [heads, kv] = ["heads", "kv"].map(|name| value(&mut g, name));
    let op = || Op::Attention { slot: KV, scale: 1.0, mask: Mask::Causal, softcap: None, sinks: None };
    g.add(op(), &[heads, kv, kv]).unwrap();
    let error = g.add(op(), &[heads, kv, kv]).unwrap_err();
    assert_eq!(error.kind.to_string(), "slot 0: a slot that is used already, expected one operation a slot");
}
