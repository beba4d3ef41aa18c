//! `tenon explain`: the whole decision, up to where weights would be read.

use std::collections::BTreeSet;

use host_core::TokenizerKey;
use host_registry::Explanation;
use host_service::reload::ReloadSettings;
use host_service::{Host, ModelName, check, decide, describe, resolve, source_of};
use serde_json::json;

use super::{print, print_json};
use crate::args::{ExplainArgs, FolderArgs};
use crate::draw::{Style, drawn};
use crate::error::Failure;
use crate::exit::Exit;
use crate::folders;
use crate::open::{load_host, locate};

pub(crate) fn run(folders: &FolderArgs, args: &ExplainArgs) -> Result<Exit, Failure> {
    let host = load_host(folders)?;
    let (explanation, outcome) = explain(&host, args)?;
    let exit = outcome.as_ref().map_or_else(Exit::of, |()| Exit::Done);
    show(explanation, outcome.err(), args.json)?;
    Ok(exit)
}

/// What is known, and what stopped it from going on.
///
/// # Errors
/// A failure before there is anything to explain: no such model, no such profile.
fn explain(host: &Host, args: &ExplainArgs) -> Result<(Explanation, Result<(), Failure>), Failure> {
    let name = ModelName { model: Some(&args.model), profile: args.profile.as_deref() };
    let source = source_of(host.profiles(), name)?;
    let mut located = locate(host, name)?;
    // A profile may ask for any of it: whoever writes one finds it here.
    located.look_at_tokenizer(&BTreeSet::from(TokenizerKey::ALL));
    let decision = decide(host, &located, args.profile.as_deref())?;
    let mut explanation =
        Explanation::new(source.to_string(), located.format(), located.subject(), &decision);
    let composition = match resolve(host, &located, &decision, &args.compose.overrides()) {
        Ok(composition) => composition,
        Err(failure) => return Ok((explanation, Err(failure))),
    };
    explanation = explanation.with_composition(&composition).with_reloading(reloading(host)?);
    let described = match describe(host, &located, &composition) {
        Ok(described) => described,
        Err(failure) => return Ok((explanation, Err(failure))),
    };
    explanation = explanation.with_graph(&described.graph);
    Ok(match check(host, &described, &composition) {
        Ok(memory) => (explanation.with_memory(memory), Ok(())),
        Err(failure) => (explanation, Err(failure)),
    })
}

/// The file with the numbers of reloading, should a service run over these folders; none where there is none, which
/// only a service minds.
///
/// # Errors
/// The program's own folder is not known.
fn reloading(host: &Host) -> Result<Option<String>, Failure> {
    let folders = folders::with_settings(&host.folders().profiles)?;
    Ok(ReloadSettings::find(&folders).ok().map(|file| file.display().to_string()))
}

fn show(mut explanation: Explanation, failure: Option<Failure>, as_json: bool) -> Result<(), Failure> {
    let mut reports = failure.iter().flat_map(Failure::reports);
    if as_json {
        explanation.refusal = reports.next().cloned();
        print_json(&json!(explanation))?;
        return Ok(());
    }
    explanation.refusal = None;
    let refusals: String = reports.map(|report| drawn(report, Style::for_stdout())).collect();
    print(&format!("{explanation}{refusals}"))?;
    Ok(())
}
