//! The host's side of a policy's guest: the step's functions, the vocabulary's, and the guest's limits.

use host_core::{Breaker, Sampler};
use host_plugins::{Budget, PolicyStep, StepRefusal};
use wasmtime::Result;
use wasmtime::component::Resource;

use crate::bindings::graph::tenon::plugin::types;
use crate::bindings::sampling::tenon::plugin::sampling;
use crate::guest::{Fault, Memory};

/// What a guest's handle of a step stands for: the one step of its store.
#[expect(unreachable_pub, reason = "the generated bindings re-export it within their own private module")]
pub struct StepHandle;

/// All that belongs to one request's policy.
pub(crate) struct PolicyGuest {
    pub(crate) step: PolicyStep,
    pub(crate) limits: Memory,
    /// The last log line: a panic's message comes this way.
    pub(crate) last_line: Option<String>,
}

impl PolicyGuest {
    pub(crate) fn new(step: PolicyStep, budget: &Budget) -> Self {
        PolicyGuest { step, limits: Memory::new(budget), last_line: None }
    }
}

type Refusable<T> = Result<std::result::Result<T, types::StepRefusal>>;

/// A refusal in the contract's words; a guest that spent its calls is ended.
fn refusable<T>(result: std::result::Result<T, StepRefusal>) -> Refusable<T> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(StepRefusal::Limit { what: "calls in a step", .. }) => Err(Fault::Calls.into()),
        Err(refusal) => Ok(Err(in_words(refusal))),
    }
}

/// For functions without a refusal: one that is refused ends the guest.
fn certain<T>(result: std::result::Result<T, StepRefusal>) -> Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(StepRefusal::Limit { .. }) => Err(Fault::Calls.into()),
        Err(refusal) => Err(wasmtime::Error::new(refusal)),
    }
}

fn in_words(refusal: StepRefusal) -> types::StepRefusal {
    let mismatch = |subject: String, expected, found| types::Mismatch { subject, expected, found };
    match refusal {
        StepRefusal::NotGranted { call, expected, found } => {
            types::StepRefusal::NotGranted(mismatch(call.to_owned(), expected, found))
        }
        StepRefusal::UnknownToken { token, .. } => types::StepRefusal::UnknownToken(token),
        StepRefusal::Parameter { call, name, expected, found } => {
            types::StepRefusal::Parameter(mismatch(format!("{call}.{name}"), expected, found))
        }
        StepRefusal::Limit { call, what, limit } => {
            types::StepRefusal::Limit(format!("{call}: more than {limit} {what}"))
        }
        StepRefusal::NoStep { .. } => types::StepRefusal::NoStep,
    }
}

impl types::Host for PolicyGuest {}

impl sampling::Host for PolicyGuest {
    fn log(&mut self, line: String) -> Result<()> {
        if !self.step.log(&line) {
            return Err(Fault::Log.into());
        }
        self.last_line = Some(line);
        Ok(())
    }

    fn token_bytes(&mut self, id: u32) -> Result<Option<Vec<u8>>> {
        Ok(self.step.token_bytes(id))
    }

    fn encode(&mut self, text: String) -> Refusable<Vec<u32>> {
        refusable(self.step.encode(&text))
    }
}

impl sampling::HostStep for PolicyGuest {
    fn accepted(&mut self, _: Resource<StepHandle>) -> Result<Vec<u32>> {
        certain(self.step.accepted().map(<[u32]>::to_vec))
    }

    fn position(&mut self, _: Resource<StepHandle>) -> Result<u64> {
        certain(self.step.position())
    }

    fn random_u32(&mut self, _: Resource<StepHandle>) -> Result<u32> {
        certain(self.step.random_u32())
    }

    fn top(&mut self, _: Resource<StepHandle>, k: u32) -> Refusable<Vec<sampling::Candidate>> {
        let candidate = |(id, logit)| sampling::Candidate { id, logit };
        refusable(self.step.top(k).map(|top| top.into_iter().map(candidate).collect()))
    }

    fn get(&mut self, _: Resource<StepHandle>, ids: Vec<u32>) -> Refusable<Vec<f32>> {
        refusable(self.step.get(&ids))
    }

    fn entropy(&mut self, _: Resource<StepHandle>) -> Refusable<f64> {
        refusable(self.step.entropy())
    }

    fn allow_runs(&mut self, _: Resource<StepHandle>, runs: Vec<sampling::Run>) -> Refusable<()> {
        let runs: Vec<_> = runs.into_iter().map(|run| (run.start, run.end)).collect();
        refusable(self.step.allow_runs(&runs))
    }

    fn allow_words(&mut self, _: Resource<StepHandle>, words: Vec<u32>) -> Refusable<()> {
        refusable(self.step.allow_words(words))
    }

    fn bias(&mut self, _: Resource<StepHandle>, ids: Vec<u32>, values: Vec<f32>) -> Refusable<()> {
        refusable(self.step.bias(&ids, &values))
    }

    fn force(&mut self, _: Resource<StepHandle>, ids: Vec<u32>) -> Refusable<()> {
        refusable(self.step.force(&ids))
    }

    fn finish(&mut self, _: Resource<StepHandle>, reason: String) -> Refusable<()> {
        refusable(self.step.finish(&reason))
    }

    fn apply(&mut self, _: Resource<StepHandle>, sampler: sampling::Sampler) -> Refusable<()> {
        refusable(self.step.apply(native(sampler)))
    }

    fn drop(&mut self, _: Resource<StepHandle>) -> Result<()> {
        Ok(())
    }
}

/// The host's sampler of that name.
fn native(sampler: sampling::Sampler) -> Sampler {
    use sampling::Sampler as Named;
    match sampler {
        Named::Repetition(of) => {
            Sampler::Repetition { penalty: of.penalty, context_tokens: of.context_tokens }
        }
        Named::Presence(of) => Sampler::Presence { penalty: of.penalty, context_tokens: of.context_tokens },
        Named::Frequency(of) => Sampler::Frequency { penalty: of.penalty, context_tokens: of.context_tokens },
        Named::Dry(of) => Sampler::Dry {
            multiplier: of.multiplier,
            base: of.base,
            allowed_length: of.allowed_length,
            context_tokens: of.context_tokens,
            sequence_breakers: of.sequence_breakers.into_iter().map(Breaker::Id).collect(),
        },
        Named::TopK(k) => Sampler::TopK { k },
        Named::TopP(p) => Sampler::TopP { p },
        Named::MinP(of) => Sampler::MinP { p: of.p, min_keep: of.min_keep },
        Named::TypicalP(p) => Sampler::TypicalP { p },
        Named::Xtc(of) => Sampler::Xtc { probability: of.probability, threshold: of.threshold },
        Named::TopNSigma(n) => Sampler::TopNSigma { n },
        Named::Temperature(temperature) => Sampler::Temperature { temperature },
        Named::DynamicTemperature(of) => Sampler::DynamicTemperature {
            temperature: of.temperature,
            range: of.range,
            exponent: of.exponent,
        },
    }
}
