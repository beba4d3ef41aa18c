//! One case of a model graph: the graph or the refusal, twice the same, and refused calls.

use host_core::{Report, Reported};
use host_graph::{Graph, Limits};
use host_plugins::{Budget, GraphPlugin, PluginError, PluginPackage};

use super::{CaseResult, not_refused, one_line};
use crate::case::Placed;
use crate::case::graph::{Expected, GraphCase, GraphInput};
use crate::error::AuthorError;
use crate::judge;
use crate::tools::Tools;

/// Builder calls of one case that the host refuses, in turn.
const REFUSED_CALLS: usize = 48;
/// Tensors of one case that go missing, in turn.
const MISSING_TENSORS: usize = 48;

/// Runs one case.
pub(super) fn run(
    tools: &Tools,
    package: &PluginPackage,
    placed: &Placed<GraphCase>,
) -> Result<Vec<CaseResult>, AuthorError> {
    let (expected, input) = (placed.expected()?, placed.case.input());
    let plugin = tools.graph(package, Budget::default())?;
    let mut failures: Vec<Report> = compare(&build(&*plugin, &input), expected).err().into_iter().collect();
    if failures.is_empty() {
        failures.extend(is_repeated(&*plugin, &input).err());
        failures.extend(refused_calls(tools, package, &input)?);
        failures.extend(missing_tensors(&*plugin, &input).err());
    }
    Ok(vec![CaseResult::plain(placed, &placed.case.about, failures)])
}

/// One build.
pub(crate) fn build(plugin: &dyn GraphPlugin, input: &GraphInput) -> Result<Graph, PluginError> {
    plugin.build(&input.config_text(), input.catalogue())
}

fn compare(found: &Result<Graph, PluginError>, expected: Expected<'_>) -> Result<(), Report> {
    match (found, expected) {
        (Err(error), Expected::Refusal(code)) if error.report().code == code => Ok(()),
        (Err(error), Expected::Refusal(code)) => Err(not_refused("build", code, one_line(error))),
        (Ok(graph), Expected::Refusal(code)) => Err(not_refused("build", code, told(graph))),
        (Err(error), Expected::Graph { .. }) => Err(error.report()),
        (Ok(graph), Expected::Graph { fingerprint, layers, ignores }) => {
            let other = |what: &str, expected: String, found: String| {
                Err(Report::new("author.case-failed", format!("{what} differs"))
                    .expected(expected)
                    .found(found))
            };
            if let Some(layers) = layers.filter(|layers| *layers != graph.n_layers()) {
                return other("the number of layers", layers.to_string(), graph.n_layers().to_string());
            }
            if let Some(names) = ignores.filter(|names| *names != graph.ignored_tensors()) {
                return other(
                    "what is ignored",
                    format!("{names:?}"),
                    format!("{:?}", graph.ignored_tensors()),
                );
            }
            let own = graph.fingerprint();
            match fingerprint.filter(|hex| *hex != own.as_hex()) {
                Some(hex) => other("the fingerprint", hex.to_owned(), told(graph))
                    .map_err(|report| report.note(format!("the graph is now\n{}", graph.text()))),
                None => Ok(()),
            }
        }
    }
}

fn told(graph: &Graph) -> String {
    format!("{}, a graph of {} operations", graph.fingerprint().as_hex(), graph.nodes().len())
}

/// A graph, or an error, on one line: what two builds are compared by.
pub(crate) fn outcome(found: &Result<Graph, PluginError>) -> String {
    found.as_ref().map_or_else(one_line, |graph| graph.fingerprint().as_hex().to_owned())
}

/// Two builds of one input end alike.
pub(crate) fn is_repeated(plugin: &dyn GraphPlugin, input: &GraphInput) -> Result<(), Report> {
    let [first, second] = [(); 2].map(|()| outcome(&build(plugin, input)));
    if first == second {
        return Ok(());
    }
    Err(Report::new("author.not-deterministic", "two builds of the same model end otherwise")
        .expected(first)
        .found(second)
        .mend("let `build` depend on its arguments alone"))
}

/// The host refuses the nth operation, for want of room.
fn refused_calls(
    tools: &Tools,
    package: &PluginPackage,
    input: &GraphInput,
) -> Result<Option<Report>, AuthorError> {
    let whole = tools.graph(package, Budget::default())?;
    let Ok(graph) = build(&*whole, input) else { return Ok(None) };
    let n_nodes = graph.nodes().len();
    for max_nodes in (0..n_nodes).step_by(n_nodes.div_ceil(REFUSED_CALLS).max(1)) {
        let graph = Limits { max_nodes, ..Limits::default() };
        let plugin = tools.graph(package, Budget { graph, ..Budget::default() })?;
        let refused = format!("operation {}", max_nodes + 1);
        match build(&*plugin, input) {
            Err(error) if judge::is_clean(&error) => {}
            Err(error) => return Ok(Some(judge::unclean(&error, &refused))),
            // Fewer nodes than before, under a limit that the first graph passed.
            Ok(smaller) if smaller.nodes().len() <= max_nodes => {}
            Ok(_) => {
                return Ok(Some(Report::new("author.case-failed", format!("{refused} was refused in vain"))));
            }
        }
    }
    Ok(None)
}

/// A checkpoint lacks one tensor after the other.
fn missing_tensors(plugin: &dyn GraphPlugin, input: &GraphInput) -> Result<(), Report> {
    for name in input.tensors.keys().take(MISSING_TENSORS) {
        let mut without = input.clone();
        without.tensors.remove(name);
        if let Some(error) = build(plugin, &without).err().filter(|error| !judge::is_clean(error)) {
            return Err(judge::unclean(&error, &format!("what needs the missing tensor `{name}`")));
        }
    }
    Ok(())
}
