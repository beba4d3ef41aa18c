//! `[plugins.ID]`: what a plugin may spend.

use host_plugins::Budget;
use serde_json::json;

use super::{config, edited, model, profile, registry, table};
use crate::{Composition, LoadedProfile, Overrides};

const ALL: &str = "[plugins.llama]
time_ms = 500
memory_bytes = \"16MiB\"
log_bytes = 4096
graph_nodes = 2000
step_time_ms = 5
step_calls = 100
step_list_entries = 64
constraints = 2
";

fn composed(table: &str) -> Composition {
    let config = config(json!({}));
    let loaded = profile(&[("[kernels]", &format!("{table}[kernels]"))]);
    registry().resolve(&loaded, model(&config), &Overrides::default()).unwrap()
}

#[test]
fn what_is_written_takes_the_place_of_the_host_s_bounds() {
    let composition = composed(ALL);
    let (host, budget) = (Budget::default(), composition.budget("llama"));
    assert_eq!((budget.time_ms, budget.memory_bytes, budget.log_bytes), (500, 16 << 20, 4096));
    assert_eq!((budget.graph.max_nodes, budget.constraints), (2000, 2));
    assert_eq!((budget.step.time_ms, budget.step.calls, budget.step.list_entries), (5, 100, 64));
    assert_eq!((budget.graph.max_slots, budget.config_bytes), (host.graph.max_slots, host.config_bytes));
    assert_eq!(composition.budget("another"), host);
    assert_eq!(composed("").budget("llama"), host);
    let narrow = composed("[plugins.llama]\ntime_ms = 7\n").budget("llama");
    assert_eq!(narrow, Budget { time_ms: 7, ..host });
    // It is told with its place, and it is part of what is composed.
    let lines: Vec<String> = composition.settings().iter().map(ToString::to_string).collect();
    assert!(
        lines.iter().any(|line| line.contains("plugins.llama.step_calls") && line.contains("tiny.toml:30"))
    );
    assert_ne!(composition.hash(), composed("").hash());
}

#[test]
fn a_budget_without_meaning_is_refused_at_its_place() {
    let case = |name: &str, table: &str| {
        let text = edited(&[("[kernels]", &format!("{table}[kernels]"))]);
        (name.to_owned(), LoadedProfile::parse(super::FILE, &text).map(|_| ()).expect_err(name))
    };
    snapshot!(table([
        case("a plugin that the profile does not name", "[plugins.qwen3]\ntime_ms = 7\n"),
        case("no time", "[plugins.llama]\ntime_ms = 0\n"),
        case("more than the host's ceiling", "[plugins.llama]\nmemory_bytes = \"2GiB\"\n"),
        case("two at once", "[plugins.llama]\nstep_time_ms = 5000\nconstraints = 1000\n"),
        case("an unknown bound", "[plugins.llama]\ntime = 7\n"),
        case("a bound of another type", "[plugins.llama]\ntime_ms = \"7s\"\n"),
    ]));
}
