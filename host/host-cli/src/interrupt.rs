//! Ctrl-C: ends the running answer; a second time, or while nothing is being generated, ends the program.

use std::sync::{Arc, Mutex, PoisonError};

use host_engine::CancelFlag;

use crate::error::CliError;
use crate::exit::Exit;

/// Watches for Ctrl-C from its creation on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    running: Arc<Mutex<Option<CancelFlag>>>,
}

impl Interrupt {
    /// Starts watching; once in a process.
    ///
    /// # Errors
    /// [`CliError::Signals`].
    pub(crate) fn watch() -> Result<Self, CliError> {
        let interrupt = Interrupt::default();
        let running = Arc::clone(&interrupt.running);
        ctrlc::set_handler(move || {
            let running = running.lock().unwrap_or_else(PoisonError::into_inner);
            match &*running {
                Some(flag) if !flag.is_cancelled() => flag.cancel(),
                _ => std::process::exit(Exit::Interrupted.code().into()),
            }
        })
        .map_err(|source| CliError::Signals { source })?;
        Ok(interrupt)
    }

    /// While the guard lives, Ctrl-C raises `flag`.
    pub(crate) fn guard(&self, flag: &CancelFlag) -> Guard<'_> {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(flag.clone());
        Guard(self)
    }
}

/// See [`Interrupt::guard`].
pub(crate) struct Guard<'a>(&'a Interrupt);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
