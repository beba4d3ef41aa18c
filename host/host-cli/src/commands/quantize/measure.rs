//! Measures how much each group of tensors matters, and makes rules or a plugin's params from that.
//!
//! The model runs over a text as it is, then once for each group with that group alone quantised; the mean
//! Kullback-Leibler divergence of the next-token distributions is the group's sensitivity.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use host_core::Report;
use host_core::quant::{Role, Scheme, TensorFacts};
use host_device::{CompileOptions, Executable, LogitsFor, TokenRun};
use host_registry::{
    Composition, LayerRange, Measured, QuantRule, QuantRules, Roles, SchemeText, rules_text,
};
use host_service::{Described, Host, Located, tokenizer};
use host_weights::Checkpoint;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::assign::{Group, assign};
use super::{affine, refused};
use crate::args::QuantizeArgs;
use crate::error::{CliError, Failure};
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

    fn part(&self) -> &'static str {
        match self.roles.as_slice() {
            [role] => role.name(),
            roles if roles == ATTENTION => "attention",
            _ => "mlp",
        }
    }

    fn name(&self) -> String {
        let part = self.part();
        self.layer.map_or(part.to_owned(), |layer| format!("layer {layer} {part}"))
    }
}

/// What was measured of one checkpoint.
pub(super) struct Sensitivities {
    facts: Vec<TensorFacts>,
    members: BTreeMap<Key, Vec<usize>>,
    /// Of each of `members`.
    groups: Vec<Group>,
}

/// Measures every group.
///
/// # Errors
/// A text that is too short, and all that can go wrong with running the model.
pub(super) fn measure(
    host: &Host,
    located: &Located,
    composition: &Composition,
    published: Described,
    settings: &Settings,
) -> Result<(Described, Sensitivities), Failure> {
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
    Ok((Described { checkpoint, graph }, Sensitivities { facts, members, groups }))
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

impl Sensitivities {
    /// For `--json`, with the bits that each group gets by these schemes; null for a scheme that is not affine.
    pub(super) fn summary(&self, settings: &Settings, schemes: &[Scheme]) -> Value {
        let told = |((key, tensors), group): ((&Key, &Vec<usize>), &Group)| {
            let bits = match schemes[tensors[0]] {
                Scheme::Affine { bits, .. } => Some(bits),
                _ => None,
            };
            json!({ "group": key.name(), "kl": group.kl, "bits": bits, "weights": group.weights })
        };
        let groups: Vec<Value> = self.members.iter().zip(&self.groups).map(told).collect();
        json!({ "tokens": settings.n_tokens, "groups": groups })
    }

    /// What a quantisation plugin is told beside its own params: the budget, the widths that were measured, and each
    /// group's divergence, `attention` and `mlp` by layer. A layer without such a group has 0 there.
    ///
    /// # Errors
    /// A part that belongs to layers in some tensors and to none in others.
    pub(super) fn params(&self, settings: &Settings) -> Result<Map<String, Value>, Failure> {
        let mut kl = Map::new();
        for (key, group) in self.members.keys().zip(&self.groups) {
            let Some(layer) = key.layer else {
                kl.insert(key.part().to_owned(), json!(group.kl));
                continue;
            };
            let Value::Array(by_layer) = kl.entry(key.part()).or_insert_with(|| json!([])) else {
                let message = format!("some `{}` tensors belong to a layer and others to none", key.part());
                return Err(Report::new("quant.layers-unclear", message)
                    .mend("measure without --plugin")
                    .into());
            };
            by_layer.resize(by_layer.len().max(layer + 1), json!(0.0));
            by_layer[layer] = json!(group.kl);
        }
        let pairs = [
            ("budget_bits_per_weight", json!(settings.budget_bits)),
            ("bits", json!(settings.low_bits)),
            ("group_size", json!(settings.group_size)),
            ("kl", Value::Object(kl)),
        ];
        Ok(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// How the figures were made, for people.
    pub(super) fn notes(&self, settings: &Settings) -> [String; 2] {
        [
            format!(
                "Measured over {} tokens of {}, each group alone at {}.",
                settings.n_tokens,
                settings.text.display(),
                settings.low
            ),
            "kl: mean Kullback-Leibler divergence of the next-token distribution, in nats a token."
                .to_owned(),
        ]
    }

    /// Rules within the budget.
    ///
    /// # Errors
    /// A budget that is too small.
    pub(super) fn rules(&self, checkpoint: &Checkpoint, settings: &Settings) -> Result<QuantRules, Failure> {
        let widths = self.widths(checkpoint, settings)?;
        let mut made: Vec<_> = self.kept_by_name().map(|name| kept(name.to_owned())).collect();
        let n_kept_by_name = made.len();
        for ((key, group), bits) in self.members.keys().zip(&self.groups).zip(widths) {
            made.push(QuantRule {
                match_: "*.weight".to_owned(),
                role: Some(Roles(key.roles.clone())),
                layers: key.layer.map(LayerRange::one),
                scheme: SchemeText(affine(bits.into(), settings.group_size)?),
                measured: Some(Measured { bits: settings.low_bits.into(), kl: group.kl }),
            });
        }
        if self.facts.len() > n_kept_by_name + self.members.values().map(Vec::len).sum::<usize>() {
            made.push(kept("*".to_owned()));
        }
        let about =
            format!("Mixed precision within {} bits a weight, by measured divergence", settings.budget_bits);
        let text = rules_text("measured", &about, &self.notes(settings), &made);
        Ok(QuantRules::parse("measured rules", &text)?)
    }

    /// A width for each group.
    fn widths(&self, checkpoint: &Checkpoint, settings: &Settings) -> Result<Vec<u8>, Failure> {
        let weights: usize = self.facts.iter().map(TensorFacts::elements).sum();
        let kept = checkpoint.catalogue().iter().enumerate().filter(|(at, _)| !self.is_member(*at));
        let kept: u64 = kept.map(|(_, info)| info.bytes).sum();
        // Scale and bias of a group have the dtype of the tensor's numbers; a wider one counts where they differ.
        let dtypes = self.members.values().flatten().map(|at| self.facts[*at].dtype.size_bytes());
        let value_bits = 16.0 * dtypes.max().unwrap_or(4) as f64 / settings.group_size as f64;
        let budget = settings.budget_bits * weights as f64 / 8.0 - kept as f64;
        assign(&self.groups, settings.low_bits, value_bits, budget).ok_or_else(|| {
            let all: u64 = self.groups.iter().map(|group| group.weights).sum();
            let least = kept as f64 + all as f64 * (f64::from(settings.low_bits) + value_bits) / 8.0;
            let least = least * 8.0 / weights as f64;
            refused(
                "--budget-bits-per-weight",
                "what the narrowest widths need, or lower --low-bits",
                format!(
                    "{}, but all groups at {} bits need {least:.3}",
                    settings.budget_bits, settings.low_bits
                ),
            )
        })
    }

    fn is_member(&self, at: usize) -> bool {
        self.members.values().any(|tensors| tensors.contains(&at))
    }

    /// Tensors of a measured role that cannot take the scheme: kept by name, before their role's rule comes.
    fn kept_by_name(&self) -> impl Iterator<Item = &str> {
        let is_measured =
            |tensor: &TensorFacts| self.members.keys().any(|key| key.roles.contains(&tensor.role));
        let facts = self.facts.iter().enumerate();
        let kept = facts.filter(move |(at, tensor)| !self.is_member(*at) && is_measured(tensor));
        kept.map(|(_, tensor)| tensor.name.as_str())
    }
}

/// The rule that keeps what a glob matches.
pub(super) fn kept(match_: String) -> QuantRule {
    QuantRule { match_, role: None, layers: None, scheme: SchemeText(Scheme::Keep), measured: None }
}
