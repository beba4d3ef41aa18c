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
            static API: [u8; 17] = $crate::api_section("model-graph");
        };
    };
}

/// Makes a type that is [`crate::sampling::SamplingPolicy`] this component's plugin.
///
/// Writes the component's `policy` and its version section. Use it once, in the root of a `cdylib`.
#[macro_export]
macro_rules! register_sampling_policy {
    ($plugin:ty) => {
        const _: () = {
            #[cfg_attr(
                not(target_arch = "wasm32"),
                allow(dead_code, reason = "exported as WebAssembly alone")
            )]
            struct Exports;

            // Elsewhere nothing else would use the plugin, and the author's code would be called dead.
            #[cfg(not(target_arch = "wasm32"))]
            #[allow(dead_code, reason = "it names the plugin, no more")]
            fn registered() {
                let _ = $crate::sampling::describe::<$plugin>;
                let _ =
                    <Exports as $crate::sampling_bindings::exports::tenon::plugin::policy::Guest>::describe;
            }

            impl $crate::sampling_bindings::exports::tenon::plugin::policy::Guest for Exports {
                type Instance = $crate::sampling::PolicyCell<$plugin>;

                fn describe() -> $crate::sampling::Traits {
                    $crate::sampling::describe::<$plugin>()
                }
            }

            // An interface's exports have names that no other linker takes.
            #[cfg(target_arch = "wasm32")]
    $crate::sampling_bindings::export!(Exports with_types_in $crate::sampling_bindings);

            #[cfg(target_arch = "wasm32")]
            #[unsafe(link_section = "tenon:api")]
            #[used]
            static API: [u8; 21] = $crate::api_section("sampling-policy");
        };
    };
}

/// Makes a type that is [`crate::quant::QuantProfile`] this component's plugin.
///
/// Writes the component's `plan` and its version section. Use it once, in the root of a `cdylib`.
#[macro_export]
macro_rules! register_quant_profile {
    ($plugin:ty) => {
        const _: () = {
            struct Exports;

            impl $crate::quant_bindings::Guest for Exports {
                fn plan(
                    config: ::std::string::String,
                    params: ::std::string::String,
                    tensors: ::std::vec::Vec<$crate::quant::TensorFacts>,
                ) -> ::core::result::Result<
                    ::std::vec::Vec<$crate::quant::Scheme>,
                    $crate::quant_bindings::PluginError,
                > {
                    $crate::quant::run::<$plugin>(&config, &params, &tensors)
                }
            }

    $crate::quant_bindings::export!(Exports with_types_in $crate::quant_bindings);

            #[cfg(target_arch = "wasm32")]
            #[unsafe(link_section = "tenon:api")]
            #[used]
            static API: [u8; 19] = $crate::api_section("quant-profile");
        };
    };
}

/// `tenon:api`: contract version as three big-endian u16, then the world's name.
pub const fn api_section<const N: usize>(world: &str) -> [u8; N] {
    const VERSION: [u16; 3] = [0, 2, 0];
    let world = world.as_bytes();
    assert!(world.len() + 6 == N, "the section is as long as version and world");
    let mut section = [0; N];
    let mut i = 0;
    while i < 3 {
        let [high, low] = VERSION[i].to_be_bytes();
        section[2 * i] = high;
        section[2 * i + 1] = low;
        i += 1;
    }
    let mut i = 0;
    while i < world.len() {
        section[6 + i] = world[i];
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
