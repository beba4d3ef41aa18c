//! Resolution: exactly what is named, or every reason why not.

use host_core::{Numeric, Reported};
use host_device::KvStorage;
use host_plugins::{Kind, Right, Runtime};
use serde_json::json;

use super::{built_by, config, host, model, plugin, profile, registry, table};
use crate::{
    Bytes, Composition, DeviceFacts, LoopFacts, ModelFacts, ModelIdentity, Overrides, Parts, PluginFacts,
    PolicyRef, Quantisation, Refusal, Registry, Sha256Digest, System, Threads,
};

fn resolve(edits: &[(&str, &str)], parts: Parts, overrides: &Overrides) -> Result<Composition, Refusal> {
    let config = config(json!({}));
    Registry::new(parts).expect("each name once").resolve(&profile(edits), model(&config), overrides)
}

#[test]
fn what_is_named_is_composed() {
    let composition = resolve(&[], host(), &Overrides::default()).unwrap();
    assert_eq!(composition.profile_id(), "tiny");
    assert_eq!(*composition.graph(), built_by(plugin("llama", "0.1.3")));
    assert_eq!((composition.loader(), composition.device()), ("safetensors", "cpu"));
    let options = composition.options();
    assert_eq!((options.numeric, options.kv), (Numeric::Fast, KvStorage::PlainF16));
    assert_eq!((options.n_threads, options.context_tokens), (2, 128));
    assert_eq!((options.max_sequences, options.max_step_tokens), (4, 64));
    assert_eq!(options.memory_bytes, Some(1 << 30));
    assert_eq!(composition.sampling().with_seed(3).seed, 3);
}

const POLICY: &str =
    "policy = { plugin = \"ban\", version = \"^1.0\", params = { n = 3 }, grants = [\"full-logits\"] }";

/// A host that has `ban`, and the profile that names it.
fn with_policy(kind: Kind) -> (Parts, String) {
    let mut parts = host();
    parts.plugins.push(PluginFacts { kind, ..plugin("ban", "1.2.0") });
    (parts, format!("[sampling]\n{POLICY}"))
}

#[test]
fn a_policy_is_resolved_like_the_graph_plugin() {
    let (parts, edit) = with_policy(Kind::SamplingPolicy);
    let composition = resolve(&[("[sampling]", &edit)], parts, &Overrides::default()).unwrap();
    let policy = composition.policy().expect("the profile names one");
    assert_eq!(policy.plugin.title(), "ban 1.2.0 (wasm)");
    assert_eq!(json!(policy.params), json!({ "n": 3 }));
    assert!(policy.grants.has(Right::FullLogits));
    let text = composition.canonical_text();
    assert!(text.contains("\npolicy \"ban\" 1.2.0 wasm "), "{text}");
    assert!(text.contains("sampling.policy \"ban ^1.0 {\\\"n\\\":3} grants=full-logits\""), "{text}");
    let without = resolve(&[], host(), &Overrides::default()).unwrap();
    assert_eq!(without.policy(), None);
    assert_ne!(without.hash(), composition.hash());
}

#[test]
fn a_policy_of_another_kind_or_none_at_all_is_refused() {
    let code = |parts: Parts, edit: &str, overrides: &Overrides| {
        resolve(&[("[sampling]", edit)], parts, overrides).unwrap_err().report()
    };
    let (parts, edit) = with_policy(Kind::ModelGraph);
    let report = code(parts, &edit, &Overrides::default());
    assert_eq!(report.code, "registry.plugin-kind");
    assert_eq!(report.expected.as_deref(), Some("a plugin of kind sampling-policy"));
    assert!(report.place.is_some_and(|place| place.line.is_some()));
    let none = Overrides::default();
    assert_eq!(code(host(), &edit, &none).code, "registry.plugin-missing");
    let wanted = PolicyRef::any_version("llama".to_owned(), serde_json::Map::new(), Vec::new());
    let flag = Overrides { policy: Some(wanted), ..none };
    let report = code(host(), "[sampling]", &flag);
    assert_eq!((report.code, report.place), ("registry.plugin-kind", None));
}

const QUANT: &str = "{ plugin = \"narrow\", version = \"^1.0\", params = { bits = 4 } }";

#[test]
fn a_quantisation_plugin_is_resolved_like_the_graph_plugin() {
    let mut parts = host();
    parts.plugins.push(PluginFacts { kind: Kind::QuantProfile, ..plugin("narrow", "1.1.0") });
    let composition = resolve(&[("\"as-published\"", QUANT)], parts.clone(), &Overrides::default()).unwrap();
    let Some(Quantisation::Plugin { plugin, params }) = composition.quantisation() else {
        panic!("{:?}", composition.quantisation())
    };
    assert_eq!((plugin.title().as_str(), &json!(params)), ("narrow 1.1.0 (wasm)", &json!({ "bits": 4 })));
    assert_eq!(composition.quant(), "narrow");
    let text = composition.canonical_text();
    assert!(text.contains("\nquant plugin \"narrow\" 1.1.0 wasm "), "{text}");
    assert!(text.contains("\ncompose.quant \"narrow ^1.0 {\\\"bits\\\":4}\"\n"), "{text}");
    let wider = QUANT.replace("bits = 4", "bits = 8");
    let wider = resolve(&[("\"as-published\"", &wider)], parts, &Overrides::default()).unwrap();
    assert_ne!(wider.hash(), composition.hash(), "the params are part of the composition");
}

#[test]
fn a_quantisation_plugin_that_is_not_there_as_named_is_refused_at_its_key() {
    let with = |kind, version: &str| {
        let mut parts = host();
        parts.plugins.push(PluginFacts { kind, ..plugin("narrow", version) });
        parts
    };
    let pinned = QUANT.replace("params", "runtime = \"lua\", params");
    for (parts, quant, code) in [
        (host(), QUANT, "registry.plugin-missing"),
        (with(Kind::SamplingPolicy, "1.1.0"), QUANT, "registry.plugin-kind"),
        (with(Kind::QuantProfile, "2.0.0"), QUANT, "registry.plugin-version"),
        (with(Kind::QuantProfile, "1.1.0"), pinned.as_str(), "registry.plugin-runtime"),
    ] {
        let refusal = resolve(&[("\"as-published\"", quant)], parts, &Overrides::default()).unwrap_err();
        let report = refusal.report();
        assert_eq!(report.code, code, "{report}");
        let place = report.place.expect("the profile is to blame");
        assert!(place.excerpt.is_some_and(|line| line.contains("narrow")), "{code}");
    }
}

#[test]
fn flags_take_the_place_of_the_profile() {
    let overrides = Overrides {
        numeric: Some(Numeric::Exact),
        n_threads: Some(Threads::Count(7)),
        context_tokens: Some(100),
        max_sequences: Some(1),
        max_step_tokens: Some(8),
        memory_bytes: Some(Bytes(512)),
        ..Overrides::default()
    };
    let options = resolve(&[], host(), &overrides).unwrap().options().clone();
    // The profile names an element type for each numeric profile.
    assert_eq!((options.numeric, options.kv), (Numeric::Exact, KvStorage::PlainF32));
    assert_eq!((options.n_threads, options.context_tokens), (7, 100));
    assert_eq!((options.max_sequences, options.max_step_tokens, options.memory_bytes), (1, 8, Some(512)));
    let kv = Overrides { kv_dtype: Some("bf16".to_owned()), ..Overrides::default() };
    assert_eq!(resolve(&[], host(), &kv).unwrap().options().kv, KvStorage::PlainBf16);
}

#[test]
fn a_profile_may_name_a_device_for_each_operating_system() {
    let by_system = ("device = \"cpu\"", "device = { linux = \"cpu\", macos = \"mlx\" }");
    let mlx = DeviceFacts { id: "mlx".to_owned(), ..host().devices[0].clone() };
    let devices = vec![host().devices[0].clone(), mlx];
    for (system, expected) in [("linux", "cpu"), ("macos", "mlx")] {
        let parts = Parts { system: System(system.to_owned()), devices: devices.clone(), ..host() };
        assert_eq!(resolve(&[by_system], parts, &Overrides::default()).unwrap().device(), expected);
    }
    // The other system's device is no substitute, and a flag asks for what it names.
    let parts = |system: &str| Parts { system: System(system.to_owned()), ..host() };
    assert!(resolve(&[by_system], parts("macos"), &Overrides::default()).is_err());
    let flag = Overrides { device: Some("cpu".to_owned()), ..Overrides::default() };
    assert_eq!(resolve(&[by_system], parts("macos"), &flag).unwrap().device(), "cpu");
}

#[test]
fn the_model_s_own_context_is_taken_up_to_the_limit() {
    let check = |at_most: usize, max_position_embeddings: usize, expected: usize| {
        let to = format!("context_tokens = {{ at_most = {at_most} }}");
        let profile = profile(&[("context_tokens = 128", &to)]);
        let config = config(json!({ "max_position_embeddings": max_position_embeddings }));
        let composition = registry().resolve(&profile, model(&config), &Overrides::default()).unwrap();
        assert_eq!(composition.options().context_tokens, expected);
    };
    check(64, 128, 64);
    check(256, 128, 128);
    check(128, 128, 128);
}

#[test]
fn versions_runtimes_and_digests_narrow_the_plugins() {
    let lua = PluginFacts { runtime: Runtime::Lua, ..plugin("llama", "0.1.3") };
    let older = plugin("llama", "0.1.0");
    let parts = || {
        let mut parts = host();
        parts.plugins.extend([lua.clone(), older.clone(), plugin("llama", "0.2.0")]);
        parts
    };
    let check = |plugin: &str, expected: &PluginFacts| {
        let edit = [("{ plugin = \"llama\", version = \"^0.1\" }", plugin)];
        let composition = resolve(&edit, parts(), &Overrides::default()).unwrap();
        assert_eq!(*composition.graph(), built_by(expected.clone()), "{plugin}");
    };
    check("{ plugin = \"llama\", version = \"=0.1.0\" }", &older);
    check("{ plugin = \"llama\", version = \"^0.2\" }", &plugin("llama", "0.2.0"));
    check("{ plugin = \"llama\", version = \"^0.1\", runtime = \"lua\" }", &lua);
    let digest =
        format!("{{ plugin = \"llama\", version = \"^0.1\", digest = \"sha256:{}\" }}", older.digest);
    check(&digest, &older);
}

#[test]
fn a_registry_grows_only_into_another() {
    let first = registry();
    let speculation =
        LoopFacts { name: "speculative".to_owned(), features: vec![crate::Feature::Speculation] };
    let more = Parts { loops: vec![speculation.clone()], ..Parts::default() };
    let second = first.with(more.clone()).unwrap();
    assert_eq!(first, registry());
    assert_eq!(second.parts().loops, [LoopFacts::autoregressive(), speculation]);
    let speculative = profile(&[("loop = \"autoregressive\"", "loop = \"speculative\"")]);
    let config = config(json!({}));
    assert!(first.resolve(&speculative, model(&config), &Overrides::default()).is_err());
    assert!(second.resolve(&speculative, model(&config), &Overrides::default()).is_ok());
    let duplicates = [
        second.with(more).unwrap_err(),
        first.with(Parts { plugins: vec![plugin("llama", "0.1.3")], ..Parts::default() }).unwrap_err(),
        first.with(Parts { loaders: vec!["gguf".to_owned()], ..Parts::default() }).unwrap_err(),
        first.with(Parts { quants: vec!["as-published".to_owned()], ..Parts::default() }).unwrap_err(),
        first.with(Parts { devices: host().devices, ..Parts::default() }).unwrap_err(),
        first.with(Parts { caches: vec!["plain:f16".to_owned()], ..Parts::default() }).unwrap_err(),
        first.with(Parts { samplers: vec!["top_p".to_owned()], ..Parts::default() }).unwrap_err(),
        first.with(Parts { loaders: vec![String::new()], ..Parts::default() }).unwrap_err(),
    ];
    snapshot!(table(duplicates.map(|error| (error.kind.to_owned(), vec![error]))));
}

#[test]
fn what_is_not_there_as_named_is_refused() {
    let none = Overrides::default();
    let case = |name: &str, edits: &[(&str, &str)], parts: Parts, overrides: &Overrides| {
        (name.to_owned(), vec![resolve(edits, parts, overrides).expect_err(name)])
    };
    let edit = |name: &str, from: &str, to: &str| case(name, &[(from, to)], host(), &none);
    let flag = |name: &str, overrides: Overrides| case(name, &[], host(), &overrides);
    let with = |plugins: Vec<PluginFacts>| Parts { plugins, ..host() };
    let of_model = |name: &str, format: &str, edits: &[(&str, &str)], max: serde_json::Value| {
        let config = config(json!({ "max_position_embeddings": max }));
        let model = ModelFacts { config: &config, format, identity: &ModelIdentity::NONE };
        (name.to_owned(), vec![registry().resolve(&profile(edits), model, &none).expect_err(name)])
    };
    let pinned = format!("version = \"^0.1\", digest = \"{}\"", Sha256Digest::of(b"another build"));
    let at_most = ("context_tokens = 128", "context_tokens = { at_most = 64 }");
    let sampler = PluginFacts { kind: Kind::SamplingPolicy, ..plugin("llama", "0.1.3") };
    let bare = host().devices[0].clone();
    let no_kernels = DeviceFacts { kernels: Vec::new(), ..bare.clone() };
    let narrow = crate::Match(vec![
        ("model_type".to_owned(), crate::Predicate::equals("llama")),
        ("hidden_size".to_owned(), crate::Predicate { min: Some(64.0), ..crate::Predicate::default() }),
    ]);
    let narrow = DeviceFacts { kernel_shapes: vec![("rms-norm".to_owned(), narrow)], ..bare };
    let no_samplers = Parts { samplers: vec!["temperature".to_owned()], ..host() };
    let few_caches = Parts { caches: vec!["plain:f32".to_owned()], ..host() };
    snapshot!(table([
        edit("no such plugin", "plugin = \"llama\"", "plugin = \"lama\""),
        case("no plugins", &[], with(Vec::new()), &none),
        case("a plugin of another kind", &[], with(vec![sampler]), &none),
        edit("no version in range", "\"^0.1\"", "\">=0.1.4, <0.2\""),
        edit("another runtime", "version = \"^0.1\"", "version = \"^0.1\", runtime = \"lua\""),
        edit("another build", "version = \"^0.1\"", &pinned),
        case("two versions fit", &[], with(vec![plugin("llama", "0.1.3"), plugin("llama", "0.1.4")]), &none),
        edit("no such loader", "\"gguf\"]", "\"gguff\"]"),
        of_model(
            "a checkpoint stored otherwise",
            "gguf",
            &[("[\"safetensors\", \"gguf\"]", "\"safetensors\"")],
            json!(128)
        ),
        edit("no such quantisation", "\"as-published\"", "\"q4\""),
        edit("no such loop", "\"autoregressive\"", "\"diffusion\""),
        edit("no such device", "device = \"cpu\"", "device = \"mlx\""),
        edit("no device for this system", "device = \"cpu\"", "device = { macos = \"mlx\" }"),
        case("no devices", &[], Parts { devices: Vec::new(), ..host() }, &none),
        edit("no such kernel", "require = []", "require = [\"rms-norm\", \"decode-attention\"]"),
        case(
            "a device without kernels",
            &[("require = []", "require = [\"rms-norm\"]")],
            Parts { devices: vec![no_kernels], ..host() },
            &none,
        ),
        case(
            "a kernel for other shapes",
            &[("require = []", "require = [\"rms-norm\"]")],
            Parts { devices: vec![narrow], ..host() },
            &none,
        ),
        case("a host without the samplers of the flat keys", &[], no_samplers, &none),
        case("a host without the cache", &[], few_caches, &none),
        edit("no such cache", "kind = \"plain\"", "kind = \"turboquant\""),
        edit("no such element type", "fast = \"f16\"", "fast = \"f8\""),
        edit("no element type for the numeric profile", ", fast = \"f16\"", ""),
        case(
            "exact with half precision",
            &[("numeric = \"fast\"", "numeric = \"exact\""), ("exact = \"f32\"", "exact = \"f16\"")],
            host(),
            &none,
        ),
        edit("no threads named", "n_threads = \"all\"\n", ""),
        of_model("a context longer than the model's", "safetensors", &[], json!(64)),
        of_model("a model that does not tell its context", "safetensors", &[at_most], json!(null)),
        of_model("a model whose context is 0", "safetensors", &[at_most], json!(0)),
        flag("flag: no such device", Overrides { device: Some("cuda".to_owned()), ..none.clone() }),
        flag("flag: no such element type", Overrides { kv_dtype: Some("f8".to_owned()), ..none.clone() }),
        flag(
            "flag: exact with half precision",
            Overrides { numeric: Some(Numeric::Exact), kv_dtype: Some("f16".to_owned()), ..none.clone() },
        ),
        flag("flag: no threads", Overrides { n_threads: Some(Threads::Count(0)), ..none.clone() }),
        flag("flag: no context", Overrides { context_tokens: Some(0), ..none.clone() }),
        flag("flag: too long a context", Overrides { context_tokens: Some(4096), ..none.clone() }),
        flag("flag: no sequences", Overrides { max_sequences: Some(0), ..none.clone() }),
        flag("flag: more sequences than a step takes", Overrides { max_sequences: Some(65), ..none.clone() }),
        flag("flag: no step", Overrides { max_step_tokens: Some(0), ..none.clone() }),
        flag("flag: no memory", Overrides { memory_bytes: Some(Bytes(0)), ..none.clone() }),
        case(
            "everything at once",
            &[
                ("plugin = \"llama\"", "plugin = \"mamba\""),
                ("\"autoregressive\"", "\"diffusion\""),
                ("device = \"cpu\"", "device = \"gpu\""),
                ("context_tokens = 128", "context_tokens = 4096"),
            ],
            host(),
            &none,
        ),
    ]));
}
