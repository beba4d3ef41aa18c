//! Sequences that outlive their requests: what a conversation has said already is not computed again.

use std::collections::BTreeMap;

use host_device::{DeviceError, Executable, SequenceId};

use crate::error::EngineError;
use crate::request::SessionId;

/// A sequence and the tokens that it holds.
pub(crate) struct Held {
    pub(crate) sequence: SequenceId,
    pub(crate) tokens: Vec<u32>,
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
}

impl Sessions {
    pub(crate) fn open(&mut self) -> SessionId {
        let id = SessionId(self.n_opened);
        self.n_opened += 1;
        self.open.insert(id, Session::default());
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

    /// Opens a session that holds something already.
    pub(crate) fn open_with(&mut self, held: Held) -> SessionId {
        let id = self.open();
        self.end(id, Some(held));
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

    /// The session's request has left. A sequence that the session holds already stays.
    pub(crate) fn end(&mut self, id: SessionId, held: Option<Held>) {
        if let Some(session) = self.open.get_mut(&id) {
            session.is_busy = false;
            session.held = held.or(session.held.take());
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
    let n_common = tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    let n_kept = n_common.min(prompt.len() - 1);
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
