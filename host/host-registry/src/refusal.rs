//! Why a profile that fits a model cannot be composed on this host.

use host_core::{Numeric, Place, Report, Reported};
use host_device::DeviceError;

use crate::fallback::RefusedProfile;
use crate::profile::{FailedPredicate, Sha256Digest};

/// A refused composition. Nothing of the weights was opened.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Parts or values that this host does not have; at least one, in the profile's order.
    #[error("the profile `{profile}` cannot be composed here: {}", .faults[0].fault)]
    Parts {
        /// The profile.
        profile: String,
        /// Each with where it was asked for.
        faults: Vec<PlacedFault>,
    },
    /// The device cannot run the graph.
    #[error("the device cannot run the graph that the profile `{profile}` composes")]
    Device {
        /// The profile.
        profile: String,
        /// What it lacks.
        source: DeviceError,
    },
    /// The profile is refused, and so is each of its fallbacks.
    #[error("{first}; neither can a fallback")]
    Fallbacks {
        /// Why the profile itself is.
        first: Box<Refusal>,
        /// Each fallback with its reason, in order.
        refused: Vec<RefusedProfile>,
    },
    /// The implementation that the composition was resolved with is not at hand.
    #[error("{}", match implementation {
        Some(title) => format!("the implementation `{title}` is not at hand"),
        None => "the composition names no implementation".to_owned(),
    })]
    NotProvided {
        /// The profile.
        profile: String,
        /// Id and version; `None` where the device compiles the graph itself.
        implementation: Option<String>,
        /// Those that are at hand.
        known: Vec<String>,
    },
    /// Weights that a loader streams cannot be opened for an implementation.
    #[error("the loader `{loader}` streams weights, and opens none for an implementation")]
    StreamedWeights {
        /// The loader.
        loader: String,
    },
    /// Weights that cannot be opened.
    #[error("the weights cannot be opened")]
    Weights {
        /// The profile.
        profile: String,
        /// Why.
        source: Box<Report>,
    },
    /// A model that its implementation cannot make.
    #[error("the implementation `{implementation}` cannot make the model")]
    Construction {
        /// Id and version.
        implementation: String,
        /// Why.
        source: Box<Report>,
    },
    /// A composition was taken to a device it does not name.
    #[error("the composition names the device `{expected}`, not `{found}`")]
    OtherDevice {
        /// The device it names.
        expected: String,
        /// The device given.
        found: String,
    },
    /// A composition was taken to a model it was not resolved for.
    #[error("the composition of profile `{profile}` was resolved for another configuration")]
    OtherConfig {
        /// The profile.
        profile: String,
        /// The digest of the configuration it was resolved for.
        expected: Sha256Digest,
        /// The digest of the configuration given.
        found: Sha256Digest,
    },
}

/// A fault with where the value was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedFault {
    /// The fault.
    pub fault: Fault,
    /// The line of the profile; `None` where a flag asked.
    pub place: Option<Box<Place>>,
}

/// One thing that this host does not have as asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// No plugin of that id.
    #[error("there is no plugin `{plugin}`")]
    PluginMissing {
        /// The id asked for.
        plugin: String,
        /// The ids most like it.
        nearest: Vec<String>,
        /// Every plugin.
        known: Vec<String>,
    },
    /// The plugin is for something else.
    #[error("the plugin `{plugin}` is no {expected}")]
    PluginKind {
        /// The id.
        plugin: String,
        /// What it should be for.
        expected: &'static str,
        /// What it is for.
        found: &'static str,
    },
    /// No version within the range.
    #[error("the plugin `{plugin}` is not there in a version {range}")]
    PluginVersion {
        /// The id.
        plugin: String,
        /// The range.
        range: String,
        /// The versions that are there.
        found: Vec<String>,
    },
    /// Not for that runtime.
    #[error("the plugin `{plugin}` is not there for the runtime `{runtime}`")]
    PluginRuntime {
        /// The id.
        plugin: String,
        /// The runtime.
        runtime: String,
        /// What is there.
        found: Vec<String>,
    },
    /// Another build than the profile pins.
    #[error("the plugin `{plugin}` is not the build that the profile pins")]
    PluginDigest {
        /// The id.
        plugin: String,
        /// The digest pinned.
        expected: Sha256Digest,
        /// What is there: title and digest.
        found: Vec<String>,
    },
    /// Several plugins fit.
    #[error("{} plugins `{plugin}` fit", .found.len())]
    PluginAmbiguous {
        /// The id.
        plugin: String,
        /// What is there: title and digest.
        found: Vec<String>,
    },
    /// No frozen graph of that name for this configuration.
    #[error("there is no frozen graph `{name}` for the configuration {fingerprint}")]
    NoGeneratedGraph {
        /// The name asked for.
        name: String,
        /// The fingerprint of the model's configuration.
        fingerprint: String,
        /// The fingerprint that the graph of that name is for, where there is one.
        found: Option<String>,
        /// Every frozen graph, where there is none of that name.
        known: Vec<String>,
    },
    /// Another file than the profile pins.
    #[error("the frozen graph `{name}` is not the file that the profile pins")]
    FrozenDigest {
        /// The name.
        name: String,
        /// The file.
        file: String,
        /// The digest pinned.
        expected: Sha256Digest,
        /// The digest of the file.
        found: Sha256Digest,
    },
    /// A file that is no frozen graph.
    #[error("the frozen graph `{name}` cannot be read: {}", .report.message)]
    FrozenBroken {
        /// The name.
        name: String,
        /// Why.
        report: Box<Report>,
    },
    /// The graph has the shape, and was frozen for another configuration.
    #[error("the frozen graph `{name}` was frozen for another configuration of the same shape")]
    FrozenConfig {
        /// The name.
        name: String,
        /// The digest of the configuration it was frozen for.
        expected: Sha256Digest,
        /// The digest of the model's configuration.
        found: Sha256Digest,
    },
    /// A named part of another kind that this host does not have.
    #[error("there is no {} `{name}`", .kind.word())]
    PartMissing {
        /// Which kind of part.
        kind: PartKind,
        /// Its name.
        name: String,
        /// The names most like it.
        nearest: Vec<String>,
        /// What this host has.
        known: Vec<String>,
    },
    /// The checkpoint is stored in a form that the profile does not name.
    #[error("the checkpoint is stored as `{found}`")]
    CheckpointFormat {
        /// The loaders named.
        expected: String,
        /// How it is stored.
        found: String,
    },
    /// A required kernel is not there.
    #[error("the device `{device}` has no kernel `{kernel}`")]
    KernelMissing {
        /// The device.
        device: String,
        /// The kernel.
        kernel: String,
        /// The kernels it has.
        known: Vec<String>,
    },
    /// A required kernel is there, for other shapes.
    #[error("the kernel `{kernel}` of device `{device}` is not for this model's shapes")]
    KernelShape {
        /// The device.
        device: String,
        /// The kernel.
        kernel: String,
        /// The first line of its shapes that does not hold.
        failed: FailedPredicate,
    },
    /// No implementation of that id.
    #[error("there is no implementation `{id}`, and none is taken in its place")]
    ImplementationMissing {
        /// The id asked for.
        id: String,
        /// The ids most like it.
        nearest: Vec<String>,
        /// Every implementation.
        known: Vec<String>,
    },
    /// None of that id fits.
    #[error("the implementation `{id}` does not fit: its {field}")]
    ImplementationIncompatible {
        /// The id.
        id: String,
        /// The first predicate of the first candidate that does not hold.
        field: &'static str,
        /// What is composed.
        expected: String,
        /// What the implementation is for.
        found: String,
        /// Each candidate with its first predicate that does not hold.
        candidates: Vec<String>,
    },
    /// Several of that id fit.
    #[error("{} implementations `{id}` fit", .found.len())]
    ImplementationAmbiguous {
        /// The id.
        id: String,
        /// Id and version of each.
        found: Vec<String>,
    },
    /// An implementation beside a loader that streams weights.
    #[error("the loader `{loader}` streams weights and takes no implementation, `{id}`")]
    StreamedBinding {
        /// The loader.
        loader: String,
        /// The implementation.
        id: String,
    },
    /// No such way to store keys and values.
    #[error("there is no key-value cache of kind `{kind}` with elements `{dtype}`")]
    KvMissing {
        /// The kind.
        kind: String,
        /// The element type.
        dtype: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The profile names no device for this operating system.
    #[error("the profile names no device for `{system}`")]
    DeviceUnnamed {
        /// This machine's operating system.
        system: String,
        /// What the profile names.
        found: String,
    },
    /// The profile names no element type for this numeric profile.
    #[error("the profile names no key-value element type for `{numeric}`")]
    KvUnnamed {
        /// The numeric profile.
        numeric: Numeric,
        /// What it names.
        found: String,
    },
    /// The exact numeric profile keeps keys and values in float32.
    #[error("numeric `exact` keeps keys and values in f32, not `{dtype}`")]
    KvNotExact {
        /// The element type asked for.
        dtype: String,
    },
    /// Neither the profile nor a flag says how many threads.
    #[error("nothing says how many threads to use")]
    ThreadsUnnamed,
    /// A longer context than the model was made for.
    #[error("the context of {found} tokens is longer than the model's")]
    ContextTooLong {
        /// The model's `max_position_embeddings`.
        expected: usize,
        /// The tokens asked for.
        found: usize,
    },
    /// The model's own length is asked for, and it does not tell.
    #[error("the model does not say how long its context is")]
    ContextUnknown,
    /// A step that cannot take one token of each sequence.
    #[error("a step of {found} tokens cannot advance {n_sequences} sequences")]
    StepTooSmall {
        /// Sequences that live at once.
        n_sequences: usize,
        /// Tokens of a step.
        found: usize,
    },
    /// A flag's value that means nothing.
    #[error("`{flag}` cannot be {found}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// What would do.
        expected: &'static str,
        /// Its value.
        found: String,
    },
}

/// The kinds of parts that are named by one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// `compose.loader`
    Loader,
    /// `compose.quant`
    Quant,
    /// `compose.quant.scheme`
    Scheme,
    /// `compose.loop`
    Loop,
    /// `compose.device`
    Device,
    /// `sampling.chain`, or a flat key that puts one into the chain.
    Sampler,
}

impl PartKind {
    fn word(self) -> &'static str {
        match self {
            PartKind::Loader => "loader",
            PartKind::Quant => "quantisation",
            PartKind::Scheme => "set of quantisation rules",
            PartKind::Loop => "loop",
            PartKind::Device => "device",
            PartKind::Sampler => "sampler",
        }
    }

    fn code(self) -> &'static str {
        match self {
            PartKind::Loader => "registry.loader-missing",
            PartKind::Quant | PartKind::Scheme => "registry.quant-missing",
            PartKind::Loop => "registry.loop-missing",
            PartKind::Device => "registry.device-missing",
            PartKind::Sampler => "registry.sampler-missing",
        }
    }
}

impl Reported for Fault {
    fn report(&self) -> Report {
        let text = self.to_string();
        let new = |code| Report::new(code, text.clone());
        match self {
            Fault::PluginMissing { plugin, nearest, known } => new("registry.plugin-missing")
                .expected(format!("a plugin `{plugin}`"))
                .found(listed(known))
                .mend(did_you_mean(nearest, "install the plugin, or name one that is there")),
            Fault::PluginKind { expected, found, .. } => new("registry.plugin-kind")
                .expected(format!("a plugin of kind {expected}"))
                .found(format!("kind {found}"))
                .mend(format!("name a {expected} plugin")),
            Fault::PluginVersion { range, found, .. } => new("registry.plugin-version")
                .expected(format!("a version {range}"))
                .found(listed(found))
                .mend("install such a version, or change the range in the profile"),
            Fault::PluginRuntime { runtime, found, .. } => new("registry.plugin-runtime")
                .expected(format!("runtime {runtime}"))
                .found(listed(found))
                .mend("install the plugin for that runtime, or change the profile"),
            Fault::PluginDigest { expected, found, .. } => new("registry.plugin-digest")
                .expected(format!("digest {expected}"))
                .found(listed(found))
                .mend("install the pinned build, or pin another digest after reviewing it"),
            Fault::PluginAmbiguous { found, .. } => new("registry.plugin-ambiguous")
                .expected("exactly one")
                .found(listed(found))
                .mend("narrow the version, or name the runtime or digest in the profile"),
            Fault::NoGeneratedGraph { name, fingerprint, found, known } => {
                let report = new("registry.no-generated-graph")
                    .expected(format!("`graphs/{name}.graph` in a profile folder, for {fingerprint}"));
                match found {
                    Some(found) => report.found(format!("a graph for {found}")),
                    None => report.found(listed(known)),
                }
                .mend("freeze one for this model with `tenon graph freeze`, or name a plugin in the profile")
            }
            Fault::FrozenDigest { file, expected, found, .. } => new("registry.frozen-digest")
                .expected(format!("digest {expected}"))
                .found(format!("{found} ({file})"))
                .mend("put the pinned file back, or pin the new digest after reviewing it"),
            Fault::FrozenBroken { report, .. } => {
                let broken = Report { message: text.clone(), ..(**report).clone() };
                if broken.mend.is_some() { broken } else { broken.mend("freeze it again") }
            }
            Fault::FrozenConfig { expected, found, .. } => new("registry.frozen-config")
                .expected(format!("a configuration of digest {}", expected.short()))
                .found(format!("digest {}", found.short()))
                .mend("freeze one for this model with `tenon graph freeze`: its rotation, widths or vocabulary differ"),
            Fault::PartMissing { kind, nearest, known, .. } => new(kind.code())
                .expected(format!("one of: {}", listed(known)))
                .mend(did_you_mean(nearest, "name one that this host has")),
            Fault::CheckpointFormat { expected, found } => new("registry.checkpoint-format")
                .expected(expected)
                .found(found)
                .mend("use a checkpoint stored so, or name its loader in the profile"),
            Fault::KernelMissing { known, .. } => new("registry.kernel-missing")
                .expected(format!("one of: {}", listed(known)))
                .mend("remove the requirement, or name another device"),
            Fault::KernelShape { failed, .. } => new("registry.kernel-shape")
                .expected(format!("{} {}", failed.key, failed.expected))
                .found(format!("{} {}", failed.key, failed.found))
                .mend("remove the requirement, or name another device"),
            Fault::ImplementationMissing { nearest, known, .. } => new("registry.implementation-missing")
                .expected(format!("one of: {}", listed(known)))
                .mend(did_you_mean(nearest, "name one that this program has, or remove the key")),
            Fault::ImplementationIncompatible { field, expected, found, candidates, .. } => {
                let report = new("registry.implementation-incompatible")
                    .expected(format!("{field} {expected}"))
                    .found(found)
                    .mend("name one that fits, or change what the profile composes");
                candidates.iter().fold(report, |report, candidate| report.note(candidate))
            }
            Fault::ImplementationAmbiguous { found, .. } => new("registry.implementation-ambiguous")
                .expected("exactly one")
                .found(listed(found))
                .mend("narrow the version in the profile: { id = …, version = … }"),
            Fault::StreamedBinding { .. } => new("registry.streamed-binding")
                .expected("no `implementation`: the loader's own device reads the weights as it goes")
                .mend("remove `implementation`, or name a loader that opens weights"),
            Fault::KvMissing { known, .. } => new("registry.kv-missing")
                .expected(format!("one of: {}", listed(known)))
                .mend("name one of these"),
            Fault::DeviceUnnamed { system, found } => new("registry.device-unnamed")
                .expected(format!("a device for `{system}`"))
                .found(found)
                .mend(format!("pass --device, or add `{system}` to `device` in the profile's [compose]")),
            Fault::KvUnnamed { numeric, found } => new("registry.kv-unnamed")
                .expected(format!("an element type for `{numeric}`"))
                .found(found)
                .mend(format!("add `{numeric}` to `dtype` in the profile's [kv]")),
            Fault::KvNotExact { dtype } => new("registry.kv-not-exact")
                .expected("f32")
                .found(dtype)
                .mend("write dtype = { exact = \"f32\", fast = … } in the profile's [kv]"),
            Fault::ThreadsUnnamed => new("registry.threads-unnamed")
                .expected("`n_threads` in the profile's [limits], or --threads")
                .mend("pass --threads all, or add n_threads = \"all\" to the profile"),
            Fault::ContextTooLong { expected, found } => new("profile.context-too-long")
                .expected(format!("at most {expected} tokens (max_position_embeddings in config.json)"))
                .found(format!("{found} tokens"))
                .mend("lower context_tokens, or use a model with a longer context"),
            Fault::ContextUnknown => new("profile.context-unknown")
                .expected("max_position_embeddings in config.json")
                .mend("write context_tokens as a number"),
            Fault::StepTooSmall { n_sequences, found } => new("registry.step-too-small")
                .expected(format!("at least {n_sequences} tokens, one for each sequence"))
                .found(found.to_string())
                .mend("raise max_step_tokens, or lower max_sequences"),
            Fault::Flag { flag, expected, found } => new("registry.flag")
                .expected(*expected)
                .found(found)
                .mend(format!("change or leave out {flag}")),
        }
    }
}

impl Reported for PlacedFault {
    fn report(&self) -> Report {
        let report = self.fault.report();
        match &self.place {
            Some(place) => report.at((**place).clone()),
            None => report,
        }
    }
}

impl std::error::Error for PlacedFault {}

impl std::fmt::Display for PlacedFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fault.fmt(f)
    }
}

impl Reported for Refusal {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Refusal::Parts { faults, profile } => {
                let mut report = faults[0].report().note(format!("profile `{profile}`"));
                for fault in &faults[1..] {
                    let also = fault.report();
                    report = report.note(format!("also [{}]: {}", also.code, also.message));
                }
                report
            }
            Refusal::Device { profile, source } => source.report().note(format!("profile `{profile}`")),
            Refusal::Fallbacks { first, refused } => {
                refused.iter().fold(first.report(), |report, RefusedProfile { profile, report: why }| {
                    report.note(format!("fallback `{profile}` [{}]: {}", why.code, why.message))
                })
            }
            Refusal::NotProvided { profile, known, .. } => {
                Report::new("registry.implementation-missing", text)
                    .expected(format!("one of: {}", listed(known)))
                    .mend("open it with the implementations that its registry was made of")
                    .note(format!("profile `{profile}`"))
            }
            Refusal::StreamedWeights { .. } => Report::new("registry.streamed-weights", text)
                .expected("a loader that opens weights")
                .mend("have the loader's own device compile the graph"),
            Refusal::Weights { profile, source } => (**source).clone().note(format!("profile `{profile}`")),
            Refusal::Construction { source, .. } => {
                let report = Report::new("registry.construction-failed", text)
                    .found(source.message.clone())
                    .mend(source.mend.clone().unwrap_or_else(|| "name another implementation".to_owned()))
                    .note(format!("cause [{}]", source.code));
                source.notes.iter().fold(report, |report, note| report.note(note))
            }
            Refusal::OtherDevice { expected, found } => Report::new("registry.other-device", text)
                .expected(expected)
                .found(found)
                .mend("resolve the profile again for this device"),
            Refusal::OtherConfig { expected, found, .. } => Report::new("registry.other-config", text)
                .expected(format!("digest {}", expected.short()))
                .found(format!("digest {}", found.short()))
                .mend("resolve the profile again for this model"),
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn did_you_mean(nearest: &[String], otherwise: &str) -> String {
    match nearest {
        [] => otherwise.to_owned(),
        names => format!("did you mean `{}`?", names.join("` or `")),
    }
}
