//! Measures how much each group of tensors matters, and makes rules from that.
//!
//! The model runs over a text as it is, then once for each group with that group alone quantised; the mean
//! Kullback-Leibler divergence of the next-token distributions is the group's sensitivity.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use host_core::quant::{Role, Scheme, TensorFacts};
use host_device::{CompileOptions, Executable, LogitsFor, TokenRun};
use host_registry::{
    Composition, LayerRange, Measured, QuantRule, QuantRules, Roles, SchemeText, measured_text,
};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::assign::{Group, assign};
use super::{affine, refused};
use crate::args::QuantizeArgs;
use crate::error::{CliError, Failure};
use crate::host::Host;
use crate::open::{Described, Located, tokenizer};
use crate::progress::steps_bar;

/// Tokens of one step: their logits are in memory together.
pub(super) const STEP_TOKENS: usize = 64;
/// Fewer tokens say nothing.
const FEWEST_TOKENS: usize = 16;

const ATTENTION: [Role; 4] = [Role::AttentionQ, Role::AttentionK, Role::AttentionV, Role::AttentionO];
const FEED_FORWARD: [Role; 4] = [Role::MlpGate, Role::MlpUp, Role::MlpDown, Role::Expert];

/// What is asked for.
pub(super) struct Settings {
    text: PathBuf,
    n_tokens: usize,
    budget_bits: f64,
    low: Scheme,
    low_bits: u8,
    group_size: u64,
}

impl Settings {
    /// # Errors
    /// Flags outside their ranges.
    pub(super) fn of(args: &QuantizeArgs) -> Result<Settings, Failure> {
        let (Some(text), Some(budget_bits)) = (args.measure.clone(), args.budget_bits_per_weight) else {
            unreachable!("the command line asks for both or neither")
        };
        if !(budget_bits > 0.0 && budget_bits <= 32.0) {
            return Err(refused("--budget-bits-per-weight", "above 0 and at most 32", budget_bits));
        }
        if args.calibration_tokens < FEWEST_TOKENS {
            return Err(refused("--calibration-tokens", "at least 16", args.calibration_tokens));
        }
        let low = affine(args.low_bits, args.group_size)?;
        let Scheme::Affine { bits: low_bits, .. } = low else { unreachable!("made affine") };
        let (n_tokens, group_size) = (args.calibration_tokens, args.group_size);
        Ok(Settings { text, n_tokens, budget_bits, low, low_bits, group_size })
    }
}

/// Rules, and what is told of them.
pub(super) struct Measurement {
    pub(super) rules: QuantRules,
    pub(super) summary: Value,
}

/// Tensors that get one width.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    layer: Option<usize>,
    roles: Vec<Role>,
}

impl Key {
    /// The group of a tensor that can be quantised; none for tensors that are kept.
    fn of(tensor: &TensorFacts, low: Scheme) -> Option<Key> {
        let roles = match tensor.role {
            role if ATTENTION.contains(&role) => ATTENTION.to_vec(),
            role if FEED_FORWARD.contains(&role) => FEED_FORWARD.to_vec(),
            role @ (Role::Embedding | Role::Head) => vec![role],
            _ => return None,
        };
        low.check(tensor).is_ok().then_some(Key { layer: tensor.layer, roles })
    }

    fn name(&self) -> String {
        let part = match self.roles.as_slice() {
            [role] => role.name(),
            roles if roles == ATTENTION => "attention",
            _ => "mlp",
        };
        self.layer.map_or(part.to_owned(), |layer| format!("layer {layer} {part}"))
    }
}

/// Measures every group and makes the rules.
///
/// # Errors
/// A text that is too short, a budget that is too small, and all that can go wrong with running the model.
pub(super) fn measure(
    host: &Host,
    located: &Located,
    composition: &Composition,
    published: Described,
    settings: &Settings,
) -> Result<(Described, Measurement), Failure> {
    let tokens = calibration_tokens(located, &published, settings)?;
    let facts = published.tensor_facts();
    let mut members: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (at, tensor) in facts.iter().enumerate() {
        if let Some(key) = Key::of(tensor, settings.low) {
            members.entry(key).or_default().push(at);
        }
    }
    let bar = steps_bar("measuring", members.len() as u64 + 1);
    let Described { mut checkpoint, graph } = published;
    let run = |checkpoint: &_| -> Result<Run, Failure> {
        let options = composition.options();
        Ok(Run {
            executable: host.device(composition).compile(&graph, checkpoint, options, &mut |_, _| ())?,
            options,
        })
    };
    let reference = run(&checkpoint)?.log_probabilities(&tokens)?;
    bar.inc(1);
    let mut groups = Vec::new();
    for (key, tensors) in &members {
        bar.set_message(format!("measuring {}", key.name()));
        let mut schemes = vec![Scheme::Keep; facts.len()];
        tensors.iter().for_each(|at| schemes[*at] = settings.low);
        checkpoint = checkpoint.quantised(&schemes)?;
        let kl = run(&checkpoint)?.divergence(&tokens, &reference)?;
        let weights = tensors.iter().map(|at| facts[*at].elements() as u64).sum();
        groups.push(Group { weights, kl });
        tell_plainly(&bar, &key.name(), kl);
        bar.inc(1);
    }
    bar.finish_and_clear();
    checkpoint = checkpoint.quantised(&vec![Scheme::Keep; facts.len()])?;
    let rules = rules(&checkpoint, &facts, &members, &groups, settings)?;
    Ok((Described { checkpoint, graph }, rules))
}

/// A line for those who see no bar.
fn tell_plainly(bar: &ProgressBar, name: &str, kl: f64) {
    if bar.is_hidden() {
        eprintln!("{name}: KL {kl:.6}");
    }
}

fn calibration_tokens(
    located: &Located,
    published: &Described,
    settings: &Settings,
) -> Result<Vec<u32>, Failure> {
    let text = fs::read_to_string(&settings.text).map_err(CliError::file("read", &settings.text))?;
    let mut tokens = tokenizer(&located.model.path, &published.checkpoint)?.encode(&text, true, false)?;
    if tokens.len() < settings.n_tokens {
        let expected = "a text of at least --calibration-tokens tokens";
        return Err(refused("--measure", expected, format!("a text of {} tokens", tokens.len())));
    }
    tokens.truncate(settings.n_tokens);
    Ok(tokens)
}

/// One compiled form of the model.
struct Run<'a> {
    executable: Box<dyn Executable>,
    options: &'a CompileOptions,
}

impl Run<'_> {
    /// Hands each position's logits, which it may change, to `each`, in order.
    fn for_each_row(mut self, tokens: &[u32], mut each: impl FnMut(&mut Vec<f32>)) -> Result<(), Failure> {
        let sequence = self.executable.new_sequence()?;
        let mut row = Vec::new();
        for tokens in tokens.chunks(self.options.max_step_tokens) {
            let logits = self.executable.step(&[TokenRun { sequence, tokens, logits: LogitsFor::All }])?;
            for at in 0..logits.n_rows() {
                logits.read(at, &mut row);
                each(&mut row);
            }
        }
        Ok(())
    }

    fn log_probabilities(self, tokens: &[u32]) -> Result<Vec<Vec<f32>>, Failure> {
        let mut rows = Vec::with_capacity(tokens.len());
        self.for_each_row(tokens, |row| {
            log_softmax(row);
            rows.push(row.clone());
        })?;
        Ok(rows)
    }

    /// The mean of `sum p (log p - log q)` over all positions, in nats.
    fn divergence(self, tokens: &[u32], reference: &[Vec<f32>]) -> Result<f64, Failure> {
        let (mut sum, mut rows) = (0.0, reference.iter());
        self.for_each_row(tokens, |row| {
            log_softmax(row);
            let log_p = rows.next().expect("as many rows as the reference has");
            sum += log_p.iter().zip(row).map(|(p, q)| f64::from(p.exp() * (p - *q))).sum::<f64>();
        })?;
        // Rounding may leave a divergence of next to nothing below zero.
        Ok((sum / reference.len() as f64).max(0.0))
    }
}

fn log_softmax(row: &mut [f32]) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|logit| f64::from((logit - largest).exp())).sum();
    let log_sum = largest + sum.ln() as f32;
    row.iter_mut().for_each(|logit| *logit -= log_sum);
}

fn rules(
    checkpoint: &host_weights::Checkpoint,
    facts: &[TensorFacts],
    members: &BTreeMap<Key, Vec<usize>>,
    groups: &[Group],
    settings: &Settings,
) -> Result<Measurement, Failure> {
    let weights: usize = facts.iter().map(TensorFacts::elements).sum();
    let is_member = |at: &usize| members.values().any(|tensors| tensors.contains(at));
    let kept: u64 = checkpoint
        .catalogue()
        .iter()
        .enumerate()
        .filter(|(at, _)| !is_member(at))
        .map(|(_, info)| info.bytes)
        .sum();
    // Scale and bias of a group have the dtype of the tensor's numbers; a wider one counts where they differ.
    let dtypes = members.values().flatten().map(|at| facts[*at].dtype.size_bytes());
    let value_bits = 16.0 * dtypes.max().unwrap_or(4) as f64 / settings.group_size as f64;
    let budget = settings.budget_bits * weights as f64 / 8.0 - kept as f64;
    let widths = assign(groups, settings.low_bits, value_bits, budget).ok_or_else(|| {
        let all: u64 = groups.iter().map(|group| group.weights).sum();
        let least = kept as f64 + all as f64 * (f64::from(settings.low_bits) + value_bits) / 8.0;
        let least = least * 8.0 / weights as f64;
        refused(
            "--budget-bits-per-weight",
            "what the narrowest widths need, or lower --low-bits",
            format!("{}, but all groups at {} bits need {least:.3}", settings.budget_bits, settings.low_bits),
        )
    })?;
    // A tensor of a measured role that cannot take the scheme is kept by name, before its role's rule comes.
    let keep = SchemeText(Scheme::Keep);
    let kept_rule =
        |match_: String| QuantRule { match_, role: None, layers: None, scheme: keep, measured: None };
    let is_measured = |tensor: &TensorFacts| members.keys().any(|key| key.roles.contains(&tensor.role));
    let mut made: Vec<_> = (0..facts.len())
        .filter(|at| !is_member(at) && is_measured(&facts[*at]))
        .map(|at| kept_rule(facts[at].name.clone()))
        .collect();
    let n_kept_by_name = made.len();
    let mut told = Vec::new();
    for ((key, group), bits) in members.keys().zip(groups).zip(widths) {
        told.push(json!({ "group": key.name(), "kl": group.kl, "bits": bits, "weights": group.weights }));
        made.push(QuantRule {
            match_: "*.weight".to_owned(),
            role: Some(Roles(key.roles.clone())),
            layers: key.layer.map(LayerRange::one),
            scheme: SchemeText(affine(bits.into(), settings.group_size)?),
            measured: Some(Measured { bits: settings.low_bits.into(), kl: group.kl }),
        });
    }
    if facts.len() > n_kept_by_name + members.values().map(Vec::len).sum::<usize>() {
        made.push(kept_rule("*".to_owned()));
    }
    let about =
        format!("Mixed precision within {} bits a weight, by measured divergence", settings.budget_bits);
    let notes = [
        format!(
            "Measured over {} tokens of {}, each group alone at {}.",
            settings.n_tokens,
            settings.text.display(),
            settings.low
        ),
        "kl: mean Kullback-Leibler divergence of the next-token distribution, in nats a token.".to_owned(),
    ];
    let text = measured_text("measured", &about, &notes, &made);
    let rules = QuantRules::parse("measured rules", &text)?;
    Ok(Measurement { rules, summary: json!({ "tokens": settings.n_tokens, "groups": told }) })
}
