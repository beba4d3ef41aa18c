//! `tenon graph show`: the graph that a plugin builds.

use super::print;
use crate::args::{FolderArgs, GraphArgs, GraphCommand, ModelArgs};
use crate::error::Failure;
use crate::exit::Exit;
use crate::host::Host;
use crate::open::{decide, describe, locate, resolve, source_of};

pub(crate) fn run(folders: &FolderArgs, args: &GraphArgs) -> Result<Exit, Failure> {
    let GraphCommand::Show { model, profile, fingerprint } = &args.command;
    let host = Host::load(folders)?;
    let model = ModelArgs { model: Some(model.clone()), profile: profile.clone() };
    let located = locate(&host.store, &host.profiles, &source_of(&host.profiles, &model)?)?;
    let decision = decide(&host, &located, profile.as_deref())?;
    let composition = resolve(&host, &located, &decision, &host_registry::Overrides::default())?;
    let graph = describe(&host, &located, &composition)?.graph;
    match fingerprint {
        true => print(&format!("{}\n", graph.fingerprint().as_hex())),
        false => print(&graph.text()),
    }
}
