//! Who wants to see how the opening of a model gets on.

use host_models::Progress;

/// Follows the opening of a model.
pub trait OpenProgress {
    /// Who follows the fetching of the model.
    fn fetching(&mut self) -> &mut dyn Progress;

    /// So many bytes of weights are ready, of so many in all.
    fn preparing(&mut self, done_bytes: u64, total_bytes: u64);
}

/// Nobody does.
#[derive(Debug, Default)]
pub struct NoProgress(());

impl OpenProgress for NoProgress {
    fn fetching(&mut self) -> &mut dyn Progress {
        &mut self.0
    }

    fn preparing(&mut self, _: u64, _: u64) {}
}
