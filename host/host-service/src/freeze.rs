//! From a model to the file of its frozen graph.

use host_registry::{Composition, FrozenFault, FrozenGraph, GraphPart};

use crate::failure::Failure;
use crate::host::Host;
use crate::open::{Located, catalogue, describe_published};

/// The text of the frozen graph of a model: what the composition's plugin builds for it, with what it was built
/// for. The text was read back before it is given.
///
/// # Errors
/// A composition whose graph is frozen already, and everything that [`describe_published`] refuses.
pub fn freeze(host: &Host, located: &Located, composition: &Composition) -> Result<String, Failure> {
    let plugin = match composition.graph() {
        GraphPart::Plugin(plugin) => plugin,
        GraphPart::Frozen(frozen) => {
            return Err(FrozenFault::Already { name: frozen.name().to_owned() }.into());
        }
    };
    let described = describe_published(host, located, composition)?;
    let contract = host.package(plugin).manifest().sdk.to_string();
    let tensors = catalogue(&described.checkpoint);
    Ok(FrozenGraph::freeze(&described.graph, &tensors, located.subject(), plugin, &contract)?)
}
