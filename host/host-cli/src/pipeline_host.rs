//! What a pipeline asks for, done by an engine on its own thread.
//!
//! Sessions keep messages or tokens here; the engine's session keeps what was computed of them. So trimming is
//! forgetting, and the next generation computes only what differs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use host_core::{FinishReason, Report, Reported, SamplingChain};
use host_engine::{CancelFlag, Driver, EngineError, Outcome, Request, SessionId};
use host_plugins::pipeline::{
    GenerateOptions, Generated, GenerationKey, Item, PipelineHost, Progress, Prompt, SessionForm, SessionKey,
    Turn,
};
use host_registry::Composition;
use host_text::{Detokenizer, Message, StopMatcher, Tokenizer};

use crate::args::SamplingArgs;
use crate::error::Failure;
use crate::policy::RequestPolicy;
use crate::prompt::{chat_ids, chat_text, raw_ids};
use crate::sampling;

/// One model for one run.
pub(crate) struct EngineHost {
    names: Vec<String>,
    driver: Driver,
    tokenizer: Arc<Tokenizer>,
    composition: Composition,
    /// Each generation gets an instance of its own.
    policy: Option<RequestPolicy>,
    sampling: SamplingArgs,
    /// Seed of the run; each generation adds its number.
    seed: u64,
    sessions: BTreeMap<SessionKey, Session>,
    generations: BTreeMap<GenerationKey, Generation>,
    n_made: u64,
    outcomes: Receiver<(GenerationKey, Outcome)>,
    sender: Sender<(GenerationKey, Outcome)>,
}

struct Session {
    of_engine: SessionId,
    content: Content,
    is_busy: bool,
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
    /// A host for one model, known by `names`.
    pub(crate) fn new(
        names: Vec<String>,
        driver: Driver,
        tokenizer: Arc<Tokenizer>,
        composition: Composition,
        policy: Option<RequestPolicy>,
        sampling: SamplingArgs,
    ) -> Self {
        let seed = sampling.seed.unwrap_or_else(sampling::fresh_seed);
        let (sender, outcomes) = mpsc::channel();
        let (sessions, generations) = (BTreeMap::new(), BTreeMap::new());
        EngineHost {
            names,
            driver,
            tokenizer,
            composition,
            policy,
            sampling,
            seed,
            sessions,
            generations,
            n_made: 0,
            outcomes,
            sender,
        }
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

    fn keep(&mut self, of_engine: SessionId, content: Content) -> SessionKey {
        let key = SessionKey(self.number());
        self.sessions.insert(key, Session { of_engine, content, is_busy: false });
        key
    }

    fn prompt_ids(&mut self, prompt: &Prompt) -> Result<(Vec<u32>, Option<SessionKey>), Report> {
        let tokenizer = Arc::clone(&self.tokenizer);
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
        let of_profile = self.composition.sampling();
        sampling::of_options(&self.sampling, of_profile, options, seed, &self.tokenizer).map_err(first)
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
        self.names.clone()
    }

    fn count_tokens(&self, _model: &str, text: &str) -> Result<usize, Report> {
        self.tokenizer.encode(text, false, true).map(|ids| ids.len()).map_err(|error| error.report())
    }

    fn render(&self, _model: &str, turns: &[Turn]) -> Result<String, Report> {
        chat_text(&self.tokenizer, &messages(turns)).map_err(|error| error.report())
    }

    fn open_session(&mut self, _model: &str, form: SessionForm) -> Result<SessionKey, Report> {
        let content = match form {
            SessionForm::Chat => {
                self.tokenizer.chat_template().map_err(|error| error.report())?;
                Content::Chat(Vec::new())
            }
            SessionForm::Text => Content::Text(Vec::new()),
        };
        let of_engine = self.driver.open_session().map_err(|error| error.report())?;
        Ok(self.keep(of_engine, content))
    }

    fn append(&mut self, session: SessionKey, item: Item) -> Result<(), Report> {
        let tokenizer = Arc::clone(&self.tokenizer);
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
        match &mut self.idle(session)?.content {
            Content::Chat(messages) => messages.truncate(kept),
            Content::Text(ids) => ids.truncate(kept),
        }
        Ok(())
    }

    fn fork(&mut self, session: SessionKey) -> Result<SessionKey, Report> {
        let Session { of_engine, content, .. } = self.idle(session)?;
        let (of_engine, content) = (*of_engine, content.clone());
        let forked = self.driver.fork_session(of_engine).map_err(|error: EngineError| error.report())?;
        Ok(self.keep(forked, content))
    }

    fn session_len(&self, session: SessionKey) -> Result<usize, Report> {
        Ok(match &self.session(session)?.content {
            Content::Chat(messages) => messages.len(),
            Content::Text(ids) => ids.len(),
        })
    }

    fn close_session(&mut self, session: SessionKey) -> Result<(), Report> {
        let of_engine = self.idle(session)?.of_engine;
        self.driver.close_session(of_engine).map_err(|error| error.report())?;
        self.sessions.remove(&session);
        Ok(())
    }

    fn start(
        &mut self,
        _model: &str,
        prompt: Prompt,
        options: GenerateOptions,
    ) -> Result<GenerationKey, Report> {
        let (prompt_ids, session) = self.prompt_ids(&prompt)?;
        let number = self.number();
        let key = GenerationKey(number);
        let max_tokens = options.max_tokens;
        let cancel = CancelFlag::new();
        let policy =
            self.policy.as_ref().map(|policy| policy.open(&self.composition)).transpose().map_err(first)?;
        let request = Request {
            policy,
            stop_token_ids: self.tokenizer.stop_ids().to_vec(),
            session: session.and_then(|key| self.sessions.get(&key)).map(|session| session.of_engine),
            cancel: cancel.clone(),
            ..Request::new(
                prompt_ids,
                max_tokens.unwrap_or_else(|| sampling::max_tokens(&self.sampling, &self.composition)),
                self.chain(&options, number)?,
            )
        };
        let stops = sampling::stop_texts(&self.sampling, &self.composition);
        let generation = Generation {
            session,
            cancel,
            detokenizer: Detokenizer::new(Arc::clone(&self.tokenizer), true),
            matcher: StopMatcher::new(stops.iter().chain(&options.stop)),
            text: String::new(),
            token_ids: Vec::new(),
        };
        let sender = self.sender.clone();
        self.driver
            .submit_to(request, move |outcome| sender.send((key, outcome)).is_ok())
            .map_err(|error| error.report())?;
        if let Some(session) = session.and_then(|key| self.sessions.get_mut(&key)) {
            session.is_busy = true;
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
