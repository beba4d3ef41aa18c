//! Tests of the device: small models made on the spot, judged by plain forms in double precision.

mod attention;
mod executable;
mod models;
mod operations;
mod oracle;
mod packing;
mod plan;
mod products;
mod recurrent;
mod refusals;
mod rows;
mod support;
