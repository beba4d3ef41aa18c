//! Steps of one token a sequence: what is recognised in a graph, and that their replay changes nothing.

use host_core::{DType, Reported};
use host_device::{CompileOptions, Device, Executable, LogitsFor, TokenRun};
use host_graph::{
    BinaryOp, BuildError, Graph, GraphBuilder, Mask, Op, RopeLayout, RopeSpec, Section, Shape, SlotKind,
    UnaryOp, Value,
};

use super::support::{Folder, Model, as_logits, check, compile, options, run};
use crate::plan::{self, Part};
use crate::weights::Kind;
use crate::{Backend, demand, program};

/// What layers of a case have of their own.
#[derive(Clone)]
struct Layers {
    rope: RopeSpec,
    has_norms: bool,
    mask: Mask,
    softcap: Option<f32>,
    is_affine: bool,
    has_bias: bool,
}

fn plain() -> Layers {
    Layers {
        rope: RopeSpec::new(32, 100.0),
        has_norms: false,
        mask: Mask::Causal,
        softcap: None,
        is_affine: false,
        has_bias: false,
    }
}

const N_LAYERS: u32 = 2;

impl Layers {
    fn model(&self) -> Model {
        let mut folder =
            Folder::new(51).dense("e.weight", DType::F32, &[8, 64]).dense("n", DType::F32, &[64]);
        for layer in 0..N_LAYERS {
            for (name, shape) in [
                ("q", [64, 64]),
                ("k", [32, 64]),
                ("v", [32, 64]),
                ("o", [64, 64]),
                ("gate", [96, 64]),
                ("up", [96, 64]),
                ("down", [64, 96]),
            ] {
                let module = format!("{layer}.{name}");
                folder = if self.is_affine {
                    folder.affine(&module, &shape, 4, 32, DType::F32)
                } else {
                    folder.dense(&format!("{module}.weight"), DType::F32, &shape)
                };
                folder = folder.dense(&format!("{module}.bias"), DType::F32, &[shape[0]]);
            }
            for (name, width) in [("n1", 64), ("n2", 64), ("qn", 32), ("kn", 32)] {
                folder = folder.dense(&format!("{layer}.{name}"), DType::F32, &[width]);
            }
        }
        folder.open()
    }

    fn graph(&self, model: &Model) -> Graph {
        model.graph(|b| {
            let ids = b.add(Op::Tokens, &[])?;
            let mut x = b.add(Op::Embedding { weight: "e.weight".into() }, &[ids])?;
            for layer in 0..N_LAYERS {
                b.section(Section::Layer(layer));
                x = self.attention(b, layer, x)?;
                x = mlp(b, layer, x)?;
            }
            b.section(Section::Head);
            let x = norm(b, "n".into(), x)?;
            let logits = b.add(Op::Linear { weight: "e.weight".into(), bias: None }, &[x])?;
            as_logits(b, logits)
        })
    }

    fn attention(&self, b: &mut GraphBuilder, layer: u32, x: Value) -> Result<Value, BuildError> {
        let normed = norm(b, format!("{layer}.n1"), x)?;
        let mut parts = Vec::new();
        for (name, heads) in [("q", 2), ("k", 1), ("v", 1)] {
            let bias = self.has_bias.then(|| format!("{layer}.{name}.bias"));
            let y = b.add(Op::Linear { weight: format!("{layer}.{name}.weight"), bias }, &[normed])?;
            let mut y = b.add(Op::Reshape { shape: Shape::per_token(&[heads, 32]) }, &[y])?;
            if self.has_norms && name != "v" {
                y = norm(b, format!("{layer}.{name}n"), y)?;
            }
            parts.push(if name == "v" { y } else { b.add(Op::Rope(self.rope.clone()), &[y])? });
        }
        let slot = b.slot(layer, SlotKind::Kv { heads: 1, dim_k: 32, dim_v: 32, window: None })?;
        let op = Op::Attention { slot, scale: 0.4, mask: self.mask, softcap: self.softcap, sinks: None };
        let y = b.add(op, &parts)?;
        let y = b.add(Op::Reshape { shape: Shape::per_token(&[64]) }, &[y])?;
        residual(b, x, format!("{layer}.o.weight"), y)
    }
}

fn norm(b: &mut GraphBuilder, weight: String, x: Value) -> Result<Value, BuildError> {
    b.add(Op::RmsNorm { weight: Some(weight), eps: 1e-5, offset: 0.0 }, &[x])
}

fn residual(b: &mut GraphBuilder, x: Value, weight: String, y: Value) -> Result<Value, BuildError> {
    let y = b.add(Op::Linear { weight, bias: None }, &[y])?;
    b.add(Op::Binary(BinaryOp::Add), &[x, y])
}

fn mlp(b: &mut GraphBuilder, layer: u32, x: Value) -> Result<Value, BuildError> {
    let normed = norm(b, format!("{layer}.n2"), x)?;
    let mut of =
        |name: &str| b.add(Op::Linear { weight: format!("{layer}.{name}.weight"), bias: None }, &[normed]);
    let (gate, up) = (of("gate")?, of("up")?);
    let gate = b.add(Op::Unary(UnaryOp::Silu), &[gate])?;
    let y = b.add(Op::Binary(BinaryOp::Mul), &[gate, up])?;
    residual(b, x, format!("{layer}.down.weight"), y)
}

/// The parts of a graph's step, each in a word.
fn parts(model: &Model, graph: &Graph) -> Result<Vec<&'static str>, &'static str> {
    let order = program::order(graph.nodes(), graph.slots()).unwrap();
    let is_head = program::head(graph.nodes(), graph.output());
    let kind_of = |name: &str| model.checkpoint.catalogue().get(name).map(Kind::of);
    let groups = program::groups(graph.nodes(), &order, &is_head, kind_of);
    let word = |part: &Part| match part {
        Part::Node(index) => graph.nodes()[*index].op.name(),
        Part::Products { norm: None, .. } => "products",
        Part::Products { norm: Some(_), .. } => "norm-products",
        Part::LinearAdd { .. } => "linear-add",
        Part::NormSwiglu { .. } => "norm-swiglu",
        Part::Heads(_) => "heads",
    };
    Ok(plan::of_graph(graph, &order, &groups)?.parts.iter().map(word).collect())
}

#[test]
fn a_layer_is_five_parts_and_what_lies_flat() {
    for layers in [plain(), Layers { has_norms: true, is_affine: true, ..plain() }] {
        let model = layers.model();
        let layer = ["norm-products", "heads", "reshape", "linear-add", "norm-swiglu", "linear-add"];
        let expected =
            [&["tokens", "embedding"][..], &layer, &layer, &["norm-products", "cast", "reshape"]].concat();
        assert_eq!(parts(&model, &layers.graph(&model)).unwrap(), expected);
    }
}

#[test]
fn graphs_that_no_replay_serves_say_why() {
    let capped = Layers { softcap: Some(20.0), ..plain() };
    let windowed = Layers { mask: Mask::Window(4), ..plain() };
    for layers in [capped, windowed] {
        let model = layers.model();
        let why = parts(&model, &layers.graph(&model)).unwrap_err();
        assert_eq!(why, "attention must be causal, without a cap and without sinks");
    }
}

/// Options with which this machine replays: on a GPU the kernels are named, all that serve these layers.
fn replayed(layers: &Layers) -> CompileOptions {
    let named = match crate::MlxDevice::new().backend() {
        Backend::Cpu => &[][..],
        _ if layers.has_bias => &["rope-page", "page-attention", "linear-add", "norm-swiglu"],
        _ => &ALL,
    };
    CompileOptions { kernels: named.iter().map(|name| (*name).to_owned()).collect(), ..options() }
}

const ALL: [&str; 5] = ["norm-linear", "linear-add", "norm-swiglu", "rope-page", "page-attention"];

/// Two layers of at most four products of 96 terms, each summed in float32, and a softmax.
const BOUND: f64 = 4e-5;

#[test]
fn replayed_steps_agree_with_the_judge() {
    let halves = RopeSpec::new(32, 100.0);
    let cases = [
        ("plain", plain()),
        ("norms of heads", Layers { has_norms: true, ..plain() }),
        ("affine", Layers { is_affine: true, has_norms: true, ..plain() }),
        ("biases", Layers { has_bias: true, ..plain() }),
        (
            "neighbours",
            Layers { rope: RopeSpec { layout: RopeLayout::Interleaved, ..halves.clone() }, ..plain() },
        ),
        ("part of a head", Layers { rope: RopeSpec { dims: 16, ..halves.clone() }, ..plain() }),
        ("a factor", Layers { rope: RopeSpec { attention_factor: 1.2, ..halves }, ..plain() }),
    ];
    for (name, layers) in cases {
        let model = layers.model();
        let graph = layers.graph(&model);
        assert_eq!(parts(&model, &graph).map(|parts| parts.contains(&"heads")), Ok(true), "{name}");
        check(name, &model, &graph, &replayed(&layers), BOUND);
    }
}

/// Pages fill, go into the cache, and the cache grows; whole, and in turns with runs of several tokens.
#[test]
fn pages_and_caches_grow_without_a_seam() {
    let layers = plain();
    let model = layers.model();
    let options = CompileOptions { context_tokens: 320, max_step_tokens: 320, ..replayed(&layers) };
    let mut executable = compile(&model, &layers.graph(&model), &options);
    let tokens: Vec<u32> = (0..300).map(|i| (i * i + 3 * i) % 8).collect();
    let whole = run(&mut *executable, &tokens, tokens.len());
    near(&run(&mut *executable, &tokens, 1), &whole);
    // 1, 1, ..., then 5 at once, and so on: an open page is written before a run is.
    let sequence = executable.new_sequence().unwrap();
    let (mut at, mut found) = (0, Vec::new());
    while at < tokens.len() {
        let n = if at % 23 == 19 { 5.min(tokens.len() - at) } else { 1 };
        let runs = [TokenRun { sequence, tokens: &tokens[at..at + n], logits: LogitsFor::All }];
        let logits = executable.step(&runs).unwrap();
        for row in 0..n {
            let mut out = Vec::new();
            logits.read(row, &mut out);
            found.push(out);
        }
        at += n;
    }
    near(&found, &whole);
}

/// Equal but for the order of sums over up to 300 positions.
fn near(found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len());
    for (token, (found, expected)) in found.iter().zip(expected).enumerate() {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 2e-4, "token {token}: {found}, expected {expected}");
        }
    }
}

/// Forks and trims in the middle of a page, each followed by more steps.
#[test]
fn an_open_page_is_forked_and_trimmed() {
    let layers = plain();
    let model = layers.model();
    let mut executable = compile(&model, &layers.graph(&model), &replayed(&layers));
    let tokens: Vec<u32> = (0..50).map(|i| (5 * i + i / 3) % 8).collect();
    let whole = run(&mut *executable, &tokens, tokens.len());
    let first = executable.new_sequence().unwrap();
    let steps = |executable: &mut dyn Executable, sequence, range: std::ops::Range<usize>| {
        range
            .map(|at| super::models::step(executable, &[(sequence, &tokens[at..=at])]).remove(0).remove(0))
            .collect()
    };
    let found: Vec<Vec<f32>> = steps(&mut *executable, first, 0..21);
    near(&found, &whole[..21]);
    let second = executable.fork(first).unwrap();
    let found: Vec<Vec<f32>> = steps(&mut *executable, second, 21..40);
    near(&found, &whole[21..40]);
    executable.trim(second, 10).unwrap();
    let found: Vec<Vec<f32>> = steps(&mut *executable, second, 30..50);
    near(&found, &whole[30..]);
    // The other one saw nothing of this.
    let found: Vec<Vec<f32>> = steps(&mut *executable, first, 21..25);
    near(&found, &whole[21..25]);
}

/// What a profile names is there and fits, or the model is refused before its weights are read.
#[test]
fn kernels_that_do_not_fit_are_refused_with_the_reason() {
    let refused = |layers: &Layers, kernels: &[&str], backend| {
        let model = layers.model();
        let kernels = kernels.iter().map(|name| (*name).to_owned()).collect();
        let options = CompileOptions { kernels, ..options() };
        let found = demand::check(backend, &layers.graph(&model), model.checkpoint.catalogue(), &options);
        found.map_err(|error| error.report().message)
    };
    let windowed = Layers { mask: Mask::Window(4), ..plain() };
    let biased = Layers { has_bias: true, ..plain() };
    assert_eq!(refused(&plain(), &ALL, Backend::Cuda), Ok(()));
    assert_eq!(refused(&Layers { is_affine: true, ..plain() }, &ALL, Backend::Metal), Ok(()));
    for (layers, kernels, backend, why) in [
        (plain(), &ALL[..], Backend::Cpu, "the device has no such kernel here"),
        (plain(), &["swiglu"], Backend::Cuda, "the device has no such kernel here"),
        (plain(), &["gated-delta"], Backend::Cuda, "the graph has no gated delta rule"),
        (plain(), &["norm-linear"], Backend::Cuda, "only together with `rope-page` and `page-attention`"),
        (windowed, &ALL, Backend::Cuda, "attention must be causal"),
        (biased, &ALL, Backend::Cuda, "has a bias"),
    ] {
        let found = refused(&layers, kernels, backend).unwrap_err();
        assert!(found.contains(why), "{found}, expected {why}");
    }
}

/// The refusal comes from the device's check, which reads no tensor.
#[test]
fn the_device_refuses_kernels_that_it_lacks() {
    let layers = plain();
    let model = layers.model();
    let options = CompileOptions { kernels: vec!["rope-page".to_owned()], ..options() };
    let device = crate::MlxDevice::new();
    if device.backend() != Backend::Cpu {
        return;
    }
    let refused = device.check(&layers.graph(&model), model.checkpoint.catalogue(), &options).unwrap_err();
    assert_eq!(refused.report().code, "device.unsupported");
}
