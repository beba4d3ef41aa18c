//! The host's side of a policy's guest: the step's functions, the vocabulary's, and the guest's limits.

use host_core::{Breaker, Reported, Sampler};
use host_plugins::{Budget, PolicyConstraint, PolicyStep, StepRefusal};
use host_sampling::{ConstraintError, GrammarSpec, Whitespace};
use wasmtime::Result;
use wasmtime::component::{Resource, ResourceTable};

use crate::contract_0_2::graph::tenon::plugin::types;
use crate::contract_0_2::sampling::tenon::plugin::sampling;
use crate::guest::{Fault, Memory};

/// What a guest's handle of a step stands for: the one step of its store.
#[expect(unreachable_pub, reason = "the generated bindings re-export it within their own private module")]
pub struct StepHandle;

/// All that belongs to one request's policy.
pub(crate) struct PolicyGuest {
    pub(crate) step: PolicyStep,
    pub(crate) limits: Memory,
    /// What the guest's handles of constraints stand for.
    constraints: ResourceTable,
    /// The last log line: a panic's message comes this way.
    pub(crate) last_line: Option<String>,
}

impl PolicyGuest {
    pub(crate) fn new(step: PolicyStep, budget: &Budget) -> Self {
        let limits = Memory::new(budget);
        PolicyGuest { step, limits, constraints: ResourceTable::new(), last_line: None }
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
        StepRefusal::Constraint { call, error } => {
            types::StepRefusal::Parameter(mismatch(call.to_owned(), expected_of(&error), error.to_string()))
        }
        StepRefusal::NotInContract { call, since, found } => types::StepRefusal::NotGranted(mismatch(
            call.to_owned(),
            format!("contract {since}"),
            format!("contract {found}"),
        )),
    }
}

/// What would have been taken instead, as the host's own report says it.
fn expected_of(error: &ConstraintError) -> String {
    let report = error.report();
    report.expected.or(report.mend).unwrap_or_default()
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
        refusable(self.step.allow_runs(runs.into_iter().map(|run| (run.start, run.end)).collect()))
    }

    fn allow_words(&mut self, _: Resource<StepHandle>, words: Vec<u32>) -> Refusable<()> {
        refusable(self.step.allow_words(words))
    }

    fn constrain(
        &mut self,
        _: Resource<StepHandle>,
        constraint: Resource<PolicyConstraint>,
    ) -> Refusable<()> {
        let constraint = self.constraints.get(&constraint)?;
        refusable(self.step.constrain(constraint))
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

impl PolicyGuest {
    fn compile(&mut self, call: &'static str, spec: &GrammarSpec) -> Refusable<Resource<PolicyConstraint>> {
        let compiled = self.step.compile(call, spec);
        self.hold(compiled)
    }

    fn hold(
        &mut self,
        made: std::result::Result<PolicyConstraint, StepRefusal>,
    ) -> Refusable<Resource<PolicyConstraint>> {
        Ok(match refusable(made)? {
            Ok(constraint) => Ok(self.constraints.push(constraint)?),
            Err(refusal) => Err(refusal),
        })
    }
}

impl sampling::HostConstraint for PolicyGuest {
    fn json_schema(
        &mut self,
        schema: String,
        whitespace: sampling::Whitespace,
    ) -> Refusable<Resource<PolicyConstraint>> {
        let whitespace = match whitespace {
            sampling::Whitespace::None => Whitespace::None,
            sampling::Whitespace::Free => Whitespace::Free,
        };
        self.compile("json_schema", &GrammarSpec::JsonSchema { schema, whitespace })
    }

    fn regex(&mut self, expression: String) -> Refusable<Resource<PolicyConstraint>> {
        self.compile("regex", &GrammarSpec::Regex(expression))
    }

    fn grammar(&mut self, grammar: String) -> Refusable<Resource<PolicyConstraint>> {
        self.compile("grammar", &GrammarSpec::Lark(grammar))
    }

    fn fork(&mut self, constraint: Resource<PolicyConstraint>) -> Refusable<Resource<PolicyConstraint>> {
        let forked = self.step.fork_constraint(self.constraints.get(&constraint)?);
        self.hold(forked)
    }

    fn drop(&mut self, constraint: Resource<PolicyConstraint>) -> Result<()> {
        self.constraints.delete(constraint)?;
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
