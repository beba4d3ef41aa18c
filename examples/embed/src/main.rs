//! The smallest complete use of the host as a library: one model, one prompt, the text as it comes.
//!
//! ```text
//! cargo run --release -p example-embed -- MODEL "The capital of France is"
//! ```
//!
//! MODEL is a Llama-like model: a folder with `config.json` and safetensors, or a GGUF file. Everything stands
//! here that `tenon generate` does between a path and a text, in the same order: configuration, profile,
//! composition, headers, graph, weights, engine. What does not fit is refused with a report.

use std::error::Error;
use std::io::{Write, stdout};
use std::path::Path;
use std::sync::Arc;

use host_core::{Report, Reported};
use host_cpu::CpuDevice;
use host_device::Device;
use host_engine::{Engine, EngineOptions, Outcome, Request};
use host_graph::TensorFacts;
use host_lua::LuaPlugin;
use host_plugins::{Budget, GraphPlugin, LogSink, PluginPackage};
use host_registry::{
    Composition, DeviceFacts, LoopFacts, ModelFacts, ModelIdentity, Overrides, Parts, PluginFacts,
    ProfileSet, Registry, cache_kinds, sampler_kinds,
};
use host_text::{Detokenizer, Tokenizer};
use host_weights::{Checkpoint, ConfigOrigin, Encoding, ModelConfig, read_config};

/// A profile of our own: which models it fits, and every choice that is made for them.
const PROFILE: &str = include_str!("../profile.toml");

/// A graph plugin in Lua, which needs no build.
const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/llama-lua");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(prompt)) = (arguments.next(), arguments.next()) else {
        return Err("usage: embed MODEL PROMPT".into());
    };
    // `Debug` is how `main` shows an error; a report is meant to be read.
    answer(Path::new(&model), &prompt).map_err(|report| {
        eprintln!("{report}");
        report.message.clone().into()
    })
}

fn answer(model: &Path, prompt: &str) -> Result<(), Box<Report>> {
    let device = CpuDevice::new();
    let package = told(PluginPackage::read(Path::new(PLUGIN)))?;
    let config = told(read_config(model))?;
    let composition = compose(&config, &package, &device)?;

    // Headers only; the plugin sees names and shapes.
    let checkpoint = told(Checkpoint::open(model))?;
    let plugin = told(LuaPlugin::open(&package, Budget::default(), LogSink::discard()))?;
    let tensors = checkpoint.catalogue().iter().map(|info| {
        let is_dense = matches!(info.encoding, Encoding::Dense(_));
        (info.name.clone(), TensorFacts { shape: info.shape.clone(), is_dense })
    });
    let json = serde_json::Value::Object(config.json.clone()).to_string();
    let graph = told(plugin.build(&json, tensors.collect()))?;

    // Here the weights are read and repacked for this machine.
    let options = composition.options();
    let executable = told(device.compile(&graph, &checkpoint, options, &mut |_, _| {}))?;
    let engine_options =
        EngineOptions { context_tokens: options.context_tokens, max_step_tokens: options.max_step_tokens };
    let engine = Engine::new(executable, engine_options);

    let tokenizer = told(match checkpoint.vocabulary() {
        Some(vocabulary) => Tokenizer::from_vocabulary(vocabulary),
        None => Tokenizer::from_folder(model),
    })?;
    generate(engine, &Arc::new(tokenizer), &composition, prompt)
}

/// Chooses the profile for the model and takes the parts that it names.
fn compose(
    config: &ModelConfig,
    package: &PluginPackage,
    device: &CpuDevice,
) -> Result<Composition, Box<Report>> {
    let registry = told(Registry::new(Parts {
        plugins: vec![PluginFacts::from(package)],
        graphs: Vec::new(),
        devices: vec![DeviceFacts::of(device, std::thread::available_parallelism().map_or(1, usize::from))],
        loaders: vec!["safetensors".to_owned(), "gguf".to_owned()],
        quants: vec!["as-published".to_owned()],
        loops: vec![LoopFacts::autoregressive()],
        caches: cache_kinds(),
        samplers: sampler_kinds(),
        ..Parts::default()
    }))?;
    let profiles =
        ProfileSet::from_texts([("profile.toml", PROFILE)]).map_err(|errors| Box::new(errors[0].report()))?;
    let decision = profiles.match_config(&config.json);
    let profile = told(decision.chosen().map_err(Clone::clone))?;
    let format = match config.origin {
        ConfigOrigin::ConfigJson(_) => "safetensors",
        ConfigOrigin::GgufMetadata(_) => "gguf",
    };
    let model = ModelFacts { config: &config.json, format, identity: &ModelIdentity::NONE };
    told(registry.resolve(profile, model, &Overrides::default()))
}

/// Runs one request; further ones could be submitted at any time and would share the steps.
fn generate(
    mut engine: Engine,
    tokenizer: &Arc<Tokenizer>,
    composition: &Composition,
    prompt: &str,
) -> Result<(), Box<Report>> {
    let prompt_ids = told(tokenizer.encode(prompt, true, true))?;
    let mut sampling = composition.sampling().with_seed(0);
    told(tokenizer.resolve_chain(&mut sampling))?;
    let request = Request {
        stop_token_ids: tokenizer.stop_ids().to_vec(),
        ..Request::new(prompt_ids, composition.serve().max_tokens, sampling)
    };
    told(engine.submit(request))?;
    let mut words = Detokenizer::new(Arc::clone(tokenizer), true);
    while !engine.is_idle() {
        for event in engine.step() {
            match event.outcome {
                Outcome::Token { token_id, .. } => say(words.push(token_id)),
                Outcome::Finished { .. } => say(words.flush()),
                Outcome::Failed(report) => return Err(Box::new(report)),
            }
        }
    }
    println!();
    Ok(())
}

/// Prints what is complete: never half a character.
fn say(text: Option<String>) {
    if let Some(text) = text {
        print!("{text}");
        let _ = stdout().flush();
    }
}

/// Any error of the host as its report.
fn told<T, E: Reported>(result: Result<T, E>) -> Result<T, Box<Report>> {
    result.map_err(|error| Box::new(error.report()))
}
