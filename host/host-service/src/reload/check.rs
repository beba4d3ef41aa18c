//! Validation: from a snapshot to a generation that can serve, or everything that is wrong with it.
//!
//! Nothing that serves is touched. What is the same as in a generation that is held (a plugin's code, a policy that
//! was tried, a plan, a model) is not done again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use host_core::{Report, Reported};
use host_plugins::{
    Budget, ContractVersion, GraphPlugin, Kind, PluginError, PluginFolder, PluginPackage, PolicyVocabulary,
    QuantPlugin, SamplingPolicy,
};
use host_registry::{GraphPart, GraphRef, LoadedProfile, OnReload, Policy, Quant, Sha256Digest};
use serde_json::Value;

use super::generation::{Generation, Served, ServedModel};
use super::id::GenerationId;
use super::models::{ModelCache, of_model};
use super::self_test::{Bytes, try_policy};
use super::settings::ReloadSettings;
use super::snapshot::Snapshot;
use super::world;
use crate::by_content::ByContent;
use crate::failure::Failure;
use crate::host::Host;
use crate::machine::Machine;
use crate::open::{decide, resolve, source_of};
use crate::policy::RequestPolicy;
use crate::progress::OpenProgress;

/// How much must be sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every plugin, and every profile with what it names.
    Everything,
    /// Every profile's text, and what the served models need.
    Served,
}

/// A plugin whose code was loaded, with what was found out.
pub(crate) enum CheckedPlugin {
    Graph(#[expect(dead_code, reason = "held so that the code stays loaded")] Arc<dyn GraphPlugin>),
    Policy(#[expect(dead_code, reason = "held so that the code stays loaded")] Arc<dyn SamplingPolicy>),
    Quant(#[expect(dead_code, reason = "held so that the code stays loaded")] Arc<dyn QuantPlugin>),
}

/// Why a snapshot is no generation.
pub(crate) struct Refusal {
    /// Everything that can be told at once.
    pub(crate) reports: Vec<Report>,
    /// Models that would fit if the old ones went first, as their profiles allow.
    pub(crate) drain_first: Vec<String>,
}

/// What generations share of their checks.
#[derive(Default)]
pub(crate) struct CheckCache {
    plugins: ByContent<CheckedPlugin>,
    /// Policies that took a step with these params.
    tried: ByContent<()>,
    pub(crate) models: ModelCache,
}

/// What a snapshot is checked against.
pub(crate) struct Check<'a> {
    pub(crate) machine: &'a Arc<Machine>,
    pub(crate) cache: &'a CheckCache,
    pub(crate) served: &'a [ServedModel],
    pub(crate) scope: Scope,
    pub(crate) settings: &'a ReloadSettings,
    /// The host that serves, if one does: what is the same is not read again.
    pub(crate) before: Option<&'a Host>,
}

/// A check under way.
struct Checking<'a> {
    check: &'a Check<'a>,
    reports: Vec<Report>,
    plugins: BTreeMap<String, Arc<CheckedPlugin>>,
    /// Digests of plugins whose fault was told.
    broken: BTreeSet<String>,
    tried: Vec<Arc<()>>,
    /// Models that would fit if the old ones went first, as their profiles allow.
    drain_first: Vec<String>,
}

/// Why something cannot be: the report, or nothing where it was told already.
type Told = Option<Report>;

impl Check<'_> {
    /// A generation of the snapshot.
    ///
    /// # Errors
    /// Every report that can be told at once.
    pub(crate) fn generation(
        &self,
        snapshot: Snapshot,
        progress: &mut dyn OpenProgress,
    ) -> Result<Generation, Refusal> {
        let mut checking = Checking {
            check: self,
            reports: Vec::new(),
            plugins: BTreeMap::new(),
            broken: BTreeSet::new(),
            tried: Vec::new(),
            drain_first: Vec::new(),
        };
        let plugins = world::plugins(&snapshot);
        if self.scope == Scope::Everything {
            checking.all_plugins(&plugins);
        }
        let host = match world::host(&snapshot, plugins, self.machine, self.before) {
            Ok(host) => host,
            Err(reports) => {
                checking.reports.extend(reports);
                return Err(Refusal { reports: checking.reports, drain_first: Vec::new() });
            }
        };
        if self.scope == Scope::Everything {
            checking.all_profiles(&host);
        }
        let served = checking.all_served(&host, progress);
        let Checking { reports, plugins, tried, drain_first, .. } = checking;
        if !reports.is_empty() {
            return Err(Refusal { reports, drain_first });
        }
        Ok(Generation {
            id: id(&snapshot, &served),
            snapshot,
            host: Arc::new(host),
            served,
            replacing: BTreeSet::new(),
            plugins: plugins.into_values().collect(),
            tried,
            counts: Default::default(),
            ended: Default::default(),
        })
    }
}

/// The hash over files, registry resolution, contract and program.
fn id(snapshot: &Snapshot, served: &BTreeMap<String, Arc<Served>>) -> GenerationId {
    let mut text = format!(
        "tenon-generation 1\nhost {}\ncontract {}\n{}",
        env!("CARGO_PKG_VERSION"),
        ContractVersion::newest(),
        snapshot.canonical_text()
    );
    for (name, served) in served {
        text += &format!("model {name:?} {}\n", served.composition.hash());
    }
    GenerationId::of(&text)
}

impl Checking<'_> {
    fn refuse(&mut self, report: Report) {
        if !self.reports.contains(&report) {
            self.reports.push(report);
        }
    }

    /// Loads each plugin's code and asks each policy to describe itself.
    fn all_plugins(&mut self, plugins: &PluginFolder) {
        for problem in plugins.problems() {
            self.refuse(problem.report());
        }
        for package in plugins.packages() {
            if let Err(Some(report)) = self.plugin(package) {
                self.refuse(report);
            }
        }
    }

    fn plugin(&mut self, package: &PluginPackage) -> Result<Arc<CheckedPlugin>, Told> {
        let digest = package.digest().as_hex();
        if let Some(known) = self.plugins.get(digest) {
            return Ok(Arc::clone(known));
        }
        if self.broken.contains(digest) {
            return Err(None);
        }
        let machine = self.check.machine;
        let checked = self.check.cache.plugins.get(digest, || load(machine, package).map(Arc::new));
        match checked {
            Ok(checked) => {
                self.plugins.insert(digest.to_owned(), Arc::clone(&checked));
                Ok(checked)
            }
            Err(error) => {
                self.broken.insert(digest.to_owned());
                Err(Some(in_folder(error.report(), package)))
            }
        }
    }

    /// What each profile names is there, and its policy takes a step.
    fn all_profiles(&mut self, host: &Host) {
        for loaded in host.profiles().iter() {
            self.profile(host, loaded);
        }
    }

    fn profile(&mut self, host: &Host, loaded: &LoadedProfile) {
        let (registry, profile) = (host.registry(), loaded.profile());
        let at = |path: &[&str], report: Report| report.at(loaded.source().place(path));
        // Whether a frozen graph is for its configuration is told where that is known: for served models.
        if let GraphRef::Plugin(wanted) = &profile.compose.graph
            && let Err((key, fault)) = registry.graph_plugin(wanted)
        {
            self.refuse(at(&["compose", "graph", key], fault.report()));
        }
        match &profile.compose.quant {
            Quant::Plugin(wanted) => {
                if let Err((key, fault)) = registry.quant_plugin(wanted) {
                    self.refuse(at(&["compose", "quant", key], fault.report()));
                }
            }
            Quant::Scheme(id) => {
                if let Err(fault) = host.quants().by_id(id) {
                    self.refuse(at(&["compose", "quant", "scheme"], fault.report()));
                }
            }
            Quant::Named(_) => {}
        }
        let Some(wanted) = &profile.sampling.policy else { return };
        match registry.policy(wanted) {
            Err((key, fault)) => self.refuse(at(&["sampling", "policy", key], fault.report())),
            Ok(policy) => {
                let bytes: Arc<dyn PolicyVocabulary> = Arc::new(Bytes);
                let policy = Policy { budget: profile.budget(&wanted.plugin), ..policy };
                if let Err(Some(report)) = self.policy(host, &policy, "bytes", &bytes) {
                    self.refuse(named_by(loaded, report));
                }
            }
        }
    }

    /// The policy opens with its params and takes a step. `vocabulary_key` tells vocabularies apart.
    fn policy(
        &mut self,
        host: &Host,
        policy: &Policy,
        vocabulary_key: &str,
        vocabulary: &Arc<dyn PolicyVocabulary>,
    ) -> Result<(), Told> {
        let package = host.package(&policy.plugin);
        self.plugin(package)?;
        // Within the budget that requests have, whatever the plugin was loaded under before.
        let code = self.check.machine.policy_code(package, policy.budget);
        let code = code.map_err(|error| Some(in_folder(error.report(), package)))?;
        let params = Value::Object(policy.params.clone()).to_string();
        let Policy { plugin, grants, budget, .. } = policy;
        let what = format!("{}\n{params}\n{grants:?}\n{budget:?}\n{vocabulary_key}", plugin.digest);
        let key = Sha256Digest::of(what.as_bytes()).to_string();
        let tried = self
            .check
            .cache
            .tried
            .get(&key, || try_policy(&*code, &params, &policy.grants, vocabulary).map(Arc::new));
        let tried = tried.map_err(|error| {
            if error.is_fault() {
                // Told once: the other profiles that name it would each wait for the same.
                self.plugins.remove(package.digest().as_hex());
                self.broken.insert(package.digest().as_hex().to_owned());
            }
            Some(in_folder(error.report(), package))
        });
        self.tried.push(tried?);
        Ok(())
    }

    /// Every served model, as far as nothing is wrong with it.
    fn all_served(&mut self, host: &Host, progress: &mut dyn OpenProgress) -> BTreeMap<String, Arc<Served>> {
        let mut all = BTreeMap::new();
        for asked in self.check.served {
            match self.served(host, asked, progress) {
                Ok(Some(served)) => {
                    all.insert(asked.name.clone(), Arc::new(served));
                }
                Ok(None) => {}
                Err(failure) => {
                    of_model(&asked.name, &failure).into_iter().for_each(|report| self.refuse(report));
                }
            }
        }
        all
    }

    /// `None` where the generation is refused already: weights are not read for it.
    fn served(
        &mut self,
        host: &Host,
        asked: &ServedModel,
        progress: &mut dyn OpenProgress,
    ) -> Result<Option<Served>, Failure> {
        let models = &self.check.cache.models;
        let source = source_of(host.profiles(), asked.model_name())?;
        let found = models.find(host, &source, progress)?;
        let decision = decide(host, &found.located, asked.profile.as_deref())?;
        let composition = resolve(host, &found.located, &decision, &asked.overrides)?;
        if let GraphPart::Plugin(plugin) = composition.graph()
            && let Err(told) = self.plugin(host.package(plugin))
        {
            return told.map_or(Ok(None), |report| Err(report.into()));
        }
        let planned = models.plan(host, &found, &composition)?;
        if !self.reports.is_empty() {
            return Ok(None);
        }
        let limit = self.check.settings.memory.models_bytes;
        let loaded = models.load(host, &found, &composition, &planned, limit, progress);
        let model = loaded.inspect_err(|failure| {
            let is_memory = failure.reports().iter().all(|report| report.code == "reload.memory");
            if is_memory && composition.profile().limits.on_reload == Some(OnReload::DrainFirst) {
                self.drain_first.push(asked.name.clone());
            }
        })?;
        let policy = match composition.policy() {
            None => None,
            Some(policy) => {
                if let Err(told) = self.policy(host, policy, planned.key(), model.vocabulary()) {
                    return told.map_or(Ok(None), |report| Err(report.into()));
                }
                let (rules, vocabulary) = (composition.quarantine(), Arc::clone(model.vocabulary()));
                Some(RequestPolicy::of(host, policy, rules, vocabulary)?)
            }
        };
        Ok(Some(Served { composition, model, policy, _found: found, _planned: planned }))
    }
}

/// Loads a plugin's code; a policy describes itself in a guest of its own.
fn load(machine: &Machine, package: &PluginPackage) -> Result<CheckedPlugin, PluginError> {
    Ok(match package.manifest().kind {
        Kind::ModelGraph => CheckedPlugin::Graph(machine.graph_code(package, Budget::default())?),
        Kind::QuantProfile => CheckedPlugin::Quant(machine.quant_code(package, Budget::default())?),
        Kind::SamplingPolicy | Kind::Pipeline => {
            let policy = machine.policy_code(package, Budget::default())?;
            policy.describe()?;
            CheckedPlugin::Policy(policy)
        }
    })
}

/// The report of a profile's policy with the line that names it.
fn named_by(loaded: &LoadedProfile, report: Report) -> Report {
    let path = ["sampling", "policy"];
    match &report.place {
        // The plugin's own line tells more.
        Some(_) => report.note(format!("named by {}", loaded.source().line_of(&path))),
        None => report.at(loaded.source().place(&path)),
    }
}

/// The report with the folder that the plugin lies in.
fn in_folder(report: Report, package: &PluginPackage) -> Report {
    if report.place.is_some() { report } else { report.note(format!("in {}", package.folder().display())) }
}
