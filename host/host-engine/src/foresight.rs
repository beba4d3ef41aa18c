//! Guides are asked while the device computes: what a policy without an eye for logits does to a step, and what a
//! grammar allows, depends on the tokens before it alone.
//!
//! One thread beside the engine's own does it. What it has not come to when the device is done, the engine's thread
//! takes up, so that a step is never slower than by asking after it.

use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::guide::Guide;

/// A guide to be asked, and the tokens before the step.
pub(crate) struct Ask<'a> {
    pub(crate) guide: &'a mut Guide,
    pub(crate) tokens: &'a [u32],
}

/// The thread that asks. It is made when there is something to ask for the first time.
#[derive(Default)]
pub(crate) struct Foresight {
    thread: Option<ThreadPool>,
}

impl Foresight {
    /// Runs `device` on this thread, and has every guide asked by its end.
    pub(crate) fn during<R>(&mut self, asks: Vec<Ask<'_>>, device: impl FnOnce() -> R) -> R {
        if asks.is_empty() {
            return device();
        }
        let left = Mutex::new(asks.into_iter());
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let ask = || {
            while let Some(Ask { guide, tokens }) = next() {
                guide.foresee(tokens);
            }
        };
        // Without a thread, this one asks.
        let Some(thread) = self.thread() else {
            ask();
            return device();
        };
        thread.in_place_scope(|scope| {
            scope.spawn(|_| ask());
            let result = device();
            ask();
            result
        })
    }

    fn thread(&mut self) -> Option<&ThreadPool> {
        if self.thread.is_none() {
            let name = |_| "tenon-guides".to_owned();
            self.thread = ThreadPoolBuilder::new().num_threads(1).thread_name(name).build().ok();
        }
        self.thread.as_ref()
    }
}
