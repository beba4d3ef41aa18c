//! What a pipeline asks for, done by an engine on its own thread.
//!
//! Sessions keep messages or tokens here; the engine's session keeps what was computed of them. So trimming is
//! forgetting, and the next generation computes only what differs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use host_core::{FinishReason, Report, Reported, SamplingChain};
use host_engine::{CancelFlag, Driver, Grammar, GrammarBudget, GrammarSpec, Outcome, Request, SessionId};
use host_plugins::pipeline::{
    GenerateOptions, Generated, GenerationKey, Item, PipelineHost, Progress, Prompt, SessionForm, SessionKey,
    SessionOptions, Turn,
};
use host_plugins::{PluginError, PluginName, PolicyInstance, PolicyVocabulary};
use host_registry::{Composition, PolicyRef, RequestFeatures};
use host_service::{Host, RequestPolicy, text_facts, vocabulary};
use host_text::{Detokenizer, Message, StopMatcher, Tokenizer};
use serde_json::{Map, Value};

use crate::args::SamplingArgs;
use crate::error::Failure;
use crate::prompt::{chat_ids, chat_text, raw_ids};
use crate::sampling;

/// One model for one run.
pub(crate) struct EngineHost {
    model: EngineModel,
    /// The model's, for policies and constraints.
    vocabulary: Arc<dyn PolicyVocabulary>,
    /// Policies that the script names, by what it wrote.
    policies: BTreeMap<String, RequestPolicy>,
    sampling: SamplingArgs,
    /// Seed of the run; each generation adds its number.
    seed: u64,
    sessions: BTreeMap<SessionKey, Session>,
    generations: BTreeMap<GenerationKey, Generation>,
    n_made: u64,
    outcomes: Receiver<(GenerationKey, Outcome)>,
    sender: Sender<(GenerationKey, Outcome)>,
}

/// What was opened for the run.
pub(crate) struct EngineModel {
    /// Plugins, for policies that a script names.
    pub(crate) host: Arc<Host>,
    /// What a script may call the model.
    pub(crate) names: Vec<String>,
    pub(crate) driver: Arc<Driver>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) composition: Composition,
    /// Entries of the logits.
    pub(crate) n_vocab: usize,
    /// The composition's: each session and each generation outside of one gets an instance.
    pub(crate) policy: Option<RequestPolicy>,
}

struct Session {
    of_engine: SessionId,
    content: Content,
    is_busy: bool,
    /// Its policy, where that cannot forget what it was told of.
    cannot_forget: Option<PluginName>,
    /// Whether a policy may have been told of what the session holds.
    has_generated: bool,
}

#[derive(Clone)]
enum Content {
    Chat(Vec<Message>),
    Text(Vec<u32>),
}

/// A running generation.
struct Generation {
    session: Option<SessionKey>,
    cancel: CancelFlag,
    detokenizer: Detokenizer,
    matcher: StopMatcher,
    text: String,
    token_ids: Vec<u32>,
}

fn first(failure: Failure) -> Report {
    let report = failure.reports().first().cloned();
    report.unwrap_or_else(|| Report::new("pipeline.host", "the host refused without a reason"))
}

fn refused(code: &'static str, message: impl Into<String>) -> Report {
    Report::new(code, message)
}

impl EngineHost {
    pub(crate) fn new(model: EngineModel, sampling: SamplingArgs) -> Self {
        let seed = sampling.seed.unwrap_or_else(sampling::fresh_seed);
        let (sender, outcomes) = mpsc::channel();
        let vocabulary = vocabulary(&model.tokenizer, model.n_vocab, model.host.machine().token_tables());
        EngineHost {
            model,
            vocabulary,
            policies: BTreeMap::new(),
            sampling,
            seed,
            sessions: BTreeMap::new(),
            generations: BTreeMap::new(),
            n_made: 0,
            outcomes,
            sender,
        }
    }

    /// An instance of the policy that is named, else of the composition's.
    fn policy(
        &mut self,
        named: Option<Map<String, Value>>,
    ) -> Result<Option<Box<dyn PolicyInstance>>, Report> {
        let Some(named) = named.map(Value::Object) else {
            return self.model.policy.as_ref().map(RequestPolicy::open).transpose().map_err(first);
        };
        let key = named.to_string();
        if !self.policies.contains_key(&key) {
            let wanted: PolicyRef = serde_json::from_value(named)
                .map_err(|error| refused("pipeline.argument", format!("`policy` does not fit: {error}")))?;
            let host = &self.model.host;
            let policy = host.registry().policy(&wanted).map_err(|(_, fault)| fault.report())?;
            let policy = RequestPolicy::of(
                host,
                &policy,
                self.model.composition.quarantine(),
                Arc::clone(&self.vocabulary),
            )
            .map_err(first)?;
            self.policies.insert(key.clone(), policy);
        }
        self.policies[&key].open().map(Some).map_err(first)
    }

    /// Whether the composition offers what a generation asks for.
    fn check(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<(), Report> {
        let asked = RequestFeatures {
            constraint: options.constraint.is_some(),
            seed: options.seed.is_some(),
            chat: matches!(prompt, Prompt::Chat(_)),
            ..RequestFeatures::default()
        };
        let text = text_facts(&self.model.tokenizer, self.model.n_vocab);
        self.model.composition.check_request(&asked, &text).map_err(|refusal| refusal.report())
    }

    fn grammar(&self, spec: &GrammarSpec) -> Result<Grammar, Report> {
        let table = self.vocabulary.token_table().map_err(|error| error.report())?;
        Grammar::compile(spec, &table, GrammarBudget::default()).map_err(|error| error.report())
    }

    fn number(&mut self) -> u64 {
        self.n_made += 1;
        self.n_made
    }

    fn session(&self, key: SessionKey) -> Result<&Session, Report> {
        let session = self.sessions.get(&key);
        session
            .ok_or_else(|| refused("pipeline.closed-session", "the session is closed").mend("open another"))
    }

    /// A session that runs nothing.
    fn idle(&mut self, key: SessionKey) -> Result<&mut Session, Report> {
        if self.session(key)?.is_busy {
            return Err(refused("pipeline.session-busy", "the session still generates")
                .mend("wait for its generation, or fork the session before"));
        }
        Ok(self.sessions.get_mut(&key).expect("it was just looked at"))
    }

    fn keep(&mut self, session: Session) -> SessionKey {
        let key = SessionKey(self.number());
        self.sessions.insert(key, session);
        key
    }

    fn prompt_ids(&mut self, prompt: &Prompt) -> Result<(Vec<u32>, Option<SessionKey>), Report> {
        let tokenizer = Arc::clone(&self.model.tokenizer);
        let report = |error: host_text::TextError| error.report();
        match prompt {
            Prompt::Text(text) => Ok((raw_ids(&tokenizer, text).map_err(report)?, None)),
            Prompt::Chat(turns) => Ok((chat_ids(&tokenizer, &messages(turns)).map_err(report)?, None)),
            Prompt::Session(key) => {
                let ids = match &self.idle(*key)?.content {
                    Content::Chat(messages) => chat_ids(&tokenizer, messages).map_err(report)?,
                    Content::Text(ids) => ids.clone(),
                };
                Ok((ids, Some(*key)))
            }
        }
    }

    fn chain(&self, options: &GenerateOptions, number: u64) -> Result<SamplingChain, Report> {
        let seed = options.seed.unwrap_or((self.seed.wrapping_add(number)) & ((1 << 53) - 1));
        let of_profile = self.model.composition.sampling();
        sampling::of_options(&self.sampling, of_profile, options, seed, &self.model.tokenizer).map_err(first)
    }

    fn take(&mut self, key: GenerationKey, outcome: Outcome) -> Option<Progress> {
        let generation = self.generations.get_mut(&key)?;
        match outcome {
            Outcome::Token { token_id, .. } => generation.push(token_id).map(Progress::Text),
            Outcome::Failed(report) => {
                self.end(key);
                Some(Progress::Failed(report))
            }
            Outcome::Finished { reason, usage } => {
                let generation = self.end(key)?;
                let text = generation.text.clone();
                let generated_tokens = generation.token_ids.len();
                let is_stopped = generation.matcher.is_stopped();
                self.remember(generation);
                Some(Progress::Done(Generated {
                    text,
                    finish_reason: if is_stopped { FinishReason::Stop } else { reason },
                    prompt_tokens: usage.prompt_tokens,
                    reused_tokens: usage.reused_tokens,
                    generated_tokens,
                }))
            }
        }
    }

    fn end(&mut self, key: GenerationKey) -> Option<Generation> {
        let generation = self.generations.remove(&key)?;
        if let Some(session) = generation.session.and_then(|key| self.sessions.get_mut(&key)) {
            session.is_busy = false;
        }
        Some(generation)
    }

    /// What a session generated belongs to it.
    fn remember(&mut self, generation: Generation) {
        let Some(session) = generation.session.and_then(|key| self.sessions.get_mut(&key)) else { return };
        match &mut session.content {
            Content::Chat(messages) => messages.push(Message::new("assistant", generation.text)),
            Content::Text(ids) => ids.extend(generation.token_ids),
        }
    }
}

fn messages(turns: &[Turn]) -> Vec<Message> {
    turns.iter().map(|turn| Message::new(turn.role.as_str(), turn.content.as_str())).collect()
}

impl Generation {
    /// Whole characters that are no part of a stop string; a complete one ends the request.
    fn push(&mut self, token_id: u32) -> Option<String> {
        if self.matcher.is_stopped() {
            return None;
        }
        self.token_ids.push(token_id);
        let piece = self.detokenizer.push(token_id)?;
        self.say(&piece)
    }

    fn say(&mut self, piece: &str) -> Option<String> {
        let step = self.matcher.push(piece);
        if step.stopped_by.is_some() {
            self.cancel.cancel();
        }
        self.text.push_str(&step.text);
        (!step.text.is_empty()).then_some(step.text)
    }

    /// What was withheld, once no token follows.
    fn flush(&mut self) -> Option<String> {
        let mut rest = self.detokenizer.flush().and_then(|piece| self.say(&piece)).unwrap_or_default();
        if !self.matcher.is_stopped() {
            let withheld = self.matcher.flush();
            self.text.push_str(&withheld);
            rest.push_str(&withheld);
        }
        (!rest.is_empty()).then_some(rest)
    }
}

impl PipelineHost for EngineHost {
    fn models(&self) -> Vec<String> {
        self.model.names.clone()
    }

    fn count_tokens(&self, _model: &str, text: &str) -> Result<usize, Report> {
        self.model.tokenizer.encode(text, false, true).map(|ids| ids.len()).map_err(|error| error.report())
    }

    fn render(&self, _model: &str, turns: &[Turn]) -> Result<String, Report> {
        chat_text(&self.model.tokenizer, &messages(turns)).map_err(|error| error.report())
    }

    fn open_session(&mut self, _model: &str, options: SessionOptions) -> Result<SessionKey, Report> {
        let content = match options.form {
            SessionForm::Chat => {
                self.model.tokenizer.chat_template().map_err(|error| error.report())?;
                Content::Chat(Vec::new())
            }
            SessionForm::Text => Content::Text(Vec::new()),
        };
        let policy = self.policy(options.policy)?;
        let cannot_forget = policy.as_ref().filter(|policy| !policy.traits().supports_rollback);
        let cannot_forget = cannot_forget.map(|policy| policy.name().clone());
        let driver = &self.model.driver;
        let of_engine =
            policy.map_or_else(|| driver.open_session(), |policy| driver.open_session_with(policy));
        let of_engine = of_engine.map_err(|error| error.report())?;
        Ok(self.keep(Session { of_engine, content, is_busy: false, cannot_forget, has_generated: false }))
    }

    fn append(&mut self, session: SessionKey, item: Item) -> Result<(), Report> {
        let tokenizer = Arc::clone(&self.model.tokenizer);
        match (&mut self.idle(session)?.content, item) {
            (Content::Chat(messages), Item::Turn(turn)) => {
                messages.push(Message::new(turn.role, turn.content));
                Ok(())
            }
            (Content::Text(ids), Item::Text(text)) => {
                let new = tokenizer.encode(&text, ids.is_empty(), true).map_err(|error| error.report())?;
                ids.extend(new);
                Ok(())
            }
            (Content::Chat(_), Item::Text(_)) => Err(refused(
                "pipeline.argument",
                "a chat session takes messages { role, content }, found a string",
            )),
            (Content::Text(_), Item::Turn(_)) => {
                Err(refused("pipeline.argument", "a text session takes strings, found a message"))
            }
        }
    }

    fn trim(&mut self, session: SessionKey, n: usize) -> Result<(), Report> {
        let held = self.session_len(session)?;
        let too_much = || {
            refused("pipeline.argument", "more is to be trimmed than the session holds")
                .expected(format!("at most {held}"))
                .found(n.to_string())
        };
        let kept = held.checked_sub(n).ok_or_else(too_much)?;
        let session = self.idle(session)?;
        if let (Some(plugin), true) = (&session.cannot_forget, n > 0 && session.has_generated) {
            let refusal = PluginError::NotOffered { plugin: plugin.clone(), hook: "rollback" };
            return Err(refusal.report().mend("trim before the first generation, or open another session"));
        }
        match &mut session.content {
            Content::Chat(messages) => messages.truncate(kept),
            Content::Text(ids) => ids.truncate(kept),
        }
        Ok(())
    }

    fn fork(&mut self, session: SessionKey) -> Result<SessionKey, Report> {
        let of_engine = self.idle(session)?.of_engine;
        let forked = self.model.driver.fork_session(of_engine).map_err(|error| error.report())?;
        let Session { content, cannot_forget, has_generated, .. } = self.session(session)?;
        let (content, cannot_forget) = (content.clone(), cannot_forget.clone());
        let has_generated = *has_generated;
        Ok(self.keep(Session { of_engine: forked, content, is_busy: false, cannot_forget, has_generated }))
    }

    fn session_len(&self, session: SessionKey) -> Result<usize, Report> {
        Ok(match &self.session(session)?.content {
            Content::Chat(messages) => messages.len(),
            Content::Text(ids) => ids.len(),
        })
    }

    fn close_session(&mut self, session: SessionKey) -> Result<(), Report> {
        let of_engine = self.idle(session)?.of_engine;
        self.model.driver.close_session(of_engine).map_err(|error| error.report())?;
        self.sessions.remove(&session);
        Ok(())
    }

    fn start(
        &mut self,
        _model: &str,
        prompt: Prompt,
        mut options: GenerateOptions,
    ) -> Result<GenerationKey, Report> {
        self.check(&prompt, &options)?;
        let (prompt_ids, session) = self.prompt_ids(&prompt)?;
        let constraint = options.constraint.take().map(|spec| self.grammar(&spec)).transpose()?;
        // A session has a policy already.
        let policy = match (options.policy.take(), session) {
            (None, Some(_)) => None,
            (named, _) => self.policy(named)?,
        };
        let number = self.number();
        let key = GenerationKey(number);
        let max_tokens = options.max_tokens;
        let cancel = CancelFlag::new();
        let request = Request {
            policy,
            constraint,
            stop_token_ids: self.model.tokenizer.stop_ids().to_vec(),
            session: session.and_then(|key| self.sessions.get(&key)).map(|session| session.of_engine),
            cancel: cancel.clone(),
            ..Request::new(
                prompt_ids,
                max_tokens.unwrap_or_else(|| sampling::max_tokens(&self.sampling, &self.model.composition)),
                self.chain(&options, number)?,
            )
        };
        let stops = sampling::stop_texts(&self.sampling, &self.model.composition);
        let generation = Generation {
            session,
            cancel,
            detokenizer: Detokenizer::new(Arc::clone(&self.model.tokenizer), true),
            matcher: StopMatcher::new(stops.iter().chain(&options.stop)),
            text: String::new(),
            token_ids: Vec::new(),
        };
        let sender = self.sender.clone();
        self.model
            .driver
            .submit_to(request, move |outcome| sender.send((key, outcome)).is_ok())
            .map_err(|error| error.report())?;
        if let Some(session) = session.and_then(|key| self.sessions.get_mut(&key)) {
            session.is_busy = true;
            session.has_generated = true;
        }
        self.generations.insert(key, generation);
        Ok(key)
    }

    fn cancel(&mut self, generation: GenerationKey) {
        if let Some(generation) = self.generations.get(&generation) {
            generation.cancel.cancel();
        }
    }

    fn wait(&mut self, timeout: Duration) -> Vec<(GenerationKey, Progress)> {
        let mut progress = Vec::new();
        let mut next = self.outcomes.recv_timeout(timeout).ok();
        while let Some((key, outcome)) = next {
            if let Outcome::Finished { .. } = outcome
                && let Some(rest) = self.generations.get_mut(&key).and_then(Generation::flush)
            {
                progress.push((key, Progress::Text(rest)));
            }
            progress.extend(self.take(key, outcome).map(|progress| (key, progress)));
            next = self.outcomes.try_recv().ok();
        }
        progress
    }
}

#[cfg(test)]
mod tests;
