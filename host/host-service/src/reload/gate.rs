//! The health gate: for some time after a swap, the new generation's faults are compared with the old one's.

use std::time::Duration;

use super::counts::Tally;
use super::settings::GateSettings;

/// What the gate says of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet: too few requests ended, or the time is not over.
    Watching,
    /// The time is over and it was not worse.
    Passed,
    /// It fails more often than the old one did, by more than is allowed.
    Worse,
}

impl GateSettings {
    /// Judges a generation `age` after its swap.
    pub(crate) fn judge(&self, age: Duration, old: Tally, new: Tally) -> Verdict {
        let is_told = new.ended >= self.min_requests;
        if is_told && new.fault_rate() > old.fault_rate() + self.worse_by {
            return Verdict::Worse;
        }
        if age >= Duration::from_secs(self.watch_s) { Verdict::Passed } else { Verdict::Watching }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_judged_by_how_much_worse_it_is() {
        let gate = GateSettings { check_ms: 50, watch_s: 30, min_requests: 4, worse_by: 0.25 };
        let tally = |failed, ended| Tally { ended, failed };
        let cases = [
            // (seconds, old, new, verdict)
            (1, tally(0, 100), tally(3, 3), Verdict::Watching, "too few requests"),
            (1, tally(0, 100), tally(1, 4), Verdict::Watching, "as much worse as is allowed"),
            (1, tally(0, 100), tally(2, 4), Verdict::Worse, "more"),
            (1, tally(0, 0), tally(4, 4), Verdict::Worse, "an old one without requests had no faults"),
            (1, tally(50, 100), tally(3, 4), Verdict::Watching, "the old one was bad as well"),
            (30, tally(0, 100), tally(0, 4), Verdict::Passed, "the time is over"),
            (30, tally(0, 100), tally(3, 3), Verdict::Passed, "over without enough requests"),
            (30, tally(0, 100), tally(4, 4), Verdict::Worse, "bad at the last moment"),
        ];
        for (age_s, old, new, expected, why) in cases {
            assert_eq!(gate.judge(Duration::from_secs(age_s), old, new), expected, "{why}");
        }
    }
}
