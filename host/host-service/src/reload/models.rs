//! Models under service: each distinct (weights, graph, device, options) is in memory once, whatever generations hold it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use host_core::Report;
use host_device::{CompileOptions, MemoryPlan};
use host_engine::Driver;
use host_models::ModelSource;
use host_plugins::PolicyVocabulary;
use host_registry::{Bytes, Composition, GraphPart, Sha256Digest};
use host_text::Tokenizer;

use super::error::ReloadError;
use crate::by_content::ByContent;
use crate::failure::Failure;
use crate::host::Host;
use crate::open::{Described, Located, check, describe, executable, locate};
use crate::progress::OpenProgress;
use crate::vocabulary::vocabulary;

/// A model with its weights in memory and its engine on a thread of its own.
pub struct LoadedModel {
    /// Takes requests.
    driver: Driver,
    tokenizer: Arc<Tokenizer>,
    vocabulary: Arc<dyn PolicyVocabulary>,
    n_vocab: usize,
    memory: MemoryPlan,
}

impl LoadedModel {
    /// The engine's thread.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The model's tokens as policies and constraints see them; the table of a grammar's tokens is made once.
    pub fn vocabulary(&self) -> &Arc<dyn PolicyVocabulary> {
        &self.vocabulary
    }

    /// Width of the logits.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// What it holds.
    pub fn memory(&self) -> MemoryPlan {
        self.memory
    }
}

/// What is known of a composition before its weights are read.
pub(crate) struct Planned {
    key: String,
    memory: MemoryPlan,
}

impl Planned {
    /// Tells weights, graph, device and options apart.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }
}

/// A model's place with its configuration, as long as its files stay what they are.
pub(crate) struct Found {
    pub(crate) located: Located,
    /// Names, sizes and times of its files.
    identity: String,
}

/// Everything that generations share of models.
#[derive(Default)]
pub(crate) struct ModelCache {
    found: ByContent<Found>,
    planned: ByContent<Planned>,
    loaded: ByContent<LoadedModel>,
}

impl ModelCache {
    /// The model of a source, fetched where it is not here yet.
    ///
    /// # Errors
    /// A model that cannot be had or read.
    pub(crate) fn find(
        &self,
        host: &Host,
        source: &ModelSource,
        progress: &mut dyn OpenProgress,
    ) -> Result<Arc<Found>, Failure> {
        let pins = host.profiles().iter().filter_map(|loaded| loaded.profile().source.as_ref());
        let pins: String = pins.map(|source| format!("{source:?}\n")).collect();
        // Profiles that ask more of the tokenizer are answered anew.
        let asked = host.profiles().tokenizer_keys();
        let key = format!("{source}\n{pins}{asked:?}");
        // Held with other files: it is looked at anew.
        if let Some(known) = self.found.known(&key)
            && identity(&known.located) == known.identity
        {
            return Ok(known);
        }
        let located = locate(host.machine().store(), host.profiles(), source, progress.fetching())?;
        let identity = identity(&located);
        self.found.get(&format!("{key}\n{identity}"), || Ok(Arc::new(Found { located, identity })))
    }

    /// What the device says of a composition.
    ///
    /// # Errors
    /// A broken checkpoint, a plugin's refusal, something that the device lacks, a plan beyond the profile's limit.
    pub(crate) fn plan(
        &self,
        host: &Host,
        found: &Found,
        composition: &Composition,
    ) -> Result<Arc<Planned>, Failure> {
        let weights = weights(found, composition);
        let (options, device) = (composition.options(), composition.device());
        let graph = match composition.graph() {
            GraphPart::Plugin(plugin) => plugin.digest.to_string(),
            GraphPart::Frozen(frozen) => format!("frozen {}", frozen.digest()),
        };
        let key = digest(&[&weights, &graph, device, &format!("{options:?}")]);
        self.planned.get(&key, || {
            let described = describe(host, &found.located, composition)?;
            let memory = check(host, &described, composition)?;
            let graph = described.graph.fingerprint().as_hex().to_owned();
            let free = CompileOptions { memory_bytes: None, ..options.clone() };
            let key = digest(&[&weights, &graph, device, &format!("{free:?}")]);
            Ok(Arc::new(Planned { key, memory }))
        })
    }

    /// The engine of a plan, compiled where no generation has it.
    ///
    /// # Errors
    /// [`ReloadError::Memory`], weights that cannot be read, a tokenizer that cannot be built.
    pub(crate) fn load(
        &self,
        host: &Host,
        found: &Found,
        composition: &Composition,
        planned: &Planned,
        limit: Option<Bytes>,
        progress: &mut dyn OpenProgress,
    ) -> Result<Arc<LoadedModel>, Failure> {
        if let Some(known) = self.loaded.known(&planned.key) {
            return Ok(known);
        }
        self.check_memory(composition, planned, limit)?;
        let described = describe(host, &found.located, composition)?;
        let loaded = Arc::new(start(host, &found.located, &described, composition, progress)?);
        self.loaded.get(&planned.key, || Ok(loaded))
    }

    fn check_memory(
        &self,
        composition: &Composition,
        planned: &Planned,
        limit: Option<Bytes>,
    ) -> Result<(), ReloadError> {
        let Some(Bytes(limit)) = limit else { return Ok(()) };
        let (held, needed) = (self.held_bytes(), planned.memory.total_bytes());
        if held.saturating_add(needed) <= limit {
            return Ok(());
        }
        Err(ReloadError::Memory { model: composition.profile_id().to_owned(), limit, held, needed })
    }

    /// What all loaded models hold, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.loaded.all().iter().map(|model| model.memory.total_bytes()).sum()
    }
}

/// Builds the tokenizer while the device repacks the weights, and starts the engine's thread.
fn start(
    host: &Host,
    located: &Located,
    described: &Described,
    composition: &Composition,
    progress: &mut dyn OpenProgress,
) -> Result<LoadedModel, Failure> {
    let (tokenizer, engine) = executable(host, located, described, composition, progress)?;
    let (n_vocab, memory) = (engine.executable().n_vocab(), engine.executable().memory());
    let vocabulary = vocabulary(&tokenizer, n_vocab, host.machine().token_tables());
    let driver =
        Driver::start(engine).map_err(|source| ReloadError::Thread { what: "the engine", source })?;
    Ok(LoadedModel { driver, tokenizer, vocabulary, n_vocab, memory })
}

/// What tells the weights in memory apart: the files, and what quantises them.
fn weights(found: &Found, composition: &Composition) -> String {
    format!("{}\n{:?}", found.identity, composition.quantisation())
}

fn digest(parts: &[&str]) -> String {
    Sha256Digest::of(format!("{parts:?}").as_bytes()).to_string()
}

/// Path, size, and checksum or time of each file. A file that is gone has neither.
fn identity(located: &Located) -> String {
    let model = &located.model;
    let mut text = format!("{:?} {:?}\n", model.path, model.revision);
    for file in &model.files {
        let path = if model.path.is_dir() { model.path.join(&file.name) } else { model.path.clone() };
        text += &format!("{:?} {:?} {:?}\n", file.name, file.sha256, stamp(&path));
    }
    text
}

/// Size and time of a file.
fn stamp(path: &Path) -> Option<(u64, u128)> {
    let found = fs::metadata(path).ok()?;
    let since = found.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some((found.len(), since.as_nanos()))
}

/// The report of an error with the model that it is about.
pub(crate) fn of_model(name: &str, failure: &Failure) -> Vec<Report> {
    failure
        .reports()
        .iter()
        .map(|report| report.clone().note(format!("while `{name}` was prepared")))
        .collect()
}
