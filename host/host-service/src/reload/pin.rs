//! A request's hold on the generation that admitted it.

use std::sync::Arc;

use host_core::{FinishReason, Reported as _};
use host_engine::{EngineError, Outcome, Request, RequestHandle};
use host_plugins::PolicyInstance;

use super::error::ReloadError;
use super::generation::{Generation, Served};
use super::id::GenerationId;
use crate::failure::Failure;

/// Holds a generation: a request, a stream, a session, a pipeline. Whatever is reloaded meanwhile, all that it asks
/// for comes from there.
pub struct Pin {
    generation: Arc<Generation>,
}

impl Pin {
    pub(crate) fn new(generation: Arc<Generation>) -> Self {
        generation.counts.begin();
        Pin { generation }
    }

    /// The generation.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Its id, which every response carries.
    pub fn id(&self) -> GenerationId {
        self.generation.id
    }

    /// The served model of that name.
    ///
    /// # Errors
    /// [`ReloadError::NotServed`].
    pub fn model(&self, name: &str) -> Result<&Served, ReloadError> {
        self.generation.model(name)
    }

    /// An instance of the policy that the model's profile names, if it names one. A fault counts against the
    /// generation.
    ///
    /// # Errors
    /// [`ReloadError::NotServed`], refused params, a fault of the guest, a plugin in quarantine.
    pub fn open_policy(&self, name: &str) -> Result<Option<Box<dyn PolicyInstance>>, Failure> {
        let opened = self.model(name)?.policy.as_ref().map(|policy| policy.open()).transpose();
        opened.inspect_err(|failure| {
            let code = failure.reports().first().map_or("", |report| report.code);
            self.generation.counts.end(is_fault(code));
        })
    }

    /// Hands a request over to the model's engine. It ends early when the generation is ended.
    ///
    /// # Errors
    /// [`ReloadError::NotServed`], [`EngineError::Stopped`].
    pub fn submit(&self, name: &str, request: Request) -> Result<Answering, Failure> {
        let driver = self.model(name)?.model.driver();
        let cancel = request.cancel.clone().also(&self.generation.ended);
        let handle = driver.submit(Request { cancel, ..request })?;
        Ok(Answering { handle, pin: self.clone(), is_over: false })
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        Pin::new(Arc::clone(&self.generation))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.generation.counts.leave();
    }
}

/// A running request with its generation. Dropping it cancels the request.
pub struct Answering {
    /// Stands first: the request is cancelled before the generation is let go.
    handle: RequestHandle,
    pin: Pin,
    is_over: bool,
}

impl Answering {
    /// The generation that serves this request, and its id.
    pub fn pin(&self) -> &Pin {
        &self.pin
    }

    fn told(&mut self, outcome: Outcome) -> Outcome {
        let generation = &self.pin.generation;
        let outcome = match outcome {
            Outcome::Finished { reason: FinishReason::Cancelled, .. } if generation.ended.is_cancelled() => {
                Outcome::Failed(ReloadError::Ended { id: generation.id }.report())
            }
            outcome => outcome,
        };
        match &outcome {
            Outcome::Token { .. } => return outcome,
            Outcome::Finished { .. } => generation.counts.end(false),
            Outcome::Failed(report) => generation.counts.end(is_fault(report.code)),
        }
        self.is_over = true;
        outcome
    }
}

/// Waits for each outcome; ends after the last one.
impl Iterator for Answering {
    type Item = Outcome;

    fn next(&mut self) -> Option<Outcome> {
        if self.is_over {
            return None;
        }
        match self.handle.next() {
            Some(outcome) => Some(self.told(outcome)),
            None => {
                let stopped = Outcome::Failed(EngineError::Stopped.report());
                Some(self.told(stopped))
            }
        }
    }
}

/// Whether a failed request speaks against what the generation brought, and not against the request.
fn is_fault(code: &str) -> bool {
    let area = code.split('.').next().unwrap_or_default();
    // A policy that leaves no token ends the request in the engine's words.
    matches!(area, "plugin" | "policy" | "device") || code == "engine.logits"
}

#[cfg(test)]
mod tests {
    use super::is_fault;

    #[test]
    fn what_a_generation_brought_is_at_fault_and_a_request_is_not() {
        for code in ["plugin.trap", "plugin.time-budget", "policy.limit", "device.run", "engine.logits"] {
            assert!(is_fault(code), "{code}");
        }
        for code in ["engine.prompt-too-long", "constraint.schema", "reload.generation-ended", ""] {
            assert!(!is_fault(code), "{code}");
        }
    }
}
