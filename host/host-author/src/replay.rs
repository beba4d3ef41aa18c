//! `plugin replay`: a trace, or a recorded run, once more, compared with what it recorded and judged anew.

use std::path::Path;
use std::sync::Arc;

use host_core::{Report, Reported};
use host_plugins::{Budget, Grants, Kind, PluginPackage};
use serde::Serialize;
use serde_json::Value;

use crate::error::AuthorError;
use crate::fuzz::{judge_build, judge_plan, step_outcome};
use crate::judge::{self, Past};
use crate::life::{Actor, Stage};
use crate::project::Project;
use crate::rerun::rerun;
use crate::run_record::{self, RunRecord};
use crate::test::graph::{build, outcome as graph_outcome};
use crate::test::quant::{QuantInput, outcome as quant_outcome, plan};
use crate::tools::Tools;
use crate::trace::{Act, Body, GraphTrace, PolicyTrace, QuantTrace, Trace};
use crate::vocabulary::FakeVocabulary;

/// What a replay found.
#[derive(Debug, Serialize)]
pub struct Replayed {
    /// Whether the plugin is, byte for byte, the one that made the trace.
    pub is_same_plugin: bool,
    /// Acts that were repeated.
    pub acts: usize,
    /// Whether they are all of a run; a record stops at its bound.
    pub is_whole: bool,
    /// The first act whose outcome is another than the recorded one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Report>,
    /// The first promise of its kind that the plugin does not keep in this trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<Report>,
}

impl Replayed {
    /// Whether everything came out as recorded and nothing is to be found.
    pub fn is_quiet(&self) -> bool {
        self.difference.is_none() && self.finding.is_none()
    }
}

impl Project {
    /// Repeats a trace, or the record of a run.
    ///
    /// # Errors
    /// [`AuthorError::Trace`] for a file that is neither, or one of another kind of plugin, [`AuthorError::RecordLacks`]
    /// for a record without what the plugin reads, and as [`Project::test`].
    pub fn replay(&self, tools: &Tools, path: &Path) -> Result<Replayed, AuthorError> {
        let text = run_record::read(path)?;
        if RunRecord::is_one(&text) {
            return self.rerun(tools, &text, path);
        }
        let (trace, package) = (Trace::parse(&text, path)?, self.package()?);
        let is_same_plugin = trace.digest == package.digest().as_hex();
        let (acts, difference, finding) = match (&trace.body, self.manifest().kind) {
            (Body::SamplingPolicy(trace), Kind::SamplingPolicy) => policy(tools, &package, trace)?,
            (Body::ModelGraph(trace), Kind::ModelGraph) => graph(tools, &package, trace)?,
            (Body::QuantProfile(trace), Kind::QuantProfile) => quant(tools, &package, path, trace)?,
            (_, kind) => return Err(other_kind(path, "a trace", kind)),
        };
        Ok(Replayed { is_same_plugin, acts, is_whole: true, difference, finding })
    }

    fn rerun(&self, tools: &Tools, text: &str, path: &Path) -> Result<Replayed, AuthorError> {
        let (record, package) = (RunRecord::parse(text, path)?, self.package()?);
        if self.manifest().kind != Kind::SamplingPolicy {
            return Err(other_kind(path, "the record of a policy's run", self.manifest().kind));
        }
        let is_same_plugin = record.header.digest == package.digest().as_hex();
        let (acts, difference, finding) = rerun(tools, &package, &record)?;
        Ok(Replayed { is_same_plugin, acts, is_whole: record.is_whole, difference, finding })
    }
}

fn other_kind(path: &Path, what: &str, kind: Kind) -> AuthorError {
    let message = format!("{what}, of another kind of plugin: this one is a {}", kind.name());
    AuthorError::Trace { path: path.to_owned(), message }
}

/// Acts, the first difference, the first finding.
pub(crate) type Outcome = (usize, Option<Report>, Option<Report>);

/// Tells two texts apart.
pub(crate) fn differs(at: &str, recorded: &str, found: &str) -> Option<Report> {
    (recorded != found).then(|| {
        Report::new("author.replay-differs", format!("{at} came out otherwise"))
            .expected(recorded)
            .found(found)
    })
}

fn graph(tools: &Tools, package: &PluginPackage, trace: &GraphTrace) -> Result<Outcome, AuthorError> {
    let plugin = tools.graph(package, Budget::default())?;
    let found = graph_outcome(&build(&*plugin, &trace.input));
    Ok((1, differs("the build", &trace.outcome, &found), judge_build(&*plugin, &trace.input).err()))
}

fn quant(
    tools: &Tools,
    package: &PluginPackage,
    path: &Path,
    trace: &QuantTrace,
) -> Result<Outcome, AuthorError> {
    let plugin = tools.quant(package, Budget::default())?;
    let tensors: Option<Vec<_>> = trace.tensors.iter().map(|tensor| tensor.facts()).collect();
    let tensors = tensors.ok_or_else(|| AuthorError::Trace {
        path: path.to_owned(),
        message: "a tensor of a dtype that does not exist".to_owned(),
    })?;
    let input = QuantInput { config: &trace.config, params: &trace.params };
    let found = quant_outcome(&plan(&*plugin, input, &tensors));
    Ok((1, differs("the plan", &trace.outcome, &found), judge_plan(&*plugin, input, &tensors).err()))
}

fn policy(tools: &Tools, package: &PluginPackage, trace: &PolicyTrace) -> Result<Outcome, AuthorError> {
    let policy = tools.policy(package, Budget::default())?;
    let traits = policy.describe()?;
    let stage = Stage {
        policy: &*policy,
        vocabulary: Arc::new(FakeVocabulary::new(trace.vocabulary)),
        params: Value::Object(trace.params.clone()).to_string(),
        grants: Grants::new(trace.grants.iter().copied()),
        seed: trace.seed,
    };
    let (mut difference, mut finding) = (None, None);
    let mut performers: Vec<(Actor, Past)> = vec![(stage.open(trace.n_prompt)?, Past::default())];
    for (i, action) in trace.actions.iter().enumerate() {
        let at = format!("act {}, of instance {},", i + 1, action.on);
        let Some((actor, past)) = performers.get_mut(action.on) else {
            finding =
                finding.or_else(|| Some(Report::new("author.trace", format!("{at} names no instance"))));
            break;
        };
        let ended = match &action.act {
            Act::Rollback(n) => {
                past.has_rolled_back = true;
                actor.rollback(*n).err()
            }
            Act::Fork => match actor.fork() {
                Ok(fork) => {
                    past.has_forked = true;
                    let fork = (fork, *past);
                    performers.push(fork);
                    None
                }
                Err(error) => Some(error),
            },
            Act::Step { accepted, logits, outcome } => {
                let row = logits.row(stage.vocabulary.n_vocab());
                let result = actor.step(accepted, &row);
                if let Some(recorded) = outcome {
                    let found = step_outcome(&result);
                    let told = differs(&at, &recorded.told(), &found.told());
                    // Records that read alike are alike, but for lists too long to be told.
                    let silent =
                        || (*recorded != found).then(|| differs(&at, "a long list", "another one")).flatten();
                    difference = difference.or(told).or_else(silent);
                }
                match result {
                    Ok(edits) => {
                        let judged = judge::step(&stage, traits, actor, &row, &edits, *past);
                        finding = finding.or(judged.err().map(|report| report.note(&*at)));
                        None
                    }
                    Err(error) => Some(error),
                }
            }
        };
        if let Some(error) = ended {
            finding = finding.or_else(|| Some(error.report().note(at)));
            break;
        }
    }
    Ok((trace.actions.len(), difference, finding))
}
