//! Generations and hot reload: what serves is one value, checked as a whole before it is swapped in as a whole.
//!
//! ```text
//! folders ─► Snapshot (all bytes, two equal readings) ─► Check (all errors) ─► Generation
//!                                                                                 │ one pointer
//! Service::admit ─► Pin (holds the generation) ─► Answering (outcomes, with its id)
//! ```
//!
//! - A refusal changes nothing; the last good generation serves, and the state says why.
//! - What two generations have in common (plugins' code, models in memory) they share.
//! - For a while after a swap the health gate compares faults; a generation that is worse is taken back.
//! - Replaced generations live as long as their requests, and only so many of them.

mod check;
mod counts;
mod drain;
mod error;
mod event;
mod gate;
mod generation;
mod id;
mod models;
mod pin;
mod restore;
mod self_test;
mod service;
mod settings;
mod snapshot;
mod standing;
mod store;
mod watch;
mod world;

pub use check::Scope;
pub use counts::{Counts, Tally};
pub use error::ReloadError;
pub use event::Event;
pub use generation::{Generation, Served, ServedModel};
pub use id::GenerationId;
pub use models::LoadedModel;
pub use pin::{Answering, Pin};
pub use restore::{Restored, check_folders, restore};
pub use service::{ColdStart, Reload, Service, ServiceOptions};
pub use settings::{
    DrainSettings, GateSettings, MemorySettings, Overflow, ReloadSettings, StoreSettings, WatchSettings,
};
pub use snapshot::{Area, FileName, Snapshot, SnapshotFile};
pub use standing::{Degraded, OldGeneration, State};
pub use store::{GenerationStore, Kept, StoredGeneration};
pub use watch::Watching;
