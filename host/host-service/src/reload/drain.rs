//! Weights that do not fit beside the old ones, where a profile lets the old ones go first.
//!
//! No request is admitted for the model meanwhile: each is refused with [`ReloadError::Replacing`]. Running ones end as
//! they began. Where they do not end in time, or the new weights do not load, the old generation serves again.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use host_core::{Report, Reported as _};

use super::error::ReloadError;
use super::generation::Generation;
use super::service::Service;
use super::snapshot::Snapshot;
use super::standing::Standing;

impl Service {
    /// Lets the models `names` of `current` go and makes a generation of `snapshot`.
    ///
    /// # Errors
    /// Why the old generation serves again.
    pub(crate) fn drain_first(
        &self,
        standing: &mut Standing,
        current: Arc<Generation>,
        snapshot: Snapshot,
        names: &[String],
    ) -> Result<Generation, Vec<Report>> {
        self.current.store(Arc::new(current.without(names)));
        if let Err(error) = self.wait_for(standing, &current, &names.join(", ")) {
            self.current.store(current);
            return Err(vec![error.report()]);
        }
        // Whoever holds a generation holds its weights: these were the last.
        let before = current.snapshot.clone();
        standing.forget_all();
        drop(current);
        self.check(snapshot).map_err(|refusal| {
            let mut reports = refusal.reports;
            match self.check(before) {
                Ok(again) => self.current.store(Arc::new(again)),
                Err(refusal) => reports.extend(refusal.reports),
            }
            reports
        })
    }

    /// Waits until nothing runs under `current` and those before it.
    fn wait_for(&self, standing: &Standing, current: &Generation, name: &str) -> Result<(), ReloadError> {
        let seconds = self.options.settings.drain.first_s;
        let began = self.clock.now();
        loop {
            let old = standing.old.iter().map(|old| old.generation.counts.running());
            let running = current.counts.running() + old.sum::<u64>();
            if running == 0 {
                return Ok(());
            }
            if self.clock.now().saturating_sub(began) >= Duration::from_secs(seconds) {
                return Err(ReloadError::NotDrained { name: name.to_owned(), running, seconds });
            }
            thread::sleep(self.options.settings.watch.settle());
        }
    }
}
