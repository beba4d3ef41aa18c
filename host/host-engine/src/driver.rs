//! An engine on a thread of its own, for callers that want channels.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use host_core::Reported;
use host_plugins::PolicyInstance;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::request::{CancelFlag, Event, Outcome, Request, RequestId, SessionId};

/// Owns the engine's thread. Dropping it ends the thread after the running step, which calls no further guest; requests
/// that are not done then get no further outcome.
pub struct Driver {
    /// `None` once the driver is being dropped.
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    stop: CancelFlag,
}

enum Command {
    Submit(Request, Consumer),
    ForkSession(SessionId, Sender<Result<SessionId, EngineError>>),
    OpenSession(Option<Box<dyn PolicyInstance>>, Sender<SessionId>),
    CloseSession(SessionId, Sender<Result<(), EngineError>>),
}

/// Takes an outcome on the engine's thread; `false` when nobody listens any more.
type Consumer = Box<dyn FnMut(Outcome) -> bool + Send>;

impl Driver {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`std::io::Error`] when the system gives no thread.
    pub fn start(engine: Engine) -> std::io::Result<Self> {
        let (commands, received) = mpsc::channel();
        let stop = engine.stop_flag();
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || {
            Loop { engine, consumers: BTreeMap::new() }.run(&received);
        })?;
        Ok(Driver { commands: Some(commands), thread: Some(thread), stop })
    }

    /// Hands a request over. What [`Engine::submit`] refuses comes as [`Outcome::Failed`].
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub fn submit(&self, request: Request) -> Result<RequestHandle, EngineError> {
        let (outcomes, received) = mpsc::channel();
        let cancel = request.cancel.clone();
        self.submit_to(request, move |outcome| outcomes.send(outcome).is_ok())?;
        Ok(RequestHandle { outcomes: received, cancel })
    }

    /// As [`submit`](Driver::submit), for a caller that gathers the outcomes of several requests in one place.
    ///
    /// `consumer` runs on the engine's thread: it hands the outcome on and returns at once. With `false` nobody
    /// listens any more, and the request is cancelled.
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub fn submit_to(
        &self,
        request: Request,
        consumer: impl FnMut(Outcome) -> bool + Send + 'static,
    ) -> Result<(), EngineError> {
        self.send(Command::Submit(request, Box::new(consumer)))
    }

    /// As [`Engine::open_session`].
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub fn open_session(&self) -> Result<SessionId, EngineError> {
        self.open(None)
    }

    /// As [`Engine::open_session_with`].
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub fn open_session_with(&self, policy: Box<dyn PolicyInstance>) -> Result<SessionId, EngineError> {
        self.open(Some(policy))
    }

    fn open(&self, policy: Option<Box<dyn PolicyInstance>>) -> Result<SessionId, EngineError> {
        let (reply, received) = mpsc::channel();
        self.send(Command::OpenSession(policy, reply))?;
        received.recv().map_err(|_| EngineError::Stopped)
    }

    /// As [`Engine::fork_session`].
    ///
    /// # Errors
    /// Those of [`Engine::fork_session`], and [`EngineError::Stopped`].
    pub fn fork_session(&self, session: SessionId) -> Result<SessionId, EngineError> {
        let (reply, received) = mpsc::channel();
        self.send(Command::ForkSession(session, reply))?;
        received.recv().map_err(|_| EngineError::Stopped)?
    }

    /// As [`Engine::close_session`].
    ///
    /// # Errors
    /// Those of [`Engine::close_session`], and [`EngineError::Stopped`].
    pub fn close_session(&self, session: SessionId) -> Result<(), EngineError> {
        let (reply, received) = mpsc::channel();
        self.send(Command::CloseSession(session, reply))?;
        received.recv().map_err(|_| EngineError::Stopped)?
    }

    fn send(&self, command: Command) -> Result<(), EngineError> {
        let commands = self.commands.as_ref().ok_or(EngineError::Stopped)?;
        commands.send(command).map_err(|_| EngineError::Stopped)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.cancel();
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the engine's thread has been printed; the consumers see their channels close.
            let _ = thread.join();
        }
    }
}

/// A running request. Dropping it cancels the request.
pub struct RequestHandle {
    outcomes: Receiver<Outcome>,
    cancel: CancelFlag,
}

impl RequestHandle {
    /// Ends the request; [`Outcome::Finished`] still follows.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

/// Waits for each outcome; ends after the last one, or when the engine's thread is gone.
impl Iterator for RequestHandle {
    type Item = Outcome;

    fn next(&mut self) -> Option<Outcome> {
        self.outcomes.recv().ok()
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// What the thread owns.
struct Loop {
    engine: Engine,
    consumers: BTreeMap<RequestId, (Consumer, CancelFlag)>,
}

impl Loop {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            if self.engine.is_idle() {
                match commands.recv() {
                    Ok(command) => self.obey(command),
                    Err(_) => return,
                }
            }
            loop {
                match commands.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            for event in self.engine.step() {
                self.deliver(event);
            }
        }
    }

    /// A reply that nobody waits for any more is dropped.
    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(request, mut consumer) => {
                let cancel = request.cancel.clone();
                match self.engine.submit(request) {
                    Ok(id) => {
                        self.consumers.insert(id, (consumer, cancel));
                    }
                    Err(error) => {
                        consumer(Outcome::Failed(error.report()));
                    }
                }
            }
            Command::ForkSession(session, reply) => {
                let _ = reply.send(self.engine.fork_session(session));
            }
            Command::OpenSession(policy, reply) => {
                let _ = reply.send(match policy {
                    Some(policy) => self.engine.open_session_with(policy),
                    None => self.engine.open_session(),
                });
            }
            Command::CloseSession(session, reply) => {
                let _ = reply.send(self.engine.close_session(session));
            }
        }
    }

    /// A consumer that is gone ends its own request only.
    fn deliver(&mut self, event: Event) {
        let Some((consumer, cancel)) = self.consumers.get_mut(&event.request) else { return };
        let is_last = !matches!(event.outcome, Outcome::Token { .. });
        if !consumer(event.outcome) {
            cancel.cancel();
        }
        if is_last {
            self.consumers.remove(&event.request);
        }
    }
}
