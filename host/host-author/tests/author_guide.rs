//! Every script, manifest and case of the author's guide does what the guide says. Its Rust compiles as doc tests of
//! the SDK, and its messages are compared with what the program prints by a test of the whole program.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;

use host_author::{Project, Tools};
use host_plugins::{Budget, LogSink};

const GUIDE: &str = include_str!("../../../plugin-sdk/README.md");

/// The blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let starts = GUIDE.split(&fence).skip(1);
    starts.map(|rest| rest.split("\n```").next().unwrap()).collect::<Vec<_>>()
}

/// What each script of the guide does, as a case of its kind.
const CASES: [(&str, &str, &str); 4] = [
    ("no-stutter.lua", "sampling-policy", NO_STUTTER),
    ("calm.lua", "sampling-policy", CALM),
    ("bigram.lua", "model-graph", BIGRAM),
    ("wide-ends.lua", "quant-profile", WIDE_ENDS),
];

const NO_STUTTER: &str = r#"
[[case]]
about = "a token never follows itself"
prompt = "ab"
step = [{ bias = [["b", -inf]] }]
"#;

const CALM: &str = r#"
[[case]]
about = "what is much less likely is excluded"
params = { gap = 1.5 }
prompt = "ab"
step = [{ logits = [["a", 3.0], ["b", 2.0], ["c", 1.0]], allowed = ["a", "b"] }]
"#;

const BIGRAM: &str = r#"
[[case]]
about = "two tables and a norm"
config = { hidden_size = 4, vocab_size = 10, rms_norm_eps = 1e-5 }
layers = 0

[case.tensors]
"model.embed_tokens.weight" = [10, 4]
"model.norm.weight" = [4]
"lm_head.weight" = [10, 4]
"#;

const WIDE_ENDS: &str = r#"
[[case]]
about = "eight bits at both ends"
config = { num_hidden_layers = 3 }
params = { ends = 1 }
tensor = [
    { name = "0.weight", shape = [64, 128], dtype = "BF16", role = "mlp-up", layer = 0, scheme = { bits = 8, group_size = 64 } },
    { name = "1.weight", shape = [64, 128], dtype = "BF16", role = "mlp-up", layer = 1, scheme = { bits = 4, group_size = 64 } },
    { name = "2.weight", shape = [64, 128], dtype = "BF16", role = "mlp-up", layer = 2, scheme = { bits = 8, group_size = 64 } },
    { name = "2.norm.weight", shape = [128], dtype = "BF16", role = "norm", layer = 2, scheme = "keep" },
]
"#;

/// Tests a script in a folder of its own.
fn passes(kind: &str, script: &str, cases: &str) {
    let folder = tempfile::tempdir().unwrap();
    let manifest = format!(
        "id = \"guide\"\nversion = \"1.0.0\"\nkind = \"{kind}\"\nruntime = \"lua\"\nentry = \"guide.lua\"\nsdk = \"0.1\"\n"
    );
    fs::create_dir(folder.path().join("tests")).unwrap();
    for (name, text) in [("plugin.toml", &*manifest), ("guide.lua", script), ("tests/cases.toml", cases)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let tools = Tools::new(None, LogSink::discard()).unwrap();
    let results = Project::open(folder.path()).unwrap().test(&tools).unwrap();
    assert!(results.iter().all(|result| result.is_passed()), "{script}\n{results:#?}");
}

#[test]
fn every_script_is_a_plugin_or_a_pipeline() {
    let mut n_plugins = 0;
    for script in blocks("lua") {
        let case = CASES.iter().find(|(name, ..)| script.starts_with(&format!("-- {name}:")));
        match case {
            Some((_, kind, cases)) => {
                passes(kind, script, cases);
                n_plugins += 1;
            }
            // The pipelines' own tests run what they show.
            None => assert!(script.contains("function main("), "a plugin without a case: {script}"),
        }
    }
    assert_eq!(n_plugins, CASES.len());
}

#[test]
fn every_manifest_is_that_of_the_script_before_it_and_every_case_passes() {
    let manifests: Vec<_> = blocks("toml").into_iter().filter(|text| text.contains("runtime =")).collect();
    assert_eq!(manifests.len(), 2);
    for text in manifests {
        let manifest = host_plugins::Manifest::parse(text, "plugin.toml".as_ref()).unwrap();
        let case = CASES.iter().find(|(name, ..)| *name == manifest.entry);
        assert_eq!(case.map(|(_, kind, _)| *kind), Some(manifest.kind.name()));
    }
    let cases: Vec<_> = blocks("toml").into_iter().filter(|text| text.contains("[[case]]")).collect();
    assert_eq!(cases.len(), 1);
    passes("sampling-policy", blocks("lua")[0], cases[0]);
}

#[test]
fn the_budgets_are_those_of_the_program() {
    let budget = Budget::default();
    let row = |name: &str| {
        let line = GUIDE.lines().find(|line| line.starts_with(&format!("| {name} |")));
        line.unwrap_or_else(|| panic!("no row {name}")).replace(',', "")
    };
    for (name, expected) in [
        ("time", format!("{} s", budget.time_ms / 1000)),
        ("time", format!("{} ms", budget.step.time_ms)),
        ("memory", format!("{} MiB", budget.memory_bytes >> 20)),
        ("log text", format!("{} KiB", budget.log_bytes >> 10)),
        ("graph", format!("{} nodes", budget.graph.max_nodes)),
        ("graph", format!("{} slots", budget.graph.max_slots)),
        ("calls", budget.step.calls.to_string()),
        ("entries of one kind of list", budget.step.list_entries.to_string()),
        ("bytes of a text", budget.step.text_bytes.to_string()),
    ] {
        assert!(row(name).contains(&expected), "{name}: {expected}");
    }
}
