//! What a request asks for beside tokens, matched against what its composition offers.
//!
//! A feature that is not offered is refused before the prompt is computed, never left out silently. The report's code
//! begins with `request.`: the request is at fault, not the host.

use host_core::{Report, Reported, Sampler};
use host_device::KvStorage;
use serde::Serialize;

use crate::composition::Composition;

/// What a decoding loop can do beside choosing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// Hold an answer to a schema, an expression or a grammar.
    Constraint,
    /// Give log-probabilities.
    Logprobs,
    /// Draw from a seed, so that the same seed gives the same tokens.
    Seed,
    /// Take features of images in place of embeddings.
    Images,
    /// Apply a low-rank adapter.
    Adapters,
    /// Have a cheaper model propose tokens.
    Speculation,
}

/// A decoding loop with what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopFacts {
    /// Its name, as profiles write it.
    pub name: String,
    /// What it can do.
    pub features: Vec<Feature>,
}

impl LoopFacts {
    /// The loop of `host-engine`: one token after another, for many sequences at once.
    pub fn autoregressive() -> Self {
        let features = vec![Feature::Constraint, Feature::Logprobs, Feature::Seed];
        LoopFacts { name: "autoregressive".to_owned(), features }
    }
}

/// The caches that the host's devices know, as a registry lists them.
pub fn cache_kinds() -> Vec<String> {
    KvStorage::all().map(|storage| cache_name(storage).to_owned()).collect()
}

/// The samplers of the host, as a registry lists them.
pub fn sampler_kinds() -> Vec<String> {
    Sampler::NAMES.map(str::to_owned).to_vec()
}

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFeatures {
    /// An answer that is held to a schema, an expression or a grammar.
    pub constraint: bool,
    /// Log-probabilities of this many most likely tokens.
    pub logprobs: Option<usize>,
    /// A seed of its own.
    pub seed: bool,
    /// A conversation, put through the chat template.
    pub chat: bool,
    /// Tools that the template must tell the model about.
    pub tools: usize,
    /// Images.
    pub images: usize,
    /// An adapter by name.
    pub adapter: Option<String>,
    /// A draft model by name.
    pub speculation: Option<String>,
    /// The cache that it counts on: `plain:f16`.
    pub cache: Option<String>,
}

/// What is known of the model's text side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextFacts {
    /// Entries of the vocabulary.
    pub n_vocab: usize,
    /// Whether there is a chat template.
    pub has_template: bool,
    /// Whether the template names tools.
    pub tells_tools: bool,
}

/// A request that its composition cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request cannot be served as profile `{profile}` composes it: {}", .missing[0])]
pub struct RequestRefusal {
    /// The profile.
    pub profile: String,
    /// All that is missing, in the order of [`RequestFeatures`]; at least one.
    pub missing: Vec<Missing>,
}

/// One thing that a request asks for in vain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The loop does not have it.
    #[error("the loop `{loop_}` offers no {}", .feature.words())]
    OfLoop {
        /// The feature.
        feature: Feature,
        /// The loop.
        loop_: String,
        /// What the loop has.
        offered: Vec<Feature>,
    },
    /// More log-probabilities than there are tokens.
    #[error("log-probabilities of {found} tokens are asked for")]
    Logprobs {
        /// As many as there are.
        n_vocab: usize,
        /// As many as are asked for.
        found: usize,
    },
    /// No chat template.
    #[error("the model has no chat template")]
    Template,
    /// A template that does not know of tools.
    #[error("the model's chat template tells nothing of tools")]
    Tools {
        /// How many are given.
        found: usize,
    },
    /// Another cache.
    #[error("the cache `{expected}` is asked for")]
    Cache {
        /// The one asked for.
        expected: String,
        /// The one that is composed.
        found: String,
    },
}

impl Feature {
    fn words(self) -> &'static str {
        match self {
            Feature::Constraint => "constrained answers",
            Feature::Logprobs => "log-probabilities",
            Feature::Seed => "seeds",
            Feature::Images => "images",
            Feature::Adapters => "adapters",
            Feature::Speculation => "speculation",
        }
    }

    fn code(self) -> &'static str {
        match self {
            Feature::Constraint => "request.constraint",
            Feature::Logprobs => "request.logprobs",
            Feature::Seed => "request.seed",
            Feature::Images => "request.images",
            Feature::Adapters => "request.adapters",
            Feature::Speculation => "request.speculation",
        }
    }
}

impl Composition {
    /// Whether everything that a request asks for is offered.
    ///
    /// # Errors
    /// [`RequestRefusal`] with all that is not.
    pub fn check_request(&self, asked: &RequestFeatures, text: &TextFacts) -> Result<(), RequestRefusal> {
        let LoopFacts { name: loop_, features: offered } = self.loop_facts();
        let mut missing = Vec::new();
        let of_loop = [
            (Feature::Constraint, asked.constraint),
            (Feature::Logprobs, asked.logprobs.is_some()),
            (Feature::Seed, asked.seed),
            (Feature::Images, asked.images > 0),
            (Feature::Adapters, asked.adapter.is_some()),
            (Feature::Speculation, asked.speculation.is_some()),
        ];
        for (feature, _) in of_loop.into_iter().filter(|(feature, asks)| *asks && !offered.contains(feature))
        {
            let (loop_, offered) = (loop_.clone(), offered.clone());
            missing.push(Missing::OfLoop { feature, loop_, offered });
        }
        if let Some(found) = asked.logprobs.filter(|found| *found > text.n_vocab) {
            missing.push(Missing::Logprobs { n_vocab: text.n_vocab, found });
        }
        if (asked.chat || asked.tools > 0) && !text.has_template {
            missing.push(Missing::Template);
        } else if asked.tools > 0 && !text.tells_tools {
            missing.push(Missing::Tools { found: asked.tools });
        }
        let found = cache_name(self.options().kv);
        if let Some(expected) = asked.cache.clone().filter(|expected| *expected != found) {
            missing.push(Missing::Cache { expected, found: found.to_owned() });
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(RequestRefusal { profile: self.profile_id().to_owned(), missing })
    }
}

/// The name of a cache as profiles write it: `plain:f16`.
pub(crate) fn cache_name(kv: KvStorage) -> &'static str {
    kv.name()
}

impl Reported for Missing {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Missing::OfLoop { feature, offered, .. } => {
                let offered: Vec<&str> = offered.iter().map(|feature| feature.words()).collect();
                let offered = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
                Report::new(feature.code(), text)
                    .expected(format!("one of: {offered}"))
                    .mend("leave it out of the request, or name a profile whose loop has it")
            }
            Missing::Logprobs { n_vocab, found } => Report::new("request.logprobs", text)
                .expected(format!("at most {n_vocab}, the size of the vocabulary"))
                .found(found.to_string())
                .mend("ask for fewer"),
            Missing::Template => Report::new("request.chat", text)
                .expected("a chat template beside the model's tokenizer")
                .mend("ask with the whole prompt as it is (--raw), or use a model with a template"),
            Missing::Tools { found } => Report::new("request.tools", text)
                .expected("a template that names `tools`")
                .found(format!("{found} tools in the request"))
                .mend("describe the tools in a message, or use a model whose template knows them"),
            Missing::Cache { expected, found } => Report::new("request.cache", text)
                .expected(expected)
                .found(found)
                .mend("ask for the cache that is composed, or name a profile with the other"),
        }
    }
}

impl Reported for RequestRefusal {
    fn report(&self) -> Report {
        let first = self.missing[0].report().note(format!("profile `{}`", self.profile));
        self.missing[1..].iter().fold(first, |report, missing| {
            let also = missing.report();
            report.note(format!("also [{}]: {}", also.code, also.message))
        })
    }
}
