//! The rounds as a table for people, and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Measures, Round, Workload};
use crate::workspace::{Failure, Outcome};

/// One line of the table.
struct Row {
    key: &'static str,
    title: String,
    unit: &'static str,
    /// Whether a larger number is the better one; the ratio is above 1 where this program is better.
    larger_is_better: bool,
    pick: fn(&Measures) -> f64,
}

fn rows() -> Vec<Row> {
    let row =
        |key, title: String, unit, larger_is_better, pick| Row { key, title, unit, larger_is_better, pick };
    let (prompt, new) = (Workload::PROMPT_TOKENS, Workload::NEW_TOKENS);
    let (sequences, each, short) =
        (Workload::SEQUENCES, Workload::BATCH_TOKENS, Workload::SHORT_PROMPT_TOKENS);
    vec![
        row("decode", format!("decode {new}"), "tok/s", true, |it| it.decode_tokens_per_second),
        row("prefill", format!("prefill {prompt}"), "tok/s", true, |it| it.prefill_tokens_per_second),
        row("batch", format!("{sequences} sequences decode {each}"), "tok/s", true, |it| {
            it.batch_tokens_per_second
        }),
        row("first_token", format!("process to 1st token of {short}"), "ms", false, |it| it.first_token_ms),
        row("peak_memory", "peak memory".to_owned(), "MiB", false, |it| it.peak_memory_mib),
    ]
}

/// Median and range of a few numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// `None` of no numbers.
    fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Spread { median: f64::midpoint(lower, upper), min, max })
    }

    fn text(self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$}-{:.digits$})", self.median, self.min, self.max)
    }

    fn json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// A round as one line, while the next one runs.
pub(super) fn round_line(round: &Round) -> String {
    let pair = |pick: fn(&Measures) -> f64| format!("{:.1} / {:.1}", pick(&round.tenon), pick(&round.peer));
    format!(
        "memory {:.1} GB/s, decode {}, prefill {}, batch {} tok/s (tenon / llama.cpp){}",
        round.read_gb_per_s,
        pair(|it| it.decode_tokens_per_second),
        pair(|it| it.prefill_tokens_per_second),
        pair(|it| it.batch_tokens_per_second),
        if round.is_disturbed { ", disturbed" } else { "" },
    )
}

/// All rounds, summed up.
pub(super) struct Report {
    heading: String,
    n_rounds: usize,
    n_disturbed: usize,
    memory: Spread,
    lines: Vec<Line>,
}

struct Line {
    row: Row,
    tenon: Spread,
    peer: Spread,
    ratio: Spread,
}

impl Report {
    pub(super) fn new(workload: &Workload, rounds: &[Round]) -> Outcome<Report> {
        let none = || Failure::new("nothing was measured");
        let mut lines = Vec::new();
        for row in rows() {
            let spread = |pick: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(pick)).ok_or_else(none);
            let ratio = |round: &Round| {
                let (tenon, peer) = ((row.pick)(&round.tenon), (row.pick)(&round.peer));
                if row.larger_is_better { tenon / peer } else { peer / tenon }
            };
            let tenon = spread(&|round| (row.pick)(&round.tenon))?;
            let peer = spread(&|round| (row.pick)(&round.peer))?;
            let ratio = spread(&ratio)?;
            lines.push(Line { row, tenon, peer, ratio });
        }
        let file = workload.model.file_name().unwrap_or_default().to_string_lossy();
        Ok(Report {
            heading: format!(
                "{file}, {} threads, numeric {}, release build",
                workload.threads, workload.numeric
            ),
            n_rounds: rounds.len(),
            n_disturbed: rounds.iter().filter(|round| round.is_disturbed).count(),
            memory: Spread::of(rounds.iter().map(|round| round.read_gb_per_s)).ok_or_else(none)?,
            lines,
        })
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.heading);
        let _ = writeln!(
            text,
            "memory reads {} GB/s; median (range) of {} rounds\n",
            self.memory.text(1),
            self.n_rounds
        );
        let _ = writeln!(text, "{:<34}{:>26}{:>26}{:>22}", "", "tenon", "llama.cpp", "better by");
        for Line { row, tenon, peer, ratio } in &self.lines {
            let title = format!("{}, {}", row.title, row.unit);
            let _ =
                writeln!(text, "{title:<34}{:>26}{:>26}{:>22}", tenon.text(1), peer.text(1), ratio.text(2));
        }
        if self.n_disturbed > 0 {
            let _ = writeln!(
                text,
                "\n{} rounds were disturbed by other processes; do not quote them",
                self.n_disturbed
            );
        }
        text.trim_end().to_owned()
    }

    pub(super) fn json(&self) -> Value {
        let line = |line: &Line| {
            let parts = json!({
                "unit": line.row.unit,
                "tenon": line.tenon.json(),
                "llama_cpp": line.peer.json(),
                "better_by": line.ratio.json(),
            });
            (line.row.key.to_owned(), parts)
        };
        json!({
            "what": self.heading,
            "rounds": self.n_rounds,
            "disturbed_rounds": self.n_disturbed,
            "memory_read_gb_per_s": self.memory.json(),
            "measures": self.lines.iter().map(line).collect::<serde_json::Map<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measures(speed: f64, cost: f64) -> Measures {
        Measures {
            prefill_tokens_per_second: speed,
            decode_tokens_per_second: speed,
            batch_tokens_per_second: speed,
            first_token_ms: cost,
            peak_memory_mib: cost,
        }
    }

    fn report() -> Report {
        let round = |speed, is_disturbed| Round {
            read_gb_per_s: 40.0,
            tenon: measures(speed, 100.0),
            peer: measures(100.0, 150.0),
            is_disturbed,
        };
        let workload = Workload { model: "/m/x.gguf".into(), threads: 2, numeric: "fast".to_owned() };
        Report::new(&workload, &[round(200.0, false), round(150.0, true), round(190.0, false)]).unwrap()
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_ratio_above_one_is_always_the_better_side() {
        let json = report().json();
        assert_eq!(json["measures"]["decode"]["better_by"], json!({ "median": 1.9, "min": 1.5, "max": 2.0 }));
        assert_eq!(json["measures"]["first_token"]["better_by"]["median"], json!(1.5));
        assert_eq!(json["disturbed_rounds"], 1);
    }

    #[test]
    fn the_table_is_read_at_a_glance() {
        let text = report().text();
        let decode = text.lines().find(|line| line.starts_with("decode")).unwrap();
        let words: Vec<&str> = decode.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "decode",
                "128,",
                "tok/s",
                "190.0",
                "(150.0-200.0)",
                "100.0",
                "(100.0-100.0)",
                "1.90",
                "(1.50-2.00)"
            ]
        );
        assert!(text.contains("1 rounds were disturbed"));
        let widths: Vec<usize> = text.lines().skip(3).take(6).map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{widths:?}\n{text}");
    }
}
