//! How much a component may bring: validating and compiling it is no call of a hook, so no deadline ends it.

use host_plugins::{PluginError, PluginPackage};
use wasmparser::{Parser, Payload};

/// Bytes of code in all modules of a component: ten times what a large graph plugin has, compiled in some seconds.
const CODE_BYTES: usize = 2 << 20;

/// Modules and components within one another. What encoders make has three levels; validating takes time and memory
/// that grow with the square of the depth.
const LEVELS: usize = 16;

/// Refuses a component that has more than can be validated and compiled in reasonable time. Bytes that are no
/// component pass: the validator, which comes next, has the words for them.
pub(crate) fn check(package: &PluginPackage) -> Result<(), PluginError> {
    let too_large = |what, limit, found| {
        Err(PluginError::ComponentTooLarge { plugin: package.name().clone(), what, limit, found })
    };
    let (mut code, mut level, mut deepest) = (0, 0_usize, 0);
    for payload in Parser::new(0).parse_all(package.entry()) {
        match payload {
            Ok(Payload::CodeSectionStart { size, .. }) => code += size as usize,
            Ok(Payload::Version { .. }) => level += 1,
            Ok(Payload::End(_)) => level = level.saturating_sub(1),
            Ok(_) => {}
            Err(_) => return Ok(()),
        }
        deepest = deepest.max(level);
    }
    if deepest > LEVELS {
        return too_large("levels of nesting", LEVELS, deepest);
    }
    if code > CODE_BYTES {
        return too_large("bytes of code", CODE_BYTES, code);
    }
    Ok(())
}
