//! What the tests of this crate share: a profile, a model, a host, and the form that reports are judged in.

/// Compares a table with its file, which does not repeat the expression.
macro_rules! snapshot {
    ($table:expr) => {
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!($table) })
    };
}

mod budgets;
mod composition;
mod explanation;
mod extending;
mod falling_back;
mod fingerprint;
mod frozen;
mod implementations;
mod loading;
mod matching;
mod properties;
mod refusals;
mod requests;
mod resolving;
mod schema;
mod shipped;
mod tokenizer;

use std::fmt::Write;

use host_core::{Report, Reported};
use host_graph::{Graph, GraphBuilder, Op, TensorFacts};
use host_plugins::{Kind, Runtime};
use serde_json::{Map, Value, json};

use crate::{
    DeviceFacts, GraphPart, LoadedProfile, LoopFacts, ModelFacts, ModelIdentity, Parts, PluginFacts,
    Registry, Sha256Digest, System, cache_kinds, sampler_kinds,
};

/// A profile in which each case changes one place.
pub(super) const PROFILE: &str = r#"schema = 1
id = "tiny"
about = "A tiny llama"

[match]
model_type = { in = ["llama", "mistral"] }
hidden_act = { equals = "silu", optional = true }
hidden_size = { min = 32, max = 64 }
quantization = { keys = ["bits", "group_size", "mode"], modules = true, optional = true }
vision_config = { present = false }

[compose]
graph = { plugin = "llama", version = "^0.1" }
loader = ["safetensors", "gguf"]
quant = "as-published"
loop = "autoregressive"
device = "cpu"
numeric = "fast"

[kv]
kind = "plain"
dtype = { exact = "f32", fast = "f16" }

[kernels]
require = []

[sampling]
temperature = 0.2
top_k = 40
top_p = 0.9
min_p = 0.0
xtc_probability = 0.0           # share of steps; 0 never
xtc_threshold = 0.1             # probability
repetition_penalty = 1.0
repetition_context_tokens = 64
presence_penalty = 0.0          # subtracted from logits of seen tokens, once
presence_context_tokens = 20    # tokens; 0 looks at all
frequency_penalty = 0.0         # subtracted from logits of seen tokens, for each time
frequency_context_tokens = 20   # tokens; 0 looks at all
dry_multiplier = 0.0            # subtracted at the allowed length; 0 changes nothing
dry_base = 1.75                 # factor for each further token
dry_allowed_length = 2          # tokens
dry_context_tokens = 0          # tokens; 0 looks at all
dry_sequence_breakers = ["\n", ":", "\"", "*"]

[serve]
max_tokens = 32
chat = true
stop = ["</s>"]

[limits]
context_tokens = 128
max_sequences = 4
max_step_tokens = 64
memory_bytes = "1GiB"
n_threads = "all"
"#;

pub(super) const FILE: &str = "profiles/tiny.toml";

/// The profile with some places changed; each must be there exactly once.
pub(super) fn edited(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(PROFILE.to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from:?} must stand once in the profile");
        text.replacen(from, to, 1)
    })
}

pub(super) fn profile(edits: &[(&str, &str)]) -> LoadedProfile {
    LoadedProfile::parse(FILE, &edited(edits)).expect("the profile is well formed")
}

/// The configuration of a tiny llama, with some keys changed.
pub(super) fn config(edits: Value) -> Map<String, Value> {
    let mut config = json!({
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 48,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
    });
    let object = config.as_object_mut().expect("an object");
    for (key, value) in edits.as_object().expect("an object") {
        object.insert(key.clone(), value.clone());
    }
    object.clone()
}

pub(super) fn plugin(id: &str, version: &str) -> PluginFacts {
    PluginFacts {
        id: id.to_owned(),
        version: version.parse().expect("a version"),
        kind: Kind::ModelGraph,
        runtime: Runtime::Wasm,
        digest: Sha256Digest::of(format!("{id} {version}").as_bytes()),
    }
}

/// The same as the part of a composition.
pub(super) fn built_by(plugin: PluginFacts) -> GraphPart {
    GraphPart::Plugin(plugin)
}

pub(super) fn host() -> Parts {
    Parts {
        system: System("linux".to_owned()),
        plugins: vec![plugin("llama", "0.1.3"), plugin("gemma3", "0.2.0")],
        graphs: Vec::new(),
        devices: vec![DeviceFacts {
            id: "cpu".to_owned(),
            n_threads: 2,
            kernels: vec!["rms-norm".to_owned()],
            kernel_shapes: Vec::new(),
        }],
        loaders: vec!["safetensors".to_owned(), "gguf".to_owned()],
        quants: vec!["as-published".to_owned()],
        schemes: Vec::new(),
        loops: vec![LoopFacts::autoregressive()],
        caches: cache_kinds(),
        samplers: sampler_kinds(),
        streamed: Vec::new(),
        implementations: Vec::new(),
    }
}

pub(super) fn registry() -> Registry {
    Registry::new(host()).expect("each name once")
}

pub(super) fn model(config: &Map<String, Value>) -> ModelFacts<'_> {
    ModelFacts { config, format: "safetensors", identity: &ModelIdentity::NONE }
}

/// Token ids in, their embeddings' products with the same table out: 8 tokens, width 4.
pub(super) fn graph() -> Graph {
    let facts = TensorFacts { shape: vec![8, 4], is_dense: true };
    let catalogue = [("embed.weight".to_owned(), facts)].into_iter().collect();
    let mut builder = GraphBuilder::new(catalogue, host_graph::Limits::default());
    let weight = || "embed.weight".to_owned();
    let tokens = builder.add(Op::Tokens, &[]).expect("tokens");
    let x = builder.add(Op::Embedding { weight: weight() }, &[tokens]).expect("an embedding");
    let logits = builder.add(Op::Linear { weight: weight(), bias: None }, &[x]).expect("a product");
    builder.finish(logits).expect("a graph")
}

/// A report with its place underlined, as snapshots hold it.
pub(super) fn shown(report: &Report) -> String {
    let mut text = report.to_string();
    if let Some(place) = &report.place {
        let number = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
        let (line, column) = (number(place.line), number(place.column));
        write!(text, "\n  at        {}:{line}:{column}", place.file).expect("a string");
        if let (Some(excerpt), Some(column)) = (&place.excerpt, place.column) {
            let blank = " ".repeat(column as usize - 1);
            write!(text, "\n  | {excerpt}\n  | {blank}{}", "^".repeat(place.width as usize))
                .expect("a string");
        }
    }
    text
}

/// One table of refusals as one text: the name of each case, then its reports.
pub(super) fn table<E: Reported>(cases: impl IntoIterator<Item = (String, Vec<E>)>) -> String {
    let mut text = String::new();
    for (name, errors) in cases {
        assert!(!errors.is_empty(), "{name}: nothing was refused");
        writeln!(text, "== {name}").expect("a string");
        for error in errors {
            let report = error.report();
            assert!(report.mend.is_some(), "{name}: {} has no mend", report.code);
            writeln!(text, "{}", shown(&report)).expect("a string");
        }
        text.push('\n');
    }
    text
}
