//! The component made of a core module.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::error::BuildError;

/// Makes a component of a core module and validates it.
///
/// # Errors
/// [`BuildError::NoComponent`] for bytes that are no module, and for one whose imports and exports fit no world.
pub fn encode(module: &[u8]) -> Result<Vec<u8>, BuildError> {
    let encoder = ComponentEncoder::default().validate(true).module(module);
    let component = encoder.and_then(|mut encoder| encoder.encode());
    component.map_err(|error| BuildError::NoComponent { message: format!("{error:#}") })
}

/// Makes a component of a core module that no SDK has told its world: `contract` is a folder of WIT.
///
/// # Errors
/// [`BuildError::NoComponent`] as [`encode`], and for a folder without that world.
pub fn encode_for(contract: &Path, world: &str, module: &[u8]) -> Result<Vec<u8>, BuildError> {
    let wrong = |message: String| BuildError::NoComponent { message };
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(contract).map_err(|error| wrong(format!("{error:#}")))?;
    let world = resolve.select_world(&[package], Some(world)).map_err(|error| wrong(format!("{error:#}")))?;
    let mut module = module.to_vec();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| wrong(format!("{error:#}")))?;
    encode(&module)
}
