//! A service over folders that a test changes: a tiny model whose policy forces one token, which profile and plugin
//! choose together. So the tokens of an answer tell which generation made them.

mod bed;
mod deeds;
mod expect;
mod soak;

pub use bed::{Bed, MODEL, forced, profile, settings};
pub use deeds::{DEEDS, Deed};
pub use expect::{Expected, expected};
pub use soak::{Soaked, soak};
