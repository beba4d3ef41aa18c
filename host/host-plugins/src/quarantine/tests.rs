//! The ledger under a clock that stands still until it is told to go on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host_core::quant::{Scheme, TensorFacts};
use host_core::{Report, Reported};

use super::{Clock, InQuarantine, Quarantine, QuarantineRules};
use crate::{FieldProblem, LogSink, PluginError, PluginName, QuantPlugin};

const RULES: QuarantineRules =
    QuarantineRules { faults: 3, within_s: 60, first_backoff_s: 10, longest_backoff_s: 35 };

#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn forward(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

fn name(id: &str) -> PluginName {
    PluginName { id: id.to_owned(), version: "1.0.0".parse().unwrap() }
}

/// What a request does to the plugin.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Works,
    Faults,
    /// The profile's params are wrong, which is no fault of the plugin.
    Refuses,
}

/// A plugin that does what it is told.
struct Told(PluginName, Arc<Mutex<Deed>>);

impl QuantPlugin for Told {
    fn name(&self) -> &PluginName {
        &self.0
    }

    fn plan(&self, _: &str, _: &str, _: &[TensorFacts]) -> Result<Vec<Scheme>, PluginError> {
        let plugin = self.0.clone();
        match *self.1.lock().unwrap() {
            Deed::Works => Ok(Vec::new()),
            Deed::Faults => Err(PluginError::Time { plugin, hook: "plan", budget_ms: 50 }),
            Deed::Refuses => {
                let text = String::new;
                let field = FieldProblem { path: text(), expected: text(), found: text() };
                Err(PluginError::InvalidConfig { plugin, fields: vec![field], place: None })
            }
        }
    }
}

struct Case {
    clock: Hand,
    ledger: Arc<Quarantine>,
    notices: Arc<Mutex<Vec<String>>>,
    deed: Arc<Mutex<Deed>>,
    plugin: Box<dyn QuantPlugin>,
}

impl Case {
    fn new() -> Self {
        let (clock, notices) = (Hand::default(), Arc::new(Mutex::new(Vec::new())));
        let heard = Arc::clone(&notices);
        let notice =
            LogSink::new(move |plugin, line| heard.lock().unwrap().push(format!("{plugin}: {line}")));
        let ledger = Quarantine::new(clock.clone(), notice);
        let deed = Arc::new(Mutex::new(Deed::Works));
        let plugin = ledger.quant(RULES, Box::new(Told(name("told"), Arc::clone(&deed))));
        Case { clock, ledger, notices, deed, plugin }
    }

    fn run(&self, deed: Deed) -> Result<(), Report> {
        *self.deed.lock().unwrap() = deed;
        self.plugin.plan("{}", "{}", &[]).map(drop).map_err(|error| error.report())
    }

    fn faults(&self, n: usize) {
        for _ in 0..n {
            assert_eq!(self.run(Deed::Faults).unwrap_err().code, "plugin.time-budget");
        }
    }

    fn is_closed(&self) -> bool {
        self.run(Deed::Works).is_err_and(|report| report.code == "plugin.quarantined")
    }
}

#[test]
fn faults_within_their_time_close_a_plugin_and_the_refusal_says_all() {
    let case = Case::new();
    case.faults(2);
    assert!(!case.is_closed(), "two of three");
    case.faults(1);
    case.clock.forward(3_500);
    let report = case.run(Deed::Works).unwrap_err();
    assert_eq!(report.code, "plugin.quarantined");
    assert_eq!(report.message, "plugin told 1.0.0 is in quarantine");
    let last = "plugin.time-budget: plugin told 1.0.0 spent its time in `plan`";
    assert_eq!(report.found.unwrap(), format!("3 faults, the last {last}"));
    assert_eq!(
        report.mend.as_deref(),
        Some("wait 7 s: then one request is let in to try; or take another plugin")
    );
    assert_eq!(
        *case.notices.lock().unwrap(),
        [format!("told 1.0.0: in quarantine for 10 s after 3 faults, the last {last}")]
    );
}

#[test]
fn faults_far_apart_close_nothing() {
    let case = Case::new();
    for _ in 0..10 {
        case.faults(1);
        case.clock.forward(30_001);
    }
    assert!(!case.is_closed());
    assert_eq!(case.ledger.health()[0].n_faults, 10);
}

#[test]
fn what_is_no_fault_of_the_plugin_closes_nothing() {
    let case = Case::new();
    for _ in 0..10 {
        assert_eq!(case.run(Deed::Refuses).unwrap_err().code, "plugin.invalid-config");
    }
    assert!(case.ledger.health().is_empty());
}

#[test]
fn another_plugin_is_not_closed_with_it() {
    let case = Case::new();
    case.faults(3);
    let deed = Arc::new(Mutex::new(Deed::Works));
    let other = case.ledger.quant(RULES, Box::new(Told(name("other"), deed)));
    assert!(other.plan("{}", "{}", &[]).is_ok());
    assert!(case.is_closed());
}

#[test]
fn a_trial_that_works_clears_and_one_that_faults_doubles_the_time() {
    let case = Case::new();
    case.faults(3);
    // 10, 20, then 35 in place of 40.
    for (backoff_s, next_s) in [(10, 20), (20, 35), (35, 35)] {
        case.clock.forward(backoff_s * 1_000 - 1);
        assert!(case.is_closed(), "a millisecond before {backoff_s} s");
        case.clock.forward(1);
        case.faults(1);
        let [health] = case.ledger.health().try_into().unwrap();
        let expected = Duration::from_secs(next_s);
        assert_eq!(
            health.quarantine,
            Some(InQuarantine { left: expected, backoff: expected, is_tried: false })
        );
    }
    case.clock.forward(35_000);
    case.run(Deed::Works).unwrap();
    assert!(case.ledger.health().is_empty(), "all is forgotten");
    case.faults(2);
    assert!(!case.is_closed(), "it begins anew");
    assert!(case.notices.lock().unwrap().iter().any(|line| line.contains("works again")));
}

#[test]
fn one_request_tries_while_the_others_wait() {
    let case = Case::new();
    case.faults(3);
    case.clock.forward(10_000);
    let plugin = name("told");
    let trial = case.ledger.admit(&plugin, RULES).unwrap();
    let report = case.run(Deed::Works).unwrap_err();
    assert_eq!(
        report.mend.as_deref(),
        Some("wait for the request that tries it now, or take another plugin")
    );
    // It ends before anything is known of it, so the next one tries.
    drop(trial);
    case.run(Deed::Works).unwrap();
    assert!(!case.is_closed());
}

#[test]
fn a_request_from_before_the_quarantine_neither_shortens_nor_lengthens_it() {
    let case = Case::new();
    let early = case.ledger.admit(&name("told"), RULES).unwrap();
    let another = case.ledger.admit(&name("told"), RULES).unwrap();
    case.faults(3);
    case.clock.forward(5_000);
    let _ = early.judge::<()>(Err(PluginError::Trap {
        plugin: name("told"),
        hook: "step",
        message: "late".to_owned(),
    }));
    another.judge(Ok(())).unwrap();
    drop((early, another));
    let [health] = case.ledger.health().try_into().unwrap();
    assert_eq!(health.n_faults, 4);
    assert_eq!(health.quarantine.unwrap().left, Duration::from_secs(5));
}

/// A request counts once, however often it fails.
#[test]
fn a_request_is_one_fault() {
    let case = Case::new();
    let pass = case.ledger.admit(&name("told"), RULES).unwrap();
    for _ in 0..5 {
        let fault = PluginError::Time { plugin: name("told"), hook: "step", budget_ms: 1 };
        assert!(pass.judge::<()>(Err(fault)).is_err());
    }
    assert_eq!(case.ledger.health()[0].n_faults, 1);
}
