//! Contract 0.1: what its components may import, each function forwarded to the newest contract's of the same meaning.
//!
//! 0.2 only adds, so a row is a name and no more. Where a later contract changes a function, its row becomes one that
//! converts. Components are typed by structure: the newest contract's types serve as long as their shape is the same,
//! and a component that was built for another shape is refused when it is linked.

use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime::{Engine, Result, StoreContextMut};

use crate::contract_0_2::graph::tenon::plugin::graph::Host as _;
use crate::contract_0_2::quant::tenon::plugin::quant::Host as _;
use crate::contract_0_2::sampling::tenon::plugin::sampling::{Host as _, HostStep as _};
use crate::guest::Guest;
use crate::policy_guest::{PolicyGuest, StepHandle};
use crate::quant::QuantGuest;

/// Generated: the exports of the world `sampling-policy`, which bear the contract's version in their name.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub(crate) mod sampling {
    wasmtime::component::bindgen!({
        path: "../../plugin-sdk/wit/0.1",
        world: "sampling-policy",
        imports: { default: trappable },
        with: {
            "tenon:plugin/types": crate::contract_0_2::graph::tenon::plugin::types,
            "tenon:plugin/sampling": crate::contract_0_2::sampling::tenon::plugin::sampling,
        },
    });
}

const TYPES: &str = "tenon:plugin/types@0.1.0";

/// Functions whose result crosses as it is.
macro_rules! forward {
    ($instance:ident, $guest:ty: $($name:literal $method:ident($($argument:ident),*);)+) => {$(
        $instance.func_wrap($name, |mut store: StoreContextMut<'_, $guest>, ($($argument,)*)| {
            Ok((store.data_mut().$method($($argument),*),))
        })?;
    )+};
}

/// Functions that may end the guest.
macro_rules! forward_or_end {
    ($instance:ident, $guest:ty: $($name:literal $method:ident($($argument:ident),*);)+) => {$(
        $instance.func_wrap($name, |mut store: StoreContextMut<'_, $guest>, ($($argument,)*)| {
            Ok((store.data_mut().$method($($argument),*)?,))
        })?;
    )+};
}

/// What components of the world `model-graph` may import.
pub(crate) fn graphs(engine: &Engine) -> Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    linker.instance(TYPES)?;
    let mut graph = linker.instance("tenon:plugin/graph@0.1.0")?;
    graph.func_wrap("log", |mut store: StoreContextMut<'_, Guest>, (line,)| store.data_mut().log(line))?;
    graph.func_wrap("begin-section", |mut store: StoreContextMut<'_, Guest>, (section,)| {
        store.data_mut().begin_section(section);
        Ok(())
    })?;
    graph.func_wrap("ignore", |mut store: StoreContextMut<'_, Guest>, (name,)| {
        store.data_mut().ignore(name);
        Ok(())
    })?;
    forward! {
        graph, Guest:
        "tensor" tensor(name);
        "shape" shape(x);
        "kv-slot" kv_slot(layer, heads, dim_k, dim_v, window);
        "kv-shared-slot" kv_shared_slot(layer, donor);
        "conv-slot" conv_slot(layer, channels, kernel);
        "recurrent-slot" recurrent_slot(layer, shape);
        "index-keys-slot" index_keys_slot(layer, dim);
        "tokens" tokens();
        "positions" positions();
        "constant" constant(value);
        "weight" weight(name);
        "embedding" embedding(ids, weight);
        "per-layer-embedding" per_layer_embedding(ids, weight, n_layers);
        "inject" inject(x, feature);
        "linear" linear(x, weight, bias);
        "rms-norm" rms_norm(x, weight, eps, offset);
        "layer-norm" layer_norm(x, weight, bias, eps);
        "rope" rope(x, spec);
        "attention" attention(inputs, spec);
        "moe" moe(x, indices, weights, experts);
        "matmul" matmul(a, b);
        "softmax" softmax(x);
        "conv1d-causal" conv1d_causal(x, slot, weight, bias);
        "gated-delta" gated_delta(q, k, v, g, beta, slot);
        "ssm-scan" ssm_scan(x, dt, a, b, c, slot);
        "sparse-select" sparse_select(q, k, weights, slot, count);
        "begin-scan" begin_scan(slot, inputs);
        "end-scan" end_scan(state, output);
        "slice" slice(x, axis, start, stop);
        "split" split(x, sizes, axis);
        "concat" concat(values, axis);
        "reshape" reshape(x, dims);
        "transpose" transpose(x, axes);
        "topk" topk(x, k);
        "gather" gather(x, indices);
        "scatter" scatter(x, indices, values);
        "cast" cast(x, to);
        "silu" silu(x);
        "gelu" gelu(x);
        "gelu-tanh" gelu_tanh(x);
        "relu" relu(x);
        "relu2" relu2(x);
        "sigmoid" sigmoid(x);
        "tanh" tanh(x);
        "softplus" softplus(x);
        "exp" exp(x);
        "ln" ln(x);
        "sqrt" sqrt(x);
        "rsqrt" rsqrt(x);
        "neg" neg(x);
        "abs" abs(x);
        "sin" sin(x);
        "cos" cos(x);
        "floor" floor(x);
        "logical-not" logical_not(x);
        "add" add(a, b);
        "sub" sub(a, b);
        "mul" mul(a, b);
        "div" div(a, b);
        "maximum" maximum(a, b);
        "minimum" minimum(a, b);
        "pow" pow(a, b);
        "equal" equal(a, b);
        "less" less(a, b);
        "less-equal" less_equal(a, b);
        "logical-and" logical_and(a, b);
        "logical-or" logical_or(a, b);
        "scale" scale(x, factor);
        "softcap" softcap(x, cap);
        "where" where_(condition, a, b);
        "sum" sum(x, axis);
        "mean" mean(x, axis);
        "max" max(x, axis);
        "min" min(x, axis);
        "cumsum" cumsum(x, axis);
    }
    Ok(linker)
}

/// What components of the world `sampling-policy` may import.
pub(crate) fn policies(engine: &Engine) -> Result<Linker<PolicyGuest>> {
    let mut linker = Linker::new(engine);
    linker.instance(TYPES)?;
    let mut sampling = linker.instance("tenon:plugin/sampling@0.1.0")?;
    sampling.resource("step", ResourceType::host::<StepHandle>(), |mut store, rep| {
        let guest: &mut PolicyGuest = store.data_mut();
        crate::contract_0_2::sampling::tenon::plugin::sampling::HostStep::drop(guest, Resource::new_own(rep))
    })?;
    sampling.func_wrap("log", |mut store: StoreContextMut<'_, PolicyGuest>, (line,)| {
        store.data_mut().log(line)
    })?;
    forward_or_end! {
        sampling, PolicyGuest:
        "token-bytes" token_bytes(id);
        "encode" encode(text);
        "[method]step.accepted" accepted(step);
        "[method]step.position" position(step);
        "[method]step.top" top(step, k);
        "[method]step.get" get(step, ids);
        "[method]step.entropy" entropy(step);
        "[method]step.random-u32" random_u32(step);
        "[method]step.allow-runs" allow_runs(step, runs);
        "[method]step.allow-words" allow_words(step, words);
        "[method]step.bias" bias(step, ids, values);
        "[method]step.force" force(step, ids);
        "[method]step.finish" finish(step, reason);
        "[method]step.apply" apply(step, sampler);
    }
    Ok(linker)
}

/// What components of the world `quant-profile` may import.
pub(crate) fn quants(engine: &Engine) -> Result<Linker<QuantGuest>> {
    let mut linker = Linker::new(engine);
    linker.instance(TYPES)?;
    let mut quant = linker.instance("tenon:plugin/quant@0.1.0")?;
    quant
        .func_wrap("log", |mut store: StoreContextMut<'_, QuantGuest>, (line,)| store.data_mut().log(line))?;
    Ok(linker)
}
