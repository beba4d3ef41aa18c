//! The native device: SIMD kernels in Rust, a static plan, nothing but the Rust toolchain.
//!
//! A graph becomes a list of fused instructions over buffers laid out once; weights are repacked for sixteen
//! lanes and stay packed; all threads walk the list together. It never chooses a numeric profile or a slower
//! form of an operation on its own.

mod device;
mod exec;
mod executable;
mod features;
mod general;
mod kernels;
mod lanes;
mod load;
mod matrix;
mod memory;
mod moe;
mod plan;
mod pool;
mod stateful;

pub use device::CpuDevice;
pub use features::Simd;

/// The name that profiles and errors use.
pub(crate) const DEVICE_ID: &str = "cpu";

#[cfg(test)]
mod tests;
