//! Profiles and plugins that change under load: generations are swapped as a whole, shared where they are the same,
//! refused with everything that is wrong, taken back, rolled back, drained.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use host_core::SamplingSettings;
use host_engine::{Grammar, GrammarBudget, GrammarSpec, Outcome, Request};
use host_registry::Bytes;
use host_service::reload::{
    ColdStart, Event, GenerationId, GenerationStore, LoadedModel, Overflow, Pin, Reload, ReloadSettings,
    Service, Watching,
};
use serde_json::Value;
use tests::places::{fixture, prefix, workspace};
use tests::program::{Ended, Tenon};
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
    let whole = [1, 2].map(|n| {
        let name = format!("profiles/other-{n:02}.toml");
        (name.clone(), fs::read_to_string(case.bed.path(&name)).unwrap())
    });
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
    for (name, text) in whole {
        case.bed.write(&name, &text);
    }
    case.policy("sound");
    let manifest = fs::read_to_string(case.bed.path("plugins/other-17/plugin.toml")).unwrap();
    case.bed.write("plugins/other-18/plugin.toml", &manifest.replace("other-17", "other-18"));
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

/// Neither the plugin nor its params changed: only what its profile lets it spend.
#[test]
fn a_policy_takes_that_step_within_its_profiles_budget() {
    let case = Case::new();
    let served = tests::reload::profile("served", 40);
    case.bed.write(SERVED, &(served + "\n[plugins.forced]\nmemory_bytes = \"64KiB\"\n"));
    assert_eq!(case.refused(), ["plugin.memory-budget"]);
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

/// A grammar is compiled once for a vocabulary, and a generation that makes the model anew takes it as it is.
#[test]
fn compiled_grammars_go_from_generation_to_generation() {
    let case = Case::new();
    let model = || Arc::clone(case.service.admit().model(MODEL).unwrap().model());
    let compile = |model: &LoadedModel| {
        let table = model.vocabulary().token_table().unwrap();
        let spec = GrammarSpec::Regex("[ab]{1,7}".to_owned());
        Grammar::compile(&spec, &table, GrammarBudget::default()).unwrap()
    };
    let before = model();
    let grammar = compile(&before);
    let text = tests::reload::profile("served", 40);
    case.bed.write(SERVED, &text.replace("max_sequences = 8", "max_sequences = 4"));
    case.loaded();
    let after = model();
    assert!(!Arc::ptr_eq(&before, &after), "another state is another engine");
    assert!(grammar.is_same(&compile(&after)), "the same vocabulary has the same grammars");
    let another = GrammarSpec::Regex("[ab]{1,8}".to_owned());
    let another = Grammar::compile(&another, grammar.table(), GrammarBudget::default()).unwrap();
    assert!(!grammar.is_same(&another));
}

#[test]
fn old_weights_go_first_where_a_profile_says_so() {
    let profile = |max_sequences: usize| {
        let text = tests::reload::profile("served", 40);
        let text = text.replace("max_sequences = 8", &format!("max_sequences = {max_sequences}"));
        text.replace("[limits]\n", "[limits]\non_reload = \"drain-first\"\n")
    };
    let mut numbers = settings();
    numbers.memory.models_bytes = Some(Bytes(650_000));
    let case = Case::with(numbers);
    let one = case.service.held_bytes();
    assert!(one < 650_000 && 2 * one > 650_000, "one fits, two do not: {one}");
    case.bed.write(SERVED, &profile(12));
    let pin = case.service.admit();
    thread::scope(|scope| {
        let reload = scope.spawn(|| case.service.reload());
        thread::sleep(Duration::from_millis(400));
        assert_eq!(ask(&pin, 3), Ok(vec![40; 3]), "what runs ends as it began");
        assert_eq!(ask(&case.service.admit(), 3), Err("reload.replacing"));
        drop(pin);
        assert!(matches!(reload.join().unwrap(), Reload::Swapped(_)));
    });
    assert_eq!(ask(&case.service.admit(), 3), Ok(vec![40; 3]));
    assert!(case.service.held_bytes() > one, "the new one alone is held");
    // Nothing fits: the old one is loaded again.
    case.bed.write(SERVED, &profile(60));
    assert_eq!(case.refused(), ["reload.memory"]);
    assert_eq!(ask(&case.service.admit(), 3), Ok(vec![40; 3]));
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

/// One line of `tenon profiles watch --json`.
fn line(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Value {
    let line = lines.next().expect("the program goes on").unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Kills the program in the middle of reloads; each start serves what the folders say or the last good, and says which.
fn kill(n: usize) {
    let Some(tenon) = Tenon::find() else { return };
    let bed = Bed::new();
    let (profiles, plugins) = (bed.path("profiles"), bed.path("plugins"));
    let folders = ["--profiles", profiles.to_str().unwrap(), "--plugins", plugins.to_str().unwrap()];
    let mut started = [0; 2];
    let mut served = String::new();
    for i in 0..n {
        // What lies in the folders when the program starts is sound, or broken.
        let is_sound = i % 3 != 2;
        let text = tests::reload::profile("served", 50 + i % 100);
        bed.write(SERVED, if is_sound { text.as_str() } else { "schema = " });
        let mut watch = vec!["profiles", "watch", "--json", "--last-good"];
        watch.extend(folders);
        let mut child = tenon.start(&watch);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = line(&mut lines);
        let (event, id) =
            (first["event"].as_str().unwrap(), first["generation"].as_str().unwrap().to_owned());
        match event {
            "started" => assert!(is_sound, "{first}"),
            "last-good" => {
                assert!(!is_sound, "{first}");
                assert_eq!(id, served, "the last that was served");
                assert_eq!(first["reports"][0]["code"], "profile.syntax");
            }
            other => panic!("{other}: {first}"),
        }
        started[usize::from(is_sound)] += 1;
        served = id;
        // The program is told of a change, and dies somewhere between hearing of it and having stored it.
        bed.replace(SERVED, &tests::reload::profile("served", 150 + i % 50));
        thread::sleep(Duration::from_micros((i as u64 * 7_919) % 90_000));
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said by then is true of the store.
        for said in lines.map_while(Result::ok) {
            let Ok(said) = serde_json::from_str::<Value>(&said) else { continue };
            if said["event"] == "swapped" {
                served = said["generation"].as_str().unwrap().to_owned();
            }
        }
        let mut history = vec!["profiles", "history", "--json"];
        history.extend(folders);
        let stored = tenon.run(&history).json();
        let stored = stored["generations"].as_array().unwrap();
        // What was told is stored; what was stored a moment ago may not have been told.
        let ids: Vec<&str> = stored.iter().map(|stored| stored["generation"].as_str().unwrap()).collect();
        assert!(ids.contains(&&*served), "{served} was told and is not in {ids:?}");
        served = ids[0].to_owned();
        let (store, folders) = (GenerationStore::of(tenon.cache(), &bed.folders()), bed.folders());
        for stored in store.list().unwrap() {
            store.load(&stored, &folders).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    println!("killed {n} times: {} starts with the folders, {} with the last good", started[1], started[0]);
    assert!(started[0] > 0 && started[1] > 0);
}

#[test]
fn a_killed_program_serves_the_new_or_the_last_good() {
    kill(6);
}

/// `cargo xtask soak`
#[test]
#[ignore = "minutes: cargo xtask soak"]
fn a_killed_program_in_full() {
    kill(45);
}

#[test]
fn a_chat_answers_as_the_profile_says_now() {
    let Some(tenon) = Tenon::find() else { return };
    let bed = Bed::new();
    let (profiles, plugins) = (bed.path("profiles"), bed.path("plugins"));
    let model = fixture("tiny-mlx-q8-g64");
    let model = model.to_str().unwrap();
    let asked = ["--profile", "served", "--max-tokens", "6", "--context-tokens", "128", "--model", model];
    let folders = ["--profiles", profiles.to_str().unwrap(), "--plugins", plugins.to_str().unwrap()];
    let generate = || tenon.run(&[&["generate"], &asked[..], &folders, &["Hi"]].concat()).done();
    let mut chat = tenon.start(&[&["chat"], &asked[..], &folders].concat());
    let (mut stdin, stdout) = (chat.stdin.take().unwrap(), chat.stdout.take().unwrap());
    let mut lines = BufReader::new(stdout).lines();
    let mut answers = Vec::new();
    for token in [70, 90] {
        bed.replace(SERVED, &tests::reload::profile("served", token));
        // Longer than a save takes to be live on a busy machine.
        thread::sleep(Duration::from_millis(1500));
        writeln!(stdin, "/reset\nHi").unwrap();
        let answer = format!("{}\n", lines.next().unwrap().unwrap());
        assert_eq!(answer, generate(), "as another program over the same folders answers");
        answers.push(answer);
    }
    assert_ne!(answers[0], answers[1]);
    bed.write(SERVED, "schema = ");
    thread::sleep(Duration::from_millis(1500));
    writeln!(stdin, "/reset\nHi").unwrap();
    assert_eq!(format!("{}\n", lines.next().unwrap().unwrap()), answers[1], "a mistake changes nothing");
    drop(stdin);
    let ended = Ended::of(chat.wait_with_output().unwrap());
    assert!(ended.stderr.contains(" serves, after "), "{}", ended.stderr);
    assert!(ended.stderr.contains("error[profile.syntax]"), "{}", ended.stderr);
    assert!(ended.stderr.contains("the change is refused"), "{}", ended.stderr);
    assert_eq!(ended.code, Some(0));
}

/// A folder's own numbers hold for it, else the program's own; a broken file has no stand-in, and where there is none every
/// place that was looked at is told.
#[test]
fn the_numbers_of_reloading_are_the_folders_own_or_the_programs_own() {
    let Some(tenon) = Tenon::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("profiles");
    let own = profiles.join("service/reload.toml");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    let shipped = workspace().join("profiles");
    fs::copy(shipped.join("llama.toml"), profiles.join("llama.toml")).unwrap();
    let arguments = ["profiles", "check", "--json", "--profiles", profiles.to_str().unwrap()];

    // The program tells where it really lies.
    let of_program = fs::canonicalize(prefix().join("profiles/service/reload.toml")).unwrap();
    assert_eq!(tenon.run(&arguments).json()["settings"], of_program.display().to_string());
    fs::copy(shipped.join("service/reload.toml"), &own).unwrap();
    assert_eq!(tenon.run(&arguments).json()["settings"], own.display().to_string());
    let text = tenon.run(&["profiles", "check", "--profiles", profiles.to_str().unwrap()]).done();
    assert!(text.ends_with(&format!("\nnumbers of reloading: {}\n", own.display())), "{text}");
    fs::write(&own, "[watch]\ndebounce_ms = 15\n").unwrap();
    let report = tenon.run(&arguments).error(1);
    assert_eq!(report["code"], "reload.settings", "{report}");

    // A program that was put somewhere without its profiles.
    fs::remove_file(&own).unwrap();
    let program = folder.path().join("prefix/bin/tenon");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let built = tests::skip::program().unwrap();
    fs::hard_link(&built, &program).or_else(|_| fs::copy(&built, &program).map(drop)).unwrap();
    let plugins = workspace().join("plugins");
    let output = std::process::Command::new(&program)
        .args(arguments)
        .args(["--plugins", plugins.to_str().unwrap()])
        .env("TENON_CACHE", tenon.cache())
        .output()
        .unwrap();
    let report = Ended::of(output).error(2);
    assert_eq!(report["code"], "usage.no-reload-settings", "{report}");
    let of_program = folder.path().join("prefix/profiles/service/reload.toml");
    assert_eq!(report["found"], format!("none of {}, {}", own.display(), of_program.display()));
    assert!(report["mend"].as_str().unwrap().contains(of_program.to_str().unwrap()), "{report}");
}
