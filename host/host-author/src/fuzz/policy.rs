//! Sequences of steps, with tokens taken back and forks, under the judgement of every step.

use std::sync::Arc;

use host_core::{Report, Reported};
use host_plugins::{Budget, PluginError, PluginPackage, PolicyTraits, PolicyVocabulary, SamplingPolicy};
use host_sampling::Edits;

use super::Sequence;
use super::rng::Rng;
use crate::case::policy::PolicyCase;
use crate::case::{self, Placed};
use crate::error::AuthorError;
use crate::judge::{self, Next, Past};
use crate::life::{Actor, Stage};
use crate::project::Project;
use crate::record::EditsRecord;
use crate::tools::Tools;
use crate::trace::{Act, Action, Body, Formula, Outcome, PolicyTrace};
use crate::vocabulary::{FakeVocabulary, Family};

/// Acts of one sequence at most.
const MAX_ACTS: usize = 24;
/// Instances of one sequence at most.
const MAX_INSTANCES: usize = 4;

/// The plugin with all that its cases say of params.
pub(super) struct Subject {
    policy: Box<dyn SamplingPolicy>,
    traits: PolicyTraits,
    cases: Vec<Placed<PolicyCase>>,
    vocabularies: Vec<(Family, Arc<FakeVocabulary>)>,
}

/// An instance of a sequence.
struct Performer {
    actor: Actor,
    past: Past,
    /// What the host would tell it at its next step; none once its request has ended.
    pending: Option<Vec<u32>>,
    has_begun: bool,
}

impl Subject {
    pub(super) fn new(
        project: &Project,
        tools: &Tools,
        package: &PluginPackage,
    ) -> Result<Self, AuthorError> {
        let policy = tools.policy(package, Budget::default())?;
        let traits = policy.describe()?;
        let mut cases = case::read_all::<PolicyCase>(project.folder())?;
        cases.retain(|placed| placed.case.refused.is_none());
        if cases.is_empty() {
            return Err(AuthorError::NoCases { folder: project.folder().join(crate::project::CASES) });
        }
        let vocabularies = Family::ALL.map(|family| (family, Arc::new(FakeVocabulary::new(family)))).to_vec();
        Ok(Subject { policy, traits, cases, vocabularies })
    }

    /// Sequence number `n` of a seed.
    pub(super) fn sequence(&self, seed: u64, n: u64) -> Sequence {
        let mut rng = Rng::new(seed, n);
        let case = &rng.pick(&self.cases).case;
        let family = *rng.pick(&case.vocabularies);
        let (_, vocabulary) =
            self.vocabularies.iter().find(|(found, _)| *found == family).expect("all are there");
        let spelled: Vec<u32> =
            (0..vocabulary.n_vocab()).filter(|id| vocabulary.token_bytes(*id).is_some()).collect();
        let prompt: Vec<u32> = (0..=rng.below(8)).map(|_| *rng.pick(&spelled)).collect();
        let stage = Stage {
            policy: &*self.policy,
            vocabulary: vocabulary.clone(),
            params: case.params_text(),
            grants: case.grants(),
            seed: rng.seed(),
        };
        let trace = PolicyTrace {
            vocabulary: family,
            params: case.params.clone(),
            grants: case.grants.clone(),
            seed: stage.seed,
            n_prompt: prompt.len(),
            actions: Vec::new(),
        };
        let logits_seed = rng.seed();
        let mut run = Run { stage, traits: self.traits, trace, rng, logits_seed, steps: 0 };
        let finding = run.perform(prompt).err();
        let (steps, trace) = (run.steps, run.trace);
        Sequence { steps, finding: finding.map(|report| (report, Body::SamplingPolicy(trace))) }
    }
}

/// One sequence while it goes on.
struct Run<'a> {
    stage: Stage<'a>,
    traits: PolicyTraits,
    trace: PolicyTrace,
    rng: Rng,
    logits_seed: u64,
    steps: u64,
}

impl Run<'_> {
    fn perform(&mut self, prompt: Vec<u32>) -> Result<(), Report> {
        let actor = self.stage.open(prompt.len()).map_err(reported)?;
        let first = Performer { actor, past: Past::default(), pending: Some(prompt), has_begun: false };
        let mut performers = vec![first];
        for _ in 0..MAX_ACTS {
            let on = self.rng.below(performers.len());
            let n_performers = performers.len();
            let performer = &mut performers[on];
            let position = performer.actor.life().position();
            if performer.has_begun && self.traits.supports_rollback && position > 0 && self.rng.one_in(5) {
                self.rollback(on, performer, position)?;
            } else if performer.has_begun
                && self.traits.supports_fork
                && n_performers < MAX_INSTANCES
                && self.rng.one_in(6)
            {
                let fork = self.fork(on, performer)?;
                performers.push(fork);
            } else if performer.pending.is_some() {
                self.step(on, performer)?;
            }
        }
        Ok(())
    }

    fn rollback(&mut self, on: usize, performer: &mut Performer, position: usize) -> Result<(), Report> {
        let n = 1 + self.rng.below(position.min(4));
        self.trace.actions.push(Action { on, act: Act::Rollback(n) });
        performer.actor.rollback(n).map_err(reported)?;
        performer.past.has_rolled_back = true;
        // The host looks at the same step again; what it then takes may be another token.
        performer.pending = Some(Vec::new());
        Ok(())
    }

    fn fork(&mut self, on: usize, performer: &mut Performer) -> Result<Performer, Report> {
        self.trace.actions.push(Action { on, act: Act::Fork });
        let actor = performer.actor.fork().map_err(reported)?;
        performer.past.has_forked = true;
        Ok(Performer { actor, past: performer.past, pending: performer.pending.clone(), has_begun: true })
    }

    fn step(&mut self, on: usize, performer: &mut Performer) -> Result<(), Report> {
        let accepted = performer.pending.take().unwrap_or_default();
        let n_new = if performer.has_begun { accepted.len() } else { 0 };
        let position = (performer.actor.life().position() + n_new) as u64;
        let logits = Formula { seed: self.logits_seed, position };
        let row = logits.row(self.stage.vocabulary.n_vocab());
        performer.has_begun = true;
        self.steps += 1;
        let result = performer.actor.step(&accepted, &row);
        let outcome = Some(outcome(&result));
        self.trace.actions.push(Action { on, act: Act::Step { accepted, logits, outcome } });
        let edits = result.map_err(reported)?;
        let next = judge::step(&self.stage, self.traits, &performer.actor, &row, &edits, performer.past)?;
        let ends = self.stage.vocabulary.eos_ids();
        performer.pending = match next {
            Next::Tokens(tokens) if !tokens.iter().any(|token| ends.contains(token)) => Some(tokens),
            _ => None,
        };
        Ok(())
    }
}

fn reported(error: PluginError) -> Report {
    error.report()
}

/// What a step did, as traces keep it.
pub(crate) fn outcome(result: &Result<Edits, PluginError>) -> Outcome {
    match result {
        Ok(edits) => Outcome::Edits(EditsRecord::of(edits)),
        Err(error) => {
            let report = error.report();
            Outcome::Error(format!("error[{}]: {}", report.code, report.message))
        }
    }
}
