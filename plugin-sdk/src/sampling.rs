//! Write a sampling policy: a part in the choice of each token of a request.
//!
//! A whole policy, which never lets the same token follow itself:
//!
//! ```
//! use plugin_sdk::sampling::{SamplingPolicy, Step, Vocabulary};
//! use plugin_sdk::{Config, Error, register_sampling_policy};
//!
//! struct NoStutter;
//!
//! impl SamplingPolicy for NoStutter {
//!     fn open(params: &Config, _vocabulary: &Vocabulary) -> Result<Self, Error> {
//!         params.refuse_unknown(&[])?;
//!         Ok(NoStutter)
//!     }
//!
//!     fn step(&mut self, step: &Step) -> Result<(), Error> {
//!         let Some(last) = step.accepted().last().copied() else { return Ok(()) };
//!         step.bias(&[last], &[f32::NEG_INFINITY])
//!     }
//! }
//!
//! register_sampling_policy!(NoStutter);
//! # fn main() {}
//! ```
//!
//! The host makes an instance for each request. A step's edits act in this order, whatever the order of the calls:
//! [`Step::finish`], [`Step::force`], masks, biases, the policy's samplers, then the request's own chain and draw.

use std::cell::RefCell;

use crate::sampling_bindings::exports::tenon::plugin::policy;
use crate::sampling_bindings::tenon::plugin::sampling;
use crate::{Config, Error};

pub use crate::sampling_bindings::tenon::plugin::sampling::{
    Candidate, Dry, DynamicTemperature, MinP, Needs, Penalty, Run, Sampler, Traits, Vocabulary, Whitespace,
    Xtc,
};

/// Takes part in the choice of each token of one request.
pub trait SamplingPolicy: Sized + 'static {
    /// What the policy reads and offers; the host holds it to that. Without an own one: it reads nothing of the
    /// logits, and offers neither `rollback` nor `fork`.
    fn describe() -> Traits {
        Traits {
            needs: Needs::MaskOnly,
            argmax_invariant: false,
            supports_rollback: false,
            supports_fork: false,
        }
    }

    /// Opens the policy of one request with the profile's `params`.
    ///
    /// # Errors
    /// [`Error`], usually passed on from `params`. The host refuses the request with it.
    fn open(params: &Config, vocabulary: &Vocabulary) -> Result<Self, Error>;

    /// Takes part in the choice of one token.
    ///
    /// # Errors
    /// [`Error`], usually passed on with `?` from `step`. The host ends the request with it.
    fn step(&mut self, step: &Step) -> Result<(), Error>;

    /// Forgets the last `n` accepted tokens. Called only where [`SamplingPolicy::describe`] offers it.
    ///
    /// # Errors
    /// [`Error`]; the host ends the request with it.
    fn rollback(&mut self, n: u32) -> Result<(), Error> {
        Err(Error::Internal(format!("rollback({n}) of a policy that does not offer it")))
    }

    /// Another policy that goes on from here on its own. Called only where [`SamplingPolicy::describe`] offers it.
    ///
    /// # Errors
    /// [`Error`]; the host ends the request with it.
    fn fork(&self) -> Result<Self, Error> {
        Err(Error::Internal("fork of a policy that does not offer it".to_owned()))
    }
}

/// Writes a line to the host's log.
pub fn log(line: &str) {
    sampling::log(line);
}

/// The bytes that a token adds to a text; `None` for an id without a token.
pub fn token_bytes(id: u32) -> Option<Vec<u8>> {
    sampling::token_bytes(id)
}

/// The token ids of a text in the middle of a text; special tokens written in it are plain text.
///
/// # Errors
/// [`Error::Step`] for a text that is too long or cannot be spelled.
pub fn encode(text: &str) -> Result<Vec<u32>, Error> {
    Ok(sampling::encode(text)?)
}

/// What a text must be, compiled for the model's vocabulary. The host keeps it in step with what is generated: the
/// token of the first step that it constrains is the first of its text, and a rollback needs no word of the policy.
#[derive(Debug)]
pub struct Constraint(sampling::Constraint);

impl Constraint {
    /// A JSON value that satisfies this schema, itself JSON; `whitespace` is what may stand between its parts.
    ///
    /// # Errors
    /// [`Error::Step`] names what of the schema cannot be enforced, read or afforded.
    pub fn json_schema(schema: &str, whitespace: Whitespace) -> Result<Self, Error> {
        Ok(Constraint(sampling::Constraint::json_schema(schema, whitespace)?))
    }

    /// A text that this regular expression, in the form of Rust's, matches as a whole.
    ///
    /// # Errors
    /// As [`Constraint::json_schema`].
    pub fn regex(expression: &str) -> Result<Self, Error> {
        Ok(Constraint(sampling::Constraint::regex(expression)?))
    }

    /// A text of this grammar in Lark's form.
    ///
    /// # Errors
    /// As [`Constraint::json_schema`].
    pub fn grammar(grammar: &str) -> Result<Self, Error> {
        Ok(Constraint(sampling::Constraint::grammar(grammar)?))
    }

    /// Another constraint that stands where this one does and goes on alone: for the fork of a policy.
    ///
    /// # Errors
    /// [`Error::Step`] where the request has too many.
    pub fn fork(&self) -> Result<Self, Error> {
        Ok(Constraint(self.0.fork()?))
    }
}

/// One step, while the host's call lasts. A refused call changes nothing; pass the error on with `?`.
#[derive(Debug)]
pub struct Step<'a>(&'a sampling::Step);

impl Step<'_> {
    /// Tokens accepted since the last step; at the first, the prompt.
    pub fn accepted(&self) -> Vec<u32> {
        self.0.accepted()
    }

    /// How many tokens were generated before this one.
    pub fn position(&self) -> u64 {
        self.0.position()
    }

    /// The `k` most likely tokens, most likely first, lower id first on ties.
    ///
    /// # Errors
    /// [`Error::Step`] where the needs are neither `TopK` of at least `k` nor `FullLogits`.
    pub fn top(&self, k: u32) -> Result<Vec<Candidate>, Error> {
        Ok(self.0.top(k)?)
    }

    /// The logits of some tokens.
    ///
    /// # Errors
    /// [`Error::Step`] where the needs are not `FullLogits`, or for an id beyond the vocabulary.
    pub fn get(&self, ids: &[u32]) -> Result<Vec<f32>, Error> {
        Ok(self.0.get(ids)?)
    }

    /// The entropy of the softmax, in nats.
    ///
    /// # Errors
    /// [`Error::Step`] where the needs are not `FullLogits`.
    pub fn entropy(&self) -> Result<f64, Error> {
        Ok(self.0.entropy()?)
    }

    /// A random number of the request's seed, the position and the draws before it in this step.
    pub fn random_u32(&self) -> u32 {
        self.0.random_u32()
    }

    /// Only the tokens of these runs may follow; several masks of a step leave what is in all of them.
    ///
    /// # Errors
    /// [`Error::Step`] for a run that ends before it starts or beyond the vocabulary, or for too many.
    pub fn allow_runs(&self, runs: &[Run]) -> Result<(), Error> {
        Ok(self.0.allow_runs(runs)?)
    }

    /// Only tokens whose bits are set may follow: 32 to a word, lowest id in the lowest bit.
    ///
    /// # Errors
    /// [`Error::Step`] for more words than the vocabulary has.
    pub fn allow_words(&self, words: &[u32]) -> Result<(), Error> {
        Ok(self.0.allow_words(words)?)
    }

    /// Only tokens that the constraint allows after what was generated may follow, besides other masks.
    ///
    /// # Errors
    /// [`Error::Step`] where the text went on without the constraint and is none of its own, or where its mask costs
    /// too much.
    pub fn constrain(&self, constraint: &Constraint) -> Result<(), Error> {
        Ok(self.0.constrain(&constraint.0)?)
    }

    /// Adds `values` to the logits of `ids`; negative infinity excludes a token.
    ///
    /// # Errors
    /// [`Error::Step`] for lists of unequal lengths, ids beyond the vocabulary, values that are no numbers.
    pub fn bias(&self, ids: &[u32], values: &[f32]) -> Result<(), Error> {
        Ok(self.0.bias(ids, values)?)
    }

    /// These tokens follow, whatever the logits say.
    ///
    /// # Errors
    /// [`Error::Step`] for ids beyond the vocabulary or too many.
    pub fn force(&self, ids: &[u32]) -> Result<(), Error> {
        Ok(self.0.force(ids)?)
    }

    /// Ends the request without a further token.
    ///
    /// # Errors
    /// [`Error::Step`] for a reason that is too long.
    pub fn finish(&self, reason: &str) -> Result<(), Error> {
        Ok(self.0.finish(reason)?)
    }

    /// Adds a native sampler before the request's chain; several act in the order of their calls.
    ///
    /// # Errors
    /// [`Error::Step`] for a parameter out of its range.
    pub fn apply(&self, sampler: Sampler) -> Result<(), Error> {
        Ok(self.0.apply(&sampler)?)
    }
}

/// A policy behind the contract's resource.
#[doc(hidden)]
pub struct PolicyCell<P>(RefCell<P>);

impl<P: SamplingPolicy> policy::GuestInstance for PolicyCell<P> {
    fn open(params: String, vocabulary: Vocabulary) -> Result<policy::Instance, policy::PluginError> {
        let params = Config::parse_params(&params)?;
        Ok(handle(P::open(&params, &vocabulary)?))
    }

    fn step(&self, step: &sampling::Step) -> Result<(), policy::PluginError> {
        Ok(self.0.borrow_mut().step(&Step(step))?)
    }

    fn rollback(&self, n: u32) -> Result<(), policy::PluginError> {
        Ok(self.0.borrow_mut().rollback(n)?)
    }

    fn fork(&self) -> Result<policy::Instance, policy::PluginError> {
        Ok(handle(self.0.borrow().fork()?))
    }
}

fn handle<P: SamplingPolicy>(policy: P) -> policy::Instance {
    policy::Instance::new(PolicyCell(RefCell::new(policy)))
}

/// What [`SamplingPolicy::describe`] says; the first call that a guest gets.
#[doc(hidden)]
pub fn describe<P: SamplingPolicy>() -> Traits {
    // A panic ends in a trap without words; the log line before it says where.
    std::panic::set_hook(Box::new(|panic| sampling::log(&panic.to_string())));
    P::describe()
}
