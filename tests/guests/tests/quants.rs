//! Quantisation profiles over both runtimes: twins give the same plan.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use guests::{lua_package, wasm_package};
use host_core::quant::{Role, Scheme, TensorFacts, plan_schemes};
use host_core::{DType, Report, Reported};
use host_lua::LuaQuant;
use host_plugins::{Budget, LogSink, PluginQuant, QuantPlugin};
use host_wasm::WasmRuntime;
use serde::Deserialize;
use serde_json::{Value as Json, json};

/// Both forms of a plugin.
fn twins(id: &str) -> [Box<dyn QuantPlugin>; 2] {
    let (budget, runtime) = (Budget::default(), WasmRuntime::new(None).unwrap());
    let wasm = runtime.open_quant(&wasm_package(id), budget, LogSink::discard()).unwrap();
    let lua = LuaQuant::open(&lua_package(&format!("{id}-lua")), budget, LogSink::discard()).unwrap();
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
    plans_of("quant-uniform", params, &tensors())
}

fn plans_of(id: &str, params: &Json, tensors: &[TensorFacts]) -> [Result<Vec<Scheme>, Report>; 2] {
    twins(id).map(|plugin| {
        let profile = PluginQuant { plugin, config: "{}".to_owned(), params: params.to_string() };
        plan_schemes(&profile, tensors)
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

/// One of `cases/quants.json`, which `tests/oracle/quant_mixed.py` wrote.
#[derive(Deserialize)]
struct Case {
    name: String,
    tensors: Vec<CaseTensor>,
    params: Json,
    /// `None` where the budget is too small.
    schemes: Option<Vec<Json>>,
}

#[derive(Deserialize)]
struct CaseTensor {
    name: String,
    shape: Vec<usize>,
    dtype: String,
    role: String,
    layer: Option<usize>,
}

impl CaseTensor {
    fn facts(&self) -> TensorFacts {
        let dtype = [DType::F32, DType::F16, DType::BF16].into_iter().find(|it| it.to_string() == self.dtype);
        TensorFacts {
            name: self.name.clone(),
            shape: self.shape.clone(),
            dtype: dtype.unwrap(),
            role: self.role.parse().unwrap(),
            layer: self.layer,
        }
    }
}

fn scheme_of(json: &Json) -> Scheme {
    match json.as_str() {
        Some("keep") => Scheme::Keep,
        _ => Scheme::affine(json["bits"].as_u64().unwrap(), json["group_size"].as_u64().unwrap()).unwrap(),
    }
}

#[test]
fn mixed_precision_is_what_exact_arithmetic_gives() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../cases/quants.json")).unwrap();
    assert!(cases.len() >= 10);
    for case in cases {
        let tensors: Vec<_> = case.tensors.iter().map(CaseTensor::facts).collect();
        for plan in plans_of("quant-mixed", &case.params, &tensors) {
            match (plan, &case.schemes) {
                (Ok(plan), Some(expected)) => {
                    let expected: Vec<_> = expected.iter().map(scheme_of).collect();
                    assert_eq!(plan, expected, "{}", case.name);
                }
                (Err(report), None) => {
                    assert_eq!(report.code, "plugin.invalid-config", "{}", case.name);
                    let expected = report.expected.unwrap();
                    assert!(expected.starts_with("params.budget_bits_per_weight: at least 3."), "{expected}");
                }
                (plan, expected) => panic!("{}: {plan:?}, expected {expected:?}", case.name),
            }
        }
    }
}

#[test]
fn figures_that_are_missing_or_mean_nothing_are_refused_alike() {
    let good = json!({ "budget_bits_per_weight": 16, "bits": 4, "group_size": 32,
        "kl": { "embedding": 0.1, "attention": [0.2], "mlp": [0.3] } });
    for (key, value, found) in [
        ("kl", json!(null), "params.kl: nothing"),
        ("kl", json!({ "attention": [0.2], "mlp": [0.3] }), "params.kl.embedding: nothing"),
        ("kl", json!({ "embedding": 0.1, "attention": [], "mlp": [0.3] }), "params.kl.attention: []"),
        ("kl", json!({ "embedding": 0.1, "attention": [0.2], "mlp": [-1.0] }), "params.kl.mlp: [-1.0]"),
        ("bits", json!(7), "params.bits: 7"),
        ("group_size", json!(8), "params.group_size: 8"),
        ("budget_bits_per_weight", json!(0), "params.budget_bits_per_weight: 0"),
        ("budget_bits_per_weight", json!(33), "params.budget_bits_per_weight: 33"),
    ] {
        let mut params = good.clone();
        params[key] = value;
        let [wasm, lua] = plans_of("quant-mixed", &params, &tensors()).map(Result::unwrap_err);
        assert_eq!((wasm.code, wasm.found.as_deref()), ("plugin.invalid-config", Some(found)), "{wasm}");
        assert_eq!(
            (&lua.code, &lua.expected, &lua.found),
            (&wasm.code, &wasm.expected, &wasm.found),
            "{lua}"
        );
    }
    for plan in plans_of("quant-mixed", &good, &tensors()) {
        assert_eq!(plan.unwrap().iter().filter(|scheme| **scheme != Scheme::Keep).count(), 3);
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
        assert!(report.message.starts_with("plugin script 1.0.0"), "{report}");
    }
}
