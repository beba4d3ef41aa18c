//! The hash: stable, and different for whatever differs. The second stage: graph and device.

use host_core::{Numeric, Reported};
use host_device::{Capability, CompileOptions, Device, DeviceError, Executable, MemoryPlan};
use host_graph::Graph;
use host_weights::{Catalogue, Checkpoint};
use serde_json::json;

use super::{config, edited, graph, host, model, plugin, registry, shown};
use crate::{Composition, DeviceFacts, LoadedProfile, Overrides, Parts, PluginFacts, Registry, Threads};

fn composed(edits: &[(&str, &str)], parts: Parts, overrides: &Overrides) -> Composition {
    let config = config(json!({}));
    let loaded = LoadedProfile::parse("p.toml", &edited(edits)).unwrap();
    Registry::new(parts).unwrap().resolve(&loaded, model(&config), overrides).unwrap()
}

fn plain() -> Composition {
    composed(&[], host(), &Overrides::default())
}

#[test]
fn the_canonical_text_is_this_and_its_hash_that() {
    let overrides = Overrides { numeric: Some(Numeric::Exact), ..Overrides::default() };
    let composition =
        composed(&[("chat = true", "chat = true\nsystem = \"a \\\"b\\\"\\n\"")], host(), &overrides);
    insta::assert_snapshot!(composition.canonical_text());
    // The digest of that text by another program, without the system message, `fast` and `f16`.
    assert_eq!(
        plain().hash().to_string(),
        "80925f337a092cae0bd05eb250c151d6a8a7a6edf9d1cab2665f8301817958db"
    );
}

#[test]
fn the_hash_is_that_of_the_meaning() {
    let hash = plain().hash();
    assert_eq!(hash, plain().hash());
    let same = |edits: &[(&str, &str)], parts: Parts, overrides: &Overrides| {
        assert_eq!(composed(edits, parts, overrides).hash(), hash, "{edits:?} {overrides:?}");
    };
    let none = Overrides::default();
    // What people read, which models it fits, where it stands, and how this machine resolves it.
    same(&[("A tiny llama", "Another line")], host(), &none);
    same(&[("max = 64", "max = 65")], host(), &none);
    same(&[("[kernels]", "# a comment\n\n[kernels]")], host(), &none);
    let wide = DeviceFacts { n_threads: 64, ..host().devices[0].clone() };
    same(&[], Parts { devices: vec![wide], ..host() }, &none);
    // A flag that says what the profile says.
    same(&[], host(), &Overrides { n_threads: Some(Threads::All), ..none.clone() });
    same(&[("\"1GiB\"", "\"1024MiB\"")], host(), &none);
}

#[test]
fn whatever_differs_changes_the_hash() {
    let mut seen = vec![plain().hash()];
    let mut differs = |composition: Composition| {
        let hash = composition.hash();
        assert!(!seen.contains(&hash), "{}", composition.canonical_text());
        seen.push(hash);
    };
    let none = Overrides::default();
    for edit in [
        ("id = \"tiny\"", "id = \"tiny-2\""),
        ("numeric = \"fast\"", "numeric = \"exact\""),
        ("fast = \"f16\"", "fast = \"bf16\""),
        ("require = []", "require = [\"rms-norm\"]"),
        ("temperature = 0.2", "temperature = 0.3"),
        ("top_k = 40", "top_k = 41"),
        ("top_p = 0.9", "top_p = 0.8"),
        ("min_p = 0.0", "min_p = 0.1"),
        ("repetition_penalty = 1.0", "repetition_penalty = 1.1"),
        ("repetition_context_tokens = 64", "repetition_context_tokens = 65"),
        ("xtc_probability = 0.0", "xtc_probability = 0.5"),
        ("presence_penalty = 0.0", "presence_penalty = 0.1"),
        ("dry_sequence_breakers = [\"\\n\"", "dry_sequence_breakers = [\"x\""),
        ("max_tokens = 32", "max_tokens = 33"),
        ("chat = true", "chat = false"),
        ("chat = true", "chat = true\nsystem = \"none\""),
        ("[\"</s>\"]", "[]"),
        ("[\"</s>\"]", "[\"</s>\", \"a\"]"),
        ("context_tokens = 128", "context_tokens = 127"),
        ("context_tokens = 128", "context_tokens = { at_most = 128 }"),
        ("max_sequences = 4", "max_sequences = 3"),
        ("max_step_tokens = 64", "max_step_tokens = 63"),
        ("memory_bytes = \"1GiB\"\n", ""),
        ("n_threads = \"all\"", "n_threads = 2"),
    ] {
        differs(composed(&[edit], host(), &none));
    }
    differs(composed(&[], Parts { plugins: vec![plugin("llama", "0.1.4")], ..host() }, &none));
    let rebuilt = PluginFacts { digest: crate::Sha256Digest::of(b"x"), ..plugin("llama", "0.1.3") };
    differs(composed(&[], Parts { plugins: vec![rebuilt], ..host() }, &none));
    differs(composed(&[], host(), &Overrides { numeric: Some(Numeric::Exact), ..none.clone() }));
    differs(composed(&[], host(), &Overrides { n_threads: Some(Threads::Count(1)), ..none.clone() }));
    let other = config(json!({ "rms_norm_eps": 1e-6 }));
    let loaded = LoadedProfile::parse("p.toml", super::PROFILE).unwrap();
    differs(registry().resolve(&loaded, model(&other), &none).unwrap());
    let altered = config(json!({}));
    let gguf = crate::ModelFacts { format: "gguf", ..model(&altered) };
    differs(registry().resolve(&loaded, gguf, &none).unwrap());
}

#[test]
fn a_composition_belongs_to_one_configuration() {
    let composition = plain();
    let mut reordered: Vec<_> = config(json!({})).into_iter().collect();
    reordered.reverse();
    composition.check_config(&reordered.into_iter().collect()).unwrap();
    let refusal = composition.check_config(&config(json!({ "hidden_size": 64 }))).unwrap_err();
    insta::assert_snapshot!(shown(&refusal.report()), @"
    error[registry.other-config]: the composition of profile `tiny` was resolved for another configuration
      expected  digest 654075b7d7bc563b
      found     digest c691c4d9ae635439
      mend      resolve the profile again for this model
    ");
}

/// A device that cannot run any graph.
struct Unable(&'static str);

impl Device for Unable {
    fn id(&self) -> &'static str {
        self.0
    }

    fn capabilities(&self) -> Vec<Capability> {
        let kernel = |value: &str| Capability { name: "kernel", value: value.to_owned() };
        vec![Capability { name: "simd", value: "none".to_owned() }, kernel("rms-norm"), kernel("rope")]
    }

    fn check(
        &self,
        graph: &Graph,
        _: &Catalogue,
        options: &CompileOptions,
    ) -> Result<MemoryPlan, DeviceError> {
        let what = format!("a vocabulary of {} at numeric {}", graph.n_vocab(), options.numeric);
        Err(DeviceError::Unsupported { device: self.0, what, has: "nothing".to_owned() })
    }

    fn compile(
        &self,
        _: &Graph,
        _: &Checkpoint,
        _: &CompileOptions,
        _: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Executable>, DeviceError> {
        unreachable!("resolution compiles nothing")
    }
}

#[test]
fn the_device_has_its_say_once_the_graph_is_built() {
    let (graph, composition, catalogue) = (graph(), plain(), Catalogue::default());
    let refused = |device: &dyn Device| {
        let checked =
            composition.check_graph(device, |device, options| device.check(&graph, &catalogue, options));
        shown(&checked.unwrap_err().report())
    };
    insta::assert_snapshot!(refused(&Unable("cpu")), @"
    error[device.unsupported]: device `cpu` does not have a vocabulary of 8 at numeric fast
      expected  a vocabulary of 8 at numeric fast
      found     nothing
      mend      name another device or another value in the profile
      note      profile `tiny`
    ");
    insta::assert_snapshot!(refused(&Unable("mlx")), @"
    error[registry.other-device]: the composition names the device `cpu`, not `mlx`
      expected  cpu
      found     mlx
      mend      resolve the profile again for this device
    ");
    let plan = MemoryPlan { weights_bytes: 1, state_bytes: 2, activation_bytes: 3 };
    assert_eq!(composition.check_graph(&Unable("cpu"), |_, _| Ok(plan)).unwrap(), plan);
}

#[test]
fn a_device_s_kernels_are_its_capabilities_of_that_name() {
    let facts = DeviceFacts::of(&Unable("cpu"), 0);
    assert_eq!(facts.kernels, ["rms-norm", "rope"]);
    assert_eq!(facts.n_threads, 1);
}
