//! Tests of the graph crate: one small checkpoint, values by name, and a slot of every kind.

use crate::{
    BuildError, Catalogue, Graph, GraphBuilder, Limits, Op, Shape, SlotId, SlotKind, TensorFacts, UnaryOp,
    Value, ValueType,
};

mod accepted;
mod bounds;
mod canonical;
mod endings;
mod errors;
mod parse;
mod refused;
mod rope;
mod scan;

/// The slots of [`declare_slots`], in its order.
const KV: SlotId = SlotId(0);
const CONV: SlotId = SlotId(1);
const DELTA: SlotId = SlotId(2);
const STATE: SlotId = SlotId(3);
const INDEX: SlotId = SlotId(4);
const WINDOWED: SlotId = SlotId(5);

/// A checkpoint with a tensor for each use; names that begin with `packed` are quantised.
fn catalogue() -> Catalogue {
    let shapes: [(&str, &[usize]); 16] = [
        ("table", &[10, 8]),
        ("narrow", &[10, 4]),
        ("layers", &[10, 12]),
        ("matrix", &[6, 8]),
        ("packed", &[6, 8]),
        ("packed8", &[8]),
        ("norm8", &[8]),
        ("bias6", &[6]),
        ("sinks4", &[4]),
        ("cube", &[2, 3, 4]),
        ("gates", &[5, 6, 8]),
        ("ups", &[5, 6, 8]),
        ("downs", &[5, 8, 6]),
        ("kernel", &[8, 4]),
        ("kernel_middle", &[8, 1, 4]),
        ("kernel_last", &[8, 4, 1]),
    ];
    let facts = |(name, shape): (&str, &[usize])| {
        (name.to_owned(), TensorFacts { shape: shape.to_vec(), is_dense: !name.starts_with("packed") })
    };
    shapes.into_iter().map(facts).collect()
}

fn builder() -> GraphBuilder {
    GraphBuilder::new(catalogue(), Limits::default())
}

fn declare_slots(g: &mut GraphBuilder) {
    let kv = |window| SlotKind::Kv { heads: 2, dim_k: 2, dim_v: 2, window };
    let kinds = [
        (KV, kv(None)),
        (CONV, SlotKind::Conv { channels: 8, kernel: 4 }),
        (DELTA, SlotKind::Recurrent { shape: vec![4, 2, 2] }),
        (STATE, SlotKind::Recurrent { shape: vec![8] }),
        (INDEX, SlotKind::IndexKeys { dim: 2 }),
        (WINDOWED, kv(Some(16))),
    ];
    for (id, kind) in kinds {
        assert_eq!(g.slot(0, kind).unwrap(), id);
    }
}

/// A new value of that name, all its nodes new too; a name not listed is a tensor's.
fn value(g: &mut GraphBuilder, name: &str) -> Value {
    let (op, of): (Op, &[&str]) = match name {
        "ids" => (Op::Tokens, &[]),
        "x" => (Op::Embedding { weight: "table".into() }, &["ids"]),
        "two" => (Op::Slice { axis: 2, start: 0, stop: 2 }, &["x"]),
        "four" => (Op::Slice { axis: 2, start: 0, stop: 4 }, &["x"]),
        "heads" => (Op::Reshape { shape: Shape::per_token(&[4, 2]) }, &["x"]),
        "narrow_x" => (Op::Embedding { weight: "narrow".into() }, &["ids"]),
        "kv" => (Op::Reshape { shape: Shape::per_token(&[2, 2]) }, &["narrow_x"]),
        "indices" => (Op::TopK { k: 3 }, &["x"]),
        "three" => return routing_weights(g),
        "truth" => (Op::Cast { to: ValueType::Bool }, &["x"]),
        "one" => (Op::Constant { value: 1.0 }, &[]),
        tensor => (Op::Weight { name: tensor.into() }, &[]),
    };
    let inputs: Vec<Value> = of.iter().map(|name| value(g, name)).collect();
    g.add(op, &inputs).unwrap()
}

/// Float `[B,T,3]`: a softmax over the three largest of x.
fn routing_weights(g: &mut GraphBuilder) -> Value {
    let x = value(g, "x");
    let (largest, _) = g.topk(x, 3).unwrap();
    g.add(Op::Softmax, &[largest]).unwrap()
}

/// What one operation over named values gives, as type and shape, where every slot is declared.
fn added(op: Op, inputs: &[&str]) -> Result<String, BuildError> {
    let mut g = builder();
    declare_slots(&mut g);
    let inputs: Vec<Value> = inputs.iter().map(|name| value(&mut g, name)).collect();
    let result = g.add(op, &inputs)?;
    let node = g.visible(result).expect("a value just given is visible");
    Ok(format!("{}{}", node.value_type, node.shape))
}

fn name(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn linear(weight: &str) -> Op {
    Op::Linear { weight: weight.into(), bias: None }
}

fn unary(op: UnaryOp) -> Op {
    Op::Unary(op)
}

/// The graph, with every tensor of the checkpoint ignored that it may not use.
fn finish(mut g: GraphBuilder, output: Value) -> Graph {
    catalogue().keys().for_each(|name| g.ignore(name));
    g.finish(output).unwrap()
}
