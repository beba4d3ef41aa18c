//! The MLX device: the same graphs on Metal, on CUDA and on MLX's CPU build, through `mlx-rs`.
//!
//! A step becomes one lazy graph of MLX's operations and is evaluated once; the next token's step is built and
//! begun while this one runs, wherever the next tokens can be foreseen. Exact numerics are float32 throughout;
//! fast ones keep activations in the dtype of the checkpoint's own numbers.
//!
//! On Apple's machines this is always there. Elsewhere it is empty until feature `mlx` is on, which needs the
//! native parts that `cargo xtask mlx` makes.
//!
//! Rows of a batch meet the same operations as a row alone, but MLX chooses kernels by shape: results agree
//! to rounding, not bit for bit. The native device keeps that promise.

use std::fmt;

/// The name that profiles and errors use.
pub const DEVICE_ID: &str = "mlx";

/// What runs MLX's arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// An Apple GPU.
    Metal,
    /// An NVIDIA GPU.
    Cuda,
    /// MLX's own kernels for processors: a judge of correctness, no way to serve.
    Cpu,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Metal => "metal",
            Backend::Cuda => "cuda",
            Backend::Cpu => "cpu",
        })
    }
}

/// Why this build has no MLX device; `None` when it has one.
pub fn absence() -> Option<&'static str> {
    const IS_HERE: bool = cfg!(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64")));
    if IS_HERE {
        None
    } else if cfg!(target_os = "linux") {
        Some("this build is without it: `cargo xtask mlx` builds it (`--cuda` for an NVIDIA GPU)")
    } else {
        Some("there is no MLX for this system")
    }
}

#[cfg(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64")))]
mod here {
    pub use crate::device::MlxDevice;
    pub use crate::kernel::Proof;
}

#[cfg(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64")))]
pub use here::{MlxDevice, Proof};

macro_rules! modules {
    ($($name:ident),*) => {
        $(
            #[cfg(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64")))]
            mod $name;
        )*
    };
}

modules!(
    demand, device, eval, executable, fault, kernel, kv, model, ops, plan, program, replay, state, stateful,
    weights, worker
);

#[cfg(any(feature = "mlx", all(target_os = "macos", target_arch = "aarch64")))]
#[cfg(test)]
mod tests;
