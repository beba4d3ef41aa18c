//! Profiles and plugins that change under load: generations are swapped as a whole, shared where they are the same,
//! refused with everything that is wrong, taken back, rolled back, drained.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use host_core::SamplingSettings;
use host_engine::{Outcome, Request};
use host_registry::Bytes;
use host_service::reload::{
    ColdStart, Event, GenerationId, Overflow, Pin, Reload, ReloadSettings, Service, Watching,
};
use tests::reload::{Bed, Soaked, expected, settings, soak};

const SERVED: &str = "profiles/served.toml";
const PLUGIN: &str = "plugins/forced/forced.lua";
const MODEL: &str = "tiny";

struct Case {
    bed: Bed,
    service: Arc<Service>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Case {
    fn new() -> Self {
        Case::with(settings())
    }

    fn with(settings: ReloadSettings) -> Self {
        let bed = Bed::new();
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&events);
        let tell = move |event: &Event| heard.lock().unwrap().push(event.clone());
        let service =
            bed.serve(settings, ColdStart::Folders, tell).unwrap_or_else(|failure| panic!("{failure:?}"));
        Case { bed, service, events }
    }

    fn profile(&self, token: usize) {
        self.bed.write(SERVED, &tests::reload::profile("served", token));
    }

    fn policy(&self, deed: &str) {
        self.bed.write(PLUGIN, &tests::reload::forced(deed, 0));
    }

    fn loaded(&self) -> GenerationId {
        match self.service.reload() {
            Reload::Swapped(id) => id,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&self) -> Vec<&'static str> {
        match self.service.reload() {
            Reload::Refused(reports) => reports.iter().map(|report| report.code).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        self.events.lock().unwrap().iter().map(Event::name).collect()
    }
}

/// The tokens of a request of `n`, or the code of what ended it.
fn ask(pin: &Pin, n: usize) -> Result<Vec<u32>, &'static str> {
    let policy = pin.open_policy(MODEL).map_err(|failure| failure.reports()[0].code)?;
    let request =
        Request { policy, ignore_eos: true, ..Request::new(vec![1, 5], n, SamplingSettings::GREEDY) };
    let mut tokens = Vec::new();
    for outcome in pin.submit(MODEL, request).map_err(|failure| failure.reports()[0].code)? {
        match outcome {
            Outcome::Token { token_id, .. } => tokens.push(token_id),
            Outcome::Failed(report) => return Err(report.code),
            Outcome::Finished { .. } => {}
        }
    }
    Ok(tokens)
}

#[test]
fn an_edit_is_live_for_the_next_request_and_a_pinned_one_ends_as_it_began() {
    let case = Case::new();
    let pin = case.service.admit();
    assert_eq!(ask(&pin, 3), Ok(vec![40; 3]));
    assert_eq!(case.service.reload(), Reload::Unchanged);
    case.profile(50);
    let id = case.loaded();
    assert_ne!(id, pin.id());
    assert_eq!(case.service.admit().id(), id);
    assert_eq!(ask(&case.service.admit(), 3), Ok(vec![50; 3]));
    assert_eq!(ask(&pin, 3), Ok(vec![40; 3]), "the pinned one goes on as it began");
    let [old, new] = [&pin, &case.service.admit()].map(|pin| Arc::clone(pin.model(MODEL).unwrap().model()));
    assert!(Arc::ptr_eq(&old, &new), "both share the model in memory");
    assert_eq!(case.service.state().old.len(), 1);
    drop(pin);
    case.service.tick();
    assert_eq!(case.service.state().old.len(), 0);
    assert_eq!(case.names(), ["started", "swapped", "drained"]);
    case.profile(40);
    assert_eq!(case.loaded(), case.events.lock().unwrap()[0].id(), "the same files are the same generation");
}

#[test]
fn a_refusal_tells_everything_and_changes_nothing() {
    let case = Case::new();
    case.bed.write(PLUGIN, "function open(");
    case.bed.write("plugins/other-18/plugin.toml", "id = \"other-18\"\n");
    case.bed.write("profiles/other-01.toml", "schema = ");
    case.bed.write("profiles/other-02.toml", "schema = 1\nid = \"other-02\"\n");
    let codes = case.refused();
    for code in ["plugin.syntax", "plugin.manifest", "profile.syntax", "profile.missing-key"] {
        assert!(codes.contains(&code), "{code} in {codes:?}");
    }
    assert_eq!(case.service.reload(), Reload::Unchanged, "it is told once");
    assert_eq!(ask(&case.service.admit(), 2), Ok(vec![40; 2]));
    let state = case.service.state();
    assert_eq!(state.degraded.unwrap().reports.len(), codes.len());
    assert_eq!(state.generation, case.service.admit().id());
    let places: Vec<_> = match &case.events.lock().unwrap()[1] {
        Event::Refused { reports, .. } => reports.iter().filter_map(|report| report.place.clone()).collect(),
        other => panic!("{other:?}"),
    };
    assert!(places.iter().any(|place| place.file.ends_with("other-01.toml") && place.line == Some(1)));
    for n in [1, 2] {
        case.bed.write(
            &format!("profiles/other-{n:02}.toml"),
            &tests::reload::profile(&format!("other-{n:02}"), n),
        );
    }
    case.policy("sound");
    let whole = fs::read_to_string(case.bed.path("plugins/other-17/plugin.toml")).unwrap();
    case.bed.write("plugins/other-18/plugin.toml", &whole.replace("other-17", "other-18"));
    assert_eq!(case.service.reload(), Reload::Unchanged);
    assert_eq!(case.service.state().degraded, None);
    assert_eq!(case.names(), ["started", "refused", "mended"]);
}

#[test]
fn a_policy_takes_a_step_before_any_request_depends_on_it() {
    let case = Case::new();
    for (deed, code) in [("traps", "plugin.script-error"), ("slow", "plugin.time-budget")] {
        case.policy(deed);
        let codes = case.refused();
        assert!(codes.contains(&code), "{deed}: {codes:?}");
    }
    case.bed.write(SERVED, &tests::reload::profile("served", 40).replace("token = 40", "tokens = 40"));
    case.policy("sound");
    assert!(case.refused().contains(&"plugin.invalid-config"), "params are tried as the profile gives them");
    case.bed.write(SERVED, &tests::reload::profile("served", 999));
    assert!(case.refused().contains(&"policy.unknown-token"), "over the vocabulary of the model");
}

#[test]
fn a_generation_that_fails_more_requests_is_taken_back_and_kept_out() {
    let mut numbers = settings();
    numbers.gate.min_requests = 4;
    let case = Case::with(numbers);
    let good = case.service.admit().id();
    assert_eq!(ask(&case.service.admit(), 6), Ok(vec![40; 6]));
    case.policy("traps late");
    let bad = case.loaded();
    for n in 0..4 {
        case.service.tick();
        assert_eq!(case.service.admit().id(), bad, "{n} requests tell too little");
        assert!(ask(&case.service.admit(), 6).is_err());
    }
    case.service.tick();
    assert_eq!(case.service.admit().id(), good);
    assert_eq!(ask(&case.service.admit(), 6), Ok(vec![40; 6]), "the old build has no faults of the new one");
    assert_eq!(case.refused(), ["reload.kept-out"]);
    assert_eq!(case.service.reload(), Reload::Unchanged, "the watcher does not load it again");
    assert_eq!(case.service.state().kept_out, [bad]);
    assert!(case.service.store().find(&bad.as_hex()).is_err(), "it is no good generation");
    case.bed.write(PLUGIN, &tests::reload::forced("sound", 1));
    assert_ne!(case.loaded(), bad);
    let names: Vec<_> = case.names().into_iter().filter(|name| *name != "drained").collect();
    assert_eq!(names, ["started", "swapped", "taken-back", "refused", "swapped"]);
}

#[test]
fn old_generations_with_requests_are_bounded() {
    let mut numbers = settings();
    numbers.drain.at_most = 2;
    let case = Case::with(numbers.clone());
    let mut pins = vec![case.service.admit()];
    for token in [41, 42] {
        case.profile(token);
        case.loaded();
        pins.push(case.service.admit());
    }
    case.profile(43);
    assert_eq!(case.refused(), ["reload.draining"]);
    pins.remove(0);
    thread::sleep(Duration::from_millis(numbers.watch.rescan_ms + 50));
    case.loaded();

    numbers.drain.then = Overflow::EndOldest;
    let case = Case::with(numbers);
    let oldest = case.service.admit();
    let running = thread::scope(|scope| {
        let running = scope.spawn(|| ask(&oldest, 60));
        let mut pins = Vec::new();
        for token in [41, 42, 43] {
            case.profile(token);
            case.loaded();
            pins.push(case.service.admit());
        }
        assert!(case.names().contains(&"ended"), "{:?}", case.names());
        assert_eq!(ask(&oldest, 4), Err("reload.generation-ended"));
        assert_eq!(ask(&pins[0], 2), Ok(vec![41; 2]), "only the oldest ends");
        running.join().unwrap()
    });
    assert!(matches!(running, Ok(_) | Err("reload.generation-ended")), "{running:?}");
}

#[test]
fn models_are_shared_by_content_and_a_second_one_must_fit() {
    let mut numbers = settings();
    let one = {
        let case = Case::new();
        let pin = case.service.admit();
        let before = Arc::clone(pin.model(MODEL).unwrap().model());
        let text = tests::reload::profile("served", 40);
        case.bed.write(SERVED, &text.replace("max_sequences = 8", "max_sequences = 4"));
        case.loaded();
        let after = Arc::clone(case.service.admit().model(MODEL).unwrap().model());
        assert!(!Arc::ptr_eq(&before, &after), "another state is another engine");
        assert_eq!(case.service.held_bytes(), before.memory().total_bytes() + after.memory().total_bytes());
        before.memory().total_bytes()
    };
    numbers.memory.models_bytes = Some(Bytes(one + 1000));
    let case = Case::with(numbers);
    let text = tests::reload::profile("served", 40);
    case.bed.write(SERVED, &text.replace("max_sequences = 8", "max_sequences = 7"));
    let Reload::Refused(reports) = case.service.reload() else { panic!("it does not fit") };
    assert_eq!(reports[0].code, "reload.memory");
    assert!(reports[0].found.as_ref().unwrap().starts_with(&format!("{one} bytes held")), "{reports:?}");
    assert_eq!(ask(&case.service.admit(), 2), Ok(vec![40; 2]));
    case.profile(44);
    case.loaded();
    assert_eq!(case.service.held_bytes(), one, "a change that needs no other model is loaded");
}

#[test]
fn a_stored_generation_serves_again_and_the_folders_wait_for_their_next_change() {
    let case = Case::new();
    let first = case.service.admit().id();
    case.profile(50);
    let second = case.loaded();
    assert_eq!(case.service.rollback(&first.to_string()).unwrap(), Reload::Swapped(first));
    assert_eq!(ask(&case.service.admit(), 2), Ok(vec![40; 2]));
    assert_eq!(case.service.reload(), Reload::Unchanged, "the folders still say the second");
    case.profile(60);
    let third = case.loaded();
    let stored: Vec<_> = case.service.store().list().unwrap().iter().map(|stored| stored.id).collect();
    assert_eq!(stored, [third, first, second, first]);
    assert!(case.service.rollback("no such").is_err());
}

#[test]
fn a_cold_start_with_a_broken_profile_fails_unless_the_last_good_is_asked_for() {
    let case = Case::new();
    case.profile(50);
    let good = case.loaded();
    let Case { bed, service, .. } = case;
    drop(service);
    bed.write(SERVED, "schema = ");
    let start = |cold_start| {
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&events);
        let service =
            bed.serve(settings(), cold_start, move |event| heard.lock().unwrap().push(event.clone()));
        (service, events)
    };
    let (failed, _) = start(ColdStart::Folders);
    assert_eq!(failed.err().unwrap().reports()[0].code, "profile.syntax");
    let (service, events) = start(ColdStart::LastGood);
    let service = service.unwrap_or_else(|failure| panic!("{failure:?}"));
    assert_eq!(service.admit().id(), good);
    assert_eq!(ask(&service.admit(), 2), Ok(vec![50; 2]));
    assert_eq!(service.state().degraded.unwrap().reports[0].code, "profile.syntax");
    assert!(matches!(&events.lock().unwrap()[..], [Event::LastGood { id, .. }] if *id == good));
}

/// How long after a save the next request is admitted under it, `n` times.
fn saves_to_live(n: usize) -> Vec<Duration> {
    let case = Case::new();
    let _watching = Watching::start(Arc::clone(&case.service)).unwrap();
    let mut took = Vec::new();
    for i in 0..n {
        let text = tests::reload::profile("served", 50 + i % 100);
        let before = case.service.admit().id();
        case.bed.replace(SERVED, &text);
        let saved = Instant::now();
        while case.service.admit().id() == before {
            assert!(
                saved.elapsed() < Duration::from_secs(10),
                "a save is never live: {:?}",
                case.service.state()
            );
            thread::sleep(Duration::from_micros(200));
        }
        took.push(saved.elapsed());
        assert_eq!(expected(case.service.admit().generation().snapshot()).token as usize, 50 + i % 100);
        thread::sleep(Duration::from_millis(30));
    }
    took
}

/// `p50 1.0 ms, p99 2.0 ms, max 3.0 ms`
fn spread(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort();
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e3;
    format!("p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms", at(0.5), at(0.99), at(1.0))
}

fn check(soaked: &Soaked, n_requests: usize) {
    println!(
        "{} requests served and {} failed by their own policy, of {} generations, in {:.1} s; {} deeds, {} refused, {} \
         taken back",
        soaked.n_served,
        soaked.n_offended,
        soaked.n_generations,
        soaked.wall.as_secs_f64(),
        soaked.n_deeds,
        soaked.n_refused,
        soaked.n_taken_back
    );
    println!("swap           {}", spread(&soaked.swaps));
    println!("read to live   {} (under load)", spread(&soaked.took));
    println!(
        "resident       {} MiB early, {} MiB at the end",
        soaked.resident[0] >> 20,
        soaked.resident[1] >> 20
    );
    println!(
        "models         {} bytes held, {} of one; {} old generations at most",
        soaked.models[0], soaked.models[1], soaked.most_old
    );
    assert!(soaked.faults.is_empty(), "{} faults:\n{}", soaked.faults.len(), soaked.faults.join("\n"));
    assert!(soaked.n_served + soaked.n_offended >= n_requests);
    assert!(
        soaked.n_served > n_requests / 2 && soaked.n_refused > 0 && soaked.n_generations > 3,
        "{soaked:?}"
    );
    assert_eq!(soaked.models[0], soaked.models[1], "the model is in memory once");
    assert!(soaked.most_old <= settings().drain.at_most, "{soaked:?}");
    let grown = soaked.resident[1].saturating_sub(soaked.resident[0]);
    assert!(grown < 96 << 20, "{} MiB more than early on", grown >> 20);
}

#[test]
fn a_short_soak_mixes_cuts_and_fails_nothing() {
    check(&soak(settings(), 400, 8, Duration::from_millis(100), 1), 400);
    let took = saves_to_live(12);
    println!("save to live   {}", spread(&took));
}

/// `cargo xtask soak`
#[test]
#[ignore = "minutes: cargo xtask soak"]
fn soak_in_full() {
    let took = saves_to_live(200);
    println!("save to live   {} (100 profiles, 20 plugins, no requests)", spread(&took));
    let soaked = soak(settings(), 10_000, 8, Duration::from_millis(100), 12);
    check(&soaked, 10_000);
    let slowest = soaked.swaps.iter().max().unwrap();
    assert!(*slowest <= Duration::from_millis(1), "a swap took {slowest:?}");
    let mut sorted = took.clone();
    sorted.sort();
    assert!(sorted[took.len() * 99 / 100] <= Duration::from_millis(150), "{}", spread(&took));
}
