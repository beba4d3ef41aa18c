//! Generated from the contract, a module a world; the worlds share `types`.

#![allow(missing_docs, unreachable_pub, clippy::all)]

pub(crate) mod graph {
    wasmtime::component::bindgen!({
        path: "../../plugin-sdk/wit/0.1",
        world: "model-graph",
        imports: { "tenon:plugin/graph.log": trappable },
    });
}

pub(crate) mod sampling {
    wasmtime::component::bindgen!({
        path: "../../plugin-sdk/wit/0.1",
        world: "sampling-policy",
        imports: { default: trappable },
        with: {
            "tenon:plugin/types": crate::bindings::graph::tenon::plugin::types,
            "tenon:plugin/sampling.step": crate::policy_guest::StepHandle,
        },
    });
}

pub(crate) mod quant {
    wasmtime::component::bindgen!({
        path: "../../plugin-sdk/wit/0.1",
        world: "quant-profile",
        imports: { default: trappable },
        with: { "tenon:plugin/types": crate::bindings::graph::tenon::plugin::types },
    });
}
