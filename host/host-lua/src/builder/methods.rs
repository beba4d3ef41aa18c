//! The methods of `g`, in the order in which editors show them.

use host_graph::{BinaryOp, Op, ReduceOp, RopeSpec, Section, SlotId, SlotKind, UnaryOp, Value, ValueType};
use mlua::{Lua, MultiValue, Result, Variadic};

use super::options::{
    AttentionOptions, Bias, Conv1dCausal, ConvSlot, Experts, Extent, Facts, IndexKeysSlot, KvSlot, OfSlot,
    Offset, SectionWord, SparseSelect,
};
use super::{Builder, GraphSlot, GraphValue, log, with};
use crate::args::{Argument, Call, Layer, Named, Raw};
use crate::class::Class;

/// Declares all of them.
pub(crate) fn declare(class: &mut impl Class<Builder>) {
    inspection(class);
    slots(class);
    sources(class);
    layers(class);
    stateful(class);
    shaping(class);
    elementwise(class);
    reductions(class);
}

fn inspection(class: &mut impl Class<Builder>) {
    class.about("Sets the section of what follows; \"layer\" takes the layer's index.");
    class.method("begin_section", ["section", "layer"], begin_section);
    class.about("A checkpoint tensor's facts, nil when there is no such tensor.");
    class.method("tensor", ["name"], |lua, g, (name,): (String,)| {
        let facts = with(lua, &g.0, |session| Ok(session.tensor(&name).cloned()))?;
        Ok(facts.map(|facts| Facts { shape: facts.shape, is_dense: facts.is_dense }))
    });
    class.about("Declares that a checkpoint tensor is not needed. A name that does not exist is accepted.");
    class.method("ignore", ["name"], |lua, g, (name,): (String,)| {
        with(lua, &g.0, |session| {
            session.ignore(&name);
            Ok(())
        })
    });
    class.about("The shape of a value: \"B\", \"T\" or a number for each dimension.");
    class.method("shape", ["x"], |lua, g, (x,): (Value,)| {
        let shape = with(lua, &g.0, |session| session.shape(x))?;
        Ok(shape.0.iter().copied().map(Extent).collect::<Vec<_>>())
    });
    class.about("Writes a line to the host's log, as `print` does.");
    class.method("log", ["line"], |lua, g, (line,): (String,)| log(lua, &g.0, &line));
}

type OfSection = (Named<SectionWord>, Raw<Option<Layer>>);

fn begin_section(lua: &Lua, g: &Builder, (name, layer): OfSection) -> Result<()> {
    let call = Call { lua, function: "begin_section" };
    let section = match (name.find(call, "section")?, layer.0) {
        (SectionWord::Layer, layer) => Section::Layer(Layer::take(call, "layer", layer)?.0),
        (other, rest) => {
            call.end(MultiValue::from_iter([rest]))?;
            if matches!(other, SectionWord::Embed) { Section::Embed } else { Section::Head }
        }
    };
    with(lua, &g.0, |session| {
        session.section(section);
        Ok(())
    })
}

fn slots(class: &mut impl Class<Builder>) {
    class.section("Slots.");
    class.method("kv_slot", ["layer", "options"], |lua, g, (layer, options): (Layer, KvSlot)| {
        let KvSlot { heads, dim_k, dim_v, window } = options;
        g.slot(lua, layer, SlotKind::Kv { heads, dim_k, dim_v, window })
    });
    class.method("kv_shared_slot", ["layer", "with"], |lua, g, (layer, with): (Layer, SlotId)| {
        g.slot(lua, layer, SlotKind::KvShared { with })
    });
    class.method("conv_slot", ["layer", "options"], |lua, g, (layer, options): (Layer, ConvSlot)| {
        let ConvSlot { channels, kernel } = options;
        g.slot(lua, layer, SlotKind::Conv { channels, kernel })
    });
    class.method("recurrent_slot", ["layer", "shape"], |lua, g, (layer, shape): (Layer, Vec<usize>)| {
        g.slot(lua, layer, SlotKind::Recurrent { shape })
    });
    class.method(
        "index_keys_slot",
        ["layer", "options"],
        |lua, g, (layer, options): (Layer, IndexKeysSlot)| {
            g.slot(lua, layer, SlotKind::IndexKeys { dim: options.dim })
        },
    );
}

fn sources(class: &mut impl Class<Builder>) {
    class.section("Sources.");
    class.method("tokens", [], |lua, g, (): ()| g.add(lua, Op::Tokens, &[]));
    class.method("positions", [], |lua, g, (): ()| g.add(lua, Op::Positions, &[]));
    class.method("constant", ["value"], |lua, g, (value,): (f32,)| g.add(lua, Op::Constant { value }, &[]));
    class.method("weight", ["name"], |lua, g, (name,): (String,)| g.add(lua, Op::Weight { name }, &[]));
    class.method("embedding", ["ids", "weight"], |lua, g, (ids, weight): (Value, String)| {
        g.add(lua, Op::Embedding { weight }, &[ids])
    });
    class.method(
        "per_layer_embedding",
        ["ids", "weight", "n_layers"],
        |lua, g, (ids, weight, n_layers): (Value, String, usize)| {
            g.add(lua, Op::PerLayerEmbedding { weight, n_layers }, &[ids])
        },
    );
    class.method("inject", ["x", "feature"], |lua, g, (x, feature): (Value, String)| {
        g.add(lua, Op::Inject { feature }, &[x])
    });
}

fn layers(class: &mut impl Class<Builder>) {
    type Norm<O> = (Value, Option<String>, f32, O);
    class.section("Layers.");
    class.method("linear", ["x", "weight", "options"], |lua, g, (x, weight, of): (Value, String, Bias)| {
        g.add(lua, Op::Linear { weight, bias: of.bias }, &[x])
    });
    let of_norm = ["x", "weight", "eps", "options"];
    class.method("rms_norm", of_norm, |lua, g, (x, weight, eps, of): Norm<Offset>| {
        g.add(lua, Op::RmsNorm { weight, eps, offset: of.offset.unwrap_or(0.0) }, &[x])
    });
    class.method("layer_norm", of_norm, |lua, g, (x, weight, eps, of): Norm<Bias>| {
        g.add(lua, Op::LayerNorm { weight, bias: of.bias, eps }, &[x])
    });
    class.method("rope", ["x", "options"], |lua, g, (x, rotation): (Value, RopeSpec)| {
        g.add(lua, Op::Rope(rotation), &[x])
    });
    class.about("k and v are nil when the slot is shared.");
    type Attention = (Value, Option<Value>, Option<Value>, AttentionOptions);
    class.method("attention", ["q", "k", "v", "options"], |lua, g, (q, k, v, options): Attention| {
        let AttentionOptions { slot, scale, mask, softcap, sinks, selected } = options;
        let op =
            Op::Attention { slot, scale, mask: mask.unwrap_or(host_graph::Mask::Causal), softcap, sinks };
        let inputs: Vec<_> = [Some(q), k, v, selected].into_iter().flatten().collect();
        g.add(lua, op, &inputs)
    });
    type Moe = (Value, Value, Value, Experts);
    class.method("moe", ["x", "indices", "weights", "options"], |lua, g, (x, indices, weights, of): Moe| {
        let Experts { gate, up, down, activation } = of;
        let activation = activation.unwrap_or(host_graph::Activation::ALL[0].0);
        g.add(lua, Op::Moe { gate, up, down, activation }, &[x, indices, weights])
    });
    class.method("matmul", ["a", "b"], |lua, g, (a, b): (Value, Value)| g.add(lua, Op::Matmul, &[a, b]));
    class.method("softmax", ["x"], |lua, g, (x,): (Value,)| g.add(lua, Op::Softmax, &[x]));
}

fn stateful(class: &mut impl Class<Builder>) {
    class.section("State.");
    class.method("conv1d_causal", ["x", "options"], |lua, g, (x, options): (Value, Conv1dCausal)| {
        let Conv1dCausal { slot, weight, bias } = options;
        g.add(lua, Op::Conv1dCausal { slot, weight, bias }, &[x])
    });
    type Scan = (Value, Value, Value, Value, Value, OfSlot);
    let of_delta = ["q", "k", "v", "g", "beta", "options"];
    class.method("gated_delta", of_delta, |lua, graph, (q, k, v, g, beta, of): Scan| {
        graph.add(lua, Op::GatedDelta { slot: of.slot }, &[q, k, v, g, beta])
    });
    class.method("ssm_scan", ["x", "dt", "a", "b", "c", "options"], |lua, g, (x, dt, a, b, c, of): Scan| {
        g.add(lua, Op::SsmScan { slot: of.slot }, &[x, dt, a, b, c])
    });
    type Select = (Value, Value, Value, SparseSelect);
    class.method("sparse_select", ["q", "k", "weights", "options"], |lua, g, (q, k, weights, of): Select| {
        g.add(lua, Op::SparseSelect { slot: of.slot, k: of.k }, &[q, k, weights])
    });
    class.about("Gives the state, then each input at this step.");
    class.method("begin_scan", ["slot", "inputs"], |lua, g, (slot, inputs): (SlotId, Vec<Value>)| {
        let values = with(lua, &g.0, |session| session.begin_scan(slot, &inputs))?;
        Ok(Variadic::from_iter(values.into_iter().map(GraphValue)))
    });
    class.method("end_scan", ["state", "output"], |lua, g, (state, output): (Value, Value)| {
        with(lua, &g.0, |session| session.end_scan(state, output)).map(GraphValue)
    });
}

fn shaping(class: &mut impl Class<Builder>) {
    class.section("Shaping.");
    type Slice = (Value, usize, usize, usize);
    class.method("slice", ["x", "axis", "start", "stop"], |lua, g, (x, axis, start, stop): Slice| {
        g.add(lua, Op::Slice { axis, start, stop }, &[x])
    });
    type Split = (Value, Vec<usize>, usize);
    class.method("split", ["x", "sizes", "axis"], |lua, g, (x, sizes, axis): Split| {
        let parts = with(lua, &g.0, |session| session.split(x, &sizes, axis))?;
        Ok(Variadic::from_iter(parts.into_iter().map(GraphValue)))
    });
    class.method("concat", ["values", "axis"], |lua, g, (values, axis): (Vec<Value>, usize)| {
        g.add(lua, Op::Concat { axis }, &values)
    });
    class.about("The same elements with other fixed dimensions; B and T stay.");
    class.method("reshape", ["x", "dims"], |lua, g, (x, dims): (Value, Vec<usize>)| {
        with(lua, &g.0, |session| session.reshape(x, &dims)).map(GraphValue)
    });
    class.method("transpose", ["x", "axes"], |lua, g, (x, axes): (Value, Vec<usize>)| {
        g.add(lua, Op::Transpose { axes }, &[x])
    });
    class.about("Values and indices.");
    class.method("topk", ["x", "k"], |lua, g, (x, k): (Value, usize)| {
        let (values, indices) = with(lua, &g.0, |session| session.topk(x, k))?;
        Ok((GraphValue(values), GraphValue(indices)))
    });
    class.method("gather", ["x", "indices"], |lua, g, (x, indices): (Value, Value)| {
        g.add(lua, Op::Gather, &[x, indices])
    });
    type Scatter = (Value, Value, Value);
    class.method("scatter", ["x", "indices", "values"], |lua, g, (x, indices, values): Scatter| {
        g.add(lua, Op::Scatter, &[x, indices, values])
    });
    class.method("cast", ["x", "to"], |lua, g, (x, to): (Value, Named<ValueType>)| {
        let to = to.find(Call { lua, function: "cast" }, "type")?;
        g.add(lua, Op::Cast { to }, &[x])
    });
}

fn elementwise(class: &mut impl Class<Builder>) {
    class.section("Element by element.");
    for (op, name) in UnaryOp::ALL {
        class.method(name, ["x"], move |lua, g, (x,): (Value,)| g.add(lua, Op::Unary(op), &[x]));
    }
    for (op, name) in BinaryOp::ALL {
        class.method(name, ["a", "b"], move |lua, g, (a, b): (Value, Value)| {
            g.add(lua, Op::Binary(op), &[a, b])
        });
    }
    class.method("scale", ["x", "factor"], |lua, g, (x, factor): (Value, f32)| {
        g.add(lua, Op::Scale { factor }, &[x])
    });
    class.method("softcap", ["x", "cap"], |lua, g, (x, cap): (Value, f32)| {
        g.add(lua, Op::Softcap { cap }, &[x])
    });
    type Where = (Value, Value, Value);
    class.method("where", ["condition", "a", "b"], |lua, g, (condition, a, b): Where| {
        g.add(lua, Op::Where, &[condition, a, b])
    });
}

fn reductions(class: &mut impl Class<Builder>) {
    class.section("Along an axis, which stays with length 1 (cumsum: with its length).");
    for (op, name) in ReduceOp::ALL {
        class.method(name, ["x", "axis"], move |lua, g, (x, axis): (Value, usize)| {
            g.add(lua, Op::Reduce { op, axis }, &[x])
        });
    }
    class.method("cumsum", ["x", "axis"], |lua, g, (x, axis): (Value, usize)| {
        g.add(lua, Op::Cumsum { axis }, &[x])
    });
}

impl Builder {
    fn add(&self, lua: &Lua, op: Op, inputs: &[Value]) -> Result<GraphValue> {
        with(lua, &self.0, |session| session.add(op, inputs)).map(GraphValue)
    }

    fn slot(&self, lua: &Lua, Layer(layer): Layer, kind: SlotKind) -> Result<GraphSlot> {
        with(lua, &self.0, |session| session.slot(layer, kind)).map(GraphSlot)
    }
}
