//! Reading the canonical text: what was written comes back, and nothing else is taken.

use host_core::Reported;

use super::{CONV, DELTA, INDEX, KV, WINDOWED, builder, catalogue, declare_slots, name, unary, value};
use crate::{
    Activation, BinaryOp, Catalogue, Graph, GraphBuilder, Limits, Mask, Op, ReduceOp, RopeFrequencies,
    RopeLayout, RopeSpec, Section, Shape, SlotId, SlotKind, TensorFacts, TextError, UnaryOp, Value,
    ValueType,
};

/// Float `[B,T,V]` of any value.
fn as_logits(g: &mut GraphBuilder, x: Value) -> Value {
    let shape = g.shape(x).unwrap().clone();
    let x = g.add(Op::Cast { to: ValueType::Float }, &[x]).unwrap();
    if !shape.lead().is_empty() {
        return g.add(Op::Reshape { shape: Shape::per_token(&[shape.item_len()]) }, &[x]).unwrap();
    }
    let flat = g.add(Op::Reshape { shape: Shape::fixed(&[shape.item_len()]) }, &[x]).unwrap();
    let one = g.add(Op::Reduce { op: ReduceOp::Sum, axis: 0 }, &[flat]).unwrap();
    let embedded = value(g, "x");
    g.add(Op::Binary(BinaryOp::Mul), &[embedded, one]).unwrap()
}

/// The graph of one operation over named values; only the slots that it uses are declared.
fn graph_of(op: Op, inputs: &[&str]) -> Graph {
    let mut g = builder();
    if op.slot().is_some() {
        declare_slots(&mut g);
        use_other_slots(&mut g, op.slot());
    }
    g.section(Section::Layer(3));
    let inputs: Vec<Value> = inputs.iter().map(|name| value(&mut g, name)).collect();
    let result = g.add(op, &inputs).unwrap();
    g.section(Section::Head);
    let logits = as_logits(&mut g, result);
    super::finish(g, logits)
}

/// A slot that is declared must be used, if by a node that falls away.
fn use_other_slots(g: &mut GraphBuilder, but: Option<SlotId>) {
    let attention = |slot, mask| Op::Attention { slot, scale: 1.0, mask, softcap: None, sinks: None };
    let uses: [(SlotId, Op, &[&str]); 5] = [
        (KV, attention(KV, Mask::Causal), &["heads", "kv", "kv"]),
        (CONV, Op::Conv1dCausal { slot: CONV, weight: "kernel".into(), bias: None }, &["x"]),
        (DELTA, Op::GatedDelta { slot: DELTA }, &["kv", "kv", "heads", "four", "four"]),
        (INDEX, Op::SparseSelect { slot: INDEX, k: 2 }, &["heads", "two", "four"]),
        (WINDOWED, attention(WINDOWED, Mask::Window(2)), &["heads", "kv", "kv"]),
    ];
    for (slot, op, inputs) in uses {
        if but != Some(slot) {
            let inputs: Vec<Value> = inputs.iter().map(|name| value(g, name)).collect();
            g.add(op, &inputs).unwrap();
        }
    }
    let x = value(g, "x");
    let begun = g.begin_scan(super::STATE, &[x]).unwrap();
    g.end_scan(begun[0], begun[1]).unwrap();
}

fn rope(frequencies: RopeFrequencies) -> Op {
    Op::Rope(RopeSpec { frequencies, ..RopeSpec::new(2, 1e4) })
}

/// Two loops, the second within a section of its own.
fn loops() -> Graph {
    let mut g = builder();
    let slots = [0, 1].map(|layer| g.slot(layer, SlotKind::Recurrent { shape: vec![8] }).unwrap());
    let mut h = value(&mut g, "x");
    for (layer, slot) in slots.into_iter().enumerate() {
        g.section(Section::Layer(layer as u32));
        let begun = g.begin_scan(slot, &[h, h]).unwrap();
        let weight = g.add(Op::Weight { name: "norm8".into() }, &[]).unwrap();
        let sum = g.add(Op::Binary(BinaryOp::Mul), &[begun[2], weight]).unwrap();
        let sum = g.add(Op::Binary(BinaryOp::Add), &[begun[0], sum]).unwrap();
        let state = g.add(Op::Unary(UnaryOp::Tanh), &[sum]).unwrap();
        h = g.end_scan(state, begun[1]).unwrap();
    }
    super::finish(g, h)
}

/// A layer that reads its donor's keys, and has the lower number.
fn shared() -> Graph {
    let mut g = builder();
    let donor = g.slot(5, SlotKind::Kv { heads: 2, dim_k: 2, dim_v: 2, window: None }).unwrap();
    let reader = g.slot(2, SlotKind::KvShared { with: donor }).unwrap();
    let attention = |slot| Op::Attention { slot, scale: 0.1, mask: Mask::Causal, softcap: None, sinks: None };
    let [q, k] = ["heads", "kv"].map(|name| value(&mut g, name));
    let h = g.add(attention(donor), &[q, k, k]).unwrap();
    let h = g.add(attention(reader), &[h]).unwrap();
    let logits = as_logits(&mut g, h);
    super::finish(g, logits)
}

/// A graph for every operation, attribute and kind of slot.
fn graphs() -> Vec<Graph> {
    let qkv = &["heads", "kv", "kv"][..];
    let attention = |slot, mask, softcap, sinks| Op::Attention { slot, scale: -0.125, mask, softcap, sinks };
    let experts =
        |activation| Op::Moe { gate: "gates".into(), up: "ups".into(), down: "downs".into(), activation };
    let routed = &["x", "indices", "three"][..];
    let yarn = RopeFrequencies::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.5,
        original_max_position_embeddings: 4096.0,
        truncate: false,
    };
    let llama3 = RopeFrequencies::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192.0,
    };
    let multimodal = RopeSpec {
        layout: RopeLayout::Interleaved,
        frequencies: yarn.clone(),
        attention_factor: 1.2079442,
        mrope_section: vec![1, 0, 0],
        ..RopeSpec::new(2, 5e5)
    };
    let mut cases: Vec<(Op, &[&str])> = vec![
        (Op::Positions, &[]),
        (Op::Constant { value: -1e-30 }, &[]),
        (Op::Constant { value: f32::MAX }, &[]),
        (Op::Weight { name: "cube".into() }, &[]),
        (Op::PerLayerEmbedding { weight: "layers".into(), n_layers: 3 }, &["ids"]),
        (Op::Linear { weight: "packed".into(), bias: name("bias6") }, &["x"]),
        (Op::Linear { weight: "matrix".into(), bias: None }, &["x"]),
        (Op::RmsNorm { weight: name("norm8"), eps: 1e-6, offset: 1.0 }, &["x"]),
        (Op::RmsNorm { weight: None, eps: 1e-5, offset: 0.0 }, &["heads"]),
        (Op::LayerNorm { weight: name("norm8"), bias: name("norm8"), eps: 0.1 }, &["x"]),
        (Op::LayerNorm { weight: None, bias: None, eps: 1.0 }, &["x"]),
        (rope(RopeFrequencies::Default), &["heads"]),
        (rope(RopeFrequencies::Linear { factor: 2.5 }), &["heads"]),
        (rope(RopeFrequencies::LongRope { factors: vec![1.0625] }), &["heads"]),
        (rope(RopeFrequencies::Proportional { factor: 1.0, full_dims: 8 }), &["heads"]),
        (rope(llama3), &["heads"]),
        (rope(yarn), &["heads"]),
        (Op::Rope(multimodal), &["heads"]),
        (attention(KV, Mask::Causal, None, None), qkv),
        (attention(KV, Mask::Chunked(9), Some(50.0), name("sinks4")), qkv),
        (attention(KV, Mask::BidirectionalPrefix, None, None), &["heads", "kv", "kv", "indices"]),
        (attention(WINDOWED, Mask::Window(16), None, None), qkv),
        (Op::Scale { factor: 0.3 }, &["x"]),
        (Op::Softcap { cap: 30.0 }, &["x"]),
        (Op::Slice { axis: 2, start: 1, stop: 3 }, &["x"]),
        (Op::Concat { axis: 2 }, &["x", "two", "x"]),
        (Op::Transpose { axes: vec![0, 1, 3, 2] }, &["heads"]),
        (Op::Cast { to: ValueType::Bool }, &["x"]),
        (Op::Softmax, &["x"]),
        (Op::TopK { k: 2 }, &["x"]),
        (Op::Gather, &["x", "indices"]),
        (Op::Scatter, &["x", "indices", "three"]),
        (experts(Activation::Silu), routed),
        (experts(Activation::Gelu), routed),
        (experts(Activation::GeluTanh), routed),
        (Op::Conv1dCausal { slot: CONV, weight: "kernel".into(), bias: name("norm8") }, &["x"]),
        (Op::GatedDelta { slot: DELTA }, &["kv", "kv", "heads", "four", "four"]),
        (Op::SsmScan { slot: DELTA }, &["heads", "four", "sinks4", "kv", "kv"]),
        (Op::SparseSelect { slot: INDEX, k: 7 }, &["heads", "two", "four"]),
        (Op::Inject { feature: "image".into() }, &["x"]),
        (Op::Matmul, &["heads", "kv"]),
        (Op::Where, &["truth", "x", "one"]),
        (Op::Cumsum { axis: 3 }, &["heads"]),
    ];
    cases.extend(
        UnaryOp::ALL.map(|(op, _)| (unary(op), if op == UnaryOp::Not { &["truth"][..] } else { &["x"][..] })),
    );
    cases.extend(BinaryOp::ALL.map(|(op, _)| {
        let is_logical = matches!(op, BinaryOp::And | BinaryOp::Or);
        (Op::Binary(op), if is_logical { &["truth", "truth"][..] } else { &["x", "norm8"][..] })
    }));
    cases.extend(ReduceOp::ALL.map(|(op, _)| (Op::Reduce { op, axis: 2 }, &["heads"][..])));
    let mut graphs: Vec<Graph> = cases.into_iter().map(|(op, inputs)| graph_of(op, inputs)).collect();
    graphs.extend([loops(), shared()]);
    graphs
}

fn parse(text: &str) -> Result<Graph, TextError> {
    Graph::parse(text, catalogue(), Limits::default())
}

#[test]
fn what_was_written_comes_back() {
    let mut seen = std::collections::BTreeSet::new();
    for graph in graphs() {
        let text = graph.text();
        let read = parse(&text).unwrap_or_else(|error| panic!("{}\n{text}", error.report()));
        assert!(read == graph, "{text}");
        assert_eq!((read.text(), read.fingerprint()), (text, graph.fingerprint()));
        seen.extend(graph.nodes().iter().map(|node| node.op.name()));
    }
    // Every name that the form knows, `body_input` inside the loops.
    assert_eq!(seen.len(), 32 + UnaryOp::ALL.len() + BinaryOp::ALL.len() + ReduceOp::ALL.len(), "{seen:?}");
}

/// Names as checkpoints may have them: quotes, line feeds, letters of other scripts.
#[test]
fn names_come_back_whatever_their_letters() {
    for weight in ["a \"b\" : c", "line\nfeed\r\t\0", "back\\slash'", "ß中🦀", "\u{1b}[0m\u{301}", ""] {
        let facts = TensorFacts { shape: vec![10, 8], is_dense: true };
        let tensors: Catalogue = [(weight.to_owned(), facts)].into_iter().collect();
        let mut g = GraphBuilder::new(tensors.clone(), Limits::default());
        let ids = g.add(Op::Tokens, &[]).unwrap();
        let x = g.add(Op::Embedding { weight: weight.into() }, &[ids]).unwrap();
        let graph = g.finish(x).unwrap();
        let read = Graph::parse(&graph.text(), tensors, Limits::default());
        assert_eq!(read.as_ref(), Ok(&graph), "{weight:?}");
    }
}

/// The text in which each case changes one place.
const TEXT: &str = r#"tenon-graph 1
slot 0 layer=3 kv heads=2 dim_k=2 dim_v=2
section layer[3]
%0 = tokens() : int[B,T]
%1 = embedding(%0) weight="table" : float[B,T,8]
%2 = reshape(%1) : float[B,T,4,2]
%3 = embedding(%0) weight="narrow" : float[B,T,4]
%4 = reshape(%3) : float[B,T,2,2]
%5 = attention(%2, %4, %4) slot=0 scale=0.5 mask=causal : float[B,T,4,2]
section head
%6 = reshape(%5) : float[B,T,8]
output %6
ignore "cube"
"#;

fn small(text: &str) -> Result<Graph, TextError> {
    let names = ["table", "narrow", "cube"];
    let tensors = catalogue().into_iter().filter(|(name, _)| names.contains(&name.as_str())).collect();
    Graph::parse(text, tensors, Limits::default())
}

#[test]
fn whatever_is_not_the_text_of_a_graph_is_refused_with_its_line() {
    assert_eq!(small(TEXT).unwrap().text(), TEXT);
    for (from, to, code, message) in [
        ("tenon-graph 1", "tenon-graph 2", "graph.text-syntax", "line 1, column 1: expected `tenon-graph 1`"),
        ("tenon-graph 1\n", "", "graph.text-syntax", "line 1, column 1: expected `tenon-graph 1`"),
        ("\nignore \"cube\"\n", "\n", "graph.unused-tensors", "line 12: the graph cannot be built"),
        (
            "\nignore \"cube\"\n",
            "\nignore \"cube\"",
            "graph.text-syntax",
            "line 13, column 1: expected an ignored tensor, or the end of the text",
        ),
        ("\"cube\"", "\"cub\"", "graph.missing-tensor", "line 13: the graph cannot be built"),
        ("\"cube\"", "\"cube\" ", "graph.text-syntax", "line 13, column 14: expected the end of the line"),
        (
            "\"cube\"\n",
            "\"cube\"\nmore\n",
            "graph.text-syntax",
            "line 14, column 1: expected an ignored tensor, or the end of the text",
        ),
        ("slot 0", "slot 1", "graph.text-syntax", "line 2, column 6: expected `0`"),
        ("layer=3 kv", "layer=x kv", "graph.text-syntax", "line 2, column 14: expected a layer"),
        ("layer=3 kv", "layer=3 KV", "graph.text-syntax", "line 2, column 16: expected a kind of slot"),
        (
            "layer=3 kv",
            "layer=3 key",
            "graph.text-syntax",
            "line 2, column 16: expected `kv`, `kv_shared`, `conv`, `recurrent` or `index_keys`",
        ),
        ("kv heads=2 dim_k=2 dim_v=2", "kv_shared with=0", "graph.slot", "line 2: the graph cannot be built"),
        ("heads=2", "heads=0", "graph.attribute", "line 2: the graph cannot be built"),
        ("heads=2", "heads=02", "graph.text-form", "line 2 is not in canonical form"),
        (
            "heads=2",
            "heads=99999999999999999999",
            "graph.text-syntax",
            "line 2, column 25: expected a whole number",
        ),
        ("section layer[3]", "section layer[3", "graph.text-syntax", "line 3, column 16: expected `]`"),
        ("section layer[3]", "section tail", "graph.text-syntax", "line 3, column 9: expected `layer[`"),
        ("section layer[3]\n", "", "graph.text-form", "line 3 is not in canonical form"),
        (
            "section head\n",
            "section head\nsection head\n",
            "graph.text-form",
            "line 11 is not in canonical form",
        ),
        ("%0 = tokens()", "%1 = tokens()", "graph.text-syntax", "line 4, column 1: expected `%0 = `"),
        (
            "%0 = tokens()",
            "%0 = tokenz()",
            "graph.text-operation",
            "line 4: there is no operation `tokenz` here",
        ),
        (
            "%0 = tokens()",
            "%0 = body_input() index=0",
            "graph.text-operation",
            "line 4: there is no operation `body_input` here",
        ),
        (
            "tokens() : int[B,T]",
            "tokens()",
            "graph.text-syntax",
            "line 4, column 14: expected ` : ` and the type of the result",
        ),
        (
            "tokens() : int[B,T]",
            "tokens() : int[B,T,1]",
            "graph.text-type",
            "line 4: the operation gives int[B,T]",
        ),
        (
            "tokens() : int[B,T]",
            "tokens() : whole[B,T]",
            "graph.text-syntax",
            "line 4, column 17: expected `float`, `int` or `bool`",
        ),
        (
            "embedding(%0) weight=\"table\"",
            "embedding(%9) weight=\"table\"",
            "graph.unknown-value",
            "line 5: the graph cannot be built",
        ),
        (
            "embedding(%0) weight=\"table\"",
            "embedding(%1) weight=\"table\"",
            "graph.unknown-value",
            "line 5: the graph cannot be built",
        ),
        (
            "embedding(%0) weight=\"table\"",
            "embedding(0) weight=\"table\"",
            "graph.text-syntax",
            "line 5, column 16: expected a value such as `%7`",
        ),
        (
            "embedding(%0) weight=\"table\"",
            "embedding(%0,%0) weight=\"table\"",
            "graph.text-syntax",
            "line 5, column 18: expected `, `",
        ),
        (
            "weight=\"table\"",
            "weight=table",
            "graph.text-syntax",
            "line 5, column 27: expected a name between quotes",
        ),
        (
            "weight=\"table\"",
            "weight=\"ta\\qble\"",
            "graph.text-syntax",
            "line 5, column 27: expected a name between quotes",
        ),
        ("weight=\"table\"", "weight=\"\\u{74}able\"", "graph.text-form", "line 5 is not in canonical form"),
        (
            "weight=\"table\"",
            "weight=\"tables\"",
            "graph.missing-tensor",
            "line 5: the graph cannot be built",
        ),
        ("weight=\"table\"", "bias=\"table\"", "graph.text-syntax", "line 5, column 19: expected ` weight=`"),
        (
            "reshape(%1) : float[B,T,4,2]",
            "reshape(%1) : float[B,T,4,3]",
            "graph.shape",
            "line 6: the graph cannot be built",
        ),
        ("slot=0 scale", "slot=7 scale", "graph.slot", "line 9: the graph cannot be built"),
        ("scale=0.5", "scale=0.50", "graph.text-form", "line 9 is not in canonical form"),
        ("scale=0.5", "scale=inf", "graph.text-syntax", "line 9, column 41: expected a number"),
        ("scale=0.5", "scale=1e99", "graph.attribute", "line 9: the graph cannot be built"),
        (
            "mask=causal",
            "mask=all",
            "graph.text-syntax",
            "line 9, column 50: expected `causal`, `window(N)`, `chunked(N)` or `bidirectional_prefix`",
        ),
        ("mask=causal", "mask=window(0)", "graph.attribute", "line 9: the graph cannot be built"),
        ("mask=causal", "mask=causal softcap=0.0", "graph.attribute", "line 9: the graph cannot be built"),
        ("output %6", "output %5", "graph.shape", "line 12: the graph cannot be built"),
        ("output %6\n", "", "graph.text-syntax", "line 12, column 1: expected `%7 = `"),
        // Nodes in another order, and one that nothing needs.
        (
            "output %6",
            "%7 = exp(%6) : float[B,T,8]\noutput %6",
            "graph.text-form",
            "line 12 is not in canonical form",
        ),
        (
            "%5 = attention(%2, %4, %4)",
            "%5 = attention(%4, %2, %4)",
            "graph.shape",
            "line 9: the graph cannot be built",
        ),
    ] {
        assert_eq!(TEXT.matches(from).count(), 1, "{from:?}");
        let error = small(&TEXT.replacen(from, to, 1)).expect_err(to);
        let report = error.report();
        assert_eq!((report.code, error.to_string().as_str()), (code, message), "{from:?} as {to:?}");
        assert!(report.expected.is_some() || code.starts_with("graph.un"), "{report}");
        assert!(report.mend.is_some(), "{report}");
    }
    let crlf = small(&TEXT.replace('\n', "\r\n")).unwrap_err();
    assert_eq!(crlf.to_string(), "line 1, column 14: expected the end of the line");
}

#[test]
fn the_tensors_of_another_checkpoint_are_refused() {
    let refused = |change: &dyn Fn(&mut Catalogue)| {
        let names = ["table", "narrow", "cube"];
        let mut tensors: Catalogue =
            catalogue().into_iter().filter(|(name, _)| names.contains(&name.as_str())).collect();
        change(&mut tensors);
        Graph::parse(TEXT, tensors, Limits::default()).unwrap_err().report().code
    };
    assert_eq!(refused(&|tensors| drop(tensors.remove("narrow"))), "graph.missing-tensor");
    assert_eq!(refused(&|tensors| drop(tensors.remove("cube"))), "graph.missing-tensor");
    let narrow = |tensors: &mut Catalogue| tensors.get_mut("narrow").unwrap().shape = vec![10, 6];
    assert_eq!(refused(&narrow), "graph.text-type");
    let more = TensorFacts { shape: vec![1], is_dense: true };
    assert_eq!(refused(&|tensors| drop(tensors.insert("more".into(), more.clone()))), "graph.unused-tensors");
}

#[test]
fn the_builders_limits_hold() {
    let refused = |limits: Limits| match parse(&loops().text())
        .and_then(|graph| Graph::parse(&graph.text(), catalogue(), limits))
    {
        Err(TextError::Build { line, source }) => (line, source.report().code),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Limits { max_nodes: 4, ..Limits::default() }), (8, "graph.limit"));
    assert_eq!(refused(Limits { max_slots: 1, ..Limits::default() }), (3, "graph.limit"));
    assert_eq!(refused(Limits { max_inputs: 1, ..Limits::default() }), (8, "graph.limit"));
    assert_eq!(refused(Limits { max_name_bytes: 4, ..Limits::default() }), (6, "graph.limit"));
}

/// Damaged texts are refused, or are the text of the graph that they give; none of them makes the reader panic.
#[test]
fn damaged_texts_do_no_harm() {
    let texts: Vec<String> = graphs().iter().map(Graph::text).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    let tokens = [
        "%",
        "\"",
        "(",
        ")",
        "[",
        "]",
        "0",
        "18446744073709551616",
        "-1",
        "e9",
        "\n",
        " : ",
        "  ",
        "state %0 output %0",
        "scan",
        "section ",
        "output %0",
        "slot ",
        "\\u{110000}",
        "中",
        "B",
        "kv_shared with=0",
    ];
    let mut n_accepted = 0;
    for round in 0..4000 {
        let mut text = texts[round % texts.len()].clone();
        for _ in 0..=random(3) {
            let at = (0..=random(text.len() + 1)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let end = (at..=at + random(24)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(at);
            let end = end.min(text.len());
            match random(4) {
                0 => drop(text.drain(at..end)),
                1 => text.insert_str(at, tokens[random(tokens.len())]),
                2 => {
                    let part = text[at..end].to_owned();
                    text.insert_str(at, &part);
                }
                _ => {
                    let other = &texts[random(texts.len())];
                    let lines: Vec<&str> = other.lines().collect();
                    text.insert_str(at, lines[random(lines.len())]);
                }
            }
        }
        if let Ok(graph) = parse(&text) {
            n_accepted += 1;
            assert_eq!(graph.text(), text);
        }
    }
    assert!(n_accepted < 4000);
}
