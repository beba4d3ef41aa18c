//! Tests of the graph crate.

mod rope;
