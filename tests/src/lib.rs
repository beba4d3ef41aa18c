//! Tests across crates, a module a subject.
