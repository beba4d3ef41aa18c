//! How often each form of a plan ran.

use serde::Serialize;

/// Steps by the form of the plan that ran them.
///
/// A plan is made for one way of storing keys and values. Before each step the signatures of all its sequences are
/// compared with those of the plan: where they are equal, what the plan has settled holds for the step; where one
/// differs, the same arithmetic looks at each sequence's own storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanRuns {
    /// Every sequence was stored as the plan was made for.
    pub specialised: u64,
    /// At least one was not.
    pub general: u64,
}
