//! The engine's settings: what a guest computes is the same everywhere, ends in time, and begins without delay.

use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

/// Core modules in a component made of one: itself and what adapts it. Each takes a place of its own.
const CORE_INSTANCES: u32 = 4;
/// Tables of such a component.
const TABLES: u32 = 4;
/// Room for the elements of a table. A guest's limiter holds it to fewer, with an error that says so.
const TABLE_ELEMENTS: usize = 1 << 20;
/// Bytes of a guest's pages that its successor in the pool gets, wiped: giving them back to the system and having them
/// again costs more. A policy's step touches a few pages.
const MEMORY_KEPT: usize = 128 << 10;
/// The same of a table.
const TABLE_KEPT: usize = 16 << 10;

/// Settings of an engine in which so many guests may exist at once.
///
/// Epochs stop a guest at its deadline. Canonical NaNs and deterministic relaxed SIMD keep what a guest computes the
/// same on every machine. Memories lie in a pool of reserved addresses and begin as copy-on-write images of their
/// component, so that a request's instance costs a few microseconds.
pub(crate) fn settings(guests: u32) -> Config {
    let mut config = Config::new();
    config.wasm_component_model(true);
    config.epoch_interruption(true);
    config.cranelift_nan_canonicalization(true);
    config.relaxed_simd_deterministic(true);
    config.max_wasm_stack(512 << 10);
    config.memory_init_cow(true);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(guests)));
    config
}

fn pool(guests: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(guests);
    pool.total_core_instances(guests * CORE_INSTANCES);
    pool.total_memories(guests);
    pool.total_tables(guests * TABLES);
    pool.table_elements(TABLE_ELEMENTS);
    pool.linear_memory_keep_resident(MEMORY_KEPT).table_keep_resident(TABLE_KEPT);
    pool.pagemap_scan(Enabled::Auto);
    // As many as a guest's limiter lets it have.
    pool.max_memories_per_module(4).max_tables_per_module(16);
    pool
}
