//! Figures with their targets: as a table for people, and as JSON.

use std::fmt::Write;

use guests::measure::Times;
use serde_json::{Value, json};

/// The shares of calls that are told, and how a table heads them.
const SHARES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// One thing that was measured many times.
pub(crate) struct Figure {
    pub(crate) title: String,
    /// What ran the plugin: `wasm`, `lua`, or `native` for what no plugin runs.
    pub(crate) runtime: &'static str,
    /// Microseconds at each of [`SHARES`].
    values: [f64; 4],
    n: usize,
    /// The most that each of [`SHARES`] should be, where the project says so.
    targets: Vec<(&'static str, f64)>,
}

impl Figure {
    /// `targets` are shares with microseconds: `[("p50", 1.0)]`.
    pub(crate) fn new(
        title: impl Into<String>,
        runtime: &'static str,
        times: &Times,
        targets: &[(&'static str, f64)],
    ) -> Self {
        let values = SHARES.map(|(_, share)| times.quantile(share).as_secs_f64() * 1e6);
        Figure { title: title.into(), runtime, values, n: times.n(), targets: targets.to_vec() }
    }

    /// The same with a number of microseconds taken from each value.
    pub(crate) fn less(mut self, microseconds: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value -= microseconds);
        self
    }

    fn value(&self, share: &str) -> f64 {
        let at = SHARES.iter().position(|(name, _)| *name == share);
        self.values[at.expect("targets are of shares that are told")]
    }

    /// Each target with the measured value over it: below 1 is reached.
    fn ratios(&self) -> impl Iterator<Item = (&'static str, f64, f64)> {
        self.targets.iter().map(|(share, most)| (*share, *most, self.value(share) / most))
    }
}

/// All figures, in the order in which they were measured.
#[derive(Default)]
pub(crate) struct Report(Vec<Figure>);

impl Report {
    pub(crate) fn add(&mut self, figure: Figure) {
        self.0.push(figure);
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{:<52}{:<8}", "microseconds", "");
        text.extend(SHARES.map(|(name, _)| format!("{name:>10}")));
        text.push_str("   target              measured / target\n");
        for figure in &self.0 {
            let _ = write!(text, "{:<52}{:<8}", figure.title, figure.runtime);
            text.extend(figure.values.map(|value| format!("{:>10}", shown(value))));
            let targets: Vec<_> =
                figure.ratios().map(|(share, most, _)| format!("{share} <= {most}")).collect();
            let ratios: Vec<_> = figure
                .ratios()
                .map(|(_, _, ratio)| format!("{ratio:.2}{}", if ratio > 1.0 { " MISSED" } else { "" }))
                .collect();
            let line = format!("   {:<20}{}", targets.join(", "), ratios.join(", "));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.trim_end().to_owned()
    }

    pub(crate) fn json(&self) -> Value {
        let figure = |figure: &Figure| {
            let values = SHARES.iter().zip(figure.values).map(|((name, _), value)| (*name, value));
            let targets = figure
                .ratios()
                .map(|(share, most, ratio)| json!({ "at": share, "most_us": most, "ratio": ratio }));
            json!({
                "title": figure.title,
                "runtime": figure.runtime,
                "n": figure.n,
                "us": values.map(|(name, value)| (name.to_owned(), json!(value))).collect::<serde_json::Map<_, _>>(),
                "targets": targets.collect::<Vec<_>>(),
            })
        };
        json!({ "figures": self.0.iter().map(figure).collect::<Vec<_>>() })
    }
}

/// Three digits that say something.
fn shown(value: f64) -> String {
    let digits = if value.abs() < 10.0 { 2 } else { usize::from(value.abs() < 100.0) };
    format!("{value:.digits$}")
}
