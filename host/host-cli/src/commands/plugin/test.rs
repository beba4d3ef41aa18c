//! `tenon plugin test`.

use std::time::Instant;

use host_author::{CaseResult, Project};
use serde_json::json;

use super::tools;
use crate::args::{FolderOnly, plugin_folder};
use crate::commands::{print, print_json};
use crate::draw::{Style, drawn};
use crate::error::Failure;
use crate::exit::Exit;

pub(crate) fn run(args: &FolderOnly) -> Result<Exit, Failure> {
    let started = Instant::now();
    let results = Project::open(&plugin_folder(&args.dir))?.test(&tools()?)?;
    let n_failed = results.iter().filter(|result| !result.is_passed()).count();
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        print_json(&json!({ "cases": results, "failed": n_failed, "seconds": seconds }))?;
    } else {
        let ends = format!("{} passed, {n_failed} failed in {seconds:.2} s\n", results.len() - n_failed);
        print(&(results.iter().map(told).collect::<String>() + &ends))?;
    }
    Ok(if n_failed == 0 { Exit::Done } else { Exit::Failed })
}

fn told(result: &CaseResult) -> String {
    let style = Style::for_stdout();
    let CaseResult { file, number, about, vocabulary, failures } = result;
    let verdict = if result.is_passed() { "ok    ".to_owned() } else { style.red("FAILED") };
    let vocabulary = vocabulary.map_or(String::new(), |name| format!(" ({name})"));
    let failures: String = failures.iter().map(|report| drawn(report, style)).collect();
    format!("{verdict} {file} {number}: {about}{vocabulary}\n{failures}")
}
