//! The author's tools: what `tenon plugin …` does, without a word printed.
//!
//! New folders from templates ([`create`]), building, checking, testing without a model, fuzzing, measuring and
//! replaying, all of one [`Project`]. Plugins run here exactly as in a host, under the same budgets; only the model
//! is missing: logits come from a formula and vocabularies are made up, or both come from the record of a real run.

mod bench;
mod build;
mod case;
mod check;
mod doctor;
mod error;
mod files;
mod fuzz;
mod judge;
mod life;
mod project;
mod record;
mod recorder;
mod replay;
mod rerun;
mod row;
mod run_record;
mod scaffold;
mod sdk;
mod test;
mod tools;
mod trace;
mod vocabulary;

pub use bench::{BenchOptions, Measured};
pub use build::Built;
pub use check::Checked;
pub use doctor::{Findings, Need, Smoke, doctor};
pub use error::AuthorError;
pub use fuzz::{Finding, FuzzOptions, Fuzzed};
pub use project::Project;
pub use record::EditsRecord;
pub use recorder::{Recorded, RecordedPolicy, Recorder};
pub use replay::Replayed;
pub use scaffold::{Language, NewPlugin, create};
pub use test::CaseResult;
pub use tools::Tools;
pub use vocabulary::{FakeVocabulary, Family};
