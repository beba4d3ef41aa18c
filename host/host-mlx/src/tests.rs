//! Tests of the device. The graphs that cover every operation are those of the native device, with the same
//! judge in double precision; what is told apart here is what MLX has of its own.

#[path = "../../host-cpu/src/tests/attention.rs"]
mod attention;
mod caches;
mod demand;
#[allow(dead_code, reason = "the native device's own tests use more of it")]
#[path = "../../host-cpu/src/tests/models.rs"]
mod models;
#[path = "../../host-cpu/src/tests/operations.rs"]
mod operations;
#[path = "../../host-cpu/src/tests/oracle.rs"]
mod oracle;
#[path = "../../host-cpu/src/tests/recurrent.rs"]
mod recurrent;
mod replay;
mod support;
mod weights;
