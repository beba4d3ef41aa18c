//! Sequences that outlive their requests: what a conversation has said already is not computed again.

use std::collections::BTreeMap;

use host_device::{DeviceError, Executable, SequenceId};
use host_plugins::{PluginError, PolicyInstance};

use crate::error::EngineError;
use crate::request::SessionId;

/// A sequence and the tokens that it holds.
pub(crate) struct Held {
    pub(crate) sequence: SequenceId,
    pub(crate) tokens: Vec<u32>,
}

/// A policy that goes on from request to request, and the tokens that it was told of.
pub(crate) struct Told {
    pub(crate) policy: Box<dyn PolicyInstance>,
    pub(crate) tokens: Vec<u32>,
}

impl Told {
    /// A policy that was told of nothing.
    pub(crate) fn new(policy: Box<dyn PolicyInstance>) -> Self {
        Told { policy, tokens: Vec::new() }
    }

    /// Another one that goes its own way from here.
    fn fork(&mut self) -> Result<Self, PluginError> {
        Ok(Told { policy: self.policy.fork()?, tokens: self.tokens.clone() })
    }

    /// Has the policy forget what `prompt` does not begin with.
    fn rewind(&mut self, prompt: &[u32]) -> Result<(), PluginError> {
        let n_common = n_common(&self.tokens, prompt);
        let n_forgotten = self.tokens.len() - n_common;
        if n_forgotten > 0 {
            self.policy.rollback(u32::try_from(n_forgotten).expect("a context has fewer tokens"))?;
            self.tokens.truncate(n_common);
        }
        Ok(())
    }
}

/// The sessions of one engine.
#[derive(Default)]
pub(crate) struct Sessions {
    n_opened: u64,
    open: BTreeMap<SessionId, Session>,
}

#[derive(Default)]
struct Session {
    is_busy: bool,
    /// `None` before the first request and while one runs.
    held: Option<Held>,
    /// The policy of its requests; `None` without one, and while a request has it.
    told: Option<Told>,
}

impl Sessions {
    /// Opens a session, whose requests have this policy.
    pub(crate) fn open(&mut self, told: Option<Told>) -> SessionId {
        let id = SessionId(self.n_opened);
        self.n_opened += 1;
        self.open.insert(id, Session { told, ..Session::default() });
        id
    }

    /// Removes a session that runs nothing and gives what it held.
    pub(crate) fn close(&mut self, id: SessionId) -> Result<Option<Held>, EngineError> {
        match self.open.get(&id) {
            None => Err(EngineError::UnknownSession(id)),
            Some(session) if session.is_busy => Err(EngineError::SessionBusy(id)),
            Some(_) => Ok(self.open.remove(&id).and_then(|session| session.held)),
        }
    }

    /// The tokens and the sequence of a session that runs nothing.
    pub(crate) fn held(&self, id: SessionId) -> Result<Option<&Held>, EngineError> {
        match self.open.get(&id) {
            None => Err(EngineError::UnknownSession(id)),
            Some(session) if session.is_busy => Err(EngineError::SessionBusy(id)),
            Some(session) => Ok(session.held.as_ref()),
        }
    }

    /// A fork of the policy of a session that runs nothing, where it has one.
    pub(crate) fn fork_policy(&mut self, id: SessionId) -> Result<Option<Told>, EngineError> {
        let told = self.open.get_mut(&id).and_then(|session| session.told.as_mut());
        Ok(told.map(Told::fork).transpose()?)
    }

    /// Opens a session that holds something already.
    pub(crate) fn open_with(&mut self, held: Held, told: Option<Told>) -> SessionId {
        let id = self.open(told);
        self.end(id, Some(held), None);
        id
    }

    /// A request of the session was taken in.
    pub(crate) fn begin(&mut self, id: SessionId) -> Result<(), EngineError> {
        let session = self.open.get_mut(&id).ok_or(EngineError::UnknownSession(id))?;
        match std::mem::replace(&mut session.is_busy, true) {
            true => Err(EngineError::SessionBusy(id)),
            false => Ok(()),
        }
    }

    /// The session's sequence, for the request that joins.
    pub(crate) fn take(&mut self, id: SessionId) -> Option<Held> {
        self.open.get_mut(&id)?.held.take()
    }

    /// Brings the session's policy back to what `prompt` begins with.
    pub(crate) fn rewind_policy(&mut self, id: SessionId, prompt: &[u32]) -> Result<(), PluginError> {
        let told = self.open.get_mut(&id).and_then(|session| session.told.as_mut());
        told.map_or(Ok(()), |told| told.rewind(prompt))
    }

    /// The session's policy, for the request that joins.
    pub(crate) fn take_policy(&mut self, id: SessionId) -> Option<Told> {
        self.open.get_mut(&id)?.told.take()
    }

    /// The session's request has left. A sequence and a policy that the session has already stay.
    pub(crate) fn end(&mut self, id: SessionId, held: Option<Held>, told: Option<Told>) {
        if let Some(session) = self.open.get_mut(&id) {
            session.is_busy = false;
            session.held = held.or(session.held.take());
            session.told = told.or(session.told.take());
        }
    }

    /// Takes every held sequence away; the sessions stay open.
    pub(crate) fn take_all(&mut self) -> Vec<Held> {
        self.open.values_mut().filter_map(|session| session.held.take()).collect()
    }
}

/// Cuts a held sequence back to what it shares with `prompt`; gives the sequence and how many of the prompt's
/// tokens it holds.
///
/// At least the prompt's last token is left to be computed, because its logits are wanted. A sequence whose
/// state cannot go back is given up for an empty one: the same result, computed anew.
pub(crate) fn rewind(
    executable: &mut dyn Executable,
    held: Held,
    prompt: &[u32],
) -> Result<(SequenceId, usize), DeviceError> {
    let Held { sequence, tokens } = held;
    let n_kept = n_common(&tokens, prompt).min(prompt.len() - 1);
    if n_kept == tokens.len() {
        return Ok((sequence, n_kept));
    }
    match executable.trim(sequence, tokens.len() - n_kept) {
        Ok(()) => Ok((sequence, n_kept)),
        Err(_) => {
            executable.release(sequence);
            executable.new_sequence().map(|sequence| (sequence, 0))
        }
    }
}

/// How many tokens both begin with.
fn n_common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
