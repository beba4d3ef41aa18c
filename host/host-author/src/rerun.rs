//! A recorded run once more, without its model.

use std::sync::Arc;

use host_core::{Report, Reported};
use host_plugins::{Budget, Grants, PluginPackage, PolicyInput, PolicyInstance};
use host_sampling::RowView;
use serde_json::Value;

use crate::error::AuthorError;
use crate::fuzz::step_outcome;
use crate::replay::{Outcome, differs};
use crate::run_record::{Reads, RecordedAct, RunRecord};
use crate::tools::Tools;

/// An instance with the tokens that it was told of.
struct Told {
    instance: Box<dyn PolicyInstance>,
    tokens: Vec<u32>,
}

/// Has the plugin live through the run, up to the first step that comes out otherwise: those after it were never seen by
/// a model that took its answer.
pub(crate) fn rerun(
    tools: &Tools,
    package: &PluginPackage,
    record: &RunRecord,
) -> Result<Outcome, AuthorError> {
    let policy = tools.policy(package, Budget::default())?;
    let (header, needs) = (&record.header, policy.describe()?.needs);
    if !header.needs.cover(needs) {
        let (expected, found) = (Reads::of(needs).told(), header.needs.told());
        return Err(AuthorError::RecordLacks { expected, found });
    }
    let params = Value::Object(header.params.clone()).to_string();
    let grants = Grants::new(header.grants.iter().copied());
    let vocabulary = Arc::clone(&record.vocabulary);
    let mut told = vec![Told { instance: policy.open(&params, vocabulary, &grants)?, tokens: Vec::new() }];
    let mut n_steps = 0;
    for (i, act) in record.acts.iter().enumerate() {
        let failed = match act {
            RecordedAct::Rollback { on, n } => told[*on].rollback(*n).err(),
            RecordedAct::Fork { on } => match told[*on].fork() {
                Ok(fork) => {
                    told.push(fork);
                    None
                }
                Err(error) => Some(error),
            },
            RecordedAct::Step(step, row) => {
                n_steps += 1;
                let view = row.as_ref().map(|row| RowView::new(row, 0));
                let Told { instance, tokens } = &mut told[step.on];
                tokens.extend(&step.accepted);
                let generated = &tokens[tokens.len().saturating_sub(step.position)..];
                let input =
                    PolicyInput { row: view.as_ref(), accepted: &step.accepted, generated, seed: step.seed };
                let found = step_outcome(&instance.step(&input));
                if found != step.outcome {
                    let at = format!("step {n_steps}, at position {},", step.position);
                    let told = differs(&at, &step.outcome.told(), &found.told());
                    // Records that read alike differ in lists too long to be told.
                    let difference = told.or_else(|| differs(&at, "a long list", "another one"));
                    return Ok((i + 1, difference, missed(record)));
                }
                None
            }
        };
        if let Some(error) = failed {
            let report = error.report().note(format!("at act {}", i + 1));
            return Ok((i + 1, None, Some(report)));
        }
    }
    Ok((record.acts.len(), None, missed(record)))
}

/// What the plugin asked for and the record does not hold.
fn missed(record: &RunRecord) -> Option<Report> {
    let text = record.vocabulary.missed()?;
    let shown: String = text.chars().take(60).collect();
    let report = Report::new(
        "author.record-lacks",
        "the plugin has a text encoded that was not when the run was recorded",
    );
    Some(report.expected("the texts of the recorded run").found(format!("{shown:?}")).mend(RECORD_AGAIN))
}

/// What helps where a record is of another run than the plugin's.
pub(crate) const RECORD_AGAIN: &str = "record a run of this plugin: `tenon generate --record-policy FILE …`";

impl Told {
    fn rollback(&mut self, n: u32) -> Result<(), host_plugins::PluginError> {
        self.instance.rollback(n)?;
        self.tokens.truncate(self.tokens.len().saturating_sub(n as usize));
        Ok(())
    }

    fn fork(&mut self) -> Result<Told, host_plugins::PluginError> {
        Ok(Told { instance: self.instance.fork()?, tokens: self.tokens.clone() })
    }
}
