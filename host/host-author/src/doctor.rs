//! `plugin doctor`: a shipped plugin of each kind and runtime, run whole, and what this machine lacks.

use std::path::Path;

use host_build::TARGET;
use host_core::{Report, Reported};
use host_plugins::{Kind, PluginFolder};
use serde::Serialize;

use crate::error::AuthorError;
use crate::test::{self, CaseResult};
use crate::tools::Tools;

/// The shipped plugins that are run: id, kind, cases.
const SMOKE: [(&str, Kind, &str); 6] = [
    ("llama", Kind::ModelGraph, include_str!("../smoke/llama.toml")),
    ("llama-lua", Kind::ModelGraph, include_str!("../smoke/llama.toml")),
    ("no-repeat", Kind::SamplingPolicy, include_str!("../smoke/no-repeat.toml")),
    ("no-repeat-lua", Kind::SamplingPolicy, include_str!("../smoke/no-repeat.toml")),
    ("quant-uniform", Kind::QuantProfile, include_str!("../smoke/quant-uniform.toml")),
    ("quant-uniform-lua", Kind::QuantProfile, include_str!("../smoke/quant-uniform.toml")),
];

/// What was found.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// The shipped plugins that were run.
    pub smoke: Vec<Smoke>,
    /// What plugins in Rust need.
    pub rust: Vec<Need>,
}

/// One shipped plugin.
#[derive(Debug, Serialize)]
pub struct Smoke {
    /// Its id.
    pub id: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// What does not hold; empty for one that works.
    pub failures: Vec<Report>,
}

/// A tool for plugins in Rust.
#[derive(Debug, Serialize)]
pub struct Need {
    /// What it is.
    pub name: &'static str,
    /// What was found.
    pub found: Option<String>,
    /// What to do about its absence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Findings {
    /// Whether every shipped plugin works.
    pub fn is_sound(&self) -> bool {
        self.smoke.iter().all(|smoke| smoke.failures.is_empty())
    }
}

/// Runs the shipped plugins of these folders and looks for the tools.
pub fn doctor(tools: &Tools, plugins: &PluginFolder, here: &Path) -> Findings {
    let smoke = SMOKE.iter().map(|(id, kind, cases)| {
        let outcome = run(tools, plugins, id, *kind, cases);
        let failures = match outcome {
            Ok(results) => results.into_iter().flat_map(|result| result.failures).collect(),
            Err(error) => vec![error.report()],
        };
        Smoke { id, kind: kind.name(), failures }
    });
    Findings { smoke: smoke.collect(), rust: needs(here) }
}

fn run(
    tools: &Tools,
    plugins: &PluginFolder,
    id: &str,
    kind: Kind,
    cases: &str,
) -> Result<Vec<CaseResult>, AuthorError> {
    let package = plugins.find(id, &semver::VersionReq::STAR)?;
    package.manifest().need_kind(kind)?;
    test::run_text(tools, package, cases, Path::new(&format!("{id}.toml")))
}

fn needs(here: &Path) -> Vec<Need> {
    let rustc = host_build::rustc_version(here);
    let target = host_build::has_target(here, TARGET);
    let mend = |error: &host_build::BuildError| error.report().mend;
    vec![
        Need { name: "rustc", mend: rustc.as_ref().err().and_then(mend), found: rustc.ok() },
        Need {
            name: TARGET,
            mend: match &target {
                Ok(true) => None,
                Ok(false) => Some("`tenon plugin build` adds it, or `rustup target add`".to_owned()),
                Err(error) => mend(error),
            },
            found: target.ok().filter(|is_there| *is_there).map(|_| "installed".to_owned()),
        },
    ]
}
