//! Every operation without state, each in a small graph, against its plain form.

use host_core::DType;
use host_graph::{
    BinaryOp, BuildError, GraphBuilder, Op, ReduceOp, Section, Shape, UnaryOp, Value, ValueType,
};

use super::support::{Folder, Model, TOKENS, as_logits, check, compile, options, run};

type Build = fn(&mut GraphBuilder, Value, Value) -> Result<Value, BuildError>;

fn model() -> Model {
    Folder::new(21)
        .dense("e", DType::F32, &[8, 24])
        .dense("f", DType::F32, &[8, 24])
        .dense("six", DType::F32, &[6])
        .dense("four", DType::F32, &[4])
        .dense("column", DType::F32, &[4, 1])
        .dense("m", DType::F32, &[6, 5])
        .dense("square", DType::F16, &[6, 6])
        .dense("linear", DType::F32, &[7, 6])
        .dense("seven", DType::F32, &[7])
        .dense("bias", DType::F32, &[6])
        .dense("layers", DType::BF16, &[8, 12])
        .open()
}

/// Checks a graph over two values `[B,T,4,6]`.
fn check_op(model: &Model, name: &str, bound: f64, build: Build) {
    for section in [Section::Layer(0), Section::Head] {
        let graph = model.graph(|b| {
            let ids = b.add(Op::Tokens, &[])?;
            let mut values = Vec::new();
            for table in ["e", "f"] {
                let x = b.add(Op::Embedding { weight: table.into() }, &[ids])?;
                values.push(b.add(Op::Reshape { shape: Shape::per_token(&[4, 6]) }, &[x])?);
            }
            b.section(section);
            let y = build(b, values[0], values[1])?;
            b.section(Section::Head);
            as_logits(b, y)
        });
        check(&format!("{name} in {section}"), model, &graph, &options(), bound);
    }
}

fn weight(b: &mut GraphBuilder, name: &str) -> Result<Value, BuildError> {
    b.add(Op::Weight { name: name.into() }, &[])
}

/// What is copied, compared or rounded once.
const EXACT: f64 = 6e-8;
/// A handful of roundings, and functions good to two units in the last place.
const NEAR: f64 = 2e-6;

#[test]
fn elementwise_operations() {
    let model = model();
    let cases: [(&str, f64, Build); 11] = [
        ("add", EXACT, |b, x, y| b.add(Op::Binary(BinaryOp::Add), &[x, y])),
        ("mul of itself", EXACT, |b, x, _| b.add(Op::Binary(BinaryOp::Mul), &[x, x])),
        ("add of itself", EXACT, |b, x, _| b.add(Op::Binary(BinaryOp::Add), &[x, x])),
        ("broadcast over rows", EXACT, |b, x, _| {
            let w = weight(b, "six")?;
            b.add(Op::Binary(BinaryOp::Sub), &[w, x])
        }),
        ("broadcast over columns", EXACT, |b, x, _| {
            let w = weight(b, "column")?;
            b.add(Op::Binary(BinaryOp::Mul), &[x, w])
        }),
        ("scale", EXACT, |b, x, _| b.add(Op::Scale { factor: -1.7 }, &[x])),
        ("softcap", NEAR, |b, x, _| b.add(Op::Softcap { cap: 0.3 }, &[x])),
        ("where", EXACT, |b, x, y| {
            let less = b.add(Op::Binary(BinaryOp::Less), &[x, y])?;
            let w = weight(b, "six")?;
            b.add(Op::Where, &[less, w, y])
        }),
        ("truth", EXACT, |b, x, y| {
            let zero = b.add(Op::Constant { value: 0.0 }, &[])?;
            let (p, q) = (
                b.add(Op::Binary(BinaryOp::Less), &[x, zero])?,
                b.add(Op::Binary(BinaryOp::LessEqual), &[x, y])?,
            );
            let not = b.add(Op::Unary(UnaryOp::Not), &[q])?;
            let both = b.add(Op::Binary(BinaryOp::And), &[p, not])?;
            b.add(Op::Binary(BinaryOp::Or), &[both, q])
        }),
        ("cast to whole numbers", EXACT, |b, x, _| {
            let x = b.add(Op::Scale { factor: 9.0 }, &[x])?;
            b.add(Op::Cast { to: ValueType::Int }, &[x])
        }),
        ("cast to truth", EXACT, |b, x, _| {
            let x = b.add(Op::Unary(UnaryOp::Relu), &[x])?;
            b.add(Op::Cast { to: ValueType::Bool }, &[x])
        }),
    ];
    for (name, bound, build) in cases {
        check_op(&model, name, bound, build);
    }
}

#[test]
fn operations_that_move_elements() {
    let model = model();
    let cases: [(&str, Build); 10] = [
        ("slice of the last axis", |b, x, _| b.add(Op::Slice { axis: 3, start: 2, stop: 5 }, &[x])),
        ("slice of an inner axis", |b, x, _| b.add(Op::Slice { axis: 2, start: 1, stop: 3 }, &[x])),
        ("concat of the last axis", |b, x, y| b.add(Op::Concat { axis: 3 }, &[x, y, x])),
        ("concat of an inner axis", |b, x, y| b.add(Op::Concat { axis: 2 }, &[y, x])),
        ("transpose", |b, x, _| b.add(Op::Transpose { axes: vec![0, 1, 3, 2] }, &[x])),
        ("transpose of three", |b, x, _| {
            let x = b.add(Op::Reshape { shape: Shape::per_token(&[2, 3, 4]) }, &[x])?;
            b.add(Op::Transpose { axes: vec![0, 1, 4, 2, 3] }, &[x])
        }),
        ("split and back", |b, x, _| {
            let parts = b.split(x, &[1, 3, 2], 3)?;
            b.add(Op::Concat { axis: 3 }, &[parts[2], parts[0], parts[1]])
        }),
        ("topk", |b, x, _| b.add(Op::TopK { k: 3 }, &[x])),
        ("topk and its values", |b, x, _| Ok(b.topk(x, 6)?.0)),
        ("scatter", |b, x, y| {
            let ids = b.add(Op::TopK { k: 2 }, &[x])?;
            let values = b.add(Op::Slice { axis: 3, start: 0, stop: 2 }, &[y])?;
            b.add(Op::Scatter, &[x, ids, values])
        }),
    ];
    for (name, build) in cases {
        check_op(&model, name, EXACT, build);
    }
}

#[test]
fn operations_that_sum() {
    let model = model();
    let cases: [(&str, Build); 13] = [
        ("softmax", |b, x, _| b.add(Op::Softmax, &[x])),
        ("sum", |b, x, _| b.add(Op::Reduce { op: ReduceOp::Sum, axis: 3 }, &[x])),
        ("sum of an inner axis", |b, x, _| b.add(Op::Reduce { op: ReduceOp::Sum, axis: 2 }, &[x])),
        ("mean", |b, x, _| b.add(Op::Reduce { op: ReduceOp::Mean, axis: 2 }, &[x])),
        ("max", |b, x, _| b.add(Op::Reduce { op: ReduceOp::Max, axis: 3 }, &[x])),
        ("min", |b, x, _| b.add(Op::Reduce { op: ReduceOp::Min, axis: 2 }, &[x])),
        ("cumsum", |b, x, _| b.add(Op::Cumsum { axis: 3 }, &[x])),
        ("cumsum of an inner axis", |b, x, _| b.add(Op::Cumsum { axis: 2 }, &[x])),
        ("matmul", |b, x, y| {
            let y = b.add(Op::Transpose { axes: vec![0, 1, 3, 2] }, &[y])?;
            b.add(Op::Matmul, &[x, y])
        }),
        ("matmul with a weight", |b, x, _| {
            let w = weight(b, "m")?;
            b.add(Op::Matmul, &[x, w])
        }),
        ("matmul of a stack with one", |b, x, y| {
            let x = b.add(Op::Reshape { shape: Shape::per_token(&[2, 3, 4]) }, &[x])?;
            let y = b.add(Op::Reshape { shape: Shape::per_token(&[1, 4, 6]) }, &[y])?;
            b.add(Op::Matmul, &[x, y])
        }),
        ("layer norm", |b, x, _| {
            b.add(Op::LayerNorm { weight: Some("six".into()), bias: Some("bias".into()), eps: 1e-5 }, &[x])
        }),
        ("rms norm", |b, x, _| {
            b.add(Op::RmsNorm { weight: Some("six".into()), eps: 1e-6, offset: 1.0 }, &[x])
        }),
    ];
    for (name, build) in cases {
        check_op(&model, name, NEAR, build);
    }
}

#[test]
fn operations_that_read_weights() {
    let model = model();
    let cases: [(&str, Build); 5] = [
        ("linear over heads", |b, x, _| {
            b.add(Op::Linear { weight: "linear".into(), bias: Some("seven".into()) }, &[x])
        }),
        ("linear and residual", |b, x, y| {
            let y = b.add(Op::Linear { weight: "square".into(), bias: None }, &[y])?;
            b.add(Op::Binary(BinaryOp::Add), &[y, x])
        }),
        ("residual and linear", |b, x, y| {
            let y = b.add(Op::Linear { weight: "square".into(), bias: Some("bias".into()) }, &[y])?;
            b.add(Op::Binary(BinaryOp::Add), &[x, y])
        }),
        ("per-layer embedding", |b, _, _| {
            let ids = b.add(Op::Tokens, &[])?;
            b.add(Op::PerLayerEmbedding { weight: "layers".into(), n_layers: 3 }, &[ids])
        }),
        ("injection of nothing", |b, x, _| {
            let x = b.add(Op::Reshape { shape: Shape::per_token(&[24]) }, &[x])?;
            b.add(Op::Inject { feature: "image".into() }, &[x])
        }),
    ];
    for (name, build) in cases {
        check_op(&model, name, NEAR, build);
    }
}

#[test]
fn what_no_token_changes_is_computed_once() {
    let model = model();
    let cases: [(&str, Build); 6] = [
        ("a linear of a weight", |b, x, _| {
            let w = weight(b, "six")?;
            let w = b.add(Op::Linear { weight: "square".into(), bias: Some("bias".into()) }, &[w])?;
            b.add(Op::Binary(BinaryOp::Mul), &[x, w])
        }),
        ("a norm of a weight", |b, x, _| {
            let w = weight(b, "square")?;
            let w = b.add(Op::RmsNorm { weight: Some("six".into()), eps: 1e-6, offset: 0.0 }, &[w])?;
            b.add(Op::Matmul, &[x, w])
        }),
        ("a gated weight", |b, x, _| {
            let (gate, up) = (weight(b, "six")?, weight(b, "bias")?);
            let gate = b.add(Op::Unary(UnaryOp::Silu), &[gate])?;
            let w = b.add(Op::Binary(BinaryOp::Mul), &[gate, up])?;
            b.add(Op::Binary(BinaryOp::Add), &[x, w])
        }),
        ("a linear and a weight summed", |b, x, _| {
            let (w, six) = (weight(b, "bias")?, weight(b, "six")?);
            let w = b.add(Op::Linear { weight: "square".into(), bias: None }, &[w])?;
            let w = b.add(Op::Binary(BinaryOp::Add), &[w, six])?;
            b.add(Op::Binary(BinaryOp::Add), &[x, w])
        }),
        ("a row of a table by a number", |b, x, _| {
            let five = b.add(Op::Constant { value: 5.0 }, &[])?;
            let five = b.add(Op::Cast { to: ValueType::Int }, &[five])?;
            let row = b.add(Op::Embedding { weight: "e".into() }, &[five])?;
            let row = b.add(Op::Reshape { shape: Shape::fixed(&[4, 6]) }, &[row])?;
            b.add(Op::Binary(BinaryOp::Add), &[x, row])
        }),
        ("numbers only", |b, x, _| {
            let (two, three) =
                (b.add(Op::Constant { value: 2.0 }, &[])?, b.add(Op::Constant { value: 3.0 }, &[])?);
            let eight = b.add(Op::Binary(BinaryOp::Pow), &[two, three])?;
            let root = b.add(Op::Unary(UnaryOp::Sqrt), &[eight])?;
            b.add(Op::Binary(BinaryOp::Div), &[x, root])
        }),
    ];
    for (name, build) in cases {
        check_op(&model, name, NEAR, build);
    }
}

#[test]
fn a_tie_goes_to_the_lower_index_whatever_the_sign_of_zero() {
    let zeros = [0.0, -0.0, 0.0, -1.0, -0.0, 0.0, -2.0, -0.0].repeat(8);
    let model = Folder::new(1).numbers("e", DType::F32, &[8, 8], &zeros).open();
    let graph = model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "e".into() }, &[ids])?;
        let best = b.add(Op::TopK { k: 8 }, &[x])?;
        b.section(Section::Head);
        as_logits(b, best)
    });
    let rows = run(&mut *compile(&model, &graph, &options()), &TOKENS, 20);
    assert_eq!(rows[0], [0.0, 1.0, 2.0, 4.0, 5.0, 7.0, 3.0, 6.0]);
}

#[test]
fn positions_count_from_the_sequence_s_first_token() {
    let model = model();
    let graph = model.graph(|b| {
        let positions = b.add(Op::Positions, &[])?;
        b.section(Section::Head);
        let x = b.add(Op::Reshape { shape: Shape::per_token(&[1]) }, &[positions])?;
        as_logits(b, x)
    });
    check("positions", &model, &graph, &options(), 0.0);
}

#[test]
fn logits_may_be_made_outside_the_head() {
    let model = model();
    let graph = model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "e".into() }, &[ids])?;
        as_logits(b, x)
    });
    check("no head", &model, &graph, &options(), 0.0);
}
