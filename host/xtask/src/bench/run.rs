//! One measured process: its output, wall time and peak memory, and whether others disturbed it.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::workspace::{self, Failure, Outcome};

/// Others may use this share of one core while a run is measured.
const DISTURBED: f64 = 0.08;
/// A run begins only after a moment in which others used less than this share of one core.
const QUIET: f64 = 0.06;
const QUIET_FOR: Duration = Duration::from_millis(700);
const WAIT_AT_MOST: Duration = Duration::from_secs(60);
const TRIES: u32 = 3;

/// What a process left behind.
pub(super) struct Finished {
    pub(super) stdout: String,
    pub(super) wall: Duration,
    /// `None` where the system does not tell.
    pub(super) peak_memory_bytes: Option<u64>,
}

/// Runs a process in quiet, up to three times until nothing disturbs it; `is_disturbed` is set if that failed.
pub(super) fn quietly(command: &mut Command, is_disturbed: &mut bool) -> Outcome<Finished> {
    let mut tries = 1;
    loop {
        wait_for_quiet();
        let before = Load::now();
        let finished = once(command)?;
        let others = before.and_then(|before| before.share_of_others(&Load::now()?, finished.wall));
        if others.is_none_or(|share| share <= DISTURBED) {
            return Ok(finished);
        }
        if tries == TRIES {
            *is_disturbed = true;
            return Ok(finished);
        }
        tries += 1;
    }
}

fn once(command: &mut Command) -> Outcome<Finished> {
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| workspace::not_started(command, &error))?;
    let stdout = read_aside(child.stdout.take());
    let stderr = read_aside(child.stderr.take());
    let mut peak_memory_bytes = None;
    let status = loop {
        // The high-water mark only grows, so the last look before the end is the peak.
        peak_memory_bytes = peak_memory(child.id()).or(peak_memory_bytes);
        match child.try_wait().map_err(|error| workspace::not_started(command, &error))? {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    let wall = start.elapsed();
    let (stdout, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
    if !status.success() {
        return Err(Failure::new(format!(
            "`{}` ended with {status}: {}",
            workspace::shown(command),
            stderr.trim()
        )));
    }
    Ok(Finished { stdout, wall, peak_memory_bytes })
}

fn read_aside(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What came before an error is still worth showing.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// `VmHWM` of a process.
fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Processor time since boot, in seconds: of the machine, and of this process with the children it awaited.
struct Load {
    machine: f64,
    own: f64,
}

/// What `/proc` counts in; fixed for user programs on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

impl Load {
    /// `None` where the system does not tell.
    fn now() -> Option<Load> {
        Some(Load {
            machine: machine_ticks(&fs::read_to_string("/proc/stat").ok()?)? as f64 / TICKS_PER_SECOND,
            own: own_ticks(&fs::read_to_string("/proc/self/stat").ok()?)? as f64 / TICKS_PER_SECOND,
        })
    }

    fn share_of_others(&self, later: &Load, wall: Duration) -> Option<f64> {
        let others = (later.machine - self.machine) - (later.own - self.own);
        // Three ticks are lost to rounding in so short a time.
        Some((others - 3.0 / TICKS_PER_SECOND).max(0.0) / wall.as_secs_f64().max(0.01))
    }
}

/// Busy ticks of all cores: user, nice, system, irq, softirq, steal.
fn machine_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    [0, 1, 2, 5, 6, 7].iter().map(|&index| fields.get(index)).sum()
}

/// Ticks of this process and its children: utime, stime, cutime, cstime.
fn own_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold spaces; the fields after it are counted from the state.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

/// Returns once others have left the machine alone for a moment, or after a minute.
pub(super) fn wait_for_quiet() {
    let start = Instant::now();
    while start.elapsed() < WAIT_AT_MOST {
        let Some(before) = Load::now() else { return };
        thread::sleep(QUIET_FOR);
        let share = Load::now().and_then(|later| before.share_of_others(&later, QUIET_FOR));
        if share.is_none_or(|share| share < QUIET) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_from_the_systems_files() {
        assert_eq!(
            machine_ticks("cpu  10 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3\n"),
            Some(10 + 20 + 30 + 6 + 7 + 8)
        );
        assert_eq!(machine_ticks("cpu  10 20\n"), None);
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1";
        assert_eq!(own_ticks(stat), Some(100 + 20 + 3 + 4));
        assert_eq!(own_ticks("42 (x) S 1 2"), None);
    }

    #[test]
    fn others_are_what_is_left_of_the_machine() {
        let (before, later) = (Load { machine: 10.0, own: 4.0 }, Load { machine: 14.03, own: 6.0 });
        let share = before.share_of_others(&later, Duration::from_secs(4)).unwrap();
        assert!((share - 0.5).abs() < 1e-9, "{share}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_is_timed_and_weighed() {
        let finished = once(Command::new("sh").args(["-c", "echo out; sleep 0.05"])).unwrap();
        assert_eq!(finished.stdout, "out\n");
        assert!(finished.wall >= Duration::from_millis(50));
        assert!(finished.peak_memory_bytes.unwrap() > 100_000);
        let failure = once(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).err().unwrap();
        assert!(failure.to_string().contains("why"));
    }
}
