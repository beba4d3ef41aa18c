//! The one way from a model's name to an engine, in the order that makes refusals cheap:
//!
//! ```text
//! source ─► local path ─► config ─► profile ─► composition       no header of a weight file was read
//!        ─► headers ─► graph, built or frozen ─► device check    no weight was read
//!        ─► tokenizer (on a second thread) and repacked weights ─► engine
//! ```

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use host_core::TokenizerKey;
use host_core::quant::{self, QuantProfile};
use host_device::MemoryPlan;
use host_engine::{Engine, EngineOptions};
use host_graph::{Catalogue, Graph, TensorFacts, Use, use_by_name};
use host_models::{LocalModel, ModelSource, ModelStore, Pins, Progress};
use host_plugins::{PluginQuant, PolicyInstance};
use host_registry::{
    Composition, Decision, GraphPart, ModelFacts, ModelIdentity, Overrides, PluginFacts, ProfileSet,
    Quantisation, Subject,
};
use host_text::{TextError, Tokenizer};
use host_weights::{Checkpoint, ConfigOrigin, Encoding, ModelConfig, read_config};
use serde_json::{Map, Value};

use crate::error::OpenError;
use crate::failure::Failure;
use crate::host::Host;
use crate::policy::RequestPolicy;
use crate::progress::OpenProgress;
use crate::vocabulary::vocabulary;

/// What a caller calls a model: a source, a profile, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelName<'a> {
    /// The source; absent takes that of the profile.
    pub model: Option<&'a str>,
    /// The profile's id; absent takes the one that fits.
    pub profile: Option<&'a str>,
}

/// A model on disk with its configuration.
pub struct Located {
    /// Where it lies.
    pub model: LocalModel,
    /// Its `config.json`, or what a GGUF file says in its words.
    pub config: ModelConfig,
    /// What is known of it beside its configuration.
    pub identity: ModelIdentity,
}

/// What is known before a weight is read.
pub struct Described {
    /// Its headers.
    pub checkpoint: Checkpoint,
    /// What the plugin built, or what was frozen.
    pub graph: Graph,
}

/// A model that is ready to run.
pub struct Opened {
    /// What was resolved.
    pub composition: Composition,
    /// The model's.
    pub tokenizer: Arc<Tokenizer>,
    /// Takes requests.
    pub engine: Engine,
    /// The policy of every request, if the composition names one.
    pub policy: Option<RequestPolicy>,
}

impl Opened {
    /// The instance of the composition's policy for one request, if it names one.
    ///
    /// # Errors
    /// A policy that refuses its params, or fails.
    pub fn open_policy(&self) -> Result<Option<Box<dyn PolicyInstance>>, Failure> {
        self.policy.as_ref().map(RequestPolicy::open).transpose()
    }
}

/// All of it.
///
/// # Errors
/// The first refusal or error on the way.
pub fn open(
    host: &Host,
    name: ModelName<'_>,
    overrides: &Overrides,
    progress: &mut dyn OpenProgress,
) -> Result<Opened, Failure> {
    let source = source_of(host.profiles(), name)?;
    let located = locate(host.machine().store(), host.profiles(), &source, progress.fetching())?;
    let decision = decide(host, &located, name.profile)?;
    let composition = resolve(host, &located, &decision, overrides)?;
    let described = describe(host, &located, &composition)?;
    check(host, &described, &composition)?;
    start(host, &located, &described, composition, progress)
}

/// The source that is named, else the profile's.
///
/// # Errors
/// Neither is there, or it is no source.
pub fn source_of(profiles: &ProfileSet, name: ModelName<'_>) -> Result<ModelSource, Failure> {
    let text = match (name.model, name.profile) {
        (Some(source), _) => source,
        (None, Some(id)) => match &profiles.by_id(id)?.profile().source {
            Some(source) => &source.model,
            None => return Err(OpenError::NoSource { id: id.to_owned() }.into()),
        },
        (None, None) => return Err(OpenError::NoModel.into()),
    };
    Ok(text.parse()?)
}

/// Fetches the model where it is not here yet and reads its configuration.
///
/// The files of a source that a profile names must have the checksums that it pins.
///
/// # Errors
/// A model that cannot be had, or whose configuration cannot be read.
pub fn locate(
    store: &ModelStore,
    profiles: &ProfileSet,
    source: &ModelSource,
    progress: &mut dyn Progress,
) -> Result<Located, Failure> {
    let model = fetch(store, profiles, source, progress)?;
    let config = read_config(&model.path)?;
    let identity = ModelIdentity::read(&model.path)?;
    let mut located = Located { model, config, identity };
    located.look_at_tokenizer(&profiles.tokenizer_keys());
    Ok(located)
}

/// Fetches the model where it is not here yet.
///
/// # Errors
/// A model that cannot be had, or that differs from what a profile pins.
pub fn fetch(
    store: &ModelStore,
    profiles: &ProfileSet,
    source: &ModelSource,
    progress: &mut dyn Progress,
) -> Result<LocalModel, Failure> {
    Ok(store.fetch(source, &pins(profiles, source)?, progress)?)
}

/// The checksums that profiles pin for a source.
fn pins(profiles: &ProfileSet, source: &ModelSource) -> Result<Pins, Failure> {
    let named = profiles.iter().filter_map(|loaded| loaded.profile().source.as_ref());
    let of_source =
        named.filter(|named| named.model.parse().is_ok_and(|named: ModelSource| named == *source));
    let pairs = of_source.flat_map(|named| &named.sha256).map(|(file, digest)| (file, digest.to_string()));
    Ok(Pins::new(pairs)?)
}

/// Chooses the profile, or takes the one that was named.
///
/// # Errors
/// A profile that does not exist. One that does not fit is part of the decision.
pub fn decide(host: &Host, located: &Located, profile: Option<&str>) -> Result<Decision, Failure> {
    Ok(match profile {
        Some(id) => host.profiles().match_named(id, located.subject())?,
        None => host.profiles().match_config(located.subject()),
    })
}

/// Takes every part that the profile names, or where that is refused, one of the fallbacks that it lists.
///
/// # Errors
/// No profile fits, or a part is not there as named.
pub fn resolve(
    host: &Host,
    located: &Located,
    decision: &Decision,
    overrides: &Overrides,
) -> Result<Composition, Failure> {
    let profile = decision.chosen().map_err(Clone::clone)?;
    let Subject { config, identity } = located.subject();
    let facts = ModelFacts { config, format: located.format(), identity };
    let composition = host.registry().resolve_with_fallbacks(host.profiles(), profile, facts, overrides)?;
    host.machine().fallbacks().count(&composition);
    Ok(composition)
}

/// Reads the headers, takes the graph from the plugin or the frozen file, and gives each tensor the scheme that the composition's rules or
/// plugin give it.
///
/// # Errors
/// A broken checkpoint, a plugin that refuses it, or rules that do not fit it.
pub fn describe(host: &Host, located: &Located, composition: &Composition) -> Result<Described, Failure> {
    let published = describe_published(host, located, composition)?;
    match composition.quantisation() {
        None => Ok(published),
        Some(Quantisation::Rules(facts)) => published.quantised(&**host.quants().by_id(&facts.id)?),
        Some(Quantisation::Plugin { plugin, params }) => {
            let profile = plugin_quant(host, composition, plugin, params, &published)?;
            published.quantised(&profile)
        }
    }
}

/// A quantisation plugin with what it is called with for this checkpoint.
///
/// # Errors
/// A plugin whose code cannot be loaded.
pub fn plugin_quant(
    host: &Host,
    composition: &Composition,
    plugin: &PluginFacts,
    params: &Map<String, Value>,
    described: &Described,
) -> Result<PluginQuant, Failure> {
    let config = Value::Object(described.checkpoint.config().json.clone()).to_string();
    let params = Value::Object(params.clone()).to_string();
    let budget = composition.budget(&plugin.id);
    Ok(PluginQuant { plugin: host.quant_plugin(plugin, budget, composition.quarantine())?, config, params })
}

/// As [`describe`], with the weights as they were published.
///
/// # Errors
/// A broken checkpoint, a plugin that refuses it, or a frozen graph over other tensors.
pub fn describe_published(
    host: &Host,
    located: &Located,
    composition: &Composition,
) -> Result<Described, Failure> {
    let plugin = match composition.graph() {
        GraphPart::Plugin(plugin) => plugin,
        GraphPart::Frozen(frozen) => {
            let checkpoint = Checkpoint::open(&located.model.path)?;
            composition.check_config(&checkpoint.config().json)?;
            let graph = frozen.open(&catalogue(&checkpoint))?;
            return Ok(Described { checkpoint, graph });
        }
    };
    // The plugin's code loads while the headers are read.
    let (plugin, checkpoint) = thread::scope(|scope| {
        let plugin = scope
            .spawn(|| host.graph_plugin(plugin, composition.budget(&plugin.id), composition.quarantine()));
        let checkpoint = Checkpoint::open(&located.model.path);
        (plugin.join(), checkpoint)
    });
    let plugin = plugin.map_err(|_| OpenError::Thread { act: "loading the plugin" })??;
    let checkpoint = checkpoint?;
    composition.check_config(&checkpoint.config().json)?;
    let config = Value::Object(checkpoint.config().json.clone()).to_string();
    let graph = plugin.build(&config, catalogue(&checkpoint))?;
    Ok(Described { checkpoint, graph })
}

/// Has the device look at graph and options.
///
/// # Errors
/// Something that the device lacks, or a memory plan beyond its limit.
pub fn check(host: &Host, described: &Described, composition: &Composition) -> Result<MemoryPlan, Failure> {
    let catalogue = described.checkpoint.catalogue();
    Ok(composition.check_graph(host.device(composition), |device, options| {
        device.check(&described.graph, catalogue, options)
    })?)
}

/// The engine of a model, with its policy.
fn start(
    host: &Host,
    located: &Located,
    described: &Described,
    composition: Composition,
    progress: &mut dyn OpenProgress,
) -> Result<Opened, Failure> {
    let (tokenizer, engine) = executable(host, located, described, &composition, progress)?;
    let vocabulary = vocabulary(&tokenizer, engine.executable().n_vocab(), host.machine().token_tables());
    let rules = composition.quarantine();
    let policy = composition.policy().map(|policy| RequestPolicy::of(host, policy, rules, vocabulary));
    let policy = policy.transpose()?;
    Ok(Opened { composition, tokenizer, engine, policy })
}

/// Builds the tokenizer while the device repacks the weights.
///
/// # Errors
/// Weights that cannot be read, a tokenizer that cannot be built exactly.
pub(crate) fn executable(
    host: &Host,
    located: &Located,
    described: &Described,
    composition: &Composition,
    progress: &mut dyn OpenProgress,
) -> Result<(Arc<Tokenizer>, Engine), Failure> {
    let Described { checkpoint, graph } = described;
    let options = composition.options();
    let device = host.device(composition);
    let (tokenizer, executable) = thread::scope(|scope| {
        let tokenizer = scope.spawn(|| tokenizer(&located.model.path, checkpoint));
        let executable =
            device.compile(graph, checkpoint, options, &mut |done, total| progress.preparing(done, total));
        (tokenizer.join(), executable)
    });
    let tokenizer = tokenizer.map_err(|_| OpenError::Thread { act: "building the tokenizer" })??;
    let engine_options =
        EngineOptions { context_tokens: options.context_tokens, max_step_tokens: options.max_step_tokens };
    Ok((Arc::new(tokenizer), Engine::new(executable?, engine_options)))
}

/// The tokenizer of a model: from the GGUF file's vocabulary, or from the folder's files.
///
/// # Errors
/// A tokenizer that cannot be built exactly.
pub fn tokenizer(path: &Path, checkpoint: &Checkpoint) -> Result<Tokenizer, TextError> {
    match checkpoint.vocabulary() {
        Some(vocabulary) => Tokenizer::from_vocabulary(vocabulary),
        None => Tokenizer::from_folder(path),
    }
}

/// What a plugin may know of the tensors of a model; reads its headers.
///
/// # Errors
/// A broken checkpoint.
pub fn tensors(located: &Located) -> Result<Catalogue, Failure> {
    Ok(catalogue(&Checkpoint::open(&located.model.path)?))
}

/// What a plugin may know of the tensors.
pub(crate) fn catalogue(checkpoint: &Checkpoint) -> Catalogue {
    let facts = checkpoint.catalogue().iter().map(|info| {
        let is_dense = matches!(info.encoding, Encoding::Dense(_));
        (info.name.clone(), TensorFacts { shape: info.shape.clone(), is_dense })
    });
    facts.collect()
}

impl Described {
    /// What a quantisation profile may know of each tensor, in the catalogue's order.
    pub fn tensor_facts(&self) -> Vec<quant::TensorFacts> {
        let uses = self.graph.uses();
        let facts = self.checkpoint.catalogue().iter().map(|info| {
            let Use { role, layer } =
                uses.get(info.name.as_str()).copied().unwrap_or_else(|| use_by_name(&info.name));
            let (name, shape) = (info.name.clone(), info.shape.clone());
            quant::TensorFacts { name, shape, dtype: info.number_dtype(), role, layer }
        });
        facts.collect()
    }

    /// The same with each tensor in the scheme that the profile gives it.
    ///
    /// # Errors
    /// The profile's refusal, or a tensor that cannot take its scheme.
    pub fn quantised(self, profile: &dyn QuantProfile) -> Result<Described, Failure> {
        let schemes = quant::plan_schemes(profile, &self.tensor_facts())?;
        let Described { checkpoint, graph } = self;
        Ok(Described { checkpoint: checkpoint.quantised(&schemes)?, graph })
    }
}

impl Located {
    /// Has [`ModelIdentity::tokenizer`] answer what is asked. Reads what was not asked before, and nothing where
    /// nothing is asked.
    pub fn look_at_tokenizer(&mut self, keys: &BTreeSet<TokenizerKey>) {
        let known = self.identity.tokenizer.get_or_insert_default();
        let keys = keys.iter().filter(|key| !known.contains_key(key)).copied().collect();
        known.append(&mut match self.config.origin {
            ConfigOrigin::ConfigJson(_) => host_text::tokenizer_facts(&self.model.path, &keys),
            ConfigOrigin::GgufMetadata(_) => host_weights::gguf::tokenizer_facts(&self.model.path, &keys),
        });
    }

    /// The model as profiles see it.
    pub fn subject(&self) -> Subject<'_> {
        Subject { config: &self.config.json, identity: &self.identity }
    }

    /// How the checkpoint is stored, as profiles name it.
    pub fn format(&self) -> &'static str {
        match self.config.origin {
            ConfigOrigin::ConfigJson(_) => "safetensors",
            ConfigOrigin::GgufMetadata(_) => "gguf",
        }
    }
}
