//! The graph builder as a script sees it.
//!
//! One method an operation, under the operation's name; arguments as told in [`host_graph::Op`], optional
//! ones in a table at the end. Axes count from 0 over all dimensions, B and T included.

use std::sync::{Arc, Mutex};

use host_graph::{
    Activation, BinaryOp, BuildError, Dim, Mask, Op, ReduceOp, RopeFrequencies, RopeLayout, RopeSpec,
    Section, SlotId, SlotKind, UnaryOp, Value, ValueType,
};
use host_plugins::GraphSession;
use mlua::{Lua, MultiValue, Result, UserData, UserDataMethods, Variadic};

use crate::args::{Args, Options, as_text, as_whole};
use crate::fault::{Raised, calling_place};

/// The session, until the host takes it back.
pub(crate) type SharedSession = Arc<Mutex<Option<GraphSession>>>;

/// `g` in `build(config, g)`.
#[derive(Clone)]
pub(crate) struct Builder(pub(crate) SharedSession);

/// A graph value in Lua.
pub(crate) struct GraphValue(pub(crate) Value);

/// A state slot in Lua.
pub(crate) struct GraphSlot(pub(crate) SlotId);

impl UserData for GraphValue {}
impl UserData for GraphSlot {}

impl mlua::FromLua for GraphValue {
    fn from_lua(value: mlua::Value, lua: &Lua) -> Result<Self> {
        let mut args = Args::new(lua, "build", MultiValue::from_iter([value]));
        args.value("the logits").map(GraphValue)
    }
}

/// Writes a log line, or ends the run when the budget for log text is spent.
pub(crate) fn log(lua: &Lua, session: &SharedSession, line: &str) -> Result<()> {
    let is_within = with(lua, session, |session| Ok(session.log(line)))?;
    if is_within { Ok(()) } else { Err(Raised::Log.into_lua()) }
}

/// Runs one builder call; a refusal is raised at the calling line.
fn with<T>(
    lua: &Lua,
    session: &SharedSession,
    call: impl FnOnce(&mut GraphSession) -> std::result::Result<T, BuildError>,
) -> Result<T> {
    let mut guard = session.lock().map_err(|_| mlua::Error::runtime("the builder failed before"))?;
    let session = guard.as_mut().ok_or_else(|| mlua::Error::runtime("the graph is finished"))?;
    call(session).map_err(|error| Raised::Build(error, calling_place(lua)).into_lua())
}

impl Builder {
    fn add(&self, lua: &Lua, op: Op, inputs: &[Value]) -> Result<GraphValue> {
        with(lua, &self.0, |session| session.add(op, inputs)).map(GraphValue)
    }

    fn slot(&self, lua: &Lua, layer: u32, kind: SlotKind) -> Result<GraphSlot> {
        with(lua, &self.0, |session| session.slot(layer, kind)).map(GraphSlot)
    }
}

/// Registers a method whose arguments are read through [`Args`].
fn method<M, R>(
    methods: &mut M,
    name: &'static str,
    body: impl Fn(&Lua, &Builder, Args<'_>) -> Result<R> + Send + 'static,
) where
    M: UserDataMethods<Builder>,
    R: mlua::IntoLuaMulti,
{
    methods.add_method(name, move |lua, builder, values: MultiValue| {
        body(lua, builder, Args::new(lua, name, values))
    });
}

impl UserData for Builder {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        add_inspection(methods);
        add_slots(methods);
        add_sources(methods);
        add_layers(methods);
        add_elementwise(methods);
        add_shaping(methods);
        add_stateful(methods);
    }
}

fn add_inspection<M: UserDataMethods<Builder>>(methods: &mut M) {
    method(methods, "begin_section", |lua, g, mut args| {
        let name = args.text("section")?;
        let section = match name.as_str() {
            "embed" => Section::Embed,
            "layer" => Section::Layer(args.layer("layer")?),
            "head" => Section::Head,
            _ => {
                let message =
                    format!("begin_section: there is no section {name:?}; known: embed, layer, head");
                return Err(Raised::Argument(message, calling_place(lua)).into_lua());
            }
        };
        args.end()?;
        with(lua, &g.0, |session| {
            session.section(section);
            Ok(())
        })
    });
    method(methods, "tensor", |lua, g, mut args| {
        let name = args.text("name")?;
        args.end()?;
        let Some(facts) = with(lua, &g.0, |session| Ok(session.tensor(&name).cloned()))? else {
            return Ok(None);
        };
        let table = lua.create_table()?;
        table.set("shape", facts.shape)?;
        table.set("is_dense", facts.is_dense)?;
        Ok(Some(table))
    });
    method(methods, "ignore", |lua, g, mut args| {
        let name = args.text("name")?;
        args.end()?;
        with(lua, &g.0, |session| {
            session.ignore(&name);
            Ok(())
        })
    });
    method(methods, "shape", |lua, g, mut args| {
        let x = args.value("x")?;
        args.end()?;
        let shape = with(lua, &g.0, |session| session.shape(x))?;
        let dims = shape.0.iter().map(|dim| match dim {
            Dim::B => lua.create_string("B").map(mlua::Value::String),
            Dim::T => lua.create_string("T").map(mlua::Value::String),
            Dim::Fixed(n) => Ok(mlua::Value::Number(*n as f64)),
        });
        dims.collect::<Result<Vec<_>>>()
    });
    method(methods, "log", |lua, g, mut args| {
        let line = args.text("line")?;
        args.end()?;
        log(lua, &g.0, &line)
    });
}

fn add_slots<M: UserDataMethods<Builder>>(methods: &mut M) {
    method(methods, "kv_slot", |lua, g, mut args| {
        let layer = args.layer("layer")?;
        let options = args.options(&["heads", "dim_k", "dim_v", "window"])?;
        let kind = SlotKind::Kv {
            heads: options.whole("heads")?,
            dim_k: options.whole("dim_k")?,
            dim_v: options.whole("dim_v")?,
            window: options.optional_whole("window")?,
        };
        g.slot(lua, layer, kind)
    });
    method(methods, "kv_shared_slot", |lua, g, mut args| {
        let (layer, with) = (args.layer("layer")?, args.slot("with")?);
        args.end()?;
        g.slot(lua, layer, SlotKind::KvShared { with })
    });
    method(methods, "conv_slot", |lua, g, mut args| {
        let layer = args.layer("layer")?;
        let options = args.options(&["channels", "kernel"])?;
        let kind = SlotKind::Conv { channels: options.whole("channels")?, kernel: options.whole("kernel")? };
        g.slot(lua, layer, kind)
    });
    method(methods, "recurrent_slot", |lua, g, mut args| {
        let (layer, shape) = (args.layer("layer")?, args.wholes("shape")?);
        args.end()?;
        g.slot(lua, layer, SlotKind::Recurrent { shape })
    });
    method(methods, "index_keys_slot", |lua, g, mut args| {
        let layer = args.layer("layer")?;
        let options = args.options(&["dim"])?;
        g.slot(lua, layer, SlotKind::IndexKeys { dim: options.whole("dim")? })
    });
}

fn add_sources<M: UserDataMethods<Builder>>(methods: &mut M) {
    method(methods, "tokens", |lua, g, args| {
        args.end()?;
        g.add(lua, Op::Tokens, &[])
    });
    method(methods, "positions", |lua, g, args| {
        args.end()?;
        g.add(lua, Op::Positions, &[])
    });
    method(methods, "constant", |lua, g, mut args| {
        let value = args.number("value")?;
        args.end()?;
        g.add(lua, Op::Constant { value }, &[])
    });
    method(methods, "weight", |lua, g, mut args| {
        let name = args.text("name")?;
        args.end()?;
        g.add(lua, Op::Weight { name }, &[])
    });
    method(methods, "embedding", |lua, g, mut args| {
        let (ids, weight) = (args.value("ids")?, args.text("weight")?);
        args.end()?;
        g.add(lua, Op::Embedding { weight }, &[ids])
    });
    method(methods, "per_layer_embedding", |lua, g, mut args| {
        let (ids, weight, n_layers) = (args.value("ids")?, args.text("weight")?, args.whole("n_layers")?);
        args.end()?;
        g.add(lua, Op::PerLayerEmbedding { weight, n_layers }, &[ids])
    });
    method(methods, "inject", |lua, g, mut args| {
        let (x, feature) = (args.value("x")?, args.text("feature")?);
        args.end()?;
        g.add(lua, Op::Inject { feature }, &[x])
    });
}

fn add_layers<M: UserDataMethods<Builder>>(methods: &mut M) {
    method(methods, "linear", |lua, g, mut args| {
        let (x, weight) = (args.value("x")?, args.text("weight")?);
        let bias = args.options(&["bias"])?.optional_text("bias")?;
        g.add(lua, Op::Linear { weight, bias }, &[x])
    });
    method(methods, "rms_norm", |lua, g, mut args| {
        let (x, weight, eps) = (args.value("x")?, args.optional_text("weight")?, args.number("eps")?);
        let offset = args.options(&["offset"])?.optional_number("offset")?.unwrap_or(0.0);
        g.add(lua, Op::RmsNorm { weight, eps, offset }, &[x])
    });
    method(methods, "layer_norm", |lua, g, mut args| {
        let (x, weight, eps) = (args.value("x")?, args.optional_text("weight")?, args.number("eps")?);
        let bias = args.options(&["bias"])?.optional_text("bias")?;
        g.add(lua, Op::LayerNorm { weight, bias, eps }, &[x])
    });
    method(methods, "rope", |lua, g, mut args| {
        let x = args.value("x")?;
        let spec = rope_spec(&args.options(ROPE_OPTIONS)?)?;
        g.add(lua, Op::Rope(spec), &[x])
    });
    method(methods, "moe", |lua, g, mut args| {
        let inputs = [args.value("x")?, args.value("indices")?, args.value("weights")?];
        let options = args.options(&["gate", "up", "down", "activation"])?;
        let op = Op::Moe {
            gate: options.text("gate")?,
            up: options.text("up")?,
            down: options.text("down")?,
            activation: options.word("activation", &Activation::ALL.map(|(op, name)| (name, op)))?,
        };
        g.add(lua, op, &inputs)
    });
    method(methods, "matmul", |lua, g, mut args| {
        let inputs = [args.value("a")?, args.value("b")?];
        args.end()?;
        g.add(lua, Op::Matmul, &inputs)
    });
    method(methods, "softmax", |lua, g, mut args| {
        let x = args.value("x")?;
        args.end()?;
        g.add(lua, Op::Softmax, &[x])
    });
}

const ROPE_OPTIONS: &[&str] = &[
    "dims",
    "theta",
    "layout",
    "type",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "original_max_position_embeddings",
    "truncate",
    "factors",
    "full_dims",
    "attention_factor",
    "mrope_section",
];

/// Options of a rope type that another type was given are refused, not dropped.
fn rope_spec(options: &Options<'_>) -> Result<RopeSpec> {
    let words = ["default", "linear", "llama3", "yarn", "longrope", "proportional"].map(|name| (name, name));
    let rope_type = options.word("type", &words)?;
    let takes: &[&str] = match rope_type {
        "linear" => &["factor"],
        "llama3" => &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
        "yarn" => &["factor", "beta_fast", "beta_slow", "original_max_position_embeddings", "truncate"],
        "longrope" => &["factors"],
        "proportional" => &["factor", "full_dims"],
        _ => &[],
    };
    for name in &ROPE_OPTIONS[4..13] {
        if let Some(found) = options.any(name).filter(|_| !takes.contains(name)) {
            return options.misfit(name, &format!("nothing for type {rope_type}"), found);
        }
    }
    let frequencies = match rope_type {
        "linear" => RopeFrequencies::Linear { factor: options.number("factor")? },
        "llama3" => RopeFrequencies::Llama3 {
            factor: options.number("factor")?,
            low_freq_factor: options.number("low_freq_factor")?,
            high_freq_factor: options.number("high_freq_factor")?,
            original_max_position_embeddings: options.number("original_max_position_embeddings")?,
        },
        "yarn" => RopeFrequencies::Yarn {
            factor: options.number("factor")?,
            beta_fast: options.number("beta_fast")?,
            beta_slow: options.number("beta_slow")?,
            original_max_position_embeddings: options.number("original_max_position_embeddings")?,
            truncate: options.optional_bool("truncate")?.unwrap_or(true),
        },
        "longrope" => RopeFrequencies::LongRope { factors: options.numbers("factors")? },
        "proportional" => RopeFrequencies::Proportional {
            factor: options.number("factor")?,
            full_dims: options.whole("full_dims")?,
        },
        _ => RopeFrequencies::Default,
    };
    let layouts = [("split_halves", RopeLayout::SplitHalves), ("interleaved", RopeLayout::Interleaved)];
    Ok(RopeSpec {
        dims: options.whole("dims")?,
        theta: options.number("theta")?,
        layout: options.word("layout", &layouts)?,
        frequencies,
        attention_factor: options.optional_number("attention_factor")?.unwrap_or(1.0),
        mrope_section: options.optional_wholes("mrope_section")?.unwrap_or_default(),
    })
}

fn add_elementwise<M: UserDataMethods<Builder>>(methods: &mut M) {
    for (op, name) in UnaryOp::ALL {
        method(methods, name, move |lua, g, mut args| {
            let x = args.value("x")?;
            args.end()?;
            g.add(lua, Op::Unary(op), &[x])
        });
    }
    for (op, name) in BinaryOp::ALL {
        method(methods, name, move |lua, g, mut args| {
            let inputs = [args.value("a")?, args.value("b")?];
            args.end()?;
            g.add(lua, Op::Binary(op), &inputs)
        });
    }
    for (op, name) in ReduceOp::ALL {
        method(methods, name, move |lua, g, mut args| {
            let (x, axis) = (args.value("x")?, args.whole("axis")?);
            args.end()?;
            g.add(lua, Op::Reduce { op, axis }, &[x])
        });
    }
    method(methods, "scale", |lua, g, mut args| {
        let (x, factor) = (args.value("x")?, args.number("factor")?);
        args.end()?;
        g.add(lua, Op::Scale { factor }, &[x])
    });
    method(methods, "softcap", |lua, g, mut args| {
        let (x, cap) = (args.value("x")?, args.number("cap")?);
        args.end()?;
        g.add(lua, Op::Softcap { cap }, &[x])
    });
    method(methods, "cumsum", |lua, g, mut args| {
        let (x, axis) = (args.value("x")?, args.whole("axis")?);
        args.end()?;
        g.add(lua, Op::Cumsum { axis }, &[x])
    });
    method(methods, "where", |lua, g, mut args| {
        let inputs = [args.value("condition")?, args.value("a")?, args.value("b")?];
        args.end()?;
        g.add(lua, Op::Where, &inputs)
    });
    method(methods, "cast", |lua, g, mut args| {
        let (x, name) = (args.value("x")?, args.text("to")?);
        args.end()?;
        let to = match name.as_str() {
            "float" => ValueType::Float,
            "int" => ValueType::Int,
            "bool" => ValueType::Bool,
            _ => {
                let message = format!("cast: there is no type {name:?}; known: float, int, bool");
                return Err(Raised::Argument(message, calling_place(lua)).into_lua());
            }
        };
        g.add(lua, Op::Cast { to }, &[x])
    });
}

fn add_shaping<M: UserDataMethods<Builder>>(methods: &mut M) {
    method(methods, "slice", |lua, g, mut args| {
        let x = args.value("x")?;
        let (axis, start, stop) = (args.whole("axis")?, args.whole("start")?, args.whole("stop")?);
        args.end()?;
        g.add(lua, Op::Slice { axis, start, stop }, &[x])
    });
    method(methods, "split", |lua, g, mut args| {
        let (x, sizes, axis) = (args.value("x")?, args.wholes("sizes")?, args.whole("axis")?);
        args.end()?;
        let parts = with(lua, &g.0, |session| session.split(x, &sizes, axis))?;
        Ok(Variadic::from_iter(parts.into_iter().map(GraphValue)))
    });
    method(methods, "concat", |lua, g, mut args| {
        let (values, axis) = (args.values("values")?, args.whole("axis")?);
        args.end()?;
        g.add(lua, Op::Concat { axis }, &values)
    });
    method(methods, "reshape", |lua, g, mut args| {
        let (x, dims) = (args.value("x")?, args.wholes("dims")?);
        args.end()?;
        with(lua, &g.0, |session| session.reshape(x, &dims)).map(GraphValue)
    });
    method(methods, "transpose", |lua, g, mut args| {
        let (x, axes) = (args.value("x")?, args.wholes("axes")?);
        args.end()?;
        g.add(lua, Op::Transpose { axes }, &[x])
    });
    method(methods, "topk", |lua, g, mut args| {
        let (x, k) = (args.value("x")?, args.whole("k")?);
        args.end()?;
        let (values, indices) = with(lua, &g.0, |session| session.topk(x, k))?;
        Ok((GraphValue(values), GraphValue(indices)))
    });
    method(methods, "gather", |lua, g, mut args| {
        let inputs = [args.value("x")?, args.value("indices")?];
        args.end()?;
        g.add(lua, Op::Gather, &inputs)
    });
    method(methods, "scatter", |lua, g, mut args| {
        let inputs = [args.value("x")?, args.value("indices")?, args.value("values")?];
        args.end()?;
        g.add(lua, Op::Scatter, &inputs)
    });
}

fn add_stateful<M: UserDataMethods<Builder>>(methods: &mut M) {
    method(methods, "attention", |lua, g, mut args| {
        let q = args.value("q")?;
        let (k, v) = (args.optional_value("k")?, args.optional_value("v")?);
        let options = args.options(&["slot", "scale", "mask", "softcap", "sinks", "selected"])?;
        let selected = options.optional_value("selected")?;
        let op = Op::Attention {
            slot: options.slot("slot")?,
            scale: options.number("scale")?,
            mask: mask(&options)?,
            softcap: options.optional_number("softcap")?,
            sinks: options.optional_text("sinks")?,
        };
        let inputs: Vec<_> = [Some(q), k, v, selected].into_iter().flatten().collect();
        g.add(lua, op, &inputs)
    });
    method(methods, "conv1d_causal", |lua, g, mut args| {
        let x = args.value("x")?;
        let options = args.options(&["slot", "weight", "bias"])?;
        let op = Op::Conv1dCausal {
            slot: options.slot("slot")?,
            weight: options.text("weight")?,
            bias: options.optional_text("bias")?,
        };
        g.add(lua, op, &[x])
    });
    method(methods, "gated_delta", |lua, g, mut args| {
        let inputs = ["q", "k", "v", "g", "beta"].map(|name| args.value(name));
        let slot = args.options(&["slot"])?.slot("slot")?;
        g.add(lua, Op::GatedDelta { slot }, &inputs.into_iter().collect::<Result<Vec<_>>>()?)
    });
    method(methods, "ssm_scan", |lua, g, mut args| {
        let inputs = ["x", "dt", "a", "b", "c"].map(|name| args.value(name));
        let slot = args.options(&["slot"])?.slot("slot")?;
        g.add(lua, Op::SsmScan { slot }, &inputs.into_iter().collect::<Result<Vec<_>>>()?)
    });
    method(methods, "sparse_select", |lua, g, mut args| {
        let inputs = [args.value("q")?, args.value("k")?, args.value("weights")?];
        let options = args.options(&["slot", "k"])?;
        g.add(lua, Op::SparseSelect { slot: options.slot("slot")?, k: options.whole("k")? }, &inputs)
    });
    method(methods, "begin_scan", |lua, g, mut args| {
        let (slot, inputs) = (args.slot("slot")?, args.values("inputs")?);
        args.end()?;
        let values = with(lua, &g.0, |session| session.begin_scan(slot, &inputs))?;
        Ok(Variadic::from_iter(values.into_iter().map(GraphValue)))
    });
    method(methods, "end_scan", |lua, g, mut args| {
        let (state, output) = (args.value("state")?, args.value("output")?);
        args.end()?;
        with(lua, &g.0, |session| session.end_scan(state, output)).map(GraphValue)
    });
}

/// `"causal"` (also when absent), `"bidirectional_prefix"`, `{ window = n }` or `{ chunked = n }`.
fn mask(options: &Options<'_>) -> Result<Mask> {
    let Some(found) = options.any("mask") else { return Ok(Mask::Causal) };
    let expected = "`causal`, `bidirectional_prefix`, { window = n } or { chunked = n }";
    match found {
        mlua::Value::String(_) => match as_text(found).as_deref() {
            Some("causal") => return Ok(Mask::Causal),
            Some("bidirectional_prefix") => return Ok(Mask::BidirectionalPrefix),
            _ => {}
        },
        mlua::Value::Table(table) => {
            let pairs: Vec<(mlua::Value, mlua::Value)> = table.pairs().collect::<Result<_>>()?;
            if let [(key, n)] = pairs.as_slice()
                && let (Some(key), Some(n)) = (as_text(key), as_whole(n))
            {
                match key.as_str() {
                    "window" => return Ok(Mask::Window(n)),
                    "chunked" => return Ok(Mask::Chunked(n)),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    options.misfit("mask", expected, found)
}
