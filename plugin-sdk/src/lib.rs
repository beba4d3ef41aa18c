//! The Rust SDK for Tenon plugins.
