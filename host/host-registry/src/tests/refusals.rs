//! All refusals of this crate together: that there are enough cases, each with its whole report, and that no code that
//! programs rely on is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The codes that a program may rely on; of each there is a case.
const CODES: &[&str] = &[
    "registry.no-generated-graph",
    "profile.ambiguous",
    "profile.base-cycle",
    "profile.base-depth",
    "profile.base-refused",
    "profile.base-unknown",
    "profile.context-too-long",
    "profile.context-unknown",
    "profile.fallback",
    "profile.match-conflict",
    "profile.mismatch",
    "profile.missing-key",
    "profile.no-match",
    "profile.none",
    "profile.schema-version",
    "profile.syntax",
    "profile.type",
    "profile.unknown-key",
    "profile.value",
    "profile.without-idle",
    "registry.checkpoint-format",
    "registry.construction-failed",
    "registry.device-missing",
    "registry.duplicate-part",
    "registry.flag",
    "registry.implementation-ambiguous",
    "registry.implementation-incompatible",
    "registry.implementation-missing",
    "registry.kernel-missing",
    "registry.kernel-shape",
    "registry.kv-missing",
    "registry.kv-not-exact",
    "registry.kv-unnamed",
    "registry.loader-missing",
    "registry.loop-missing",
    "registry.plugin-ambiguous",
    "registry.plugin-digest",
    "registry.plugin-kind",
    "registry.plugin-missing",
    "registry.plugin-runtime",
    "registry.plugin-version",
    "registry.quant-missing",
    "registry.sampler-missing",
    "registry.step-too-small",
    "registry.streamed-binding",
    "registry.streamed-weights",
    "registry.threads-unnamed",
    "request.adapters",
    "request.cache",
    "request.chat",
    "request.constraint",
    "request.images",
    "request.logprobs",
    "request.seed",
    "request.speculation",
    "request.tools",
    "weights.truncated",
];

/// How many cases there must be at least.
const N_CASES: usize = 120;

/// Name of the table and of the case, with its text.
fn cases() -> BTreeMap<(String, String), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/snapshots");
    let mut cases = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the tables lie beside the tests") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "snap") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a table");
        let table = path.file_stem().unwrap().to_string_lossy().into_owned();
        for case in text.split("\n== ").skip(1).chain(text.strip_prefix("== ")) {
            let at = case.find("error[").expect("a name, then its report");
            let (name, report) = case.split_at(at);
            cases.insert((table.clone(), name.trim().to_owned()), report.to_owned());
        }
    }
    cases
}

#[test]
fn there_are_enough_cases_and_none_is_like_another() {
    let cases = cases();
    assert!(cases.len() >= N_CASES, "{} cases", cases.len());
    let reports: BTreeSet<&str> = cases.values().map(String::as_str).collect();
    assert!(reports.len() >= N_CASES, "{} different reports", reports.len());
}

#[test]
fn every_code_has_a_case() {
    let reports: Vec<String> = cases().into_values().collect();
    let found: BTreeSet<&str> = reports
        .iter()
        .flat_map(|report| report.split("error[").skip(1))
        .filter_map(|rest| rest.split(']').next())
        .collect();
    let missing: Vec<_> = CODES.iter().filter(|code| !found.contains(**code)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}
