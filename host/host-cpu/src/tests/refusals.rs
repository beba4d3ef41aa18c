//! What the device refuses to compile, and how it says so.

use host_core::{DType, Reported};
use host_device::{CompileOptions, Device, DeviceError, KvStorage};
use host_graph::{BinaryOp, BuildError, Graph, GraphBuilder, Mask, Op, Section, Shape, SlotKind, Value};

use super::support::{Folder, Model, as_logits, compile, options};
use crate::device::CpuDevice;

fn model() -> Model {
    let whole: Vec<f32> = (0..64).map(|i| i as f32).collect();
    Folder::new(61)
        .dense("e", DType::F32, &[8, 8])
        .dense("w", DType::F32, &[8, 8])
        .numbers("integers", DType::I32, &[8, 8], &whole)
        .numbers("eight", DType::I32, &[8], &whole[..8])
        .open()
}

fn embedded(b: &mut GraphBuilder) -> Result<Value, BuildError> {
    let ids = b.add(Op::Tokens, &[])?;
    b.add(Op::Embedding { weight: "e".into() }, &[ids])
}

/// The refusal of a graph; `check` and `compile` must say the same.
fn refusal(model: &Model, graph: &Graph, options: &CompileOptions) -> DeviceError {
    let device = CpuDevice::new();
    let error = device.check(graph, model.checkpoint.catalogue(), options).unwrap_err();
    let compiled = device.compile(graph, &model.checkpoint, options, &mut |_, _| panic!("weights were read"));
    assert_eq!(compiled.err().map(|error| error.to_string()), Some(error.to_string()));
    error
}

#[test]
fn refusals_name_what_is_missing() {
    let model = model();
    let matrix_of_integers = model.graph(|b| {
        let x = embedded(b)?;
        let y = b.add(Op::Linear { weight: "integers".into(), bias: None }, &[x])?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    let vector_of_integers = model.graph(|b| {
        let x = embedded(b)?;
        let y = b.add(Op::RmsNorm { weight: Some("eight".into()), eps: 1e-5, offset: 0.0 }, &[x])?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    let head_in_a_layer = model.graph(|b| {
        let x = embedded(b)?;
        b.section(Section::Head);
        let y = b.add(Op::Linear { weight: "w".into(), bias: None }, &[x])?;
        b.section(Section::Layer(0));
        let y = b.add(Op::Softmax, &[y])?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    let attention = |slot| Op::Attention { slot, scale: 1.0, mask: Mask::Causal, softcap: None, sinks: None };
    let state_in_the_head = model.graph(|b| {
        let x = embedded(b)?;
        b.section(Section::Head);
        let x = b.add(Op::Reshape { shape: Shape::per_token(&[1, 8]) }, &[x])?;
        let slot = b.slot(0, SlotKind::Kv { heads: 1, dim_k: 8, dim_v: 8, window: None })?;
        let y = b.add(attention(slot), &[x, x, x])?;
        as_logits(b, y)
    });
    let donor_without_use = model.graph(|b| {
        let x = embedded(b)?;
        let x = b.add(Op::Reshape { shape: Shape::per_token(&[1, 8]) }, &[x])?;
        let donor = b.slot(0, SlotKind::Kv { heads: 1, dim_k: 8, dim_v: 8, window: None })?;
        let shared = b.slot(1, SlotKind::KvShared { with: donor })?;
        b.add(attention(donor), &[x, x, x])?;
        let y = b.add(attention(shared), &[x])?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    let cases = [
        (matrix_of_integers, "device `cpu` does not have a matrix `integers` of I32 [8, 8]"),
        (vector_of_integers, "device `cpu` does not have a vector `eight` of I32 [8]"),
        (head_in_a_layer, "device `cpu` does not have a value of the head (%2) used outside the head"),
        (state_in_the_head, "device `cpu` does not have the operation attention in the head"),
        (
            donor_without_use,
            "device `cpu` does not have keys and values of slot 0 that no needed operation writes",
        ),
    ];
    for (graph, expected) in cases {
        let error = refusal(&model, &graph, &options());
        assert_eq!(error.to_string(), expected);
        let report = error.report();
        assert_eq!(report.code, "device.unsupported");
        assert!(report.found.is_some() && report.mend.is_some(), "{report}");
    }
}

fn plain(model: &Model) -> Graph {
    model.graph(|b| {
        let x = embedded(b)?;
        let y = b.add(Op::Linear { weight: "w".into(), bias: None }, &[x])?;
        b.section(Section::Head);
        as_logits(b, y)
    })
}

#[test]
fn a_graph_over_another_checkpoint_is_refused() {
    let (model, graph) = (model(), plain(&model()));
    let other = Folder::new(1).dense("e", DType::F32, &[8, 8]).open();
    let error = refusal(&other, &graph, &options());
    assert_eq!(error.report().code, "weights.no-such-tensor");
    let narrow = Folder::new(1).dense("e", DType::F32, &[8, 8]).dense("w", DType::F32, &[64]).open();
    let error = refusal(&narrow, &graph, &options());
    assert_eq!(error.to_string(), "device `cpu` does not have a matrix `w` of F32 [64]");
    drop(model);
}

#[test]
fn positions_beyond_whole_floats_are_refused() {
    let model = model();
    let graph = plain(&model);
    let error = refusal(&model, &graph, &CompileOptions { context_tokens: (1 << 24) + 1, ..options() });
    assert!(matches!(error, DeviceError::Unsupported { .. }), "{error}");
    let device = CpuDevice::new();
    let most = CompileOptions { context_tokens: 1 << 24, ..options() };
    device.check(&graph, model.checkpoint.catalogue(), &most).unwrap();
}

#[test]
fn keys_and_values_in_codes_are_refused() {
    let model = model();
    for kv in KvStorage::all().filter(|kv| kv.element_bytes().is_none()) {
        let error = refusal(&model, &plain(&model), &CompileOptions { kv, ..options() });
        assert!(error.to_string().contains(kv.signature()), "{error}");
    }
}

#[test]
fn a_state_that_the_system_cannot_give_is_refused() {
    // Keys and values of 2^20 floats for 2^24 positions: more than an address space holds.
    let wide = 1 << 20;
    let model = Folder::new(1)
        .dense("e", DType::F32, &[8, 8])
        .numbers("row", DType::F32, &[1, wide], &vec![0.0; wide])
        .open();
    let graph = model.graph(|b| {
        let x = embedded(b)?;
        let row = b.add(Op::Weight { name: "row".into() }, &[])?;
        let one = b.add(Op::Slice { axis: 2, start: 0, stop: 1 }, &[x])?;
        let one = b.add(Op::Reshape { shape: Shape::per_token(&[1, 1]) }, &[one])?;
        let k = b.add(Op::Binary(BinaryOp::Add), &[one, row])?;
        let slot = b.slot(0, SlotKind::Kv { heads: 1, dim_k: wide, dim_v: wide, window: None })?;
        let op = Op::Attention { slot, scale: 1.0, mask: Mask::Causal, softcap: None, sinks: None };
        let y = b.add(op, &[k, k, k])?;
        let y = b.add(Op::Reshape { shape: Shape::per_token(&[wide]) }, &[y])?;
        let y = b.add(Op::Slice { axis: 2, start: 0, stop: 8 }, &[y])?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    let options = CompileOptions { context_tokens: 1 << 24, max_step_tokens: 1, ..options() };
    let mut executable = compile(&model, &graph, &options);
    let error = executable.new_sequence().unwrap_err();
    assert!(matches!(error, DeviceError::OutOfMemory { bytes } if bytes == 1 << 47), "{error}");
}
