//! What this host has: plugins, devices, loaders, quantisations and loops, each by name.
//!
//! A registry never changes. A program that brings parts of its own makes another one with [`Registry::with`].

use host_core::{Report, Reported};
use host_device::Device;
use host_plugins::{Kind, PluginPackage, Runtime};
use semver::Version;

use crate::features::LoopFacts;
use crate::frozen::FrozenFile;
use crate::implementation::ImplementationFacts;
use crate::profile::{Match, Sha256Digest};
use crate::quant::QuantRules;

/// What the registry knows of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFacts {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: Version,
    /// What it is for.
    pub kind: Kind,
    /// What runs it.
    pub runtime: Runtime,
    /// The digest of manifest and entry.
    pub digest: Sha256Digest,
}

impl From<&PluginPackage> for PluginFacts {
    fn from(package: &PluginPackage) -> Self {
        let manifest = package.manifest();
        PluginFacts {
            id: manifest.id.clone(),
            version: manifest.version.clone(),
            kind: manifest.kind,
            runtime: manifest.runtime,
            digest: package.digest().as_hex().parse().expect("a package's digest is 64 hexadecimal digits"),
        }
    }
}

/// What the registry knows of quantisation rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantFacts {
    /// Their name.
    pub id: String,
    /// The digest of their text.
    pub digest: Sha256Digest,
}

impl From<&QuantRules> for QuantFacts {
    fn from(rules: &QuantRules) -> Self {
        QuantFacts { id: rules.id().to_owned(), digest: rules.digest() }
    }
}

/// What the registry knows of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// Its id: `cpu`.
    pub id: String,
    /// How many worker threads "all" means on this machine; at least 1.
    pub n_threads: usize,
    /// The kernels it has, by name.
    pub kernels: Vec<String>,
    /// The shapes that a kernel is for, as lines on `config.json`; a kernel without an entry has no bounds.
    pub kernel_shapes: Vec<(String, Match)>,
}

impl DeviceFacts {
    /// The facts of a device. Its kernels are its capabilities of the name `kernel`.
    pub fn of(device: &dyn Device, n_threads: usize) -> Self {
        let kernels = device.capabilities().into_iter().filter(|capability| capability.name == "kernel");
        DeviceFacts {
            id: device.id().to_owned(),
            n_threads: n_threads.max(1),
            kernels: kernels.map(|capability| capability.value).collect(),
            kernel_shapes: Vec::new(),
        }
    }
}

/// An operating system by its name in Rust: `linux`, `macos`. The default is that of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System(pub String);

impl Default for System {
    fn default() -> Self {
        System(std::env::consts::OS.to_owned())
    }
}

/// Parts of a host, to make a registry of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// The operating system; profiles may name a device for each.
    pub system: System,
    /// Plugins that were read and checked.
    pub plugins: Vec<PluginFacts>,
    /// Frozen graphs, broken ones among them.
    pub graphs: Vec<FrozenFile>,
    /// Devices of this machine.
    pub devices: Vec<DeviceFacts>,
    /// Checkpoint formats that can be loaded: `safetensors`, `gguf`.
    pub loaders: Vec<String>,
    /// What can become of weights: `as-published`.
    pub quants: Vec<String>,
    /// Quantisation rules that were read and checked.
    pub schemes: Vec<QuantFacts>,
    /// Decoding loops: `autoregressive`.
    pub loops: Vec<LoopFacts>,
    /// Kinds of caches: `plain:f16`.
    pub caches: Vec<String>,
    /// Samplers by name: `top_p`.
    pub samplers: Vec<String>,
    /// Loaders among the others that stream weights, so that only their own device opens them.
    pub streamed: Vec<String>,
    /// Code that makes runnable models in a way of its own.
    pub implementations: Vec<ImplementationFacts>,
}

/// Everything that a profile can name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registry {
    parts: Parts,
}

/// Parts that cannot be told apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", match name.is_empty() {
    true => format!("one {kind} has no name"),
    false => format!("there are two {kind}s of the name `{name}`"),
})]
pub struct DuplicatePart {
    /// `plugin`, `device`, …
    pub kind: &'static str,
    /// What both are called.
    pub name: String,
}

impl Registry {
    /// A registry of these parts.
    ///
    /// # Errors
    /// [`DuplicatePart`] for two parts of one kind and name; plugins also by version and runtime.
    pub fn new(parts: Parts) -> Result<Registry, DuplicatePart> {
        let plugins = parts.plugins.iter().map(PluginFacts::title);
        refuse_duplicates("plugin", plugins)?;
        refuse_duplicates("frozen graph", parts.graphs.iter().map(|graph| graph.name.clone()))?;
        refuse_duplicates("device", parts.devices.iter().map(|device| device.id.clone()))?;
        refuse_duplicates("loader", parts.loaders.iter().cloned())?;
        refuse_duplicates("quantisation", parts.quants.iter().cloned())?;
        refuse_duplicates("set of quantisation rules", parts.schemes.iter().map(|rules| rules.id.clone()))?;
        refuse_duplicates("loop", parts.loops.iter().map(|known| known.name.clone()))?;
        refuse_duplicates("cache", parts.caches.iter().cloned())?;
        refuse_duplicates("sampler", parts.samplers.iter().cloned())?;
        refuse_duplicates("streamed loader", parts.streamed.iter().cloned())?;
        let implementations = parts.implementations.iter().map(ImplementationFacts::title);
        refuse_duplicates("implementation", implementations)?;
        Ok(Registry { parts })
    }

    /// Another registry, with these parts as well.
    ///
    /// # Errors
    /// As [`Registry::new`].
    pub fn with(&self, more: Parts) -> Result<Registry, DuplicatePart> {
        let mut parts = self.parts.clone();
        parts.plugins.extend(more.plugins);
        parts.graphs.extend(more.graphs);
        parts.devices.extend(more.devices);
        parts.loaders.extend(more.loaders);
        parts.quants.extend(more.quants);
        parts.schemes.extend(more.schemes);
        parts.loops.extend(more.loops);
        parts.caches.extend(more.caches);
        parts.samplers.extend(more.samplers);
        parts.streamed.extend(more.streamed);
        parts.implementations.extend(more.implementations);
        Registry::new(parts)
    }

    /// Everything in it.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }
}

impl PluginFacts {
    /// `llama 0.1.0 (wasm)`.
    pub fn title(&self) -> String {
        format!("{} {} ({})", self.id, self.version, self.runtime.name())
    }
}

/// Each name once, and none without letters.
pub(crate) fn refuse_duplicates(
    kind: &'static str,
    names: impl Iterator<Item = String>,
) -> Result<(), DuplicatePart> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        // A title begins with the id: an implementation without one begins with a space.
        let is_unnamed = name.is_empty() || name.starts_with(' ');
        if is_unnamed || !seen.insert(name.clone()) {
            return Err(DuplicatePart { kind, name: if is_unnamed { String::new() } else { name } });
        }
    }
    Ok(())
}

impl Reported for DuplicatePart {
    fn report(&self) -> Report {
        Report::new("registry.duplicate-part", self.to_string())
            .expected("each name once")
            .found(match self.name.as_str() {
                "" => "an empty name".to_owned(),
                name => format!("`{name}` twice"),
            })
            .mend(match self.kind {
                _ if self.name.is_empty() => "give it a name",
                "plugin" => "remove one of the two plugin folders, or give one another version",
                _ => "register each part once",
            })
    }
}
