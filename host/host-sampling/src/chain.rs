//! The samplers of one request: compiled once, run at every step.

use host_core::{SamplingChain, SamplingError};
use host_device::Logits;

use crate::candidates::{Candidates, Scratch};
use crate::edits::Edits;
use crate::error::SampleError;
use crate::link::{Link, Surroundings, bias_by, summed};
use crate::logprobs::{TokenLogprobs, token_logprobs};
use crate::random::{Draw, Key};

/// The samplers of one request, with what they remember of it. A clone is a fork: both go on alone.
#[derive(Clone, Debug)]
pub struct Chain {
    links: Vec<Link>,
    special_ids: Vec<u32>,
    seed: u64,
    scratch: Scratch,
}

/// One row of logits, and where its request stands.
#[derive(Clone, Copy)]
pub struct StepInput<'a> {
    /// The step's logits.
    pub logits: &'a dyn Logits,
    /// The request's row among them.
    pub row: usize,
    /// The prompt and what was generated.
    pub history: &'a [u32],
    /// How many tokens were generated before this one: the position of the draw.
    pub step: u64,
    /// Also give log-probabilities, and those of this many most likely tokens.
    pub logprobs: Option<usize>,
}

/// The token that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its id.
    pub token_id: u32,
    /// What [`StepInput::logprobs`] asked for: after the step's mask and bias and after the penalties that lead the
    /// chain, before any filter or temperature.
    pub logprobs: Option<TokenLogprobs>,
}

impl Chain {
    /// Compiles a chain.
    ///
    /// # Errors
    /// [`SamplingError`] names a sampler and its parameter outside the range.
    pub fn new(chain: &SamplingChain) -> Result<Self, SamplingError> {
        let links = chain.samplers.iter().map(Link::new).collect::<Result<_, _>>()?;
        let special_ids = chain.special_ids.clone();
        Ok(Chain { links, special_ids, seed: chain.seed, scratch: Scratch::default() })
    }

    /// The seed of the draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Chooses the token of one step.
    ///
    /// [`Edits::finish`] is not looked at: it ends a request before a token is chosen. After an error nothing was
    /// chosen, and the chain stands where it stood.
    ///
    /// # Errors
    /// [`SampleError`]: broken logits, nothing left to choose from, or edits that make no sense.
    pub fn choose(&mut self, step: &StepInput<'_>, edits: &Edits) -> Result<Choice, SampleError> {
        let choice = self.pick(step, edits)?;
        for link in &mut self.links {
            link.chosen(choice.token_id);
        }
        Ok(choice)
    }

    /// Forgets the last `n` choices: the history ends that much earlier from now on.
    pub fn rollback(&mut self, n: usize) {
        for link in &mut self.links {
            link.rollback(n);
        }
    }

    fn pick(&mut self, step: &StepInput<'_>, edits: &Edits) -> Result<Choice, SampleError> {
        let n_vocab = step.logits.n_vocab();
        if let Some(mask) = edits.allowed.as_ref().filter(|mask| mask.n_vocab() != n_vocab) {
            return Err(SampleError::OtherVocabulary { found: mask.n_vocab(), n_vocab });
        }
        let forced = edits.forced.first().copied();
        if let Some(token) = forced {
            check_forced(token, n_vocab, edits)?;
            if step.logprobs.is_none() {
                return Ok(Choice { token_id: token, logprobs: None });
            }
        }
        let mut extra = extra_links(edits)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = run(step, edits, forced, &mut extra, self, &mut scratch);
        self.scratch = scratch;
        outcome
    }
}

fn check_forced(token: u32, n_vocab: usize, edits: &Edits) -> Result<(), SampleError> {
    if token as usize >= n_vocab {
        return Err(SampleError::UnknownToken { token, n_vocab });
    }
    match &edits.allowed {
        Some(mask) if !mask.contains(token) => Err(SampleError::ForcedExcluded { token }),
        _ => Ok(()),
    }
}

/// The samplers of a step's edits; they see its history anew.
fn extra_links(edits: &Edits) -> Result<Vec<Link>, SampleError> {
    if let Some(sampler) = edits.samplers.iter().find(|sampler| sampler.is_stateful()) {
        return Err(SampleError::Stateful { name: sampler.name() });
    }
    edits.samplers.iter().map(|sampler| Link::new(sampler).map_err(SampleError::from)).collect()
}

fn run(
    step: &StepInput<'_>,
    edits: &Edits,
    forced: Option<u32>,
    extra: &mut [Link],
    chain: &mut Chain,
    scratch: &mut Scratch,
) -> Result<Choice, SampleError> {
    let mut candidates = Candidates::new(step.logits, step.row, scratch)?;
    let mut key = Key::new(chain.seed, step.step);
    let mut around = Surroundings { history: step.history, special_ids: &chain.special_ids, key: &mut key };
    if let Some(mask) = &edits.allowed {
        candidates.allow(mask);
    }
    if !edits.bias.is_empty() {
        bias_by(&mut candidates, &summed(&edits.bias))?;
    }
    let links: Vec<&mut Link> = extra.iter_mut().chain(&mut chain.links).collect();
    let n_penalties = links.iter().take_while(|link| link.is_penalty()).count();
    let mut penalised: Option<Vec<f32>> = None;
    let mut is_drawn = true;
    for (i, link) in links.into_iter().enumerate() {
        if i == n_penalties {
            penalised = capture(step, &mut candidates);
        }
        // What follows a forced token's log-probabilities changes nothing.
        if forced.is_some() && i >= n_penalties {
            break;
        }
        link.apply(&mut candidates, &mut around)?;
        is_drawn = !matches!(link, Link::Temperature(0.0));
    }
    if penalised.is_none() {
        penalised = capture(step, &mut candidates);
    }
    let token_id = match forced {
        Some(token) => token,
        None if is_drawn => candidates.draw(&Draw::new(key, step.logits.n_vocab() as u32))?,
        None => candidates.most_likely()?.0,
    };
    let logprobs = step.logprobs.zip(penalised).map(|(n, row)| token_logprobs(&row, token_id, n));
    Ok(Choice { token_id, logprobs })
}

/// The row as the penalties left it, where log-probabilities are asked for.
fn capture(step: &StepInput<'_>, candidates: &mut Candidates<'_>) -> Option<Vec<f32>> {
    step.logprobs.and_then(|_| candidates.dense().map(<[f32]>::to_vec))
}
