//! Kernels of our own: one folder a kernel, one body for Metal, CUDA and the emulator, and its proof.
//!
//! A kernel's body is word for word what Metal compiles: MLX writes the signature around it from the names of
//! its inputs and outputs and from the attributes whose names occur in the text. For CUDA a prelude of macros
//! gives the same words. Each kernel states the shapes and dtypes that it supports (`refusal` of its shape), so
//! that a requirement is settled before weights are opened; a plain Rust form and cases with a derived
//! tolerance say what is right.
//!
//! This crate runs nothing: devices launch, and the tests run the bodies in an emulator that reports what real
//! hardware lets pass.

mod case;
mod kernels;
mod numbers;

pub use case::{Case, Data, Dtype, Launch, Template};
pub use kernels::{decode_attention, gated_delta, page_attention, rope_page, row_linear, swiglu};
pub use numbers::{round_bf16, round_f16};

/// One compiled body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The name of the function that is made of it.
    pub name: &'static str,
    /// Its inputs, in order.
    pub inputs: &'static [&'static str],
    /// Its outputs, in order.
    pub outputs: &'static [&'static str],
    /// The body, in Metal's words.
    pub body: &'static str,
}

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The name that a profile's `[kernels] require` uses.
    pub name: &'static str,
    /// What it computes, in one line.
    pub about: &'static str,
    /// Its bodies, in the order in which they run.
    pub stages: &'static [Stage],
    /// Cases that cover its shapes, dtypes and edges; each is launched as it says and compared.
    pub cases: fn() -> Vec<Case>,
}

/// Every kernel.
pub const ALL: [Kernel; 11] = [
    swiglu::KERNEL,
    decode_attention::KERNEL,
    gated_delta::KERNEL,
    row_linear::NORM_LINEAR,
    row_linear::NORM_LINEAR_AFFINE,
    row_linear::LINEAR_ADD,
    row_linear::LINEAR_ADD_AFFINE,
    row_linear::NORM_SWIGLU,
    row_linear::NORM_SWIGLU_AFFINE,
    rope_page::KERNEL,
    page_attention::KERNEL,
];

/// What stands before a body when CUDA compiles it.
pub const CUDA_PRELUDE: &str = include_str!("cuda.hpp");

/// The attributes that MLX declares when a body names them.
///
/// Source: the documentation of MLX's `metal_kernel`, version 0.32.
pub const ATTRIBUTES: [&str; 20] = [
    "dispatch_quadgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "grid_origin",
    "grid_size",
    "quadgroup_index_in_threadgroup",
    "quadgroups_per_threadgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "thread_execution_width",
    "thread_index_in_quadgroup",
    "thread_index_in_simdgroup",
    "thread_index_in_threadgroup",
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_grid",
    "threads_per_simdgroup",
    "threads_per_threadgroup",
];

#[cfg(test)]
mod tests;
