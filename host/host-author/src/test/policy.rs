//! One case of a sampling policy: its own expectations first, then the promises of every policy, then refused calls.

use std::sync::Arc;

use host_core::{Report, Reported};
use host_plugins::{
    Budget, PluginError, PluginPackage, PolicyTraits, PolicyVocabulary, SamplingPolicy, StepBudget,
};
use host_sampling::Edits;

use super::{CaseResult, not_refused, one_line};
use crate::case::Placed;
use crate::case::policy::{PolicyCase, ReadyStep};
use crate::error::AuthorError;
use crate::judge::{self, Next, Past};
use crate::life::{Actor, Stage};
use crate::record::EditsRecord;
use crate::row::Row;
use crate::tools::Tools;
use crate::vocabulary::{FakeVocabulary, Family};

/// Calls after which the host refuses one, in turn.
const REFUSED_CALLS: usize = 8;

/// Runs one case with each of its vocabularies.
pub(super) fn run(
    tools: &Tools,
    package: &PluginPackage,
    placed: &Placed<PolicyCase>,
) -> Result<Vec<CaseResult>, AuthorError> {
    let policy = tools.policy(package, Budget::default())?;
    let mut results = Vec::new();
    for family in &placed.case.vocabularies {
        let play = Play::new(placed, *family)?;
        let failures = play.failures(tools, package, &*policy)?;
        results.push(CaseResult {
            file: placed.file.clone(),
            number: placed.number,
            about: placed.case.about.clone(),
            vocabulary: Some(family.name()),
            failures,
        });
    }
    Ok(results)
}

/// A case with one vocabulary.
struct Play<'a> {
    case: &'a PolicyCase,
    vocabulary: Arc<FakeVocabulary>,
    prompt: Vec<u32>,
    steps: Vec<ReadyStep>,
}

impl<'a> Play<'a> {
    fn new(placed: &'a Placed<PolicyCase>, family: Family) -> Result<Self, AuthorError> {
        let vocabulary = Arc::new(FakeVocabulary::new(family));
        let (prompt, steps) = (placed.prompt(&vocabulary)?, placed.steps(&vocabulary)?);
        if placed.case.refused.is_some() != steps.is_empty() {
            return Err(
                placed.wrong("the steps".to_owned(), "steps, or `refused` with the code of `open`'s error")
            );
        }
        Ok(Play { case: &placed.case, vocabulary, prompt, steps })
    }

    fn stage<'p>(&self, policy: &'p dyn SamplingPolicy) -> Stage<'p> {
        Stage {
            policy,
            vocabulary: self.vocabulary.clone(),
            params: self.case.params_text(),
            grants: self.case.grants(),
            seed: self.case.seed,
        }
    }

    fn failures(
        &self,
        tools: &Tools,
        package: &PluginPackage,
        policy: &dyn SamplingPolicy,
    ) -> Result<Vec<Report>, AuthorError> {
        let stage = self.stage(policy);
        if let Some(code) = &self.case.refused {
            return Ok(refused(&stage, code).err().into_iter().collect());
        }
        let traits = policy.describe()?;
        let mut failures: Vec<Report> = self.expectations(&stage).err().into_iter().collect();
        if failures.is_empty() {
            failures.extend(self.promises(&stage, traits).err());
            failures.extend(self.refused_calls(tools, package)?);
        }
        Ok(failures)
    }

    /// The row of a step, after its tokens were accepted.
    fn row(&self, step: &ReadyStep, position: usize) -> Arc<Row> {
        let n_vocab = self.vocabulary.n_vocab();
        match &step.logits {
            Some(some) => Arc::new(Row::of_some(n_vocab, some)),
            None => judge::row_at(self.case.logits_seed, position, n_vocab),
        }
    }

    /// Brings an actor to the step's tokens and takes the step.
    fn take(
        &self,
        actor: &mut Actor,
        i: usize,
    ) -> Result<(Arc<Row>, Result<Edits, PluginError>), PluginError> {
        let step = &self.steps[i];
        if step.rollback > 0 {
            actor.rollback(step.rollback as usize)?;
        }
        let prompt = if i == 0 { &self.prompt[..] } else { &[] };
        let accepted = [prompt, &step.accept].concat();
        let row = self.row(step, actor.life().position() + step.accept.len());
        let edits = actor.step(&accepted, &row);
        Ok((row, edits))
    }

    /// Each step does what the case says, and nothing else.
    fn expectations(&self, stage: &Stage<'_>) -> Result<(), Report> {
        let mut actor = stage.open(self.prompt.len()).map_err(|error| judge::fault(&error, "`open`"))?;
        for (i, step) in self.steps.iter().enumerate() {
            let at = format!("step {}", i + 1);
            let (_, edits) = self.take(&mut actor, i).map_err(|error| judge::fault(&error, &at))?;
            let found = match edits {
                Ok(edits) => Ok(EditsRecord::of(&edits)),
                Err(error) if step.expected.is_ok() => return Err(judge::fault(&error, &at)),
                Err(error) => Err(error.report().code.to_owned()),
            };
            if found != step.expected {
                let told = |outcome: &Result<EditsRecord, String>| match outcome {
                    Ok(record) => record.told(),
                    Err(code) => format!("error[{code}]"),
                };
                return Err(Report::new("author.case-failed", format!("{at} does something else"))
                    .expected(told(&step.expected))
                    .found(told(&found)));
            }
            if found.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The same steps again, with a fork and a token taken back at each of them.
    fn promises(&self, stage: &Stage<'_>, traits: PolicyTraits) -> Result<(), Report> {
        let mut actor = stage.open(self.prompt.len()).map_err(|error| judge::fault(&error, "`open`"))?;
        let mut past = Past::default();
        for i in 0..self.steps.len() {
            let at = format!("step {}", i + 1);
            let fault = |error: PluginError| judge::fault(&error, &at);
            if traits.supports_fork && i > 0 {
                actor = actor.fork().map_err(fault)?;
                past.has_forked = true;
            }
            past.has_rolled_back |= self.steps[i].rollback > 0;
            let (row, edits) = self.take(&mut actor, i).map_err(fault)?;
            // The case says so, and its own pass has judged it.
            let Ok(edits) = edits else { return Ok(()) };
            let next =
                judge::step(stage, traits, &actor, &row, &edits, past).map_err(|report| report.note(&*at))?;
            if traits.supports_rollback {
                past.has_rolled_back = true;
                self.there_and_back(stage, traits, &mut actor, (&row, next, past))
                    .map_err(|report| report.note(format!("{at}, after the next token was taken back")))?;
            }
        }
        Ok(())
    }

    /// Goes one step on and takes it back: the step before must come out as it was.
    fn there_and_back(
        &self,
        stage: &Stage<'_>,
        traits: PolicyTraits,
        actor: &mut Actor,
        (row, next, past): (&Arc<Row>, Next, Past),
    ) -> Result<(), Report> {
        let Next::Tokens(tokens) = next else { return Ok(()) };
        let ahead = judge::row_at(
            self.case.logits_seed,
            actor.life().position() + tokens.len(),
            self.vocabulary.n_vocab(),
        );
        actor.step(&tokens, &ahead).map_err(|error| judge::fault(&error, "the token that may follow"))?;
        actor.rollback(tokens.len()).map_err(|error| judge::fault(&error, "`rollback`"))?;
        let again =
            actor.step(&[], row).map_err(|error| judge::fault(&error, "the step after `rollback`"))?;
        judge::step(stage, traits, actor, row, &again, past)?;
        Ok(())
    }

    /// The host refuses calls: long lists, texts, and the nth call of a step.
    fn refused_calls(&self, tools: &Tools, package: &PluginPackage) -> Result<Vec<Report>, AuthorError> {
        let step = StepBudget::default();
        let lists = ("every list".to_owned(), StepBudget { list_entries: 0, ..step });
        let texts = ("every text".to_owned(), StepBudget { text_bytes: 0, ..step });
        let calls = (0..REFUSED_CALLS)
            .map(|calls| (format!("call {} of each step", calls + 1), StepBudget { calls, ..step }));
        for (refused, step) in [lists, texts].into_iter().chain(calls) {
            let policy = tools.policy(package, Budget { step, ..Budget::default() })?;
            if let Some(error) =
                self.first_error(&self.stage(&*policy)).filter(|error| !judge::is_clean(error))
            {
                return Ok(vec![judge::unclean(&error, &refused)]);
            }
        }
        Ok(Vec::new())
    }

    fn first_error(&self, stage: &Stage<'_>) -> Option<PluginError> {
        let mut actor = match stage.open(self.prompt.len()) {
            Ok(actor) => actor,
            Err(error) => return Some(error),
        };
        (0..self.steps.len()).find_map(|i| match self.take(&mut actor, i) {
            Ok((_, Ok(_))) => None,
            Ok((_, Err(error))) | Err(error) => Some(error),
        })
    }
}

/// `open` ends with an error of this code.
fn refused(stage: &Stage<'_>, code: &str) -> Result<(), Report> {
    match stage.open(0) {
        Ok(_) => Err(not_refused("open", code, "an open policy".to_owned())),
        Err(error) if error.report().code == code => Ok(()),
        Err(error) => Err(not_refused("open", code, one_line(&error))),
    }
}
