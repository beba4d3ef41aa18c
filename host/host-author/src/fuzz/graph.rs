//! Models that are nearly those of the cases: other values in the config, tensors that are gone or have other shapes.

use host_core::Report;
use host_plugins::{Budget, GraphPlugin, PluginPackage};
use serde_json::{Value, json};

use super::Sequence;
use super::rng::Rng;
use crate::case::graph::{GraphCase, GraphInput};
use crate::case::{self, Placed};
use crate::error::AuthorError;
use crate::judge;
use crate::project::Project;
use crate::test::graph::{build, is_repeated, outcome};
use crate::tools::Tools;
use crate::trace::{Body, GraphTrace};

/// Changes of one model at most.
const MAX_CHANGES: usize = 4;

/// The plugin with the models of its cases.
pub(super) struct Subject {
    plugin: Box<dyn GraphPlugin>,
    inputs: Vec<GraphInput>,
}

impl Subject {
    pub(super) fn new(
        project: &Project,
        tools: &Tools,
        package: &PluginPackage,
    ) -> Result<Self, AuthorError> {
        let cases: Vec<Placed<GraphCase>> = case::read_all(project.folder())?;
        let inputs = cases.iter().map(|placed| placed.case.input()).collect();
        Ok(Subject { plugin: tools.graph(package, Budget::default())?, inputs })
    }

    /// Model number `n` of a seed.
    pub(super) fn sequence(&self, seed: u64, n: u64) -> Sequence {
        let mut rng = Rng::new(seed, n);
        let mut input = rng.pick(&self.inputs).clone();
        for _ in 0..rng.below(MAX_CHANGES + 1) {
            change(&mut input, &mut rng);
        }
        let finding = judge_build(&*self.plugin, &input).err().map(|report| {
            let outcome = outcome(&build(&*self.plugin, &input));
            (report, Body::ModelGraph(GraphTrace { input, outcome }))
        });
        Sequence { steps: 1, finding }
    }
}

/// A build gives a graph or a clean refusal, and does so again.
pub(crate) fn judge_build(plugin: &dyn GraphPlugin, input: &GraphInput) -> Result<(), Report> {
    match build(plugin, input) {
        Err(error) if !judge::is_clean(&error) => Err(judge::unclean(&error, "a model that does not fit")),
        _ => is_repeated(plugin, input),
    }
}

fn change(input: &mut GraphInput, rng: &mut Rng) {
    let keys: Vec<String> = input.config.keys().cloned().collect();
    let names: Vec<String> = input.tensors.keys().cloned().collect();
    match rng.below(6) {
        0 if !keys.is_empty() => drop(input.config.remove(rng.pick(&keys))),
        1 | 2 if !keys.is_empty() => drop(input.config.insert(rng.pick(&keys).clone(), value(rng))),
        3 => drop(input.config.insert("unheard_of".to_owned(), value(rng))),
        4 if !names.is_empty() => drop(input.tensors.remove(rng.pick(&names))),
        _ if !names.is_empty() => {
            let shape = input.tensors.get_mut(rng.pick(&names)).expect("the name is one of its keys");
            match shape.is_empty() || rng.one_in(4) {
                true => shape.push(1 + rng.below(64)),
                false => {
                    let i = rng.below(shape.len());
                    shape[i] = *rng.pick(&[0, 1, 3, shape[i] + 1, shape[i] * 2, 1 << 31]);
                }
            }
        }
        _ => {}
    }
}

fn value(rng: &mut Rng) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1),
        json!(3),
        json!(0.5),
        json!(1e300),
        json!(4_294_967_296_u64),
        json!(""),
        json!("silu"),
        json!([]),
        json!([1, "two", null]),
        json!({}),
        json!({ "rope_type": "yarn" }),
    ];
    rng.pick(&values).clone()
}
