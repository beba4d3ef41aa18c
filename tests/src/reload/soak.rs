//! Requests that never stop while the folders change: every answer is that of the generation whose id it carries.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use host_core::{FinishReason, SamplingSettings};
use host_engine::{Outcome, Request};
use host_service::reload::{ColdStart, Event, GenerationId, Pin, ReloadSettings, Service, Watching};

use super::bed::{Bed, MODEL};
use super::deeds::DEEDS;
use super::expect::{Expected, expected};

/// What came of it.
#[derive(Debug, Default)]
pub struct Soaked {
    /// Requests that ended as they should.
    pub n_served: usize,
    /// Requests that failed by the fault of their own generation's policy.
    pub n_offended: usize,
    /// What should not have been, a line each.
    pub faults: Vec<String>,
    /// Distinct generations that answered.
    pub n_generations: usize,
    /// Deeds that were done.
    pub n_deeds: usize,
    /// Swaps alone.
    pub swaps: Vec<Duration>,
    /// From reading to serving, under load.
    pub took: Vec<Duration>,
    /// Changes that were refused.
    pub n_refused: usize,
    /// Generations that the gate took back.
    pub n_taken_back: usize,
    /// Old generations with requests, at most.
    pub most_old: usize,
    /// Resident bytes after a tenth of the requests, and at the end.
    pub resident: [u64; 2],
    /// What all models hold at the end, and what one holds.
    pub models: [u64; 2],
    /// How long it ran.
    pub wall: Duration,
}

struct Run<'a> {
    service: &'a Service,
    next: AtomicUsize,
    n_requests: usize,
    /// Whether every deed was done as often as was asked for.
    has_misbehaved: AtomicBool,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    n_served: usize,
    n_offended: usize,
    faults: Vec<String>,
    generations: BTreeMap<GenerationId, Expected>,
    most_old: usize,
    resident_early: u64,
}

/// At least `n_requests` short generations, `at_once` of them at a time, with a deed each `every`, until all deeds were
/// done `n_rounds` times.
pub fn soak(
    settings: ReloadSettings,
    n_requests: usize,
    at_once: usize,
    every: Duration,
    n_rounds: usize,
) -> Soaked {
    let bed = Bed::with_component();
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let tell = move |event: &Event| heard.lock().expect("no panic").push(event.clone());
    let service =
        bed.serve(settings, ColdStart::Folders, tell).unwrap_or_else(|failure| panic!("{failure:?}"));
    let watching = Watching::start(Arc::clone(&service)).unwrap_or_else(|error| panic!("{error}"));
    let has_asked = AtomicBool::new(false);
    let run = Run {
        service: &service,
        next: AtomicUsize::new(0),
        n_requests,
        has_misbehaved: AtomicBool::new(false),
        found: Mutex::default(),
    };
    let began = Instant::now();
    let n_deeds = thread::scope(|scope| {
        let writer = scope.spawn(|| misbehave(&bed, every, n_rounds, &run.has_misbehaved, &has_asked));
        let askers: Vec<_> = (0..at_once).map(|_| scope.spawn(|| run.ask())).collect();
        for asker in askers {
            asker.join().expect("an asker does not panic");
        }
        has_asked.store(true, Ordering::Relaxed);
        writer.join().expect("the writer does not panic")
    });
    let wall = began.elapsed();
    let mut found = run.found.into_inner().expect("no panic");
    found.faults.extend(settled(&bed, &service, n_deeds).err());
    drop(watching);
    let events = events.lock().expect("no panic");
    let mut soaked = Soaked {
        n_served: found.n_served,
        n_offended: found.n_offended,
        faults: found.faults,
        n_generations: found.generations.len(),
        n_deeds,
        most_old: found.most_old,
        resident: [found.resident_early, resident_bytes()],
        models: [service.held_bytes(), model_bytes(&service)],
        wall,
        ..Soaked::default()
    };
    for event in events.iter() {
        match event {
            Event::Swapped { took, swap, .. } => {
                soaked.took.push(*took);
                soaked.swaps.push(*swap);
            }
            Event::Refused { .. } => soaked.n_refused += 1,
            Event::TakenBack { .. } => soaked.n_taken_back += 1,
            Event::NotStored { report, .. } => soaked.faults.push(report.to_string()),
            _ => {}
        }
    }
    soaked
}

fn model_bytes(service: &Service) -> u64 {
    let pin = service.admit();
    pin.model(MODEL).map_or(0, |served| served.model().memory().total_bytes())
}

/// Does the deeds round and round until enough was done and asked, and ends with a sound one.
fn misbehave(
    bed: &Bed,
    every: Duration,
    n_rounds: usize,
    has_misbehaved: &AtomicBool,
    has_asked: &AtomicBool,
) -> usize {
    let mut n = 0;
    loop {
        (DEEDS[n % DEEDS.len()].run)(bed, n);
        n += 1;
        thread::sleep(every);
        // A state that does not load is mended by the deed that follows it, so rounds are whole.
        if n.is_multiple_of(DEEDS.len()) {
            has_misbehaved.fetch_or(n / DEEDS.len() >= n_rounds, Ordering::Relaxed);
            if has_asked.load(Ordering::Relaxed) {
                return n;
            }
        }
    }
}

/// In the end the service says what the folders say.
fn settled(bed: &Bed, service: &Service, n: usize) -> Result<(), String> {
    bed.replace("profiles/served.toml", &super::bed::profile("served", 20 + n % 150));
    bed.replace("plugins/forced/forced.lua", &super::bed::forced("sound", 7));
    let began = Instant::now();
    let wanted = (20 + n % 150 + 7) as u32;
    while began.elapsed() < Duration::from_secs(10) {
        let found = expected(service.admit().generation().snapshot());
        if found == (Expected { token: wanted, is_offender: false }) && service.state().degraded.is_none() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(format!("the last state of the folders is not served after 10 s: {:?}", service.state()))
}

impl Run<'_> {
    fn ask(&self) {
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            if n >= self.n_requests && self.has_misbehaved.load(Ordering::Relaxed) {
                return;
            }
            let pin = self.service.admit();
            let expected = expected(pin.generation().snapshot());
            // Every fifth is a conversation of two turns that holds its generation between them.
            let n_turns = if n.is_multiple_of(5) { 2 } else { 1 };
            let outcomes: Vec<_> = (0..n_turns)
                .map(|turn| {
                    if turn > 0 {
                        thread::sleep(Duration::from_millis(30));
                    }
                    self.turn(&pin, n, &expected)
                })
                .collect();
            self.note(n, &pin, &expected, outcomes);
        }
    }

    /// One answer: `Ok(true)` as it should be, `Ok(false)` failed by its own policy's fault.
    fn turn(&self, pin: &Pin, n: usize, expected: &Expected) -> Result<bool, String> {
        let max_tokens = 4 + n % 9;
        let blame = |code: &str, message: String| {
            let is_own = expected.is_offender && code.starts_with("plugin.");
            if is_own { Ok(false) } else { Err(format!("{code}: {message}")) }
        };
        let policy = match pin.open_policy(MODEL) {
            Ok(policy) => policy,
            Err(failure) => return blame(failure.reports()[0].code, failure.reports()[0].message.clone()),
        };
        let prompt = vec![1, 5 + (n % 40) as u32, 9];
        let request = Request {
            policy,
            ignore_eos: true,
            ..Request::new(prompt, max_tokens, SamplingSettings::GREEDY)
        };
        let answering = pin.submit(MODEL, request).map_err(|failure| format!("{failure:?}"))?;
        let carried = answering.pin().id();
        if carried != pin.id() {
            return Err(format!("the response carries {carried}, the request was admitted by {}", pin.id()));
        }
        let mut tokens = Vec::new();
        for outcome in answering {
            match outcome {
                Outcome::Token { token_id, .. } => tokens.push(token_id),
                Outcome::Failed(report) => return blame(report.code, report.message),
                Outcome::Finished { reason, .. } => {
                    if reason != FinishReason::Length || tokens != vec![expected.token; max_tokens] {
                        return Err(format!(
                            "{reason:?} after {tokens:?}, expected {max_tokens} of {}",
                            expected.token
                        ));
                    }
                    return Ok(true);
                }
            }
        }
        Err(format!("no end after {tokens:?}"))
    }

    fn note(&self, n: usize, pin: &Pin, expected: &Expected, outcomes: Vec<Result<bool, String>>) {
        let n_old = self.service.state().old.len();
        let mut found = self.found.lock().expect("no panic");
        let known = found.generations.entry(pin.id()).or_insert_with(|| expected.clone());
        if known != expected {
            let fault = format!("{} stands for {known:?} and for {expected:?}", pin.id());
            found.faults.push(fault);
        }
        found.most_old = found.most_old.max(n_old);
        for outcome in outcomes {
            match outcome {
                Ok(true) => found.n_served += 1,
                Ok(false) => found.n_offended += 1,
                Err(fault) => found.faults.push(format!("request {n} of generation {}: {fault}", pin.id())),
            }
        }
        if n == self.n_requests / 10 {
            found.resident_early = resident_bytes();
        }
    }
}

/// What this process holds now; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
