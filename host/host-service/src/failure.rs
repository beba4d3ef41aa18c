//! What ends a piece of work that several parts have a say in: one report, or several that can be mended in one go.

use host_core::{Report, Reported};

/// Why something ended. There is at least one report; the first tells most.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    reports: Vec<Report>,
}

impl Failure {
    /// Several errors of one kind.
    pub fn several(errors: &[impl Reported]) -> Self {
        Failure { reports: errors.iter().map(Reported::report).collect() }
    }

    /// Reports that were gathered elsewhere; at least one.
    pub fn of(reports: Vec<Report>) -> Self {
        debug_assert!(!reports.is_empty(), "a failure without a reason");
        Failure { reports }
    }

    /// All of it, the first first.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }
}

impl<E: Reported> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure { reports: vec![error.report()] }
    }
}
