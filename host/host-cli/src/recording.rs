//! `generate --record-policy`: what the policy of a run saw and did, for `plugin replay`.

use std::path::Path;

use host_author::{RecordedPolicy, Recorder};
use host_plugins::PolicyInstance;
use host_service::Opened;

use crate::error::{CliError, Failure};

/// Opens the composition's policy so that its run is recorded in `path`.
///
/// # Errors
/// [`CliError::NothingToRecord`] without a policy; a policy that does not open; a file that cannot be made.
pub(crate) fn record(opened: &Opened, path: &Path) -> Result<(Recorder, Box<dyn PolicyInstance>), Failure> {
    let composed = opened.composition.policy().zip(opened.policy.as_ref());
    let (facts, policy) = composed.ok_or(CliError::NothingToRecord)?;
    let tokenizer = &opened.tokenizer;
    let of_run = RecordedPolicy {
        digest: facts.plugin.digest.to_string(),
        params: facts.params.clone(),
        grants: facts.grants.clone(),
        special_ids: (0..tokenizer.n_vocab() as u32).filter(|id| tokenizer.is_special(*id)).collect(),
    };
    let recorder = Recorder::new(path, of_run, policy.vocabulary().clone());
    let instance = recorder.record(policy.open_over(recorder.vocabulary())?)?;
    Ok((recorder, instance))
}

/// Ends the record, and says where it stops where that is not the run's end.
///
/// # Errors
/// A file that could not be written.
pub(crate) fn finish(recorder: Recorder) -> Result<(), Failure> {
    let recorded = recorder.finish()?;
    if !recorded.is_whole {
        eprintln!("the record is full: it holds the policy's first {} steps", recorded.steps);
    }
    Ok(())
}
