//! `tenon plugin bench`.

use std::time::Duration;

use host_author::{BenchOptions, Measured, Project};
use serde_json::json;

use super::tools;
use crate::args::{PluginBenchArgs, plugin_folder};
use crate::commands::{print, print_json};
use crate::draw::{Style, drawn};
use crate::error::Failure;
use crate::exit::Exit;

/// What a step's share is told of: a token at this speed.
const TOKENS_PER_SECOND: f64 = 200.0;

pub(crate) fn run(args: &PluginBenchArgs) -> Result<Exit, Failure> {
    let project = Project::open(&plugin_folder(&args.dir))?;
    let options = BenchOptions {
        time: Duration::from_secs_f64(args.seconds),
        calls: args.calls,
        max_p50_us: args.max_p50_us,
        max_p99_us: args.max_p99_us,
    };
    let measured = project.bench(&tools()?, options)?;
    if args.json {
        print_json(&json!(measured))?
    } else {
        print(&told(&measured))?
    };
    Ok(if measured.over.is_empty() { Exit::Done } else { Exit::Failed })
}

fn told(measured: &Measured) -> String {
    let Measured { hook, calls, p50_us, p99_us, p999_us, max_us, open_us, budget_us, over } = measured;
    let mut lines = vec![
        format!("{hook:<10} {calls} calls, microseconds"),
        format!("p50        {p50_us:.1}"),
        format!("p99        {p99_us:.1}"),
        format!("p99.9      {p999_us:.1} (a host allows {budget_us:.0})"),
        format!("max        {max_us:.1}"),
        format!("open       {open_us:.1}"),
    ];
    if *hook == "step" {
        let share = p50_us * TOKENS_PER_SECOND / 1e6 * 100.0;
        lines.push(format!("share      {share:.2} % of a token at {TOKENS_PER_SECOND:.0} tokens a second"));
    }
    let over = over.iter().map(|report| drawn(report, Style::for_stdout())).collect::<String>();
    lines.join("\n") + "\n" + &over
}
