//! What the tests of whole models share: fixtures and goldens read, models opened as a program opens them.
//!
//! Everything goes through the public interfaces of the host crates. What this machine lacks (a model file, a
//! built plugin, the program) is said aloud by [`skip`], never passed over in silence.

pub mod alter;
pub mod golden;
pub mod judge;
pub mod model;
pub mod places;
pub mod program;
pub mod reload;
pub mod rows;
pub mod skip;

pub use model::{Host, Model, Runtime};
