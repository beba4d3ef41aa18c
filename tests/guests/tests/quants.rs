//! Quantisation profiles over both runtimes: twins give the same plan.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use guests::{lua_package, wasm_package};
use host_core::quant::{Role, Scheme, TensorFacts, plan_schemes};
use host_core::{DType, Report, Reported};
use host_lua::LuaQuant;
use host_plugins::{Budget, LogSink, PluginQuant, QuantPlugin};
use host_wasm::WasmRuntime;
use serde_json::{Value as Json, json};

fn twins() -> [Box<dyn QuantPlugin>; 2] {
    let (budget, runtime) = (Budget::default(), WasmRuntime::new(None).unwrap());
    let wasm = runtime.open_quant(&wasm_package("quant-uniform"), budget, LogSink::discard()).unwrap();
    let lua = LuaQuant::open(&lua_package("quant-uniform-lua"), budget, LogSink::discard()).unwrap();
    [Box::new(wasm), Box::new(lua)]
}

fn tensors() -> Vec<TensorFacts> {
    let tensor = |name: &str, shape: &[usize], dtype, role, layer| TensorFacts {
        name: name.to_owned(),
        shape: shape.to_vec(),
        dtype,
        role,
        layer,
    };
    vec![
        tensor("model.embed_tokens.weight", &[100, 64], DType::BF16, Role::Embedding, None),
        tensor("model.layers.0.self_attn.q_proj.weight", &[64, 64], DType::F16, Role::AttentionQ, Some(0)),
        tensor("model.layers.0.mlp.down_proj.weight", &[64, 96], DType::F32, Role::MlpDown, Some(0)),
        tensor("model.layers.0.input_layernorm.weight", &[64], DType::F32, Role::Norm, Some(0)),
        tensor("model.layers.0.self_attn.q_proj.bias", &[64, 64], DType::F32, Role::Bias, Some(0)),
    ]
}

fn plans(params: &Json) -> [Result<Vec<Scheme>, Report>; 2] {
    twins().map(|plugin| {
        let profile = PluginQuant { plugin, config: "{}".to_owned(), params: params.to_string() };
        plan_schemes(&profile, &tensors())
    })
}

#[test]
fn each_matrix_that_can_gets_the_scheme() {
    let four = |group_size| Scheme::Affine { bits: 4, group_size };
    let cases = [
        (
            json!({ "bits": 4, "group_size": 64 }),
            [four(64), four(64), Scheme::Keep, Scheme::Keep, Scheme::Keep],
        ),
        (json!({ "bits": 4, "group_size": 32 }), [four(32), four(32), four(32), Scheme::Keep, Scheme::Keep]),
        (
            json!({ "bits": 4, "group_size": 32, "keep": ["embedding", "mlp-down"] }),
            [Scheme::Keep, four(32), Scheme::Keep, Scheme::Keep, Scheme::Keep],
        ),
    ];
    for (params, expected) in cases {
        for plan in plans(&params) {
            assert_eq!(plan.unwrap(), expected, "{params}");
        }
    }
}

#[test]
fn params_that_mean_nothing_are_refused_alike() {
    for (params, code, found) in [
        (json!({ "bits": 7, "group_size": 64 }), "plugin.invalid-config", "params.bits: 7"),
        (json!({ "bits": 4, "group_size": 48 }), "plugin.invalid-config", "params.group_size: 48"),
        (
            json!({ "bits": 4, "group_size": 64, "keep": ["x"] }),
            "plugin.invalid-config",
            "params.keep: [\"x\"]",
        ),
        (
            json!({ "bits": 4, "group_size": 64, "mode": "x" }),
            "plugin.unsupported-config",
            "params.mode: \"x\"",
        ),
    ] {
        for plan in plans(&params) {
            let report = plan.unwrap_err();
            assert_eq!((report.code, report.found.as_deref()), (code, Some(found)), "{report}");
        }
    }
}

/// What a script answers is checked like any other profile's plan.
#[test]
fn a_plan_that_does_not_exist_is_refused() {
    for (answer, code) in [
        ("{}", "quant.count"),
        ("{ 'keep', 'keep', 'keep', 'keep', 'huge' }", "plugin.script-error"),
        ("{ { bits = 9, group_size = 64 } }", "quant.bits"),
        ("{ 'keep', 'keep', 'keep', 'mxfp4', 'keep' }", "quant.not-a-matrix"),
    ] {
        let source = format!("function plan(params, tensors, config) return {answer} end");
        let package = guests::lua_script_of("quant-profile", &source);
        let plugin = LuaQuant::open(&package, Budget::default(), LogSink::discard()).unwrap();
        let (config, params) = ("{}".to_owned(), "{}".to_owned());
        let profile = PluginQuant { plugin: Box::new(plugin), config, params };
        let report = plan_schemes(&profile, &tensors()).unwrap_err();
        assert_eq!(report.code, code, "{answer}: {}", report.report());
    }
}
