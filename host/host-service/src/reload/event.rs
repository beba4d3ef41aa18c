//! What a service tells whoever listens: each change of what serves, and each refusal to change.

use std::fmt;
use std::time::Duration;

use host_core::Report;
use serde_json::{Value, json};

use super::counts::Tally;
use super::id::GenerationId;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first generation serves.
    Started {
        /// Which.
        id: GenerationId,
        /// From reading the folders to serving.
        took: Duration,
    },
    /// The folders do not load, and the last good generation serves, as was asked for.
    LastGood {
        /// Which serves.
        id: GenerationId,
        /// Why the folders do not.
        reports: Vec<Report>,
    },
    /// Another generation serves new requests.
    Swapped {
        /// Which.
        id: GenerationId,
        /// Which served before.
        from: GenerationId,
        /// What is other, a line a file.
        changes: Vec<String>,
        /// From reading the folders to serving.
        took: Duration,
        /// Of that, the swap alone.
        swap: Duration,
    },
    /// The folders changed and do not load; nothing else changed.
    Refused {
        /// Which still serves.
        id: GenerationId,
        /// Everything that is wrong.
        reports: Vec<Report>,
    },
    /// The folders are again what serves, after refusals.
    Mended {
        /// Which serves.
        id: GenerationId,
    },
    /// A generation failed too many requests; the one before serves again.
    TakenBack {
        /// Which serves again.
        id: GenerationId,
        /// Which is kept out.
        kept_out: GenerationId,
        /// What became of its requests.
        tally: Tally,
    },
    /// The requests of an old generation were ended to make room.
    Ended {
        /// Which.
        id: GenerationId,
        /// So many requests.
        running: u64,
    },
    /// The last request of an old generation is over.
    Drained {
        /// Which.
        id: GenerationId,
    },
    /// A good generation could not be stored; it serves all the same.
    NotStored {
        /// Which.
        id: GenerationId,
        /// Why.
        report: Report,
    },
}

impl Event {
    /// Stable, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Started { .. } => "started",
            Event::LastGood { .. } => "last-good",
            Event::Swapped { .. } => "swapped",
            Event::Refused { .. } => "refused",
            Event::Mended { .. } => "mended",
            Event::TakenBack { .. } => "taken-back",
            Event::Ended { .. } => "ended",
            Event::Drained { .. } => "drained",
            Event::NotStored { .. } => "not-stored",
        }
    }

    /// What is wrong, for those that tell of something wrong.
    pub fn reports(&self) -> &[Report] {
        match self {
            Event::LastGood { reports, .. } | Event::Refused { reports, .. } => reports,
            Event::NotStored { report, .. } => std::slice::from_ref(report),
            _ => &[],
        }
    }

    /// The generation that it is about.
    pub fn id(&self) -> GenerationId {
        match self {
            Event::Started { id, .. }
            | Event::LastGood { id, .. }
            | Event::Swapped { id, .. }
            | Event::Refused { id, .. }
            | Event::Mended { id }
            | Event::TakenBack { id, .. }
            | Event::Ended { id, .. }
            | Event::Drained { id }
            | Event::NotStored { id, .. } => *id,
        }
    }

    /// One object, for programs.
    pub fn object(&self) -> Value {
        let mut object = json!({ "event": self.name(), "generation": self.id().as_hex() });
        match self {
            Event::Started { took, .. } => object["took_ms"] = ms(*took).into(),
            Event::Swapped { from, changes, took, swap, .. } => {
                object["from"] = from.as_hex().into();
                object["changes"] = json!(changes);
                object["took_ms"] = ms(*took).into();
                object["swap_ms"] = ms(*swap).into();
            }
            Event::TakenBack { kept_out, tally, .. } => {
                object["kept_out"] = kept_out.as_hex().into();
                object["failed"] = tally.failed.into();
                object["ended"] = tally.ended.into();
            }
            Event::Ended { running, .. } => object["running"] = (*running).into(),
            Event::LastGood { .. } | Event::Refused { .. } | Event::NotStored { .. } => {
                object["reports"] = json!(self.reports());
            }
            Event::Mended { .. } | Event::Drained { .. } => {}
        }
        object
    }
}

/// Milliseconds to the microsecond.
fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// One line, without the reports.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Started { id, took } => write!(f, "generation {id} serves, after {:.0} ms", ms(*took)),
            Event::LastGood { id, .. } => {
                write!(f, "the folders do not load; the last good generation {id} serves")
            }
            Event::Swapped { id, changes, took, .. } => {
                write!(f, "generation {id} serves, after {:.0} ms: {}", ms(*took), changes.join(", "))
            }
            Event::Refused { id, reports } => {
                let n = reports.len();
                let s = if n == 1 { "" } else { "s" };
                write!(f, "the change is refused, {n} error{s}; generation {id} still serves")
            }
            Event::Mended { id } => write!(f, "the folders are again what generation {id} is made of"),
            Event::TakenBack { id, kept_out, tally } => write!(
                f,
                "generation {kept_out} failed {} of {} requests and is kept out; generation {id} serves again",
                tally.failed, tally.ended
            ),
            Event::Ended { id, running } => {
                write!(f, "generation {id} was ended with {running} running requests, to make room")
            }
            Event::Drained { id } => write!(f, "the last request of generation {id} is over"),
            Event::NotStored { id, .. } => write!(f, "generation {id} serves, but could not be stored"),
        }
    }
}
