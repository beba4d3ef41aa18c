//! `plugin test`: the cases of a plugin's folder, and what every plugin of its kind promises. No model takes part.

pub(crate) mod graph;
mod policy;
pub(crate) mod quant;

use std::path::Path;

use host_core::{Report, Reported};
use host_plugins::{Kind, PluginPackage};
use serde::Serialize;

use crate::case::{self, Placed};
use crate::error::AuthorError;
use crate::project::Project;
use crate::tools::Tools;

/// What became of one case.
#[derive(Debug, Serialize)]
pub struct CaseResult {
    /// Its file.
    pub file: String,
    /// Its number in the file, from 1.
    pub number: usize,
    /// What it says of itself.
    pub about: String,
    /// The vocabulary it ran with, for a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<&'static str>,
    /// What does not hold; empty for a case that passed.
    pub failures: Vec<Report>,
}

impl CaseResult {
    /// The result of a case without a vocabulary.
    fn plain<C>(placed: &Placed<C>, about: &str, failures: Vec<Report>) -> Self {
        let (file, number, about) = (placed.file.clone(), placed.number, about.to_owned());
        CaseResult { file, number, about, vocabulary: None, failures }
    }

    /// Whether everything holds.
    pub fn is_passed(&self) -> bool {
        self.failures.is_empty()
    }
}

impl Project {
    /// Runs the plugin's cases.
    ///
    /// # Errors
    /// [`AuthorError`] for a plugin that cannot be opened and cases that cannot be read; what a case finds is its
    /// result.
    pub fn test(&self, tools: &Tools) -> Result<Vec<CaseResult>, AuthorError> {
        let package = self.package()?;
        match self.manifest().kind {
            Kind::SamplingPolicy => run(tools, &package, &case::read_all(self.folder())?, policy::run),
            Kind::ModelGraph => run(tools, &package, &case::read_all(self.folder())?, graph::run),
            Kind::QuantProfile => run(tools, &package, &case::read_all(self.folder())?, quant::run),
            Kind::Pipeline => unreachable!("no manifest of this kind is read"),
        }
    }
}

/// Runs the cases of a text with a package; `file` is named in results.
pub(crate) fn run_text(
    tools: &Tools,
    package: &PluginPackage,
    text: &str,
    file: &Path,
) -> Result<Vec<CaseResult>, AuthorError> {
    match package.manifest().kind {
        Kind::SamplingPolicy => run(tools, package, &case::parse(text, file)?, policy::run),
        Kind::ModelGraph => run(tools, package, &case::parse(text, file)?, graph::run),
        Kind::QuantProfile => run(tools, package, &case::parse(text, file)?, quant::run),
        Kind::Pipeline => unreachable!("no manifest of this kind is read"),
    }
}

/// The report of a case that expected an error of this code and found something else.
fn not_refused(hook: &str, code: &str, found: String) -> Report {
    Report::new("author.case-failed", format!("`{hook}` ends otherwise"))
        .expected(format!("error[{code}]"))
        .found(found)
}

/// An error on one line.
fn one_line(error: &impl Reported) -> String {
    let report = error.report();
    format!("error[{}]: {}", report.code, report.message)
}

fn run<C>(
    tools: &Tools,
    package: &PluginPackage,
    cases: &[Placed<C>],
    case: impl Fn(&Tools, &PluginPackage, &Placed<C>) -> Result<Vec<CaseResult>, AuthorError>,
) -> Result<Vec<CaseResult>, AuthorError> {
    let results = cases.iter().map(|placed| case(tools, package, placed));
    Ok(results.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}
