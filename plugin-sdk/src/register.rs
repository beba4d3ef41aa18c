//! What stands between the host's call and the author's trait.

use crate::bindings::{PluginError, tenon::plugin::graph};
use crate::{Builder, Config, ModelGraph};

/// Makes a type that is [`ModelGraph`] this component's plugin.
///
/// Writes the component's `build` and its version section. Use it once, in the root of a `cdylib`.
#[macro_export]
macro_rules! register_model_graph {
    ($plugin:ty) => {
        const _: () = {
            struct Exports;

            impl $crate::bindings::Guest for Exports {
                fn build(
                    config: ::std::string::String,
                ) -> ::core::result::Result<u32, $crate::bindings::PluginError> {
                    $crate::run::<$plugin>(&config)
                }
            }

    $crate::bindings::export!(Exports with_types_in $crate::bindings);

            #[cfg(target_arch = "wasm32")]
            #[unsafe(link_section = "tenon:api")]
            #[used]
            static API: [u8; 17] = $crate::api_section();
        };
    };
}

/// `tenon:api`: contract version as three big-endian u16, then the world's name.
pub const fn api_section() -> [u8; 17] {
    const VERSION: [u16; 3] = [0, 1, 0];
    const WORLD: [u8; 11] = *b"model-graph";
    let mut section = [0; 17];
    let mut i = 0;
    while i < 3 {
        let [high, low] = VERSION[i].to_be_bytes();
        section[2 * i] = high;
        section[2 * i + 1] = low;
        i += 1;
    }
    let mut i = 0;
    while i < WORLD.len() {
        section[6 + i] = WORLD[i];
        i += 1;
    }
    section
}

/// Runs one build: parses the config, calls the author, hands errors over the border.
///
/// # Errors
/// Whatever the plugin gave up with.
pub fn run<P: ModelGraph>(config: &str) -> Result<u32, PluginError> {
    // A panic ends in a trap without words; the log line before it says where.
    std::panic::set_hook(Box::new(|panic| graph::log(&panic.to_string())));
    let config = Config::parse(config)?;
    let logits = P::build(&config, &mut Builder::new())?;
    Ok(logits.handle())
}
