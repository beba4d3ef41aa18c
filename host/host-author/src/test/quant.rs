//! One case of a quantisation profile: the schemes or the refusal, twice the same, and tensors that take no codes.

use host_core::quant::{QuantError, Role, Scheme, TensorFacts};
use host_core::{DType, Report, Reported};
use host_plugins::{Budget, PluginError, PluginPackage, QuantPlugin};
use serde_json::{Map, Value};

use super::{CaseResult, not_refused, one_line};
use crate::case::Placed;
use crate::case::quant::QuantCase;
use crate::error::AuthorError;
use crate::judge;
use crate::tools::Tools;

/// Runs one case.
pub(super) fn run(
    tools: &Tools,
    package: &PluginPackage,
    placed: &Placed<QuantCase>,
) -> Result<Vec<CaseResult>, AuthorError> {
    let tensors = placed.tensors()?;
    let plugin = tools.quant(package, Budget::default())?;
    let QuantCase { config, params, refused, about, .. } = &placed.case;
    let input = QuantInput { config, params };
    let failure = match refused {
        Some(code) => is_refused(&*plugin, input, code).err(),
        None => judge_case(&*plugin, input, &tensors).err(),
    };
    Ok(vec![CaseResult::plain(placed, about, failure.into_iter().collect())])
}

/// What the hook gets beside the tensors.
#[derive(Clone, Copy)]
pub(crate) struct QuantInput<'a> {
    pub(crate) config: &'a Map<String, Value>,
    pub(crate) params: &'a Map<String, Value>,
}

/// One plan.
pub(crate) fn plan(
    plugin: &dyn QuantPlugin,
    input: QuantInput<'_>,
    tensors: &[TensorFacts],
) -> Result<Vec<Scheme>, PluginError> {
    let text = |object: &Map<String, Value>| Value::Object(object.clone()).to_string();
    plugin.plan(&text(input.config), &text(input.params), tensors)
}

fn is_refused(plugin: &dyn QuantPlugin, input: QuantInput<'_>, code: &str) -> Result<(), Report> {
    match plan(plugin, input, &[]) {
        Ok(_) => Err(not_refused("plan", code, "a plan".to_owned())),
        Err(error) if error.report().code == code => Ok(()),
        Err(error) => Err(not_refused("plan", code, one_line(&error))),
    }
}

fn judge_case(
    plugin: &dyn QuantPlugin,
    input: QuantInput<'_>,
    expected: &[(TensorFacts, Scheme)],
) -> Result<(), Report> {
    let tensors: Vec<TensorFacts> = expected.iter().map(|(tensor, _)| tensor.clone()).collect();
    let schemes = legal_plan(plugin, input, &tensors)?.map_err(|error| error.report())?;
    for ((tensor, wanted), found) in expected.iter().zip(&schemes) {
        if wanted != found {
            return Err(Report::new("author.case-failed", format!("`{}` gets another scheme", tensor.name))
                .expected(wanted.to_string())
                .found(found.to_string()));
        }
    }
    is_repeated(plugin, input, &tensors)?;
    let odd = [tensors, odd_tensors()].concat();
    match legal_plan(plugin, input, &odd)? {
        Err(error) if !judge::is_clean(&error) => {
            Err(error.report().note("with tensors that take no codes among the others"))
        }
        _ => Ok(()),
    }
}

/// A plan whose schemes their tensors can take, or the plugin's own error.
///
/// # Errors
/// The [`Report`] of a plan that no host applies.
pub(crate) fn legal_plan(
    plugin: &dyn QuantPlugin,
    input: QuantInput<'_>,
    tensors: &[TensorFacts],
) -> Result<Result<Vec<Scheme>, PluginError>, Report> {
    let schemes = match plan(plugin, input, tensors) {
        Ok(schemes) => schemes,
        Err(error) => return Ok(Err(error)),
    };
    if schemes.len() != tensors.len() {
        return Err(QuantError::Count { expected: tensors.len(), found: schemes.len() }.report());
    }
    for (scheme, tensor) in schemes.iter().zip(tensors) {
        scheme.check(tensor).map_err(|error| error.report())?;
    }
    Ok(Ok(schemes))
}

/// Two plans for the same tensors are the same.
pub(crate) fn is_repeated(
    plugin: &dyn QuantPlugin,
    input: QuantInput<'_>,
    tensors: &[TensorFacts],
) -> Result<(), Report> {
    let [first, second] = [(); 2].map(|()| outcome(&plan(plugin, input, tensors)));
    if first == second {
        return Ok(());
    }
    Err(Report::new("author.not-deterministic", "two plans for the same tensors differ")
        .expected(first)
        .found(second)
        .mend("let `plan` depend on its arguments alone"))
}

/// A plan, or an error, on one line: what two plans are compared by.
pub(crate) fn outcome(found: &Result<Vec<Scheme>, PluginError>) -> String {
    match found {
        Ok(schemes) => schemes.iter().map(Scheme::to_string).collect::<Vec<_>>().join("; "),
        Err(error) => one_line(error),
    }
}

/// One of each kind that can only be kept.
fn odd_tensors() -> Vec<TensorFacts> {
    let tensor = |name: &str, shape: &[usize], dtype, role| TensorFacts {
        name: name.to_owned(),
        shape: shape.to_vec(),
        dtype,
        role,
        layer: None,
    };
    vec![
        tensor("model.norm.weight", &[256], DType::BF16, Role::Norm),
        tensor("model.layers.0.self_attn.rotary_emb.inv_freq", &[2, 64], DType::F32, Role::Other),
        tensor("model.layers.0.mlp.up_proj.weight", &[64, 129], DType::BF16, Role::MlpUp),
        tensor("model.layers.0.mlp.gate_proj.weight", &[0, 64], DType::BF16, Role::MlpGate),
        tensor("model.layers.0.mlp.down_proj.weight", &[64, 64], DType::I32, Role::MlpDown),
        tensor("lm_head.bias", &[512], DType::BF16, Role::Bias),
    ]
}
