//! What was resolved: every part with version and digest, every option with where it comes from. Frozen.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use host_device::{CompileOptions, Device, DeviceError, MemoryPlan};
use host_plugins::{Budget, Grants, QuarantineRules};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::fallback::RefusedProfile;
use crate::features::LoopFacts;
use crate::frozen::FrozenGraph;
use crate::implementation::ImplementationFacts;
use crate::profile::{Profile, Quant, SamplingDefaults, Serve, Sha256Digest};
use crate::refusal::Refusal;
use crate::registry::{PluginFacts, QuantFacts};
use crate::set::Base;
use crate::setting::Setting;

/// Where the graph of a composition comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphPart {
    /// A plugin builds it.
    Plugin(PluginFacts),
    /// It was frozen; the composition holds it, whatever becomes of the file.
    Frozen(Arc<FrozenGraph>),
}

/// A sampling policy as it was resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The plugin.
    pub plugin: PluginFacts,
    /// What it is opened with, a JSON object.
    pub params: Map<String, Value>,
    /// The rights that it gets.
    pub grants: Grants,
    /// What it may spend.
    pub budget: Budget,
}

/// What quantises weights while they are loaded.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantisation {
    /// Rules by name.
    Rules(QuantFacts),
    /// A plugin, and what it is called with, a JSON object.
    Plugin {
        /// The plugin.
        plugin: PluginFacts,
        /// Its params.
        params: Map<String, Value>,
    },
}

/// A resolved profile. Built by [`crate::Registry::resolve`] alone, and never changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Composition {
    pub(crate) profile: Profile,
    pub(crate) config_digest: Sha256Digest,
    pub(crate) graph: GraphPart,
    pub(crate) policy: Option<Policy>,
    pub(crate) quantisation: Option<Quantisation>,
    pub(crate) loader: String,
    pub(crate) device: String,
    pub(crate) options: CompileOptions,
    pub(crate) settings: Vec<Setting>,
    pub(crate) loop_facts: LoopFacts,
    pub(crate) implementation: Option<ImplementationFacts>,
    pub(crate) is_streamed: bool,
    /// `file:line` of each part that is no setting.
    pub(crate) origins: BTreeMap<&'static str, String>,
    pub(crate) match_lines: Vec<MatchLine>,
    pub(crate) bases: Vec<Base>,
    pub(crate) refused: Vec<RefusedProfile>,
}

/// One line of `[match]`, which held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchLine {
    /// The key of `config.json`.
    pub key: String,
    /// What is asked of it.
    pub expected: String,
    /// `file:line`.
    pub at: String,
}

impl Composition {
    /// The profile's id.
    pub fn profile_id(&self) -> &str {
        &self.profile.id
    }

    /// The profile as it was when this was resolved.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Where the graph comes from.
    pub fn graph(&self) -> &GraphPart {
        &self.graph
    }

    /// The policy of every request, if there is one.
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// How the checkpoint is stored.
    pub fn loader(&self) -> &str {
        &self.loader
    }

    /// What becomes of the weights, by name.
    pub fn quant(&self) -> &str {
        match &self.profile.compose.quant {
            Quant::Named(name) | Quant::Scheme(name) => name,
            Quant::Plugin(wanted) => &wanted.plugin,
        }
    }

    /// What quantises weights while they are loaded; none where they stay as published.
    pub fn quantisation(&self) -> Option<&Quantisation> {
        self.quantisation.as_ref()
    }

    /// The decoding loop.
    pub fn decoding_loop(&self) -> &str {
        &self.profile.compose.loop_
    }

    /// What the decoding loop can do.
    pub fn loop_facts(&self) -> &LoopFacts {
        &self.loop_facts
    }

    /// The code that makes the model, where the profile names one; else the device compiles the graph.
    pub fn implementation(&self) -> Option<&ImplementationFacts> {
        self.implementation.as_ref()
    }

    /// Whether the loader streams weights instead of opening them.
    pub fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// What a plugin may spend.
    pub fn budget(&self, plugin: &str) -> Budget {
        self.profile.budget(plugin)
    }

    /// The profiles that the profile extends, the nearest first.
    pub fn bases(&self) -> &[Base] {
        &self.bases
    }

    /// The lines of the profile's `[match]`, all of which hold.
    pub fn match_lines(&self) -> &[MatchLine] {
        &self.match_lines
    }

    /// `file:line` or the flag that names a part: `graph`, `loader`, `quant`, `loop`, `policy`.
    pub fn origin(&self, part: &str) -> Option<&str> {
        self.origins.get(part).map(String::as_str)
    }

    /// The device's id.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// What is asked of the device.
    pub fn options(&self) -> &CompileOptions {
        &self.options
    }

    /// When faults keep a plugin out; none where the profile keeps none out.
    pub fn quarantine(&self) -> Option<QuarantineRules> {
        self.profile.limits.quarantine
    }

    /// The sampling settings of a request that gives none.
    pub fn sampling(&self) -> &SamplingDefaults {
        &self.profile.sampling.defaults
    }

    /// What else a request that says nothing gets.
    pub fn serve(&self) -> &Serve {
        &self.profile.serve
    }

    /// Every option with its origin.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The second stage, once the graph is built and before tensors are read: whether the device can run it,
    /// and with how much memory. `check` is [`Device::check`] over graph and catalogue, which are none of this
    /// crate's business: `|device, options| device.check(&graph, catalogue, options)`.
    ///
    /// # Errors
    /// [`Refusal::OtherDevice`] for a device that was not composed, [`Refusal::Device`] for what it lacks.
    pub fn check_graph(
        &self,
        device: &dyn Device,
        check: impl FnOnce(&dyn Device, &CompileOptions) -> Result<MemoryPlan, DeviceError>,
    ) -> Result<MemoryPlan, Refusal> {
        if device.id() != self.device {
            return Err(Refusal::OtherDevice {
                expected: self.device.clone(),
                found: device.id().to_owned(),
            });
        }
        check(device, &self.options)
            .map_err(|source| Refusal::Device { profile: self.profile.id.clone(), source })
    }

    /// Whether this was resolved for that configuration.
    ///
    /// # Errors
    /// [`Refusal::OtherConfig`].
    pub fn check_config(&self, config: &Map<String, Value>) -> Result<(), Refusal> {
        let found = config_digest(config);
        if found == self.config_digest {
            return Ok(());
        }
        Err(Refusal::OtherConfig { profile: self.profile.id.clone(), expected: self.config_digest, found })
    }

    /// The composition as one text, a fact a line, in this order:
    ///
    /// the form's version; profile id; digest of the configuration; graph plugin with version, runtime and
    /// digest, or `frozen` with name and digest; the sampling policy's plugin likewise, where there is one; loader,
    /// quantisation (rules with their digest, a plugin like the others) and loop; the implementation with version and
    /// digest, where one is named; every setting as asked for (not as this machine resolves it, so
    /// that the hash is the same on each); the keys whose flag differs from the profile. Texts are quoted as in
    /// JSON, numbers in their shortest form; what is absent has no line.
    pub fn canonical_text(&self) -> String {
        let mut text = Lines(String::from("tenon-composition 1\n"));
        let compose = &self.profile.compose;
        text.line("profile", quoted(&self.profile.id));
        text.line("config", self.config_digest);
        match &self.graph {
            GraphPart::Plugin(plugin) => text.plugin("graph", plugin),
            GraphPart::Frozen(frozen) => {
                text.line("graph", format_args!("frozen {} {}", quoted(frozen.name()), frozen.digest()));
            }
        }
        if let Some(policy) = &self.policy {
            text.plugin("policy", &policy.plugin);
        }
        text.line("loader", quoted(&self.loader));
        match &self.quantisation {
            None => text.line("quant", quoted(self.quant())),
            Some(Quantisation::Rules(rules)) => {
                text.line("quant", format_args!("scheme {} {}", quoted(&rules.id), rules.digest));
            }
            Some(Quantisation::Plugin { plugin, .. }) => text.plugin("quant plugin", plugin),
        }
        text.line("loop", quoted(&compose.loop_));
        if let Some(ImplementationFacts { id, version, digest, .. }) = &self.implementation {
            let digest = digest.map_or("-".to_owned(), |digest| digest.to_string());
            text.line("implementation", format_args!("{} {version} {digest}", quoted(id)));
        }
        for setting in &self.settings {
            text.line(&setting.key, quoted(&setting.asked));
        }
        for setting in self.settings.iter().filter(|setting| setting.is_changed()) {
            text.line("override", &setting.key);
        }
        text.0
    }

    /// SHA-256 of [`Composition::canonical_text`]; people see the first 16 digits.
    pub fn hash(&self) -> Sha256Digest {
        Sha256Digest::of(self.canonical_text().as_bytes())
    }
}

struct Lines(String);

impl Lines {
    fn plugin(&mut self, name: &str, plugin: &PluginFacts) {
        let PluginFacts { id, version, runtime, digest, .. } = plugin;
        self.line(name, format_args!("{} {version} {} {digest}", quoted(id), runtime.name()));
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        writeln!(self.0, "{name} {value}").expect("writing to a string cannot fail");
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// SHA-256 of the configuration as compact JSON with sorted keys.
pub(crate) fn config_digest(config: &Map<String, Value>) -> Sha256Digest {
    let mut text = String::new();
    write_sorted(&Value::Object(config.clone()), &mut text);
    Sha256Digest::of(text.as_bytes())
}

fn write_sorted(value: &Value, text: &mut String) {
    let separate = |text: &mut String, i: usize| text.push_str(if i == 0 { "" } else { "," });
    match value {
        Value::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort();
            text.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                separate(text, i);
                text.push_str(&quoted(key));
                text.push(':');
                write_sorted(&object[key], text);
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for (i, value) in values.iter().enumerate() {
                separate(text, i);
                write_sorted(value, text);
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}
