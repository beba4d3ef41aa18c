//! The record of a whole decision, for `tenon explain`: serialisable, and readable as it prints.

use std::collections::BTreeMap;
use std::fmt;

use host_core::{Report, Reported, Sampler, TokenizerFact, TokenizerFacts, TokenizerKey};
use host_device::MemoryPlan;
use host_graph::Graph;
use serde::Serialize;
use serde_json::Value;

use crate::composition::{Composition, GraphPart, MatchLine, Quantisation};
use crate::decision::{Candidate, Decision};
use crate::fallback::RefusedProfile;
use crate::fingerprint::Subject;
use crate::profile::line;
use crate::registry::PluginFacts;
use crate::set::Base;
use crate::setting::Setting;

/// Why a model is served as it is, or why it is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The model as the user named it.
    pub model: String,
    /// How its checkpoint is stored.
    pub format: String,
    /// The fingerprint of its configuration, or why it has none.
    pub config: String,
    /// The snapshot of the hub in which it lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// What its tokenizer answers, as lines of `[match]` ask it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tokenizer: BTreeMap<TokenizerKey, Value>,
    /// Every profile considered, in order of id.
    pub candidates: Vec<Candidate>,
    /// The profile that was chosen.
    pub profile: Option<String>,
    /// The profiles that it extends, the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bases: Vec<Base>,
    /// The lines of its `[match]`, each with its place.
    pub match_lines: Vec<MatchLine>,
    /// The profiles that were tried before it, each with why it does not serve.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedProfile>,
    /// The parts of the composition.
    pub parts: Vec<PartLine>,
    /// Its options, each with its origin.
    pub settings: Vec<Setting>,
    /// The samplers of a request that says nothing of them, in the order in which they act.
    pub sampling: Vec<Sampler>,
    /// The file with the numbers of reloading, should a service keep these folders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reloading: Option<String>,
    /// The composition's hash, all 64 digits.
    pub composition: Option<String>,
    /// The graph that the plugin built.
    pub graph: Option<GraphLine>,
    /// What the device will hold.
    pub memory: Option<MemoryPlan>,
    /// Why the model is not served.
    pub refusal: Option<Report>,
}

/// One part of a composition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartLine {
    /// `graph`, `loader`, …
    pub part: &'static str,
    /// Its name.
    pub name: String,
    /// Its version, for plugins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What runs it, for plugins; `frozen` where nothing has to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<&'static str>,
    /// Its digest, for plugins and files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// `file:line` where the profile names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// What is told of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GraphLine {
    /// Its fingerprint, all 64 digits.
    pub fingerprint: String,
    /// Its layers.
    pub n_layers: usize,
    /// Its operations.
    pub n_nodes: usize,
    /// Entries of the vocabulary.
    pub n_vocab: usize,
}

impl Explanation {
    /// The choice of a profile, or its refusal. `model` is as the user named it.
    pub fn new<'a>(
        model: impl Into<String>,
        format: impl Into<String>,
        subject: impl Into<Subject<'a>>,
        decision: &Decision,
    ) -> Self {
        let subject = subject.into();
        let chosen = decision.chosen();
        Explanation {
            model: model.into(),
            format: format.into(),
            config: subject.shown_fingerprint(),
            artifact: subject.identity.artifact.clone(),
            tokenizer: subject.identity.tokenizer.as_ref().map(tokenizer).unwrap_or_default(),
            candidates: decision.candidates().to_vec(),
            profile: chosen.ok().map(|loaded| loaded.id().to_owned()),
            bases: chosen.ok().map(|loaded| loaded.bases().to_vec()).unwrap_or_default(),
            match_lines: Vec::new(),
            refused: Vec::new(),
            parts: Vec::new(),
            settings: Vec::new(),
            sampling: Vec::new(),
            reloading: None,
            composition: None,
            graph: None,
            memory: None,
            refusal: chosen.err().map(Reported::report),
        }
    }

    /// Adds what was resolved.
    #[must_use]
    pub fn with_composition(mut self, composition: &Composition) -> Self {
        let plugin = |part, plugin: &PluginFacts| PartLine {
            part,
            name: plugin.id.clone(),
            version: Some(plugin.version.to_string()),
            runtime: Some(plugin.runtime.name()),
            digest: Some(plugin.digest.to_string()),
            at: composition.origin(part).map(str::to_owned),
        };
        let named = |part, name: &str| PartLine {
            part,
            name: name.to_owned(),
            version: None,
            runtime: None,
            digest: None,
            at: composition.origin(part).map(str::to_owned),
        };
        self.parts = vec![
            match composition.graph() {
                GraphPart::Plugin(facts) => plugin("graph", facts),
                GraphPart::Frozen(frozen) => PartLine {
                    runtime: Some("frozen"),
                    digest: Some(frozen.digest().to_string()),
                    ..named("graph", frozen.name())
                },
            },
            named("loader", composition.loader()),
            match composition.quantisation() {
                None => named("quant", composition.quant()),
                Some(Quantisation::Rules(rules)) => {
                    PartLine { digest: Some(rules.digest.to_string()), ..named("quant", &rules.id) }
                }
                Some(Quantisation::Plugin { plugin: facts, .. }) => plugin("quant", facts),
            },
            named("loop", composition.decoding_loop()),
        ];
        self.parts.extend(composition.policy().map(|policy| plugin("policy", &policy.plugin)));
        self.parts.extend(composition.implementation().map(|facts| PartLine {
            version: Some(facts.version.to_string()),
            digest: facts.digest.map(|digest| digest.to_string()),
            ..named("implementation", &facts.id)
        }));
        self.profile = Some(composition.profile_id().to_owned());
        self.bases = composition.bases().to_vec();
        self.refused = composition.refused().to_vec();
        self.match_lines = composition.match_lines().to_vec();
        self.settings = composition.settings().to_vec();
        self.sampling = composition.sampling().samplers();
        self.composition = Some(composition.hash().to_string());
        self
    }

    /// Adds the graph that the plugin built.
    #[must_use]
    pub fn with_graph(mut self, graph: &Graph) -> Self {
        self.graph = Some(GraphLine {
            fingerprint: graph.fingerprint().as_hex().to_owned(),
            n_layers: graph.n_layers(),
            n_nodes: graph.nodes().len(),
            n_vocab: graph.n_vocab(),
        });
        self
    }

    /// Adds the file with the numbers of reloading.
    #[must_use]
    pub fn with_reloading(mut self, file: Option<String>) -> Self {
        self.reloading = file;
        self
    }

    /// Adds what the device will hold.
    #[must_use]
    pub fn with_memory(mut self, memory: MemoryPlan) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Adds why the model is not served after all. The first refusal is the one that is kept.
    #[must_use]
    pub fn with_refusal(mut self, refusal: &dyn Reported) -> Self {
        self.refusal.get_or_insert_with(|| refusal.report());
        self
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model        {} ({})", self.model, self.format)?;
        writeln!(f, "config       {}", self.config)?;
        self.artifact.iter().try_for_each(|artifact| writeln!(f, "artifact     {artifact}"))?;
        if !self.tokenizer.is_empty() {
            writeln!(f, "tokenizer")?;
        }
        for (key, value) in &self.tokenizer {
            writeln!(f, "  {}: {value}", key.name())?;
        }
        writeln!(f, "profile      {}", self.profile.as_deref().unwrap_or("none"))?;
        for candidate in &self.candidates {
            writeln!(f, "  {}", candidate.line())?;
        }
        for Base { id, file } in &self.bases {
            writeln!(f, "extends      {id} ({file})")?;
        }
        for RefusedProfile { profile, report } in &self.refused {
            writeln!(f, "refused      {profile} [{}]: {}", report.code, report.message)?;
        }
        if !self.match_lines.is_empty() {
            writeln!(f, "match")?;
        }
        for MatchLine { key, expected, at } in &self.match_lines {
            writeln!(f, "  {key}: {expected} {at}")?;
        }
        for part in &self.parts {
            write!(f, "{:<12} {}", part.part, part.name)?;
            part.version.iter().try_for_each(|version| write!(f, " {version}"))?;
            part.runtime.iter().try_for_each(|runtime| write!(f, " {runtime}"))?;
            part.digest.iter().try_for_each(|digest| write!(f, " {}", &digest[..16]))?;
            part.at.iter().try_for_each(|at| write!(f, " {at}"))?;
            writeln!(f)?;
        }
        if !self.settings.is_empty() {
            writeln!(f, "settings")?;
        }
        for setting in &self.settings {
            writeln!(f, "  {setting}")?;
        }
        if self.composition.is_some() {
            writeln!(f, "sampling")?;
            for sampler in &self.sampling {
                writeln!(f, "  {}", line(sampler))?;
            }
            // Temperature 0 is the one end that draws nothing.
            if !matches!(self.sampling.last(), Some(Sampler::Temperature { temperature: 0.0 })) {
                writeln!(f, "  draw")?;
            }
        }
        if let Some(graph) = &self.graph {
            let GraphLine { fingerprint, n_layers, n_nodes, n_vocab } = graph;
            let short = &fingerprint[..16];
            writeln!(f, "fingerprint  {short} ({n_layers} layers, {n_nodes} operations, {n_vocab} tokens)")?;
        }
        if let Some(memory) = &self.memory {
            let MemoryPlan { weights_bytes, state_bytes, activation_bytes } = memory;
            let [weights, state, activations] =
                [weights_bytes, state_bytes, activation_bytes].map(|n| mib(*n));
            let total = mib(memory.total_bytes());
            writeln!(f, "memory       {total}: weights {weights}, state {state}, activations {activations}")?;
        }
        self.reloading.iter().try_for_each(|file| writeln!(f, "reloading    {file}"))?;
        if let Some(hash) = &self.composition {
            writeln!(f, "composition  {}", &hash[..16])?;
        }
        if let Some(refusal) = &self.refusal {
            writeln!(f, "{refusal}")?;
        }
        Ok(())
    }
}

/// What is there to be asked for; what a model does not say has no line.
fn tokenizer(facts: &TokenizerFacts) -> BTreeMap<TokenizerKey, Value> {
    let value = |(key, fact): (&TokenizerKey, &TokenizerFact)| match fact {
        TokenizerFact::Text(text) => Some((*key, text.as_str().into())),
        TokenizerFact::Count(count) => Some((*key, (*count).into())),
        TokenizerFact::Absent(_) | TokenizerFact::Unreadable(_) => None,
    };
    facts.iter().filter_map(value).collect()
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}
