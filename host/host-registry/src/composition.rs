//! What was resolved: every part with version and digest, every option with where it comes from. Frozen.

use std::fmt::Write;

use host_device::{CompileOptions, Device, DeviceError, MemoryPlan};
use serde_json::{Map, Value};

use crate::profile::{Profile, SamplingDefaults, Serve, Sha256Digest};
use crate::refusal::Refusal;
use crate::registry::PluginFacts;
use crate::setting::Setting;

/// A resolved profile. Built by [`crate::Registry::resolve`] alone, and never changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Composition {
    pub(crate) profile: Profile,
    pub(crate) config_digest: Sha256Digest,
    pub(crate) graph: PluginFacts,
    pub(crate) loader: String,
    pub(crate) device: String,
    pub(crate) options: CompileOptions,
    pub(crate) settings: Vec<Setting>,
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

    /// The graph plugin.
    pub fn graph(&self) -> &PluginFacts {
        &self.graph
    }

    /// How the checkpoint is stored.
    pub fn loader(&self) -> &str {
        &self.loader
    }

    /// What becomes of the weights.
    pub fn quant(&self) -> &str {
        &self.profile.compose.quant
    }

    /// The decoding loop.
    pub fn decoding_loop(&self) -> &str {
        &self.profile.compose.loop_
    }

    /// The device's id.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// What is asked of the device.
    pub fn options(&self) -> &CompileOptions {
        &self.options
    }

    /// The sampling settings of a request that gives none.
    pub fn sampling(&self) -> &SamplingDefaults {
        &self.profile.sampling
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
    /// digest; loader, quantisation and loop; every setting as asked for (not as this machine resolves it, so
    /// that the hash is the same on each); the keys whose flag differs from the profile. Texts are quoted as in
    /// JSON, numbers in their shortest form; what is absent has no line.
    pub fn canonical_text(&self) -> String {
        let mut text = Lines(String::from("tenon-composition 1\n"));
        let (graph, compose) = (&self.graph, &self.profile.compose);
        let runtime = graph.runtime.name();
        text.line("profile", quoted(&self.profile.id));
        text.line("config", self.config_digest);
        text.line(
            "graph",
            format_args!("{} {} {runtime} {}", quoted(&graph.id), graph.version, graph.digest),
        );
        text.line("loader", quoted(&self.loader));
        text.line("quant", quoted(&compose.quant));
        text.line("loop", quoted(&compose.loop_));
        for setting in &self.settings {
            text.line(setting.key, quoted(&setting.asked));
        }
        for setting in self.settings.iter().filter(|setting| setting.is_changed()) {
            text.line("override", setting.key);
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
