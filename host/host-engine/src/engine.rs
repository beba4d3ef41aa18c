//! The step loop as a value: requests join, every sequence advances, rows leave.

use std::collections::VecDeque;

use host_core::FinishReason;
use host_device::{DeviceError, Executable, LogitsFor, RunError, TokenRun};
use host_plugins::PolicyInstance;
use host_sampling::Chain;

use crate::error::EngineError;
use crate::foresight::{Ask, Foresight};
use crate::request::{CancelFlag, Event, Request, RequestId, SessionId, Usage};
use crate::row::{End, Row, Waiting};
use crate::schedule::{Share, plan};
use crate::sessions::{Held, Sessions, Told, rewind};

/// What a composition says of the loop; the same values that the executable was compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tokens of one sequence: prompt and generated.
    pub context_tokens: usize,
    /// New tokens of one step, all sequences together.
    pub max_step_tokens: usize,
}

/// Runs requests through one executable.
pub struct Engine {
    executable: Box<dyn Executable>,
    options: EngineOptions,
    waiting: VecDeque<Waiting>,
    /// In the order of their requests.
    rows: Vec<Row>,
    sessions: Sessions,
    foresight: Foresight,
    stop: CancelFlag,
    n_requests: u64,
    n_steps: u64,
}

impl Engine {
    /// An engine without requests.
    ///
    /// # Panics
    /// When a value of `options` is 0: no composition has that.
    pub fn new(executable: Box<dyn Executable>, options: EngineOptions) -> Self {
        assert!(
            options.context_tokens > 0 && options.max_step_tokens > 0,
            "options without room: {options:?}"
        );
        Engine {
            executable,
            options,
            waiting: VecDeque::new(),
            rows: Vec::new(),
            sessions: Sessions::default(),
            foresight: Foresight::default(),
            stop: CancelFlag::new(),
            n_requests: 0,
            n_steps: 0,
        }
    }

    /// The executable, for its memory plan and signatures.
    pub fn executable(&self) -> &dyn Executable {
        &*self.executable
    }

    /// Raised from anywhere, it keeps the running step and those after it from calling any further guest: requests with
    /// a policy are cancelled. So whoever shuts the engine down waits for one guest's budget at most.
    pub fn stop_flag(&self) -> CancelFlag {
        self.stop.clone()
    }

    /// Whether no request runs or waits.
    pub fn is_idle(&self) -> bool {
        self.rows.is_empty() && self.waiting.is_empty()
    }

    /// Opens a session: its requests, one at a time, continue in one sequence.
    ///
    /// Between requests a session holds one of the executable's `max_sequences`.
    pub fn open_session(&mut self) -> SessionId {
        self.sessions.open(None)
    }

    /// As [`Engine::open_session`], with a policy that goes on from request to request: it is told of each token once,
    /// rolled back where a prompt does not go on from what it was told of, and forked with the session.
    ///
    /// A request with a policy of its own leaves this one aside.
    pub fn open_session_with(&mut self, policy: Box<dyn PolicyInstance>) -> SessionId {
        self.sessions.open(Some(Told::new(policy)))
    }

    /// Forgets a session and frees its sequence.
    ///
    /// # Errors
    /// [`EngineError::UnknownSession`], [`EngineError::SessionBusy`].
    pub fn close_session(&mut self, id: SessionId) -> Result<(), EngineError> {
        if let Some(held) = self.sessions.close(id)? {
            self.executable.release(held.sequence);
        }
        Ok(())
    }

    /// Opens a session that holds what another one holds; each then goes its own way.
    ///
    /// # Errors
    /// [`EngineError::UnknownSession`], [`EngineError::SessionBusy`], no room for one more sequence, and
    /// [`EngineError::Policy`] for a policy that cannot be forked.
    pub fn fork_session(&mut self, id: SessionId) -> Result<SessionId, EngineError> {
        let held = self.sessions.held(id)?.map(|held| (held.sequence, held.tokens.clone()));
        let told = self.sessions.fork_policy(id)?;
        let Some((sequence, tokens)) = held else { return Ok(self.sessions.open(told)) };
        let sequence = self.executable.fork(sequence)?;
        Ok(self.sessions.open_with(Held { sequence, tokens }, told))
    }

    /// Takes a request in; it joins at the next step that has a sequence for it.
    ///
    /// # Errors
    /// An empty, too long or out-of-range prompt, settings outside their ranges, an unknown or busy session.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, EngineError> {
        self.check(&request)?;
        let chain = Chain::new(&request.sampling)?;
        if let Some(session) = request.session {
            self.sessions.begin(session)?;
        }
        let id = RequestId(self.n_requests);
        self.n_requests += 1;
        self.waiting.push_back(Waiting { id, request, chain });
        Ok(id)
    }

    fn check(&self, request: &Request) -> Result<(), EngineError> {
        let n_vocab = self.executable.n_vocab();
        let found = request.prompt_ids.len();
        if found == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if found > self.options.context_tokens {
            return Err(EngineError::PromptTooLong { found, limit: self.options.context_tokens });
        }
        if let Some(index) = request.prompt_ids.iter().position(|token| *token as usize >= n_vocab) {
            return Err(EngineError::PromptToken { index, token: request.prompt_ids[index], n_vocab });
        }
        if request.max_tokens == 0 {
            return Err(EngineError::NoTokens);
        }
        if let Some(found) = request.constraint.as_ref().map(|grammar| grammar.table().n_vocab())
            && found != n_vocab
        {
            return Err(EngineError::OtherVocabulary { found, n_vocab });
        }
        match request.logprobs {
            Some(found) if found > n_vocab => Err(EngineError::TooManyLogprobs { found, n_vocab }),
            _ => Ok(()),
        }
    }

    /// Advances every request by one step and tells what happened.
    ///
    /// Cancelled requests leave first, waiting ones join while there are sequences, then one ragged batch runs. While it
    /// does, grammars and the policies that read no logits say what may follow; the other policies are asked after it,
    /// one after another on this thread. Each guest has its own step's budget: a runaway delays the others by that
    /// much, once, because it ends its request.
    /// Does nothing when idle.
    pub fn step(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.drop_cancelled(&mut events);
        self.admit(&mut events);
        self.advance(&mut events);
        self.sweep(&mut events);
        events
    }

    fn drop_cancelled(&mut self, events: &mut Vec<Event>) {
        for row in self.rows.iter_mut().filter(|row| row.request.cancel.is_cancelled()) {
            row.end = Some(End::cancelled());
        }
        self.sweep(events);
        let is_cancelled = |waiting: &Waiting| waiting.request.cancel.is_cancelled();
        while let Some(index) = self.waiting.iter().position(is_cancelled) {
            self.refuse(index, End::cancelled(), events);
        }
    }

    /// Ends a request that has no sequence yet.
    fn refuse(&mut self, index: usize, end: End, events: &mut Vec<Event>) {
        let Some(Waiting { id, request, .. }) = self.waiting.remove(index) else { return };
        if let Some(session) = request.session {
            self.sessions.end(session, None, None);
        }
        let usage = Usage { prompt_tokens: request.prompt_ids.len(), ..Usage::default() };
        events.push(Event { request: id, outcome: end.outcome(usage) });
    }

    /// Gives sequences to waiting requests, first come first served.
    fn admit(&mut self, events: &mut Vec<Event>) {
        while let Some(next) = self.waiting.front() {
            // A request without a policy of its own has the session's.
            let of_session = next.request.session.filter(|_| next.request.policy.is_none());
            let rewound =
                of_session.map(|session| self.sessions.rewind_policy(session, &next.request.prompt_ids));
            if let Some(Err(error)) = rewound {
                self.refuse(0, End::failed(&error), events);
                continue;
            }
            let joined = match next.request.session.and_then(|session| self.sessions.take(session)) {
                Some(held) => rewind(&mut *self.executable, held, &next.request.prompt_ids),
                None => self.executable.new_sequence().map(|sequence| (sequence, 0)),
            };
            match joined {
                Ok((sequence, n_reused)) => {
                    let waiting = self.waiting.pop_front().expect("it was just looked at");
                    let told = of_session.and_then(|session| self.sessions.take_policy(session));
                    self.rows.push(Row::new(waiting, sequence, n_reused, told, &self.stop));
                }
                // A row that leaves makes room.
                Err(DeviceError::TooManySequences { .. }) if !self.rows.is_empty() => return,
                Err(error) => self.refuse(0, End::failed(&error), events),
            }
        }
    }

    /// Runs one batch; a row that the device refuses is taken out and the rest runs without it.
    fn advance(&mut self, events: &mut Vec<Event>) {
        let mut shares = plan(&self.rows, self.options.max_step_tokens);
        self.n_steps += 1;
        while !shares.is_empty() {
            let (runs, asks) = parts(&mut self.rows, &shares);
            match self.foresight.during(asks, || self.executable.step(&runs)) {
                Ok(logits) => {
                    let mut logits_row = 0;
                    for share in &shares {
                        let row = &mut self.rows[share.row];
                        row.n_computed += share.n_tokens;
                        row.served_at = self.n_steps;
                        if !share.is_last {
                            continue;
                        }
                        let outcomes = row.take_tokens(logits, logits_row, self.options.context_tokens);
                        let request = row.id;
                        events.extend(outcomes.into_iter().map(|outcome| Event { request, outcome }));
                        logits_row += 1;
                    }
                    return;
                }
                Err(DeviceError::Run { index, kind }) if index < shares.len() => {
                    let row = &mut self.rows[shares.remove(index).row];
                    row.end = Some(refused_run(row, &kind));
                }
                Err(error) => return self.fail_all(&error),
            }
        }
    }

    /// The executable failed: what it holds of any sequence is not to be trusted.
    fn fail_all(&mut self, error: &DeviceError) {
        for row in &mut self.rows {
            row.end = Some(End::failed(error));
            row.is_sound = false;
        }
        for held in self.sessions.take_all() {
            self.executable.release(held.sequence);
        }
    }

    /// Lets the rows leave that have ended.
    fn sweep(&mut self, events: &mut Vec<Event>) {
        while let Some(index) = self.rows.iter().position(|row| row.end.is_some()) {
            let mut row = self.rows.remove(index);
            let end = row.end.take().expect("the row has ended");
            events.push(Event { request: row.id, outcome: end.outcome(row.usage()) });
            self.leave(row);
        }
    }

    /// Gives a row's sequence and policy back to its session, or frees them.
    fn leave(&mut self, mut row: Row) {
        let told = row.told();
        let Row { sequence, mut tokens, n_computed, is_sound, request, .. } = row;
        tokens.truncate(n_computed);
        let held = match request.session {
            Some(_) if is_sound => Some(Held { sequence, tokens }),
            _ => {
                self.executable.release(sequence);
                None
            }
        };
        if let Some(session) = request.session {
            self.sessions.end(session, held, told);
        }
    }
}

/// A step's token runs for the device, and the guides that can be asked meanwhile.
fn parts<'a>(rows: &'a mut [Row], shares: &[Share]) -> (Vec<TokenRun<'a>>, Vec<Ask<'a>>) {
    let mut rows: Vec<_> = rows.iter_mut().map(Some).collect();
    let mut asks = Vec::new();
    let mut run = |share: &Share| {
        let row = rows[share.row].take().expect("a row has one share");
        let Row { sequence, tokens, guide, n_computed, .. } = row;
        let tokens: &'a [u32] = tokens;
        if share.is_last && guide.is_foresighted() {
            asks.push(Ask { guide, tokens });
        }
        TokenRun {
            sequence: *sequence,
            tokens: &tokens[*n_computed..*n_computed + share.n_tokens],
            logits: if share.is_last { LogitsFor::Last } else { LogitsFor::None },
        }
    };
    (shares.iter().map(&mut run).collect(), asks)
}

/// How a row ends whose run the device refuses: a full context after some tokens is an ordinary end.
fn refused_run(row: &Row, kind: &RunError) -> End {
    match kind {
        RunError::Context { .. } if row.is_decoding() => End::Finished(FinishReason::Length),
        kind => End::failed(kind),
    }
}
