//! Tests of the plugin crate.
