//! Resolution: takes exactly what a profile names from what the host has, or refuses with every reason.
//!
//! Pure: it reads values and gives a value. It ends before the first byte of weights is opened.

use std::fmt::Display;

use host_core::Numeric;
use host_device::{CompileOptions, KvStorage};
use host_plugins::Kind;
use serde_json::{Map, Value};

use crate::composition::{Composition, Origin, Setting, config_digest};
use crate::nearest::nearest;
use crate::overrides::Overrides;
use crate::profile::{ContextTokens, Profile, Threads, lookup};
use crate::refusal::{Fault, PartKind, PlacedFault, Refusal};
use crate::registry::{DeviceFacts, PluginFacts, Registry};
use crate::set::LoadedProfile;

/// What is known of a model before its weights are opened.
#[derive(Clone, Copy, Debug)]
pub struct ModelFacts<'a> {
    /// `config.json`, or what a GGUF file says in its words.
    pub config: &'a Map<String, Value>,
    /// How the checkpoint is stored: `safetensors` or `gguf`.
    pub format: &'a str,
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
            Some((graph, device, options)) if faults.is_empty() => Ok(Composition {
                profile: profile.clone(),
                config_digest: config_digest(model.config),
                graph: graph.clone(),
                loader: model.format.to_owned(),
                device: device.id.clone(),
                options,
                settings,
            }),
            _ => Err(Refusal::Parts { profile: profile.id.clone(), faults }),
        }
    }
}

/// A key of a profile that a flag may override.
#[derive(Clone, Copy)]
struct Key {
    name: &'static str,
    flag: &'static str,
}

const DEVICE: Key = Key { name: "compose.device", flag: "--device" };
const NUMERIC: Key = Key { name: "compose.numeric", flag: "--numeric" };
const KV_KIND: Key = Key { name: "kv.kind", flag: "" };
const KV_DTYPE: Key = Key { name: "kv.dtype", flag: "--kv-dtype" };
const N_THREADS: Key = Key { name: "limits.n_threads", flag: "--threads" };
const CONTEXT_TOKENS: Key = Key { name: "limits.context_tokens", flag: "--context-tokens" };
const MAX_SEQUENCES: Key = Key { name: "limits.max_sequences", flag: "--max-sequences" };
const MAX_STEP_TOKENS: Key = Key { name: "limits.max_step_tokens", flag: "--max-step-tokens" };
const MEMORY_BYTES: Key = Key { name: "limits.memory_bytes", flag: "--memory-bytes" };

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
    fn compose(&mut self) -> Option<(&'a PluginFacts, &'a DeviceFacts, CompileOptions)> {
        let graph = self.graph_plugin();
        self.loader();
        let (parts, compose) = (self.registry.parts(), &self.profile.compose);
        self.part(PartKind::Quant, "compose.quant", &compose.quant, &parts.quants);
        self.part(PartKind::Loop, "compose.loop", &compose.loop_, &parts.loops);
        let device = self.device();
        self.kernels(device);
        let numeric = self.ask(NUMERIC, Some(compose.numeric), self.overrides.numeric);
        let kv = numeric.and_then(|numeric| self.kv(numeric));
        let n_threads = self.n_threads(device);
        let context_tokens = self.context_tokens();
        let limits = &self.profile.limits;
        let max_sequences = self.count(MAX_SEQUENCES, limits.max_sequences, self.overrides.max_sequences);
        let max_step_tokens =
            self.count(MAX_STEP_TOKENS, limits.max_step_tokens, self.overrides.max_step_tokens);
        self.step_takes_each_sequence(max_sequences, max_step_tokens);
        let memory_bytes = self.memory_bytes();
        let options = CompileOptions {
            numeric: numeric?,
            kv: kv?,
            n_threads: n_threads?,
            context_tokens: context_tokens?,
            max_sequences: max_sequences?,
            max_step_tokens: max_step_tokens?,
            memory_bytes,
        };
        Some((graph?, device?, options))
    }

    fn graph_plugin(&mut self) -> Option<&'a PluginFacts> {
        let wanted = &self.profile.compose.graph;
        match select_plugin(wanted, &self.registry.parts().plugins) {
            Ok(plugin) => Some(plugin),
            Err((key, fault)) => {
                self.fault_at(&["compose", "graph", key], fault);
                None
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
        let named = Some(self.profile.compose.device.clone());
        let id = self.ask(DEVICE, named, self.overrides.device.clone())?;
        let devices = &self.registry.parts().devices;
        let found = devices.iter().find(|device| device.id == id);
        if found.is_none() {
            let known: Vec<String> = devices.iter().map(|device| device.id.clone()).collect();
            self.fault(DEVICE, part_missing(PartKind::Device, &id, &known));
        }
        found
    }

    fn kernels(&mut self, device: Option<&DeviceFacts>) {
        let Some(device) = device else { return };
        let profile = self.profile;
        for kernel in profile.kernels.require.iter().filter(|kernel| !device.kernels.contains(kernel)) {
            let (device, kernel, known) = (device.id.clone(), kernel.clone(), device.kernels.clone());
            self.fault_at(&["kernels", "require"], Fault::KernelMissing { device, kernel, known });
        }
    }

    fn kv(&mut self, numeric: Numeric) -> Option<KvStorage> {
        let (kind, of_profile) = (&self.profile.kv.kind, &self.profile.kv.dtype);
        self.ask(KV_KIND, Some(kind), None);
        let named = of_profile.of(numeric).map(str::to_owned);
        let Some(dtype) = self.ask(KV_DTYPE, named, self.overrides.kv_dtype.clone()) else {
            self.fault(KV_DTYPE, Fault::KvUnnamed { numeric, found: of_profile.to_string() });
            return None;
        };
        let signature = format!("kv:{kind}:{dtype}");
        let Some((storage, _)) = KvStorage::ALL.into_iter().find(|(_, known)| *known == signature) else {
            let known = KvStorage::ALL.iter().map(|(_, known)| known.replacen("kv:", "", 1)).collect();
            self.fault(KV_DTYPE, Fault::KvMissing { kind: kind.clone(), dtype, known });
            return None;
        };
        if numeric == Numeric::Exact && storage != KvStorage::PlainF32 {
            self.fault(KV_DTYPE, Fault::KvNotExact { dtype });
            return None;
        }
        Some(storage)
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
            let (flag, found) = (MEMORY_BYTES.flag, bytes.to_string());
            self.fault(MEMORY_BYTES, Fault::Flag { flag, expected: "at least 1 byte", found });
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
            self.fault(key, Fault::Flag { flag: key.flag, expected: "at least 1", found: "0".to_owned() });
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

    /// The flag's value, else the profile's; recorded with its origin.
    fn ask<T: Display>(&mut self, key: Key, of_profile: Option<T>, of_flag: Option<T>) -> Option<T> {
        let in_profile = of_profile.as_ref().map(ToString::to_string);
        let (value, origin) = match of_flag {
            Some(value) => (Some(value), Origin::Flag { flag: key.flag, instead_of: in_profile }),
            None => {
                let at = self.loaded.source().line_of(&path_of(key));
                (of_profile, Origin::Profile { at })
            }
        };
        let asked = value.as_ref().map_or("none".to_owned(), ToString::to_string);
        self.settings.push(Setting { key: key.name, value: asked.clone(), asked, origin });
        value
    }

    /// The last setting asked for, as model or machine resolve it.
    fn settle(&mut self, value: usize) -> usize {
        if let Some(setting) = self.settings.last_mut() {
            setting.value = value.to_string();
        }
        value
    }

    /// A fault of a key that a flag may have overridden; then no line of the profile is to blame.
    fn fault(&mut self, key: Key, fault: Fault) {
        let is_flag =
            |setting: &Setting| setting.key == key.name && matches!(setting.origin, Origin::Flag { .. });
        if self.settings.iter().any(is_flag) {
            self.faults.push(PlacedFault { fault, place: None });
        } else {
            self.fault_at(&path_of(key), fault);
        }
    }

    fn fault_at(&mut self, path: &[&str], fault: Fault) {
        let place = Some(Box::new(self.loaded.source().place(path)));
        self.faults.push(PlacedFault { fault, place });
    }
}

fn path_of(key: Key) -> Vec<&'static str> {
    key.name.split('.').collect()
}

fn part_missing(kind: PartKind, name: &str, known: &[String]) -> Fault {
    let near = nearest(name, known.iter().map(String::as_str));
    Fault::PartMissing { kind, name: name.to_owned(), nearest: near, known: known.to_vec() }
}

/// Narrows the plugins step by step; `Err` names the key of the profile that none of them satisfies.
fn select_plugin<'a>(
    wanted: &crate::profile::PluginRef,
    plugins: &'a [PluginFacts],
) -> Result<&'a PluginFacts, (&'static str, Fault)> {
    let plugin = wanted.plugin.clone();
    let titles = |plugins: &[&PluginFacts]| plugins.iter().map(|plugin| plugin.title()).collect::<Vec<_>>();
    let builds = |plugins: &[&PluginFacts]| {
        plugins.iter().map(|plugin| format!("{} {}", plugin.title(), plugin.digest)).collect::<Vec<_>>()
    };
    let named: Vec<&PluginFacts> = plugins.iter().filter(|known| known.id == plugin).collect();
    let Some(first) = named.first() else {
        let known: Vec<&PluginFacts> = plugins.iter().collect();
        let near = nearest(&plugin, plugins.iter().map(|plugin| plugin.id.as_str()));
        return Err(("plugin", Fault::PluginMissing { plugin, nearest: near, known: titles(&known) }));
    };
    let graphs = keep(&named, |known| known.kind == Kind::ModelGraph);
    if graphs.is_empty() {
        return Err(("plugin", Fault::PluginKind { plugin, found: first.kind.name() }));
    }
    let in_range = keep(&graphs, |known| wanted.version.matches(&known.version));
    if in_range.is_empty() {
        let range = wanted.version.to_string();
        return Err(("version", Fault::PluginVersion { plugin, range, found: titles(&graphs) }));
    }
    let of_runtime = keep(&in_range, |known| {
        wanted.runtime.as_ref().is_none_or(|runtime| known.runtime.name() == runtime)
    });
    if of_runtime.is_empty() {
        let runtime = wanted.runtime.clone().unwrap_or_default();
        return Err(("runtime", Fault::PluginRuntime { plugin, runtime, found: titles(&in_range) }));
    }
    let pinned = keep(&of_runtime, |known| wanted.digest.is_none_or(|digest| known.digest == digest));
    match (pinned.as_slice(), wanted.digest) {
        ([one], _) => Ok(one),
        ([], Some(expected)) => {
            Err(("digest", Fault::PluginDigest { plugin, expected, found: builds(&of_runtime) }))
        }
        _ => Err(("version", Fault::PluginAmbiguous { plugin, found: builds(&pinned) })),
    }
}

fn keep<'a>(plugins: &[&'a PluginFacts], holds: impl Fn(&PluginFacts) -> bool) -> Vec<&'a PluginFacts> {
    plugins.iter().copied().filter(|plugin| holds(plugin)).collect()
}
