//! Contract 0.2, the newest: its bindings, and what its components may import.
//!
//! What a component says crosses the border in these types; the guests' state implements the generated traits.

use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker};

use crate::guest::Guest;
use crate::policy_guest::PolicyGuest;
use crate::quant::QuantGuest;

/// Generated: the world `model-graph`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub(crate) mod graph {
    wasmtime::component::bindgen!({
        path: "../../plugin-sdk/wit/0.2",
        world: "model-graph",
        imports: { "tenon:plugin/graph.log": trappable },
    });
}

/// Generated: the world `sampling-policy`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub(crate) mod sampling {
    wasmtime::component::bindgen!({
        path: "../../plugin-sdk/wit/0.2",
        world: "sampling-policy",
        imports: { default: trappable },
        with: {
            "tenon:plugin/types": crate::contract_0_2::graph::tenon::plugin::types,
            "tenon:plugin/sampling.step": crate::policy_guest::StepHandle,
            "tenon:plugin/sampling.constraint": host_plugins::PolicyConstraint,
        },
    });
}

/// Generated: the world `quant-profile`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub(crate) mod quant {
    wasmtime::component::bindgen!({
        path: "../../plugin-sdk/wit/0.2",
        world: "quant-profile",
        imports: { default: trappable },
        with: { "tenon:plugin/types": crate::contract_0_2::graph::tenon::plugin::types },
    });
}

use graph::tenon::plugin::types;

/// What components of the world `model-graph` may import.
pub(crate) fn graphs(engine: &Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    graph::ModelGraph::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut Guest| guest)?;
    Ok(linker)
}

/// What components of the world `sampling-policy` may import.
pub(crate) fn policies(engine: &Engine) -> wasmtime::Result<Linker<PolicyGuest>> {
    let mut linker = Linker::new(engine);
    types::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut PolicyGuest| guest)?;
    sampling::SamplingPolicy::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut PolicyGuest| guest)?;
    Ok(linker)
}

/// What components of the world `quant-profile` may import.
pub(crate) fn quants(engine: &Engine) -> wasmtime::Result<Linker<QuantGuest>> {
    let mut linker = Linker::new(engine);
    types::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut QuantGuest| guest)?;
    quant::QuantProfile::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut QuantGuest| guest)?;
    Ok(linker)
}
