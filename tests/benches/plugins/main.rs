//! What plugins cost, each figure beside its target: `cargo xtask bench plugins`.
//!
//! Arguments: the file of SmolLM2-135M, `--json` for one JSON object, `--part=policies` (or `opening`, `masks`,
//! `tokens`) for some of the parts. A figure is a measurement, no test: one that misses its target is told and fails
//! nothing.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made ends by panicking")]

mod batch;
mod figure;
mod masks;
mod opening;
mod policies;
mod tokens;

use std::env;
use std::path::{Path, PathBuf};

use crate::figure::Report;

/// Measures one part, with the file of the model.
type Measure = fn(&Path, &mut Report);

/// What can be measured alone.
const PARTS: [(&str, Measure); 4] = [
    ("policies", |_, report| policies::measure(report)),
    ("opening", opening::measure),
    ("masks", masks::measure),
    ("tokens", tokens::measure),
];

fn main() {
    // cargo itself adds `--bench`.
    let (flags, files): (Vec<String>, Vec<String>) =
        env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let [model] = files.as_slice() else { panic!("expected the file of a model, found {files:?}") };
    let model = PathBuf::from(model);
    let wanted: Vec<_> = flags.iter().filter_map(|flag| flag.strip_prefix("--part=")).collect();
    let mut report = Report::default();
    for (part, measure) in PARTS {
        if wanted.is_empty() || wanted.contains(&part) {
            eprintln!("   {part}");
            measure(&model, &mut report);
        }
    }
    if flags.iter().any(|flag| flag == "--json") {
        println!("{}", report.json());
    } else {
        println!("\n{}", report.text());
    }
}
