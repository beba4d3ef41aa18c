//! `tenon plugin fuzz`.

use std::time::Duration;

use host_author::{FuzzOptions, Project};
use serde_json::json;

use super::tools;
use crate::args::{FuzzArgs, plugin_folder};
use crate::commands::{print, print_json};
use crate::draw::{Style, drawn};
use crate::error::Failure;
use crate::exit::Exit;
use crate::progress::share_bar;

pub(crate) fn run(args: &FuzzArgs) -> Result<Exit, Failure> {
    let project = Project::open(&plugin_folder(&args.dir))?;
    let options = FuzzOptions { time: Duration::from_secs_f64(args.seconds), seed: args.seed };
    let mut bar = share_bar("fuzzing");
    let fuzzed = project.fuzz(&tools()?, options, &mut |share, steps| bar.set(share, steps))?;
    drop(bar);
    if args.json {
        print_json(&json!(fuzzed))?;
    } else {
        let counts =
            format!("{} sequences, {} steps from seed {}", fuzzed.sequences, fuzzed.steps, fuzzed.seed);
        print(&match &fuzzed.finding {
            None => format!("{counts}: nothing found\n"),
            Some(finding) => {
                let again = format!("tenon plugin replay {}", finding.trace.display());
                format!(
                    "{}{counts}; run it again with `{again}`\n",
                    drawn(&finding.report, Style::for_stdout())
                )
            }
        })?;
    }
    Ok(if fuzzed.finding.is_none() { Exit::Done } else { Exit::Failed })
}
