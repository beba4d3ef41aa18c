//! The ways in which a plugin can be refused or fail.

use std::path::PathBuf;

use host_core::quant::QuantError;
use host_core::{Place, Report, Reported};
use host_graph::BuildError;

use crate::manifest::ContractVersion;
use crate::package::PluginName;
use crate::step::StepRefusal;

/// One key of `config.json` that a plugin does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Keys from the top, joined by dots.
    pub path: String,
    /// What fits.
    pub expected: String,
    /// What stands there.
    pub found: String,
}

/// Why a plugin was refused or failed. Names the plugin, the hook and the budget where there is one.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each field is told by its name and by the variant's message")]
pub enum PluginError {
    /// `plugin.toml` does not parse.
    #[error("plugin manifest: {message}")]
    Manifest { message: String, place: Box<Place> },
    /// A field of `plugin.toml` has a value that does not fit.
    #[error("{}: `{field}` is `{found}`", .path.display())]
    ManifestField { path: PathBuf, field: &'static str, expected: String, found: String },
    /// A kind of plugin that has no contract yet.
    #[error("{}: plugins of kind `{kind}` are not served by this host", .path.display())]
    KindNotServed { path: PathBuf, kind: &'static str },
    /// A plugin made for another contract, or one that does not say for which.
    #[error("plugin {plugin} needs {found}; this host serves {}", ContractVersion::served())]
    Contract { plugin: String, found: String },
    /// A component that does not say which contract it was made for, or says another thing than its manifest.
    #[error("plugin {plugin} has {found}; this host serves {}", ContractVersion::served())]
    NoContract { plugin: String, found: String },
    /// A file that cannot be read.
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A file beyond its limit.
    #[error("{} is too large", .path.display())]
    TooLarge { path: PathBuf, limit: u64, found: u64 },
    /// A component with more than the host validates and compiles.
    #[error("plugin {plugin} has too many {what}")]
    ComponentTooLarge { plugin: PluginName, what: &'static str, limit: usize, found: usize },
    /// No such plugin.
    #[error("there is no plugin `{id}` {version}")]
    NotFound { id: String, version: String, versions: Vec<String>, known: Vec<String>, problems: Vec<String> },
    /// Two different plugins of one name.
    #[error("plugin {plugin} exists more than once")]
    Duplicate { plugin: PluginName, folders: Vec<PathBuf> },
    /// A plugin of another kind was given where this one is needed.
    #[error("plugin {plugin} is no {expected}")]
    WrongKind { plugin: PluginName, expected: &'static str, found: &'static str },
    /// A policy needs a right that the profile does not grant.
    #[error("plugin {plugin} needs the right `{right}`, which is not granted")]
    NotGranted { plugin: PluginName, right: &'static str },
    /// A hook that the policy says it does not offer.
    #[error("plugin {plugin} does not offer `{hook}`")]
    NotOffered { plugin: PluginName, hook: &'static str },
    /// An instance that was ended by an earlier fault.
    #[error("plugin {plugin} was ended by an earlier fault, before `{hook}`")]
    Ended { plugin: PluginName, hook: &'static str, cause: String },
    /// A plugin that faulted too often of late.
    #[error("plugin {plugin} is in quarantine")]
    Quarantined { plugin: PluginName, n_faults: u32, last_fault: String, left_s: u64 },
    /// A plugin for another runtime was given to this one.
    #[error("plugin {plugin} runs on {found}, not on {expected}")]
    WrongRuntime { plugin: PluginName, expected: &'static str, found: &'static str },
    /// Bytes that are not a component.
    #[error("plugin {plugin} is not a valid component: {message}")]
    Binary { plugin: PluginName, message: String },
    /// An import that is not ours.
    #[error("plugin {plugin} imports `{import}`, which is not granted")]
    ForeignImport { plugin: PluginName, import: String },
    /// A hook that the plugin lacks.
    #[error("plugin {plugin} has no `{export}`")]
    MissingExport { plugin: PluginName, export: &'static str },
    /// The runtime refused the component.
    #[error("plugin {plugin} cannot be loaded: {message}")]
    Load { plugin: PluginName, message: String },
    /// The runtime itself does not start on this machine.
    #[error("the WebAssembly engine does not start: {message}")]
    Engine { message: String },
    /// The folder of compiled plugins cannot be used.
    #[error("the plugin cache at {} cannot be used", .path.display())]
    Cache { path: PathBuf, source: std::io::Error },
    /// As many guests exist as the engine has room for.
    #[error("plugin {plugin} finds no room for a guest, before `{hook}`")]
    NoRoom { plugin: PluginName, hook: &'static str, message: String },
    /// The guest trapped.
    #[error("plugin {plugin} trapped in `{hook}`: {message}")]
    Trap { plugin: PluginName, hook: &'static str, message: String },
    /// The guest took too long.
    #[error("plugin {plugin} spent its time in `{hook}`")]
    Time { plugin: PluginName, hook: &'static str, budget_ms: u64 },
    /// The guest took too much memory.
    #[error("plugin {plugin} spent its memory in `{hook}`")]
    Memory { plugin: PluginName, hook: &'static str, budget_bytes: usize },
    /// The guest made the host keep or read too much.
    #[error("plugin {plugin} passed the bound on {what} in `{hook}`")]
    Output { plugin: PluginName, hook: &'static str, what: &'static str, limit: usize },
    /// `config.json` has values that the plugin cannot read.
    #[error("plugin {plugin} cannot read the config: {}", list(.fields))]
    InvalidConfig { plugin: PluginName, fields: Vec<FieldProblem>, place: Option<Box<Place>> },
    /// `config.json` asks for something that the plugin does not offer.
    #[error("plugin {plugin} does not offer what the config asks for: {}", list(.fields))]
    Unsupported { plugin: PluginName, fields: Vec<FieldProblem>, place: Option<Box<Place>> },
    /// The guest gave up with a message of its own.
    #[error("plugin {plugin}, in `{hook}`: {message}")]
    Guest { plugin: PluginName, hook: &'static str, message: String, place: Option<Box<Place>> },
    /// A script that does not parse.
    #[error("plugin {plugin}: {message}")]
    Syntax { plugin: PluginName, message: String, place: Option<Box<Place>> },
    /// A script that raised an error.
    #[error("plugin {plugin}, in `{hook}`: {message}")]
    Script { plugin: PluginName, hook: &'static str, message: String, place: Option<Box<Place>> },
    /// A refused builder call that the plugin did not mend.
    #[error("plugin {plugin}, in `{hook}`: {error}")]
    Build { plugin: PluginName, hook: &'static str, place: Option<Box<Place>>, error: Box<BuildError> },
    /// A refused call on a step that the plugin did not mend.
    #[error("plugin {plugin}, in `{hook}`: {error}")]
    Step { plugin: PluginName, hook: &'static str, place: Option<Box<Place>>, error: Box<StepRefusal> },
    /// A scheme that does not exist.
    #[error("plugin {plugin}, in `{hook}`: {error}")]
    Scheme { plugin: PluginName, hook: &'static str, place: Option<Box<Place>>, error: Box<QuantError> },
}

/// The most characters of a guest's words that an error keeps.
const CLIP_CHARS: usize = 4_096;

/// A guest's words, cut where they are too long for an error.
pub fn clip(text: String) -> String {
    match text.char_indices().nth(CLIP_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn list(fields: &[FieldProblem]) -> String {
    let shown: Vec<_> = fields.iter().take(3).map(|field| format!("`{}`", field.path)).collect();
    let more = if fields.len() > 3 { format!(" and {} more", fields.len() - 3) } else { String::new() };
    shown.join(", ") + &more
}

impl PluginError {
    /// Whether the plugin's own code failed while it ran. A config or params that it refuses, rights that it lacks,
    /// a graph that does not fit the checkpoint and bytes that cannot be loaded are no faults: they are the same for
    /// every request, and cost nothing.
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            PluginError::Trap { .. }
                | PluginError::Time { .. }
                | PluginError::Memory { .. }
                | PluginError::Output { .. }
                | PluginError::Guest { .. }
                | PluginError::Script { .. }
                | PluginError::Scheme { .. }
        ) || matches!(
            self,
            // Which schema it asks for is the request's affair.
            PluginError::Step { error, .. } if !matches!(**error, StepRefusal::Constraint { .. })
        )
    }

    pub(crate) fn code(&self) -> &'static str {
        match self {
            PluginError::Manifest { .. } => "plugin.manifest",
            PluginError::ManifestField { .. } => "plugin.manifest-field",
            PluginError::KindNotServed { .. } => "plugin.kind-not-served",
            PluginError::Contract { .. } | PluginError::NoContract { .. } => "plugin.contract-version",
            PluginError::Read { .. } => "plugin.read",
            PluginError::TooLarge { .. } | PluginError::ComponentTooLarge { .. } => "plugin.too-large",
            PluginError::NotFound { .. } => "plugin.not-found",
            PluginError::Duplicate { .. } => "plugin.duplicate",
            PluginError::WrongKind { .. } => "plugin.wrong-kind",
            PluginError::NotGranted { .. } => "plugin.not-granted",
            PluginError::NotOffered { .. } => "plugin.hook-not-offered",
            PluginError::Ended { .. } => "plugin.ended",
            PluginError::Quarantined { .. } => "plugin.quarantined",
            PluginError::WrongRuntime { .. } => "plugin.wrong-runtime",
            PluginError::Binary { .. } => "plugin.invalid-binary",
            PluginError::ForeignImport { .. } => "plugin.foreign-import",
            PluginError::MissingExport { .. } => "plugin.missing-export",
            PluginError::Load { .. } => "plugin.load",
            PluginError::Engine { .. } => "plugin.engine",
            PluginError::Cache { .. } => "plugin.cache",
            PluginError::NoRoom { .. } => "plugin.no-room",
            PluginError::Trap { .. } => "plugin.trap",
            PluginError::Time { .. } => "plugin.time-budget",
            PluginError::Memory { .. } => "plugin.memory-budget",
            PluginError::Output { .. } => "plugin.output-budget",
            PluginError::InvalidConfig { .. } => "plugin.invalid-config",
            PluginError::Unsupported { .. } => "plugin.unsupported-config",
            PluginError::Guest { .. } => "plugin.guest-error",
            PluginError::Syntax { .. } => "plugin.syntax",
            PluginError::Script { .. } => "plugin.script-error",
            PluginError::Build { error, .. } => error.report().code,
            PluginError::Step { error, .. } => error.report().code,
            PluginError::Scheme { error, .. } => error.report().code,
        }
    }

    fn place(&self) -> Option<&Place> {
        match self {
            PluginError::Manifest { place, .. } => Some(place),
            PluginError::InvalidConfig { place, .. }
            | PluginError::Unsupported { place, .. }
            | PluginError::Guest { place, .. }
            | PluginError::Syntax { place, .. }
            | PluginError::Script { place, .. }
            | PluginError::Build { place, .. }
            | PluginError::Step { place, .. }
            | PluginError::Scheme { place, .. } => place.as_deref(),
            _ => None,
        }
    }
}

impl Reported for PluginError {
    fn report(&self) -> Report {
        let mut report = Report::new(self.code(), self.to_string());
        if let Some(place) = self.place() {
            report = report.at(place.clone());
        }
        match self {
            PluginError::Manifest { .. } => report.mend("correct plugin.toml"),
            PluginError::ManifestField { expected, found, .. } => report.expected(expected).found(found),
            PluginError::KindNotServed { kind, .. } => {
                let served = "kind = \"model-graph\", \"sampling-policy\" or \"quant-profile\"";
                report.expected(served).found(format!("kind = \"{kind}\""))
            }
            PluginError::Contract { found, .. } | PluginError::NoContract { found, .. } => report
                .expected(format!("contract {}", ContractVersion::served()))
                .found(found)
                .mend("build the plugin with an SDK of a served contract, or take a release of it that was"),
            PluginError::Read { source, .. } | PluginError::Cache { source, .. } => {
                report.found(source.to_string())
            }
            PluginError::TooLarge { limit, found, .. } => {
                report.expected(format!("at most {limit} bytes")).found(format!("{found} bytes"))
            }
            PluginError::ComponentTooLarge { what, limit, found, .. } => report
                .expected(format!("at most {limit} {what}"))
                .found(found.to_string())
                .mend("build with `opt-level = \"s\"`, or do less in the plugin"),
            PluginError::NotFound { id, version, versions, known, problems } => {
                let found = match versions.as_slice() {
                    [] => format!("plugins {}", known.join(", ")),
                    versions => format!("`{id}` {}", versions.join(", ")),
                };
                let report = report.expected(format!("`{id}` {version}")).found(found);
                problems.iter().fold(report, |report, problem| report.note(format!("not read: {problem}")))
            }
            PluginError::Duplicate { folders, .. } => {
                let shown: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
                report.expected("one folder").found(shown.join(", ")).mend("remove one of them")
            }
            PluginError::WrongKind { expected, found, .. } => {
                report.expected(format!("kind = \"{expected}\"")).found(format!("kind = \"{found}\""))
            }
            PluginError::NotGranted { right, .. } => report
                .expected(format!("grants = [\"{right}\"] beside the policy in the profile"))
                .found("no such grant")
                .mend("grant it if the plugin may see every logit, or take another policy"),
            PluginError::NotOffered { hook, .. } => {
                report.expected(format!("a policy with `{hook}`")).found("one whose `describe` denies it")
            }
            PluginError::Ended { cause, .. } => report.found(cause).mend("open another instance"),
            PluginError::Quarantined { n_faults, last_fault, left_s, .. } => {
                report.found(format!("{n_faults} faults, the last {last_fault}")).mend(match left_s {
                    0 => "wait for the request that tries it now, or take another plugin".to_owned(),
                    s => format!("wait {s} s: then one request is let in to try; or take another plugin"),
                })
            }
            PluginError::WrongRuntime { .. } | PluginError::Load { .. } | PluginError::Engine { .. } => {
                report
            }
            PluginError::Binary { .. } => {
                report.mend("build the plugin again, as a component for wasm32-unknown-unknown")
            }
            PluginError::ForeignImport { import, .. } => report
                .expected("imports of tenon:plugin alone")
                .found(import)
                .mend("build for wasm32-unknown-unknown, which brings no system interface"),
            PluginError::MissingExport { export, .. } => report.expected(*export).found("no such export"),
            PluginError::NoRoom { message, .. } => {
                report.found(message).mend("wait until another request with a plugin has ended")
            }
            PluginError::Trap { .. } => report.mend("report it to the plugin's author"),
            PluginError::Time { budget_ms, .. } => report.expected(format!("at most {budget_ms} ms")),
            PluginError::Memory { budget_bytes, .. } => {
                report.expected(format!("at most {budget_bytes} bytes"))
            }
            PluginError::Output { what, limit, .. } => report.expected(format!("at most {limit} {what}")),
            PluginError::InvalidConfig { fields, .. } | PluginError::Unsupported { fields, .. } => {
                with_fields(report, fields)
            }
            PluginError::Guest { .. } | PluginError::Syntax { .. } | PluginError::Script { .. } => report,
            PluginError::Build { error, .. } => within(report, error.report()),
            PluginError::Step { error, .. } => within(report, error.report()),
            PluginError::Scheme { error, .. } => within(report, error.report()),
        }
    }
}

/// The cause's own report under the plugin's message and place.
fn within(outer: Report, inner: Report) -> Report {
    Report { message: outer.message, place: outer.place, ..inner }
}

/// The first field in the body of the report, the others as notes.
fn with_fields(report: Report, fields: &[FieldProblem]) -> Report {
    let Some((first, rest)) = fields.split_first() else { return report };
    let report = report.expected(format!("{}: {}", first.path, first.expected));
    let report = report.found(format!("{}: {}", first.path, first.found));
    rest.iter().fold(report, |report, field| {
        report.note(format!("{}: expected {}, found {}", field.path, field.expected, field.found))
    })
}
