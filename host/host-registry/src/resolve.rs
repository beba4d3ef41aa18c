//! Resolution: takes exactly what a profile names from what the host has, or refuses with every reason.
//!
//! Pure: it reads values and gives a value. It ends before the first byte of weights is opened.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use host_core::Numeric;
use host_device::{CompileOptions, KvStorage};
use host_plugins::{Budget, Grants, Kind};
use serde_json::{Map, Value};

use crate::composition::{Composition, GraphPart, MatchLine, Policy, Quantisation, config_digest};
use crate::features::{LoopFacts, cache_name};
use crate::fingerprint::{ModelIdentity, Subject};
use crate::frozen::FrozenGraph;
use crate::implementation::{ImplementationFacts, Wanted, select_implementation};
use crate::nearest::nearest;
use crate::overrides::Overrides;
use crate::profile::{
    ContextTokens, FrozenRef, GraphRef, PluginRef, PolicyRef, Predicate, Profile, Quant, QuantRef,
    SamplingDefaults, Threads, flat_values, line, lookup,
};
use crate::refusal::{Fault, PartKind, PlacedFault, Refusal};
use crate::registry::{DeviceFacts, PluginFacts, Registry};
use crate::select::select_plugin;
use crate::set::LoadedProfile;
use crate::setting::{Key, Origin, Setting};

/// What is known of a model before its weights are opened.
#[derive(Clone, Copy, Debug)]
pub struct ModelFacts<'a> {
    /// `config.json`, or what a GGUF file says in its words.
    pub config: &'a Map<String, Value>,
    /// How the checkpoint is stored: `safetensors` or `gguf`.
    pub format: &'a str,
    /// What is known of it beside its configuration.
    pub identity: &'a ModelIdentity,
}

impl Registry {
    /// Composes what the profile names. Whether the profile fits the model is for
    /// [`crate::ProfileSet::match_config`] to say, which comes before.
    ///
    /// # Errors
    /// [`Refusal::Parts`] with everything that is not there as named.
    pub fn resolve(
        &self,
        loaded: &LoadedProfile,
        model: ModelFacts<'_>,
        overrides: &Overrides,
    ) -> Result<Composition, Refusal> {
        let profile = loaded.profile();
        let settings = Vec::new();
        let mut asked =
            Resolution { registry: self, loaded, profile, model, overrides, settings, faults: Vec::new() };
        let composed = asked.compose();
        let Resolution { settings, faults, .. } = asked;
        match composed {
            Some(Composed { graph, policy, quantisation, device, loop_facts, implementation, options })
                if faults.is_empty() =>
            {
                Ok(Composition {
                    origins: part_origins(loaded, &settings),
                    profile: profile.clone(),
                    config_digest: config_digest(model.config),
                    graph,
                    policy,
                    quantisation,
                    loader: model.format.to_owned(),
                    device: device.id.clone(),
                    options,
                    settings,
                    loop_facts: loop_facts.clone(),
                    implementation: implementation.cloned(),
                    is_streamed: self.parts().streamed.iter().any(|name| name == model.format),
                    match_lines: match_lines(loaded),
                    bases: loaded.bases().to_vec(),
                    refused: Vec::new(),
                })
            }
            _ => Err(Refusal::Parts { profile: profile.id.clone(), faults }),
        }
    }
}

impl Registry {
    /// The sampling policy that is named so.
    ///
    /// # Errors
    /// The first of its keys that no plugin satisfies, with why.
    pub fn policy(&self, wanted: &PolicyRef) -> Result<Policy, (&'static str, Fault)> {
        let plugin = select_plugin(&wanted.plugin_ref(), Kind::SamplingPolicy, &self.parts().plugins)?;
        let grants = Grants::new(wanted.grants.iter().copied());
        let (params, budget) = (wanted.params.clone(), Budget::default());
        Ok(Policy { plugin: plugin.clone(), params, grants, budget })
    }

    /// The graph plugin that is named so.
    ///
    /// # Errors
    /// As [`Registry::policy`].
    pub fn graph_plugin(&self, wanted: &PluginRef) -> Result<&PluginFacts, (&'static str, Fault)> {
        select_plugin(wanted, Kind::ModelGraph, &self.parts().plugins)
    }

    /// The plugin of a quantisation profile that is named so.
    ///
    /// # Errors
    /// As [`Registry::policy`].
    pub fn quant_plugin(&self, wanted: &QuantRef) -> Result<&PluginFacts, (&'static str, Fault)> {
        select_plugin(&wanted.plugin_ref(), Kind::QuantProfile, &self.parts().plugins)
    }
}

const DEVICE: Key = Key::with_flag("compose.device", "--device");
const NUMERIC: Key = Key::with_flag("compose.numeric", "--numeric");
const QUANT: Key = Key::new("compose.quant");
const IMPLEMENTATION: Key = Key::new("compose.implementation");
const KERNELS: Key = Key::new("kernels.require");
const KV_KIND: Key = Key::new("kv.kind");
const KV_DTYPE: Key = Key::with_flag("kv.dtype", "--kv-dtype");
const N_THREADS: Key = Key::with_flag("limits.n_threads", "--threads");
const CONTEXT_TOKENS: Key = Key::with_flag("limits.context_tokens", "--context-tokens");
const MAX_SEQUENCES: Key = Key::with_flag("limits.max_sequences", "--max-sequences");
const MAX_STEP_TOKENS: Key = Key::with_flag("limits.max_step_tokens", "--max-step-tokens");
const MEMORY_BYTES: Key = Key::with_flag("limits.memory_bytes", "--memory-bytes");
/// In the order of [`host_plugins::QuarantineRules::numbers`].
const QUARANTINE: [Key; 4] = [
    Key::new("limits.quarantine.faults"),
    Key::new("limits.quarantine.within_s"),
    Key::new("limits.quarantine.first_backoff_s"),
    Key::new("limits.quarantine.longest_backoff_s"),
];
const POLICY: Key = Key::with_flag("sampling.policy", "--policy");

/// What a composition is made of.
struct Composed<'a> {
    graph: GraphPart,
    policy: Option<Policy>,
    quantisation: Option<Quantisation>,
    device: &'a DeviceFacts,
    loop_facts: &'a LoopFacts,
    implementation: Option<&'a ImplementationFacts>,
    options: CompileOptions,
}

/// A resolution under way: what was settled and what was found to be missing.
struct Resolution<'a> {
    registry: &'a Registry,
    loaded: &'a LoadedProfile,
    profile: &'a Profile,
    model: ModelFacts<'a>,
    overrides: &'a Overrides,
    settings: Vec<Setting>,
    faults: Vec<PlacedFault>,
}

impl<'a> Resolution<'a> {
    /// Asks for everything, so that all that is missing is told at once; `None` when something is.
    fn compose(&mut self) -> Option<Composed<'a>> {
        let graph = self.graph();
        let policy = self.policy();
        self.loader();
        let compose = &self.profile.compose;
        let quantisation = self.quant();
        let loop_facts = self.decoding_loop();
        let device = self.device();
        self.kernels(device);
        let numeric = self.ask(NUMERIC, Some(compose.numeric), self.overrides.numeric);
        let kv = numeric.and_then(|numeric| self.kv(numeric));
        let implementation = self.implementation(device, kv);
        self.samplers();
        let n_threads = self.n_threads(device);
        let context_tokens = self.context_tokens();
        let limits = &self.profile.limits;
        let max_sequences = self.count(MAX_SEQUENCES, limits.max_sequences, self.overrides.max_sequences);
        let max_step_tokens =
            self.count(MAX_STEP_TOKENS, limits.max_step_tokens, self.overrides.max_step_tokens);
        self.step_takes_each_sequence(max_sequences, max_step_tokens);
        let memory_bytes = self.memory_bytes();
        self.record_quarantine();
        self.record_budgets();
        self.record_defaults();
        let options = CompileOptions {
            numeric: numeric?,
            kv: kv?,
            n_threads: n_threads?,
            context_tokens: context_tokens?,
            max_sequences: max_sequences?,
            max_step_tokens: max_step_tokens?,
            memory_bytes,
            kernels: self.profile.kernels.require.clone(),
        };
        let (graph, policy, device, loop_facts) = (graph?, policy?, device?, loop_facts?);
        let implementation = implementation?;
        Some(Composed { graph, policy, quantisation, device, loop_facts, implementation, options })
    }

    fn graph(&mut self) -> Option<GraphPart> {
        let part = match &self.profile.compose.graph {
            GraphRef::Plugin(wanted) => {
                select_plugin(wanted, Kind::ModelGraph, &self.registry.parts().plugins)
                    .map(|plugin| GraphPart::Plugin(plugin.clone()))
            }
            GraphRef::Frozen(wanted) => self.frozen(wanted).map(GraphPart::Frozen),
        };
        part.map_err(|(key, fault)| self.fault_at(&["compose", "graph", key], fault)).ok()
    }

    /// The frozen graph of that name and digest, for this very configuration; no plugin is tried in its place.
    fn frozen(&self, wanted: &FrozenRef) -> Result<Arc<FrozenGraph>, (&'static str, Fault)> {
        let ModelFacts { config, identity, .. } = self.model;
        let name = wanted.frozen.clone();
        let graphs = &self.registry.parts().graphs;
        let subject = Subject { config, identity };
        let Some(file) = graphs.iter().find(|file| file.name == name) else {
            let known = graphs.iter().map(|file| file.name.clone()).collect();
            let fingerprint = subject.shown_fingerprint();
            return Err(("frozen", Fault::NoGeneratedGraph { name, fingerprint, found: None, known }));
        };
        if let Some(found) = file.digest.filter(|found| *found != wanted.digest) {
            let (file, expected) = (file.file.clone(), wanted.digest);
            return Err(("digest", Fault::FrozenDigest { name, file, expected, found }));
        }
        let frozen = file.content.as_ref().map_err(|report| {
            ("frozen", Fault::FrozenBroken { name: name.clone(), report: Box::new(report.clone()) })
        })?;
        frozen.check_model(subject).map_err(|fault| ("frozen", *fault))?;
        Ok(Arc::clone(frozen))
    }

    /// The flag's policy, else the profile's; the inner `None` is a composition without one.
    fn policy(&mut self) -> Option<Option<Policy>> {
        let (profile, overrides) = (self.profile, self.overrides);
        let Some(wanted) =
            self.ask(POLICY, profile.sampling.policy.as_ref(), overrides.policy.as_ref()).cloned()
        else {
            return Some(None);
        };
        match self.registry.policy(&wanted) {
            Ok(policy) => Some(Some(Policy { budget: profile.budget(&wanted.plugin), ..policy })),
            Err((key, fault)) => {
                if overrides.policy.is_some() {
                    self.faults.push(PlacedFault { fault, place: None });
                } else {
                    self.fault_at(&["sampling", "policy", key], fault);
                }
                None
            }
        }
    }

    /// A way that the host has, or rules or a plugin that were loaded; those are given back.
    fn quant(&mut self) -> Option<Quantisation> {
        let (parts, profile) = (self.registry.parts(), self.profile);
        match &profile.compose.quant {
            Quant::Named(name) => {
                self.part(PartKind::Quant, "compose.quant", name, &parts.quants);
                None
            }
            Quant::Scheme(id) => {
                let known: Vec<String> = parts.schemes.iter().map(|rules| rules.id.clone()).collect();
                self.part(PartKind::Scheme, "compose.quant.scheme", id, &known);
                parts.schemes.iter().find(|rules| rules.id == *id).cloned().map(Quantisation::Rules)
            }
            Quant::Plugin(wanted) => {
                self.record(QUANT, wanted);
                match self.registry.quant_plugin(wanted) {
                    Ok(plugin) => {
                        Some(Quantisation::Plugin { plugin: plugin.clone(), params: wanted.params.clone() })
                    }
                    Err((key, fault)) => {
                        self.fault_at(&["compose", "quant", key], fault);
                        None
                    }
                }
            }
        }
    }

    /// Each loader named must exist, and the checkpoint must be stored as one of them says.
    fn loader(&mut self) {
        let (names, known) = (&self.profile.compose.loader, &self.registry.parts().loaders);
        for name in &names.0 {
            self.part(PartKind::Loader, "compose.loader", name, known);
        }
        if !names.0.iter().any(|name| name == self.model.format) {
            let fault =
                Fault::CheckpointFormat { expected: names.to_string(), found: self.model.format.to_owned() };
            self.fault_at(&["compose", "loader"], fault);
        }
    }

    fn device(&mut self) -> Option<&'a DeviceFacts> {
        let (of_profile, parts) = (&self.profile.compose.device, self.registry.parts());
        let named = of_profile.of(&parts.system.0).map(str::to_owned);
        let Some(id) = self.ask(DEVICE, named, self.overrides.device.clone()) else {
            let (system, found) = (parts.system.0.clone(), of_profile.to_string());
            self.fault(DEVICE, Fault::DeviceUnnamed { system, found });
            return None;
        };
        let devices = &parts.devices;
        let found = devices.iter().find(|device| device.id == id);
        if found.is_none() {
            let known: Vec<String> = devices.iter().map(|device| device.id.clone()).collect();
            self.fault(DEVICE, part_missing(PartKind::Device, &id, &known));
        }
        found
    }

    fn kernels(&mut self, device: Option<&DeviceFacts>) {
        let required = &self.profile.kernels.require;
        self.record(KERNELS, Value::from(required.as_slice()));
        let Some(device) = device else { return };
        for kernel in required.iter().filter(|kernel| !device.kernels.contains(kernel)) {
            let (device, kernel, known) = (device.id.clone(), kernel.clone(), device.kernels.clone());
            self.fault(KERNELS, Fault::KernelMissing { device, kernel, known });
        }
        let there = required.iter().filter(|kernel| device.kernels.contains(kernel));
        for kernel in there {
            let shapes = device.kernel_shapes.iter().filter(|(name, _)| name == kernel);
            let failed = shapes.flat_map(|(_, shapes)| shapes.failures(self.model.config)).next();
            if let Some(failed) = failed {
                let (device, kernel) = (device.id.clone(), kernel.clone());
                self.fault(KERNELS, Fault::KernelShape { device, kernel, failed });
            }
        }
    }

    fn kv(&mut self, numeric: Numeric) -> Option<KvStorage> {
        let (kind, of_profile) = (&self.profile.kv.kind, &self.profile.kv.dtype);
        self.record(KV_KIND, kind);
        let named = of_profile.of(&numeric.to_string()).map(str::to_owned);
        let Some(dtype) = self.ask(KV_DTYPE, named, self.overrides.kv_dtype.clone()) else {
            self.fault(KV_DTYPE, Fault::KvUnnamed { numeric, found: of_profile.to_string() });
            return None;
        };
        let name = format!("{kind}:{dtype}");
        let known = self.registry.parts().caches.clone();
        let mut storage = KvStorage::all().filter(|_| known.contains(&name));
        let storage = storage.find(|storage| cache_name(*storage) == name);
        let Some(storage) = storage else {
            let is_kind_known = known.iter().any(|known| known.split(':').next() == Some(kind));
            let key = if is_kind_known { KV_DTYPE } else { KV_KIND };
            self.fault(key, Fault::KvMissing { kind: kind.clone(), dtype, known });
            return None;
        };
        if numeric == Numeric::Exact && storage != KvStorage::PlainF32 {
            self.fault(KV_DTYPE, Fault::KvNotExact { dtype });
            return None;
        }
        Some(storage)
    }

    fn decoding_loop(&mut self) -> Option<&'a LoopFacts> {
        let (name, loops) = (&self.profile.compose.loop_, &self.registry.parts().loops);
        let known: Vec<String> = loops.iter().map(|known| known.name.clone()).collect();
        self.part(PartKind::Loop, "compose.loop", name, &known);
        loops.iter().find(|known| known.name == *name)
    }

    /// The implementation that is named, if one is; the outer `None` is one that does not fit.
    fn implementation(
        &mut self,
        device: Option<&DeviceFacts>,
        kv: Option<KvStorage>,
    ) -> Option<Option<&'a ImplementationFacts>> {
        let compose = &self.profile.compose;
        let Some(implementation) = &compose.implementation else { return Some(None) };
        self.record(IMPLEMENTATION, implementation);
        let (parts, loader) = (self.registry.parts(), self.model.format);
        if parts.streamed.iter().any(|name| name == loader) {
            let (loader, id) = (loader.to_owned(), implementation.id.clone());
            self.fault(IMPLEMENTATION, Fault::StreamedBinding { loader, id });
            return None;
        }
        // What is missing beside it was told; it could only be told to not fit something that is not there.
        let wanted = Wanted {
            implementation,
            graph: compose.graph.name(),
            loader,
            loop_: &compose.loop_,
            device: &device?.id,
            cache: cache_name(kv?),
            config: self.model.config,
        };
        match select_implementation(&wanted, &parts.implementations) {
            Ok(facts) => Some(Some(facts)),
            Err(fault) => {
                self.fault(IMPLEMENTATION, fault);
                None
            }
        }
    }

    /// Each sampler of the chain must be one that the host has.
    fn samplers(&mut self) {
        let known = &self.registry.parts().samplers;
        let key = match &self.profile.sampling.defaults {
            SamplingDefaults::Flat(_) => "sampling",
            SamplingDefaults::Chain(_) => "sampling.chain",
        };
        for sampler in self.profile.sampling.defaults.samplers() {
            self.part(PartKind::Sampler, key, sampler.name(), known);
        }
    }

    fn n_threads(&mut self, device: Option<&DeviceFacts>) -> Option<usize> {
        match self.ask(N_THREADS, self.profile.limits.n_threads, self.overrides.n_threads) {
            None => {
                self.fault(N_THREADS, Fault::ThreadsUnnamed);
                None
            }
            Some(Threads::All) => device.map(|device| self.settle(device.n_threads)),
            Some(Threads::Count(n)) => self.at_least_one(N_THREADS, n),
        }
    }

    fn context_tokens(&mut self) -> Option<usize> {
        let flag = self.overrides.context_tokens.map(ContextTokens::Exactly);
        let asked = self.ask(CONTEXT_TOKENS, Some(self.profile.limits.context_tokens), flag)?;
        self.at_least_one(CONTEXT_TOKENS, asked.limit())?;
        let of_model = lookup(self.model.config, "max_position_embeddings").and_then(Value::as_u64);
        let of_model = of_model.and_then(|tokens| usize::try_from(tokens).ok());
        match (asked, of_model) {
            (ContextTokens::Exactly(found), Some(expected)) if found > expected => {
                self.fault(CONTEXT_TOKENS, Fault::ContextTooLong { expected, found });
                None
            }
            (ContextTokens::Exactly(found), _) => Some(found),
            (ContextTokens::AtMost(limit), Some(of_model)) if of_model > 0 => {
                Some(self.settle(limit.min(of_model)))
            }
            (ContextTokens::AtMost(_), _) => {
                self.fault(CONTEXT_TOKENS, Fault::ContextUnknown);
                None
            }
        }
    }

    fn memory_bytes(&mut self) -> Option<u64> {
        let bytes = self.ask(MEMORY_BYTES, self.profile.limits.memory_bytes, self.overrides.memory_bytes)?;
        if bytes.0 == 0 {
            self.refuse_flag(MEMORY_BYTES, "at least 1 byte", bytes.to_string());
        }
        Some(bytes.0)
    }

    fn count(&mut self, key: Key, of_profile: usize, of_flag: Option<usize>) -> Option<usize> {
        let n = self.ask(key, Some(of_profile), of_flag)?;
        self.at_least_one(key, n)
    }

    /// A profile's own values were checked when it was loaded; only a flag can be 0 here.
    fn at_least_one(&mut self, key: Key, n: usize) -> Option<usize> {
        if n == 0 {
            self.refuse_flag(key, "at least 1", "0".to_owned());
            return None;
        }
        Some(n)
    }

    fn step_takes_each_sequence(&mut self, max_sequences: Option<usize>, max_step_tokens: Option<usize>) {
        if let (Some(n_sequences), Some(found)) = (max_sequences, max_step_tokens)
            && found < n_sequences
        {
            self.fault(MAX_STEP_TOKENS, Fault::StepTooSmall { n_sequences, found });
        }
    }

    fn part(&mut self, kind: PartKind, key: &'static str, name: &str, known: &[String]) {
        if !known.iter().any(|known| known == name) {
            let path: Vec<&str> = key.split('.').collect();
            self.fault_at(&path, part_missing(kind, name, known));
        }
    }

    /// What requests get where they say nothing. No flag changes it: a request's own flags are the request's.
    fn record_defaults(&mut self) {
        let (sampling, serve) = (&self.profile.sampling, &self.profile.serve);
        match &sampling.defaults {
            SamplingDefaults::Flat(settings) => {
                for (key, value) in flat_values(settings) {
                    self.record(Key::new(key), value);
                }
            }
            SamplingDefaults::Chain(samplers) => {
                let lines: Vec<String> = samplers.iter().map(line).collect();
                self.record(Key::new("sampling.chain"), Value::from(lines));
            }
        }
        self.record(Key::new("serve.max_tokens"), serve.max_tokens);
        self.record(Key::new("serve.chat"), serve.chat);
        if let Some(system) = &serve.system {
            self.record(Key::new("serve.system"), Value::from(system.as_str()));
        }
        self.record(Key::new("serve.stop"), Value::from(serve.stop.as_slice()));
    }

    /// When plugins are kept out, where the profile says it.
    fn record_quarantine(&mut self) {
        if let Some(rules) = self.profile.limits.quarantine {
            for (key, (_, number)) in QUARANTINE.into_iter().zip(rules.numbers()) {
                self.record(key, number);
            }
        }
    }

    /// What plugins may spend, where the profile says it.
    fn record_budgets(&mut self) {
        for (id, budget) in &self.profile.plugins {
            for (key, number) in budget.numbers() {
                let at = self.loaded.source().line_of(&["plugins", id, key]);
                let (key, value) = (format!("plugins.{id}.{key}"), number.to_string());
                let origin = Origin::Profile { at };
                self.settings.push(Setting { key: key.into(), asked: value.clone(), value, origin });
            }
        }
    }

    fn record(&mut self, key: Key, value: impl Display) {
        self.ask(key, Some(value), None);
    }

    /// The flag's value, else the profile's; recorded with its origin, unless neither says anything.
    fn ask<T: Display>(&mut self, key: Key, of_profile: Option<T>, of_flag: Option<T>) -> Option<T> {
        let in_profile = of_profile.as_ref().map(ToString::to_string);
        let (value, origin) = match (of_flag, key.flag) {
            (Some(value), Some(flag)) => (value, Origin::Flag { flag, instead_of: in_profile }),
            _ => (of_profile?, Origin::Profile { at: self.loaded.source().line_of(&key.path()) }),
        };
        let asked = value.to_string();
        self.settings.push(Setting { key: key.name.into(), value: asked.clone(), asked, origin });
        Some(value)
    }

    /// The last setting asked for, as model or machine resolve it.
    fn settle(&mut self, value: usize) -> usize {
        if let Some(setting) = self.settings.last_mut() {
            setting.value = value.to_string();
        }
        value
    }

    fn refuse_flag(&mut self, key: Key, expected: &'static str, found: String) {
        self.fault(key, Fault::Flag { flag: key.flag.unwrap_or(key.name), expected, found });
    }

    /// A fault of a key that a flag may have overridden; then no line of the profile is to blame.
    fn fault(&mut self, key: Key, fault: Fault) {
        if self.settings.iter().any(|setting| setting.key == key.name && setting.is_by_flag()) {
            self.faults.push(PlacedFault { fault, place: None });
        } else {
            self.fault_at(&key.path(), fault);
        }
    }

    fn fault_at(&mut self, path: &[&str], fault: Fault) {
        let place = Some(Box::new(self.loaded.source().place(path)));
        self.faults.push(PlacedFault { fault, place });
    }
}

/// Where each part is named: in the profile, or, for the policy, by a flag.
fn part_origins(loaded: &LoadedProfile, settings: &[Setting]) -> BTreeMap<&'static str, String> {
    let keys: [(&str, &[&str]); 4] = [
        ("graph", &["compose", "graph"]),
        ("loader", &["compose", "loader"]),
        ("quant", &["compose", "quant"]),
        ("loop", &["compose", "loop"]),
    ];
    let named = keys.into_iter().map(|(part, path)| (part, loaded.source().line_of(path)));
    let policy = settings.iter().find(|setting| setting.key == POLICY.name);
    named.chain(policy.map(|setting| ("policy", setting.origin.place().to_owned()))).collect()
}

/// Each line of `[match]` with where it stands.
fn match_lines(loaded: &LoadedProfile) -> Vec<MatchLine> {
    let line = |(key, predicate): &(String, Predicate)| MatchLine {
        key: key.clone(),
        expected: predicate.to_string(),
        at: loaded.source().line_of(&["match", key]),
    };
    loaded.profile().match_.0.iter().map(line).collect()
}

fn part_missing(kind: PartKind, name: &str, known: &[String]) -> Fault {
    let near = nearest(name, known.iter().map(String::as_str));
    Fault::PartMissing { kind, name: name.to_owned(), nearest: near, known: known.to_vec() }
}
