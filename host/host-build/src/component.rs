//! The component made of a core module.

use wit_component::ComponentEncoder;

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
