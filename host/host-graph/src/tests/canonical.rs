//! The canonical form: one text for one model, in whatever order it was said.

use super::{builder, finish, linear, name, value};
use crate::{
    Activation, BinaryOp, Graph, GraphBuilder, Mask, Op, RopeFrequencies, RopeLayout, RopeSpec, Section,
    SlotId, SlotKind, UnaryOp, Value,
};

fn attend(g: &mut GraphBuilder, slot: SlotId, q: Value, kv: Value) -> Value {
    let op = Op::Attention { slot, scale: 0.5, mask: Mask::Window(4), softcap: None, sinks: None };
    g.add(op, &[q, kv, kv]).unwrap()
}

fn kv_slot(g: &mut GraphBuilder, layer: u32) -> SlotId {
    g.slot(layer, SlotKind::Kv { heads: 2, dim_k: 2, dim_v: 2, window: None }).unwrap()
}

/// Two layers of attention, the logits on top; `order` permutes what may be permuted.
fn two_layers(is_reversed: bool) -> Graph {
    let mut g = builder();
    let slots = if is_reversed {
        let last = kv_slot(&mut g, 1);
        [kv_slot(&mut g, 0), last]
    } else {
        [kv_slot(&mut g, 0), kv_slot(&mut g, 1)]
    };
    let dead = |g: &mut GraphBuilder| {
        let one = value(g, "one");
        g.add(Op::Unary(UnaryOp::Exp), &[one]).unwrap();
    };
    if is_reversed {
        dead(&mut g);
    }
    let ids = g.add(Op::Tokens, &[]).unwrap();
    let mut h = g.add(Op::Embedding { weight: "table".into() }, &[ids]).unwrap();
    for (layer, slot) in slots.into_iter().enumerate() {
        g.section(Section::Layer(layer as u32));
        let shape = g.shape(h).unwrap().with_item(&[4, 2]);
        let q = g.add(Op::Reshape { shape }, &[h]).unwrap();
        let slice = |g: &mut GraphBuilder| g.add(Op::Slice { axis: 2, start: 0, stop: 2 }, &[q]).unwrap();
        let rotate = |g: &mut GraphBuilder| g.add(Op::Rope(RopeSpec::new(2, 1e4)), &[q]).unwrap();
        let (q, kv) = if is_reversed {
            let kv = slice(&mut g);
            (rotate(&mut g), kv)
        } else {
            let q = rotate(&mut g);
            (q, slice(&mut g))
        };
        let mixed = attend(&mut g, slot, q, kv);
        let shape = g.shape(mixed).unwrap().with_item(&[8]);
        let flat = g.add(Op::Reshape { shape }, &[mixed]).unwrap();
        h = g.add(Op::Binary(BinaryOp::Add), &[h, flat]).unwrap();
    }
    g.section(Section::Head);
    let logits = g.add(linear("table"), &[h]).unwrap();
    finish(g, logits)
}

#[test]
fn order_of_construction_does_not_matter() {
    let (one, other) = (two_layers(false), two_layers(true));
    assert_eq!(one.text(), other.text());
    assert_eq!(one, other);
    assert_eq!(one.fingerprint(), other.fingerprint());
}

/// A regression pin of the canonical text's SHA-256, taken from this crate's own text and hashed by other
/// means too; it says nothing of the text's content. Kept on purpose: a changed text form changes every
/// fingerprint that a profile pins.
#[test]
fn the_fingerprint_is_stable() {
    let fingerprint = two_layers(false).fingerprint();
    let pinned = "a39a54ed5fe6ed6b5a9c26a8067c065c7082156832fa61f35f9043ade65a5c0e";
    assert_eq!(fingerprint.as_hex(), pinned);
    assert_eq!(fingerprint.to_string(), fingerprint.as_hex()[..16]);
}

#[test]
fn dead_nodes_and_their_slots_are_dropped_and_slots_renumbered() {
    let mut g = builder();
    let [dead, kept] = [kv_slot(&mut g, 0), kv_slot(&mut g, 7)];
    let [heads, kv] = ["heads", "kv"].map(|name| value(&mut g, name));
    attend(&mut g, dead, heads, kv);
    let mixed = attend(&mut g, kept, heads, kv);
    let shape = g.shape(mixed).unwrap().with_item(&[8]);
    let logits = g.add(Op::Reshape { shape }, &[mixed]).unwrap();
    let graph = finish(g, logits);
    assert_eq!(graph.slots().len(), 1);
    assert_eq!(graph.slot(SlotId(0)).layer, 7);
    let attention: Vec<_> = graph.nodes().iter().filter_map(|node| node.op.slot()).collect();
    assert_eq!(attention, [SlotId(0)]);
}

#[test]
fn inputs_come_before_their_users() {
    let graph = two_layers(true);
    for (i, node) in graph.nodes().iter().enumerate() {
        assert!(node.inputs.iter().all(|input| (input.0 as usize) < i), "{i}: {node:?}");
    }
    assert_eq!(graph.output().0 as usize, graph.nodes().len() - 1);
}

#[test]
fn a_shared_slot_points_at_its_donors_new_number() {
    let mut g = builder();
    // Declared in the order of layers 1, 0; numbered 1, 0, and the shared one of layer 2 last.
    let [second, first] = [kv_slot(&mut g, 1), kv_slot(&mut g, 0)];
    let shared = g.slot(2, SlotKind::KvShared { with: second }).unwrap();
    let [heads, kv] = ["heads", "kv"].map(|name| value(&mut g, name));
    let h = attend(&mut g, first, heads, kv);
    let h = attend(&mut g, second, h, kv);
    let op = Op::Attention { slot: shared, scale: 0.5, mask: Mask::Causal, softcap: None, sinks: None };
    let h = g.add(op, &[h]).unwrap();
    let shape = g.shape(h).unwrap().with_item(&[8]);
    let logits = g.add(Op::Reshape { shape }, &[h]).unwrap();
    let graph = finish(g, logits);
    let kinds: Vec<_> = graph.slots().iter().map(|slot| (slot.layer, slot.kind.clone())).collect();
    assert_eq!(kinds[2], (2, SlotKind::KvShared { with: SlotId(1) }));
    assert_eq!((kinds[0].0, kinds[1].0), (0, 1));
}

/// Every attribute is in the text: graphs that differ in one have different fingerprints.
#[test]
fn every_attribute_is_in_the_text() {
    let line = |op: Op, inputs: &[&str]| {
        let mut g = builder();
        let kind = match &op {
            Op::Attention { .. } => Some(SlotKind::Kv { heads: 2, dim_k: 2, dim_v: 2, window: Some(16) }),
            Op::Conv1dCausal { .. } => Some(SlotKind::Conv { channels: 8, kernel: 4 }),
            _ => None,
        };
        kind.map(|kind| g.slot(0, kind).unwrap());
        let inputs: Vec<Value> = inputs.iter().map(|name| value(&mut g, name)).collect();
        let node = g.add(op, &inputs).unwrap();
        let shape = g.shape(node).unwrap().clone();
        let flat = g.add(Op::Reshape { shape: shape.with_item(&[shape.item_len()]) }, &[node]).unwrap();
        let flat = g.add(Op::Cast { to: crate::ValueType::Float }, &[flat]).unwrap();
        let text = finish(g, flat).text();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with('%')).collect();
        lines[lines.len() - 3].split_once(" = ").unwrap().1.to_owned()
    };
    let rope = RopeSpec {
        dims: 2,
        theta: 1e6,
        layout: RopeLayout::Interleaved,
        frequencies: RopeFrequencies::Yarn {
            factor: 4.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_max_position_embeddings: 4096.0,
            truncate: false,
        },
        attention_factor: 1.25,
        mrope_section: vec![1, 0, 0],
    };
    for (op, inputs, expected) in [
        (
            Op::Linear { weight: "matrix".into(), bias: name("bias6") },
            &["x"][..],
            "linear(%1) weight=\"matrix\" bias=\"bias6\" : float[B,T,6]",
        ),
        (
            Op::RmsNorm { weight: name("norm8"), eps: 1e-6, offset: 1.0 },
            &["x"],
            "rms_norm(%1) weight=\"norm8\" eps=1e-6 offset=1.0 : float[B,T,8]",
        ),
        (
            Op::LayerNorm { weight: None, bias: name("norm8"), eps: 0.1 },
            &["x"],
            "layer_norm(%1) bias=\"norm8\" eps=0.1 : float[B,T,8]",
        ),
        (
            Op::Rope(rope),
            &["heads"],
            "rope(%2) dims=2 theta=1000000.0 layout=interleaved type=yarn factor=4.0 beta_fast=32.0 \
             beta_slow=1.0 original=4096.0 truncate=false attention_factor=1.25 mrope_section=[1, 0, 0] \
             : float[B,T,4,2]",
        ),
        (
            Op::Attention {
                slot: SlotId(0),
                scale: 0.125,
                mask: Mask::Chunked(9),
                softcap: Some(50.0),
                sinks: name("sinks4"),
            },
            &["heads", "kv", "kv"],
            "attention(%2, %5, %8) slot=0 scale=0.125 mask=chunked(9) softcap=50.0 sinks=\"sinks4\" \
             : float[B,T,4,2]",
        ),
        (
            Op::Moe {
                gate: "gates".into(),
                up: "ups".into(),
                down: "downs".into(),
                activation: Activation::GeluTanh,
            },
            &["x", "indices", "three"],
            "moe(%1, %4, %9) gate=\"gates\" up=\"ups\" down=\"downs\" activation=gelu_tanh : float[B,T,8]",
        ),
        (Op::Scale { factor: 0.3 }, &["x"], "scale(%1) factor=0.3 : float[B,T,8]"),
        (Op::Softcap { cap: 30.0 }, &["x"], "softcap(%1) cap=30.0 : float[B,T,8]"),
        (Op::Slice { axis: 2, start: 1, stop: 3 }, &["x"], "slice(%1) axis=2 start=1 stop=3 : float[B,T,2]"),
        (
            Op::Transpose { axes: vec![0, 1, 3, 2] },
            &["heads"],
            "transpose(%2) axes=[0, 1, 3, 2] : float[B,T,2,4]",
        ),
        (Op::TopK { k: 2 }, &["x"], "topk(%1) k=2 : int[B,T,2]"),
        (Op::Inject { feature: "image".into() }, &["x"], "inject(%1) feature=\"image\" : float[B,T,8]"),
        (
            Op::Conv1dCausal { slot: SlotId(0), weight: "kernel".into(), bias: name("norm8") },
            &["x"],
            "conv1d_causal(%1) slot=0 weight=\"kernel\" bias=\"norm8\" : float[B,T,8]",
        ),
    ] {
        assert_eq!(line(op, inputs), expected);
    }
}
