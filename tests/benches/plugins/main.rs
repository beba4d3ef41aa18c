//! What plugins cost, each figure beside its target: `cargo xtask bench plugins`.
//!
//! Arguments: the file of SmolLM2-135M, and `--json` for one JSON object. A figure is a measurement, no test: one that
//! misses its target is told and fails nothing.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made ends by panicking")]

mod batch;
mod figure;
mod masks;
mod opening;
mod policies;
mod tokens;

use std::env;
use std::path::PathBuf;

use crate::figure::Report;

fn main() {
    // cargo itself adds `--bench`.
    let (flags, files): (Vec<String>, Vec<String>) =
        env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let [model] = files.as_slice() else { panic!("expected the file of a model, found {files:?}") };
    let model = PathBuf::from(model);
    let mut report = Report::default();
    eprintln!("   policies");
    policies::measure(&mut report);
    eprintln!("   opening {}", model.display());
    opening::measure(&model, &mut report);
    eprintln!("   grammar masks");
    masks::measure(&model, &mut report);
    eprintln!("   tokens with and without a policy");
    tokens::measure(&model, &mut report);
    if flags.iter().any(|flag| flag == "--json") {
        println!("{}", report.json());
    } else {
        println!("\n{}", report.text());
    }
}
