//! One step of a policy before any request depends on it.

use std::sync::Arc;

use host_device::{Logits, argmax, top};
use host_engine::RowView;
use host_plugins::{Grants, PluginError, PolicyInput, PolicyVocabulary, SamplingPolicy};

/// Logits that fall from token to token.
struct Falling(Vec<f32>);

impl Logits for Falling {
    fn n_rows(&self) -> usize {
        1
    }

    fn n_vocab(&self) -> usize {
        self.0.len()
    }

    fn read(&self, _: usize, out: &mut Vec<f32>) {
        out.clone_from(&self.0);
    }

    fn argmax(&self, _: usize) -> Option<u32> {
        argmax(&self.0)
    }

    fn top(&self, _: usize, n: usize) -> Vec<(u32, f32)> {
        top(&self.0, n)
    }
}

/// The 256 bytes and an end token: for profiles whose model is not loaded.
pub(crate) struct Bytes;

impl Bytes {
    const END: u32 = 256;
}

impl PolicyVocabulary for Bytes {
    fn n_vocab(&self) -> u32 {
        Bytes::END + 1
    }

    fn eos_ids(&self) -> Vec<u32> {
        vec![Bytes::END]
    }

    fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        u8::try_from(id).ok().map(|byte| vec![byte])
    }

    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        Some(text.bytes().map(u32::from).collect())
    }
}

/// Opens the policy with its params and has it take one step after a prompt of one token.
///
/// # Errors
/// Refused params, a right that is not granted, a fault of the guest.
pub(crate) fn try_policy(
    policy: &dyn SamplingPolicy,
    params: &str,
    grants: &Grants,
    vocabulary: &Arc<dyn PolicyVocabulary>,
) -> Result<(), PluginError> {
    let mut instance = policy.open(params, Arc::clone(vocabulary), grants)?;
    let logits = Falling((0..vocabulary.n_vocab()).map(|id| -(id as f32) / 16.0).collect());
    let input = PolicyInput { row: Some(&RowView::new(&logits, 0)), accepted: &[0], generated: &[], seed: 0 };
    instance.step(&input).map(drop)
}
