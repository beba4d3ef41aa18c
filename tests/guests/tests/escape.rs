//! The escape suite: every hostile plugin ends as it must, in time, and leaves the process as it was.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use guests::attacks::{Arena, Attack, End, Form, TIME_MS, attacks};
use host_plugins::Runtime;

/// How many budgets an attack may take on a machine that does other work at the same time. On a quiet one a runaway
/// ends within its budget and ten milliseconds, which `policies` and `conformance` judge.
const PATIENCE: u32 = 20;

/// Memory that the process may keep: what allocators hold back, and the code of plugins that stay open.
const KEPT_BYTES: usize = 96 << 20;

#[test]
fn there_are_forty_attacks_on_each_runtime_and_more() {
    let attacks = attacks();
    let names: BTreeSet<_> = attacks.iter().map(|attack| attack.name).collect();
    assert_eq!(names.len(), attacks.len(), "each has a name of its own");
    assert!(attacks.len() >= 40, "{}", attacks.len());
}

#[test]
fn every_attack_ends_as_it_must_and_harms_nobody() {
    let arena = Arena::open();
    for runtime in [Runtime::Wasm, Runtime::Lua] {
        arena.works(runtime).unwrap();
    }
    let before = resident_bytes();
    let mut faults = Vec::new();
    for attack in attacks() {
        for runtime in [Runtime::Wasm, Runtime::Lua] {
            let fault = check(&arena, &attack, runtime).and_then(|()| memory_is_back(before));
            if let Err(fault) = fault {
                println!("         {fault}");
                faults.push(format!("{} ({}): {fault}", attack.name, runtime.name()));
            }
        }
    }
    assert!(faults.is_empty(), "{} of them:\n{}", faults.len(), faults.join("\n"));
}

fn check(arena: &Arena, attack: &Attack, runtime: Runtime) -> Result<(), String> {
    let Form { guest, end } = match runtime {
        Runtime::Wasm => &attack.wasm,
        Runtime::Lua => &attack.lua,
    };
    let start = Instant::now();
    let result = arena.run(runtime, *guest);
    let took = start.elapsed();
    let found = result.as_ref().map_or_else(|report| report.code, |()| "harmless");
    println!("{:>4} ms  {:<5} {:<24} {}", took.as_millis(), runtime.name(), found, attack.name);
    match (end, result) {
        (End::Harmless, Ok(())) => {}
        (End::Refused(code, says), Err(report)) => {
            let text = report.to_string();
            if report.code != *code {
                return Err(format!("expected {code}, found {text}"));
            }
            if let Some(missing) = says.iter().find(|part| !text.contains(*part)) {
                return Err(format!("{missing:?} is not in {text}"));
            }
            if !text.contains(" 1.0.0") {
                return Err(format!("no plugin is named in {text}"));
            }
            if text.len() > 20_000 {
                return Err(format!("an error of {} bytes", text.len()));
            }
        }
        (End::Harmless, Err(report)) => return Err(format!("it does harm: {report}")),
        (End::Refused(code, _), Ok(())) => return Err(format!("it passes, expected {code}")),
    }
    if took > Duration::from_millis(TIME_MS) * PATIENCE {
        return Err(format!("it took {took:?} with a budget of {TIME_MS} ms"));
    }
    arena.works(runtime).map_err(|report| format!("what comes after it does not work: {report}"))
}

/// Waits up to a second; the error tells what the process holds beyond what it held before.
fn memory_is_back(before: Option<usize>) -> Result<(), String> {
    let Some(before) = before else { return Ok(()) };
    let start = Instant::now();
    loop {
        let kept = resident_bytes().unwrap_or(0).saturating_sub(before);
        if kept <= KEPT_BYTES {
            return Ok(());
        }
        if start.elapsed() > Duration::from_secs(1) {
            return Err(format!("{} MiB are kept", kept >> 20));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the process holds; `None` where the system does not say it in this way, which is said aloud.
fn resident_bytes() -> Option<usize> {
    let Ok(statm) = std::fs::read_to_string("/proc/self/statm") else {
        println!("skipped: no /proc/self/statm, so memory is not judged");
        return None;
    };
    let pages: usize = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4_096)
}
