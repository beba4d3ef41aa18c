//! The sampling-policy hook: what a policy says of itself, and one instance of it a request.

use std::fmt;
use std::sync::Arc;

use host_sampling::{ConstraintError, Edits, RowView, TokenTable};
use serde::{Deserialize, Serialize};

use crate::error::PluginError;
use crate::package::PluginName;

/// What a policy reads of a step's logits; nothing else is computed for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it edits by what was accepted.
    #[default]
    MaskOnly,
    /// At most so many of the most likely tokens.
    TopK(u32),
    /// Any logit, and the entropy; the profile must grant [`Right::FullLogits`].
    FullLogits,
}

/// What a policy says of itself, the same at each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyTraits {
    /// What it reads.
    pub needs: Needs,
    /// It never changes which token is the most likely one.
    pub is_argmax_invariant: bool,
    /// It offers [`PolicyInstance::rollback`].
    pub supports_rollback: bool,
    /// It offers [`PolicyInstance::fork`].
    pub supports_fork: bool,
}

/// A right that a profile may grant to a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// To read every logit.
    FullLogits,
}

impl Right {
    /// The name in profiles.
    pub fn name(self) -> &'static str {
        match self {
            Right::FullLogits => "full-logits",
        }
    }
}

/// What a profile grants to a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(Vec<Right>);

impl Grants {
    /// These rights and no others.
    pub fn new(rights: impl IntoIterator<Item = Right>) -> Self {
        Grants(rights.into_iter().collect())
    }

    /// Whether a right is granted.
    pub fn has(&self, right: Right) -> bool {
        self.0.contains(&right)
    }

    /// Refuses a policy that needs more than is granted.
    ///
    /// # Errors
    /// [`PluginError::NotGranted`].
    pub fn cover(&self, plugin: &PluginName, traits: PolicyTraits) -> Result<(), PluginError> {
        let right = Right::FullLogits;
        if traits.needs == Needs::FullLogits && !self.has(right) {
            return Err(PluginError::NotGranted { plugin: plugin.clone(), right: right.name() });
        }
        Ok(())
    }
}

/// What a policy may ask of the model's vocabulary. Answers are the same at each call.
pub trait PolicyVocabulary: Send + Sync {
    /// Ids are below this: the width of the logits.
    fn n_vocab(&self) -> u32;

    /// The tokens that end a generation.
    fn eos_ids(&self) -> Vec<u32>;

    /// The bytes that a token adds to a text; `None` for an id without a token.
    fn token_bytes(&self, id: u32) -> Option<Vec<u8>>;

    /// The ids of a text in the middle of a text; special tokens written in it are plain text. `None` for a text that
    /// the vocabulary cannot spell.
    fn encode(&self, text: &str) -> Option<Vec<u32>>;

    /// The tokens as bytes, for constraints. Built from the methods above, anew at each call; a vocabulary that knows
    /// which tokens are special, or is asked often, gives its own.
    ///
    /// # Errors
    /// [`ConstraintError::Vocabulary`].
    fn token_table(&self) -> Result<Arc<TokenTable>, ConstraintError> {
        let tokens = (0..self.n_vocab()).map(|id| self.token_bytes(id).unwrap_or_default()).collect();
        TokenTable::new(self.n_vocab() as usize, tokens, &[], &self.eos_ids())
    }
}

/// A vocabulary without tokens, for a plugin that is only asked to describe itself.
#[derive(Clone, Copy, Debug)]
pub struct NoVocabulary;

impl PolicyVocabulary for NoVocabulary {
    fn n_vocab(&self) -> u32 {
        0
    }

    fn eos_ids(&self) -> Vec<u32> {
        Vec::new()
    }

    fn token_bytes(&self, _: u32) -> Option<Vec<u8>> {
        None
    }

    fn encode(&self, _: &str) -> Option<Vec<u32>> {
        None
    }
}

/// A plugin that takes part in the choice of each token.
pub trait SamplingPolicy: Send + Sync {
    /// Which plugin this is.
    fn name(&self) -> &PluginName;

    /// What it says of itself, asked in a guest of its own.
    ///
    /// # Errors
    /// A fault of the guest.
    fn describe(&self) -> Result<PolicyTraits, PluginError>;

    /// The policy of one request, in a guest of its own. `params` is a JSON object.
    ///
    /// # Errors
    /// [`PluginError::NotGranted`], refused params, a fault of the guest.
    fn open(
        &self,
        params: &str,
        vocabulary: Arc<dyn PolicyVocabulary>,
        grants: &Grants,
    ) -> Result<Box<dyn PolicyInstance>, PluginError>;
}

/// A policy that several hold.
impl<P: SamplingPolicy + ?Sized> SamplingPolicy for Arc<P> {
    fn name(&self) -> &PluginName {
        (**self).name()
    }

    fn describe(&self) -> Result<PolicyTraits, PluginError> {
        (**self).describe()
    }

    fn open(
        &self,
        params: &str,
        vocabulary: Arc<dyn PolicyVocabulary>,
        grants: &Grants,
    ) -> Result<Box<dyn PolicyInstance>, PluginError> {
        (**self).open(params, vocabulary, grants)
    }
}

/// What the host tells a policy of one step.
#[derive(Clone, Copy)]
pub struct PolicyInput<'a> {
    /// The step's logits of this request. `None` for a policy that reads none: it is asked before they are there.
    pub row: Option<&'a RowView<'a>>,
    /// Tokens accepted since the policy's last step; at the first, the prompt.
    pub accepted: &'a [u32],
    /// The tokens that were generated before this one, whether the policy knows them or not.
    pub generated: &'a [u32],
    /// The request's seed.
    pub seed: u64,
}

impl PolicyInput<'_> {
    /// How many tokens were generated before this one.
    pub fn position(&self) -> u64 {
        self.generated.len() as u64
    }
}

/// The policy of one request. After a fault every further call is refused with [`PluginError::Ended`].
pub trait PolicyInstance: Send {
    /// Which plugin this is.
    fn name(&self) -> &PluginName;

    /// What it said of itself.
    fn traits(&self) -> PolicyTraits;

    /// What the policy does to this step.
    ///
    /// # Errors
    /// A refused call that the policy did not mend, a fault of the guest, a budget spent.
    fn step(&mut self, input: &PolicyInput<'_>) -> Result<Edits, PluginError>;

    /// Forgets the last `n` accepted tokens.
    ///
    /// # Errors
    /// [`PluginError::NotOffered`], or as [`PolicyInstance::step`].
    fn rollback(&mut self, n: u32) -> Result<(), PluginError>;

    /// Another instance that goes on from here on its own. Both share the request's guest: its memory budget is for
    /// both, and a fault ends both.
    ///
    /// # Errors
    /// [`PluginError::NotOffered`], or as [`PolicyInstance::step`].
    fn fork(&mut self) -> Result<Box<dyn PolicyInstance>, PluginError>;
}

impl fmt::Debug for dyn PolicyInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyInstance").field("name", self.name()).finish_non_exhaustive()
    }
}
