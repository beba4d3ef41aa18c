//! Checkpoints at random: names as models have them, any shape, dtype and role.

use host_core::quant::{Role, TensorFacts};
use host_core::{DType, Report};
use host_plugins::{Budget, PluginPackage, QuantPlugin};

use super::Sequence;
use super::rng::Rng;
use crate::case::quant::QuantCase;
use crate::case::{self, Placed};
use crate::error::AuthorError;
use crate::judge;
use crate::project::Project;
use crate::test::quant::{QuantInput, is_repeated, legal_plan, outcome, plan};
use crate::tools::Tools;
use crate::trace::{Body, QuantTrace, TensorText};

/// Tensors of one checkpoint at most.
const MAX_TENSORS: usize = 24;

/// The plugin with the params of its cases.
pub(super) struct Subject {
    plugin: Box<dyn QuantPlugin>,
    cases: Vec<Placed<QuantCase>>,
}

impl Subject {
    pub(super) fn new(
        project: &Project,
        tools: &Tools,
        package: &PluginPackage,
    ) -> Result<Self, AuthorError> {
        let cases = case::read_all::<QuantCase>(project.folder())?;
        Ok(Subject { plugin: tools.quant(package, Budget::default())?, cases })
    }

    /// Checkpoint number `n` of a seed.
    pub(super) fn sequence(&self, seed: u64, n: u64) -> Sequence {
        let mut rng = Rng::new(seed, n);
        let case = &rng.pick(&self.cases).case;
        let tensors: Vec<TensorFacts> = (0..rng.below(MAX_TENSORS + 1)).map(|_| tensor(&mut rng)).collect();
        let input = QuantInput { config: &case.config, params: &case.params };
        let finding = judge_plan(&*self.plugin, input, &tensors).err().map(|report| {
            let trace = QuantTrace {
                config: case.config.clone(),
                params: case.params.clone(),
                tensors: tensors.iter().map(TensorText::from).collect(),
                outcome: outcome(&plan(&*self.plugin, input, &tensors)),
            };
            (report, Body::QuantProfile(trace))
        });
        Sequence { steps: 1, finding }
    }
}

/// A plan fits its tensors or is cleanly refused, and is made again.
pub(crate) fn judge_plan(
    plugin: &dyn QuantPlugin,
    input: QuantInput<'_>,
    tensors: &[TensorFacts],
) -> Result<(), Report> {
    if let Some(error) = legal_plan(plugin, input, tensors)?.err().filter(|error| !judge::is_clean(error)) {
        return Err(judge::unclean(&error, "a checkpoint that does not fit"));
    }
    is_repeated(plugin, input, tensors)
}

fn tensor(rng: &mut Rng) -> TensorFacts {
    let (role, role_name) = *rng.pick(&Role::ALL);
    let layer = (!rng.one_in(4)).then(|| rng.below(40));
    let place = layer.map_or("model".to_owned(), |layer| format!("model.layers.{layer}"));
    let end = rng.pick(&["weight", "weight", "weight", "bias", "scales"]);
    let dims = [0, 1, 16, 32, 48, 64, 96, 128, 256, 4096];
    let dtype = match rng.below(4) {
        0 => rng.pick(&DType::ALL).0,
        usual => [DType::BF16, DType::F16, DType::F32][usual - 1],
    };
    TensorFacts {
        name: format!("{place}.{role_name}.{end}"),
        shape: (0..rng.below(4)).map(|_| *rng.pick(&dims)).collect(),
        dtype,
        role,
        layer,
    }
}
