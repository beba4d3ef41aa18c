//! The thread that owns a model: MLX's streams belong to the thread that made them.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use host_device::DeviceError;

use crate::DEVICE_ID;

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A value on a thread of its own.
pub(crate) struct Worker<T> {
    /// `None` only while it is dropped.
    jobs: Option<Sender<Job<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Moves the value to a new thread.
    ///
    /// # Errors
    /// [`DeviceError::Threads`].
    pub(crate) fn new(mut value: T) -> Result<Self, DeviceError> {
        let (jobs, received) = channel::<Job<T>>();
        let run = move || received.into_iter().for_each(|job| job(&mut value));
        let thread = thread::Builder::new().name("mlx".to_owned()).spawn(run);
        let thread = thread.map_err(|source| DeviceError::Threads { source })?;
        Ok(Worker { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs a function there and waits for what it gives.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] when the thread has ended.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, DeviceError> {
        let (reply, answer) = channel();
        let job: Job<T> = Box::new(move |value| {
            // The caller waits; if it is gone, nobody wants the answer.
            let _ = reply.send(f(value));
        });
        let ended = || DeviceError::Failed { device: DEVICE_ID, said: "its thread has ended".to_owned() };
        self.jobs.as_ref().ok_or_else(ended)?.send(job).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has been reported by the panic itself.
            let _ = thread.join();
        }
    }
}
