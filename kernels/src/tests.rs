//! Every kernel's cases in the emulator, planted faults, and what MLX makes of the bodies' words.

mod emulator;
mod faults;
mod proofs;
