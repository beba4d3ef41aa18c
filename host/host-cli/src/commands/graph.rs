//! `tenon graph show`: the graph that a plugin builds.

use host_service::{ModelName, decide, describe, resolve};

use super::print;
use crate::args::{FolderArgs, GraphArgs, GraphCommand};
use crate::error::Failure;
use crate::exit::Exit;
use crate::open::{load_host, locate};

pub(crate) fn run(folders: &FolderArgs, args: &GraphArgs) -> Result<Exit, Failure> {
    let GraphCommand::Show { model, profile, fingerprint } = &args.command;
    let host = load_host(folders)?;
    let located = locate(&host, ModelName { model: Some(model), profile: profile.as_deref() })?;
    let decision = decide(&host, &located, profile.as_deref())?;
    let composition = resolve(&host, &located, &decision, &host_registry::Overrides::default())?;
    let graph = describe(&host, &located, &composition)?.graph;
    match fingerprint {
        true => print(&format!("{}\n", graph.fingerprint().as_hex())),
        false => print(&graph.text()),
    }
}
